//! Checks by a batch's head, before it is decoded, whether the caller may send for its origin.

use crate::auth::caller::Rights;
use model::{Origin, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Result of the access check for an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The caller may send for it. The content of a batch may still be rejected.
    Allowed,
    /// The caller may not send for it, for this reason.
    Forbidden(String),
    /// The registry of jobs must decide, and has not been queried yet.
    Undecided,
}

/// The origins that the caller of a request may send for.
#[derive(Debug)]
pub(crate) struct Senders {
    rights: Rights,
    /// Decisions of the registry on a user's origins: the start of the job, or the reason for the
    /// rejection.
    decided: Mutex<HashMap<Origin, Result<Timestamp, String>>>,
    /// Whether further queries to the registry are disabled for this request.
    closed: AtomicBool,
}

impl Senders {
    pub(crate) fn of(rights: Rights) -> Self {
        Self { rights, decided: Mutex::default(), closed: AtomicBool::new(false) }
    }

    /// Checks whether the caller may send for an origin.
    pub(crate) fn access(&self, origin: &Origin) -> Access {
        if self.rights.appends_of(origin) {
            return Access::Allowed;
        }
        if !matches!(self.rights, Rights::User(_) | Rights::StaffUser(_)) {
            let why = format!("this token or certificate is not that of origin {origin}");
            return Access::Forbidden(why);
        }
        match self.decided().get(origin) {
            Some(Ok(_)) => Access::Allowed,
            Some(Err(why)) => Access::Forbidden(why.clone()),
            None if self.closed.load(Ordering::Relaxed) => Access::Forbidden(String::new()),
            None => Access::Undecided,
        }
    }

    /// Records the registry's decision on a user's origin.
    pub(crate) fn decide(&self, origin: Origin, decision: Result<Timestamp, String>) {
        self.decided().insert(origin, decision);
    }

    /// Forbids every undecided origin.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns the start of the job of a user's origin, if the user may send for it.
    pub(crate) fn job_start(&self, origin: &Origin) -> Option<Timestamp> {
        self.decided().get(origin)?.as_ref().ok().copied()
    }

    fn decided(&self) -> MutexGuard<'_, HashMap<Origin, Result<Timestamp, String>>> {
        self.decided.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_origin_waits_for_the_registry_and_a_nodes_does_not() {
        let [own, other] = ["n1", "n2"].map(|name| Origin::new(name).unwrap());
        let node = Senders::of(Rights::Agent(Some(own.clone())));
        assert_eq!(node.access(&own), Access::Allowed);
        assert!(matches!(node.access(&other), Access::Forbidden(why) if why.contains("n2")));
        assert_eq!(Senders::of(Rights::Agent(None)).access(&other), Access::Allowed);
        let user = Senders::of(Rights::User(7));
        assert_eq!(user.access(&own), Access::Undecided);
        user.decide(own.clone(), Ok(Timestamp(5)));
        user.decide(other.clone(), Err("no job".to_owned()));
        assert_eq!(
            (user.access(&own), user.job_start(&own)),
            (Access::Allowed, Some(Timestamp(5)))
        );
        assert_eq!(user.access(&other), Access::Forbidden("no job".to_owned()));
        assert_eq!(user.job_start(&other), None);
        user.close();
        assert_eq!(user.access(&own), Access::Allowed);
        assert!(matches!(user.access(&Origin::new("n3").unwrap()), Access::Forbidden(_)));
    }
}
