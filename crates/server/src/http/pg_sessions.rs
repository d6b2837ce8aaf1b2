//! Sessions of PostgreSQL's protocol: their limits, and the keys that cancel their statements.

use crate::common::pg_counts::PgCounts;
use crate::http::connection_limits::{ConnectionLimits, LimitPerKey};
use config::PgSettings;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Length of a key in bytes, as version 3.0 of the protocol has it.
const SECRET_BYTES: usize = 4;

/// State of all sessions.
#[derive(Debug)]
pub(crate) struct PgSessions {
    pub(crate) counts: PgCounts,
    /// Connections, in total and of each peer.
    pub(crate) seats: ConnectionLimits,
    /// Sessions of each user or token.
    pub(crate) users: LimitPerKey<Arc<str>>,
    pub(crate) idle_max: Duration,
    open: Mutex<HashMap<u32, CancelKey>>,
}

#[derive(Debug)]
struct CancelKey {
    secret: [u8; SECRET_BYTES],
    /// Counts the requests to cancel.
    requests: watch::Sender<u64>,
}

/// An open session. Dropping it forgets its key.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) id: u32,
    pub(crate) secret: [u8; SECRET_BYTES],
    /// Changes when a client requests to cancel the statement.
    pub(crate) cancels: watch::Receiver<u64>,
    sessions: Arc<PgSessions>,
}

impl PgSessions {
    pub(crate) fn new(settings: &PgSettings) -> Self {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let per_user = size(settings.connections_per_user_max);
        Self {
            counts: PgCounts::default(),
            seats: ConnectionLimits::new(size(settings.connections_max), per_user),
            users: LimitPerKey::new(per_user),
            idle_max: settings.idle_max,
            open: Mutex::default(),
        }
    }

    /// Opens a session with a random ID and key; none if the system has no random numbers.
    pub(crate) fn open(self: &Arc<Self>) -> Option<OpenSession> {
        let (to, cancels) = watch::channel(0);
        let mut open = self.open.lock();
        loop {
            let (mut id, mut secret) = ([0; 4], [0; SECRET_BYTES]);
            SystemRandom::new().fill(&mut id).ok()?;
            SystemRandom::new().fill(&mut secret).ok()?;
            // Some clients read the ID as a number with a sign.
            let id = u32::from_be_bytes(id) >> 1;
            if id != 0 && !open.contains_key(&id) {
                open.insert(id, CancelKey { secret, requests: to });
                return Some(OpenSession { id, secret, cancels, sessions: Arc::clone(self) });
            }
        }
    }

    /// Cancels the statement of a session, if this is its key.
    pub(crate) fn cancel(&self, id: u32, secret: &[u8]) -> bool {
        let open = self.open.lock();
        let Some(key) = open.get(&id) else { return false };
        // All bytes are compared, so that the time reveals none.
        let differ = key.secret.iter().zip(secret).fold(0, |bits, (a, b)| bits | (a ^ b));
        let is_key = secret.len() == SECRET_BYTES && differ == 0;
        if is_key {
            key.requests.send_modify(|count| *count += 1);
        }
        is_key
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.sessions.open.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_an_open_session_cancels() {
        let limits = (ConnectionLimits::new(1, 1), LimitPerKey::new(1));
        let sessions = Arc::new(PgSessions {
            counts: PgCounts::default(),
            seats: limits.0,
            users: limits.1,
            idle_max: Duration::from_secs(1),
            open: Mutex::default(),
        });
        let mut session = sessions.open().unwrap();
        let other = session.secret.map(|byte| byte ^ 1);
        assert!(!sessions.cancel(session.id, &other) && !sessions.cancel(session.id, &[]));
        assert!(!sessions.cancel(session.id ^ 1, &session.secret));
        assert!(!session.cancels.has_changed().unwrap());
        assert!(sessions.cancel(session.id, &session.secret));
        assert!(session.cancels.has_changed().unwrap());
        session.cancels.borrow_and_update();
        let (id, secret) = (session.id, session.secret);
        drop(session);
        assert!(!sessions.cancel(id, &secret), "it has ended");
    }
}
