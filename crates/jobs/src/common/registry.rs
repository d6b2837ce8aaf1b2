//! The registry: a file, its limits, and the users of the machine.

use crate::Users;
use rusqlite::Connection;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What bounds the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most visits of jobs to devices, over all time. About 160 bytes of disk each.
    pub visits_max: u64,
    /// Most visits of one job, and most nodes of one record.
    pub visits_per_job_max: u64,
    /// Most records of schedulers, over all time. About 400 bytes of disk each, and 100 for each of its
    /// nodes.
    pub records_max: u64,
    /// Most registered jobs of one user on one device that have not ended.
    pub open_local_max: i64,
    /// Most rows that a question gives.
    pub rows_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            visits_max: 20_000_000,
            visits_per_job_max: 65_536,
            records_max: 20_000_000,
            open_local_max: 512,
            rows_max: 100_000,
        }
    }
}

/// The users of the machine, as they are now.
pub(crate) type AskUsers = Box<dyn Fn() -> Users + Send + Sync>;

/// Which job ran where, when and for whom; kept in a SQLite file. Shared by reference between threads;
/// questions do not wait for writes. Every call may wait for the disk.
pub struct Registry {
    pub(crate) writer: Mutex<Connection>,
    pub(crate) reader: Mutex<Connection>,
    pub(crate) limits: Limits,
    pub(crate) users: AskUsers,
    pub(crate) identity: Box<str>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Registry {
    /// The identity of the server with this registry; empty where its file cannot be made.
    pub const fn identity(&self) -> &str {
        &self.identity
    }

    /// What bounds it.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The login name of a user's number, as it is now.
    pub fn user_name(&self, uid: u32) -> Option<Box<str>> {
        (self.users)().name(uid).map(Into::into)
    }

    /// The users of the machine, as they are now.
    pub fn users(&self) -> Users {
        (self.users)()
    }
}

/// A thread that panicked while it held the connection left its transaction rolled back, so the next may
/// go on.
pub(crate) fn lock(db: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    db.lock().unwrap_or_else(PoisonError::into_inner)
}
