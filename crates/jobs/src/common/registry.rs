//! The registry: a file, its limits, and the users of the machine.

use crate::Users;
use crate::common::write_budget::WriteBudgets;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::fmt;

/// Limits of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of visits over all time. A visit takes about 160 bytes on disk.
    pub visits_max: u64,
    /// Maximum number of visits of one job, and of nodes of one record.
    pub visits_per_job_max: u64,
    /// Maximum number of scheduler records over all time. A record takes about 400 bytes on disk, and 100
    /// bytes for each of its nodes.
    pub records_max: u64,
    /// Maximum number of open local jobs of one user on one device.
    pub open_local_max: i64,
    /// Maximum number of visits without a reported end on one device that no record names. Queries of running jobs
    /// read all of them.
    pub open_visits_max: u64,
    /// Maximum number of running allocations of the clusters of one token of scope `jobs`. A quarter of `rows_max`, at
    /// which queries of running jobs fail: 10 000 nodes with two jobs each have 20 000.
    pub reported_open_max: u64,
    /// Maximum cost of what a token of scope `jobs` writes at once: an update costs two, and each new node or step one. A
    /// job has at most 65 536 nodes.
    pub reported_writes_max: u64,
    /// How much of it is refilled in an hour: 20 000 jobs of one node, each with a start and an end.
    pub reported_writes_per_hour: u64,
    /// Maximum number of rows in an answer.
    pub rows_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            visits_max: 20_000_000,
            visits_per_job_max: 65_536,
            records_max: 20_000_000,
            open_local_max: 512,
            open_visits_max: 4096,
            reported_open_max: 25_000,
            reported_writes_max: 100_000,
            reported_writes_per_hour: 100_000,
            rows_max: 100_000,
        }
    }
}

/// Returns the current users of the machine.
pub(crate) type LoadUsers = Box<dyn Fn() -> Users + Send + Sync>;

/// The job registry in a SQLite file. Threads share it by reference. Queries do not wait for writes.
/// Every call may wait for the disk. A panic releases its lock and rolls its transaction back, so the
/// connections stay usable.
pub struct Registry {
    pub(crate) writer: Mutex<Connection>,
    pub(crate) reader: Mutex<Connection>,
    /// Short reads, on which acknowledgements and registrations depend. A long query holds `reader` and delays none
    /// of them.
    pub(crate) quick_reader: Mutex<Connection>,
    pub(crate) limits: Limits,
    pub(crate) users: LoadUsers,
    pub(crate) write_budgets: WriteBudgets,
    pub(crate) identity: Box<str>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Registry {
    /// Returns the server ID; empty if its file cannot be created.
    pub const fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the limits.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the current login name of a user ID.
    pub fn user_name(&self, uid: u32) -> Option<Box<str>> {
        (self.users)().name(uid).map(Into::into)
    }

    /// Returns the current users of the machine.
    pub fn users(&self) -> Users {
        (self.users)()
    }
}

/// Returns a number of the table of counts.
pub(crate) fn count(db: &Connection, name: &str) -> rusqlite::Result<u64> {
    let mut find = db.prepare_cached("SELECT value FROM counts WHERE name = ?1")?;
    let value: i64 = find.query_row([name], |row| row.get(0))?;
    Ok(value.unsigned_abs())
}
