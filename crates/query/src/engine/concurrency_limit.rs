//! Limits on running and waiting queries: of HTTP, of SQL, and other work of the server for its callers.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Limits on running and waiting queries. One user may take half of each, so that others are not starved.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    free: Arc<Semaphore>,
    running_max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    users: UsersByKey,
}

/// Permission to run. Dropping it lets the next query run.
#[derive(Debug)]
pub struct Permit {
    _one: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _presence: Present,
}

/// Reason why a query got no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPermit {
    /// The limit of waiting queries is reached.
    QueueFull,
    /// No permit became free in time.
    Timeout,
}

/// State of one user: their permits, and the number of their present and waiting queries.
#[derive(Debug)]
struct UserPermits {
    permits: Arc<Semaphore>,
    here: usize,
    waiting: usize,
}

type UsersByKey = Arc<Mutex<HashMap<Arc<str>, UserPermits>>>;

/// Registers a query of a user until it is dropped.
#[derive(Debug)]
struct Present {
    user_key: Arc<str>,
    users: UsersByKey,
}

impl Present {
    /// Calls a function with the state of the user.
    fn with<T>(&self, does: impl FnOnce(&mut UserPermits) -> T) -> Option<T> {
        let mut users = self.users.lock();
        users.get_mut(&self.user_key).map(does)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut users = self.users.lock();
        if let Some(one) = users.get_mut(&self.user_key) {
            one.here = one.here.saturating_sub(1);
            if one.here == 0 {
                users.remove(&self.user_key);
            }
        }
    }
}

/// Counts a waiting query until it is dropped.
struct Waiting<'a>(&'a AtomicUsize, &'a Present);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        self.1.with(|one| one.waiting = one.waiting.saturating_sub(1));
    }
}

impl ConcurrencyLimit {
    /// Creates the limits of running and waiting queries.
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        let free = Arc::new(Semaphore::new(running_max));
        let waiting = AtomicUsize::new(0);
        Self { free, running_max, waiting, waiting_max, users: UsersByKey::default() }
    }

    /// Waits for a permit of this user, at most for the given time.
    ///
    /// # Errors
    /// Too many queries wait already, or no permit became free in time.
    pub async fn acquire(&self, user_key: &Arc<str>, within: Duration) -> Result<Permit, NoPermit> {
        let (presence, own) = self.enter(user_key);
        let free = Arc::clone(&self.free);
        let mut got = Arc::clone(&own).try_acquire_owned().ok();
        if let Some(own) = got.take() {
            match Arc::clone(&free).try_acquire_owned() {
                Ok(one) => return Ok(Permit { _one: one, _own: own, _presence: presence }),
                Err(_) => got = Some(own),
            }
        }
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let own_waiting = presence.with(|one| {
            one.waiting += 1;
            one.waiting - 1
        });
        let waiting = Waiting(&self.waiting, &presence);
        if others >= self.waiting_max || own_waiting.is_none_or(|own| own >= half(self.waiting_max))
        {
            return Err(NoPermit::QueueFull);
        }
        let both = async {
            let own = match got {
                Some(own) => own,
                None => own.acquire_owned().await?,
            };
            Ok::<_, AcquireError>((own, free.acquire_owned().await?))
        };
        // The semaphores are never closed. `None` therefore means a timeout.
        let both = timeout(within, both).await.ok().and_then(Result::ok);
        drop(waiting);
        let (own, one) = both.ok_or(NoPermit::Timeout)?;
        Ok(Permit { _one: one, _own: own, _presence: presence })
    }

    fn enter(&self, user_key: &Arc<str>) -> (Present, Arc<Semaphore>) {
        let mut users = self.users.lock();
        let one = users.entry(Arc::clone(user_key)).or_insert_with(|| UserPermits {
            permits: Arc::new(Semaphore::new(half(self.running_max))),
            here: 0,
            waiting: 0,
        });
        one.here += 1;
        let permits = Arc::clone(&one.permits);
        drop(users);
        (Present { user_key: Arc::clone(user_key), users: Arc::clone(&self.users) }, permits)
    }

    /// Number of running queries.
    pub fn running(&self) -> usize {
        self.running_max.saturating_sub(self.free.available_permits())
    }

    /// Number of waiting queries.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Share of one user.
fn half(all: usize) -> usize {
    (all / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn one_user_leaves_half_of_the_permits_to_others() {
        let limit = Arc::new(ConcurrencyLimit::new(4, 8));
        let (one, other): (Arc<str>, Arc<str>) = ("uid 1".into(), "uid 2".into());
        let first = limit.acquire(&one, LONG).await.unwrap();
        let second = limit.acquire(&one, LONG).await.unwrap();
        let wait = |user_key: &Arc<str>| {
            let (limit, user_key) = (Arc::clone(&limit), Arc::clone(user_key));
            tokio::spawn(async move { limit.acquire(&user_key, LONG).await })
        };
        let more: Vec<_> = (0..4).map(|_| wait(&one)).collect();
        while limit.waiting() < 4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            limit.acquire(&one, LONG).await.unwrap_err(),
            NoPermit::QueueFull,
            "half of the waiting queries"
        );
        assert_eq!(limit.running(), 2);
        let none = Duration::ZERO;
        let others = (limit.acquire(&other, none).await, limit.acquire(&other, none).await);
        assert!(others.0.is_ok() && others.1.is_ok());
        assert_eq!(limit.acquire(&other, none).await.unwrap_err(), NoPermit::Timeout);
        drop((first, second, others));
        for permit in more {
            drop(permit.await.unwrap().unwrap());
        }
        assert_eq!((limit.running(), limit.waiting()), (0, 0));
        assert!(limit.users.lock().is_empty());
    }

    #[tokio::test]
    async fn a_user_who_disconnects_while_waiting_is_removed() {
        let limit = ConcurrencyLimit::new(1, 8);
        let one: Arc<str> = "uid 1".into();
        let held = limit.acquire(&one, LONG).await.unwrap();
        assert!(timeout(Duration::from_millis(10), limit.acquire(&one, LONG)).await.is_err());
        assert_eq!((limit.waiting(), limit.users.lock()[&one].here), (0, 1));
        drop(held);
        assert!(limit.acquire(&one, Duration::ZERO).await.is_ok());
    }
}
