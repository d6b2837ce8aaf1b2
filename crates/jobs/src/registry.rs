//! The registry itself: what nodes tell goes in.

use crate::store_visits::{Timed, Told, tell};
use crate::{RegistryError, Users, asked, oom_kills, schema};
use model::{JobEvent, Timestamp};
use rusqlite::{Connection, TransactionBehavior};
use std::fmt;
use std::path::Path;
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

/// What became of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Jobs that came to a device.
    pub began: u64,
    /// Jobs that left one.
    pub ended: u64,
    /// Events that said nothing new of where a job is.
    pub known: u64,
    /// Events, whatever else they said, by which a job's environment asks for metrics as nobody said before.
    pub asked: u64,
    /// Events that were refused: an impossible time, a local job that was registered for another device,
    /// or one visit too many of its job.
    pub refused: u64,
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
    identity: Box<str>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Registry {
    /// Opens the file, making it if need be. `users` tells the login name of a number, or the number of a
    /// name, when a job becomes known: both are kept as they were then. Of several processes only one may write.
    ///
    /// # Errors
    /// The file cannot be made or read, is no registry, or was written by a newer program.
    pub fn open(
        path: &Path,
        limits: Limits,
        users: impl Fn() -> Users + Send + Sync + 'static,
    ) -> Result<Self, RegistryError> {
        let writer = Mutex::new(schema::open(path)?);
        let reader = Mutex::new(schema::open_to_read(path)?);
        // Without one, jobs are told apart by their numbers alone.
        let identity = crate::identity::of(path).unwrap_or_default();
        Ok(Self { writer, reader, limits, users: Box::new(users), identity })
    }

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

    /// Takes in what nodes saw, received at `received`, in one transaction: on disk when this returns.
    /// Events may come twice, late and in any order; what is refused is counted and the rest is kept.
    ///
    /// # Errors
    /// SQLite fails or the registry is full: then nothing of it is kept, and it can be told again.
    pub fn apply(
        &self,
        events: &[JobEvent],
        received: Timestamp,
    ) -> Result<Applied, RegistryError> {
        self.apply_by(events, received, 0)
    }

    /// The same of a node whose clock is known to be so many microseconds ahead of the server's: what it saw is
    /// kept by its clock, and joined with what schedulers say by the server's.
    ///
    /// # Errors
    /// As [`Registry::apply`].
    pub fn apply_by(
        &self,
        events: &[JobEvent],
        received: Timestamp,
        clock_us: i64,
    ) -> Result<Applied, RegistryError> {
        let mut applied = Applied::default();
        if events.is_empty() {
            return Ok(applied);
        }
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for event in events {
            let told = if possible(event, clock_us, received) {
                tell(&change, Timed { event, clock_us }, &self.limits, &self.users)?
            } else {
                Told::Refused
            };
            if told != Told::Refused {
                applied.asked += u64::from(asked::note(&change, event)?);
                oom_kills::note(&change, event)?;
            }
            match told {
                Told::Began => applied.began += 1,
                Told::Ended => applied.ended += 1,
                Told::Both => {
                    (applied.began, applied.ended) = (applied.began + 1, applied.ended + 1)
                }
                Told::Known => applied.known += 1,
                Told::Refused => applied.refused += 1,
            }
        }
        change.commit()?;
        Ok(applied)
    }
}

/// How far ahead of the server's clock a start or an end may be: a job that begins or ends in the future has not yet.
const AHEAD_US: i64 = 60 * Timestamp::SECOND;

/// A job of the last century, or of the day after tomorrow, is a clock's mistake; so is a start or an end that is more
/// than [`AHEAD_US`] ahead by the server's clock. An end before the start is a clock that was set back, and taken as an
/// end at the start.
fn possible(event: &JobEvent, clock_us: i64, received: Timestamp) -> bool {
    let latest = received.plus(24 * 3600 * Timestamp::SECOND);
    let range = Timestamp::YEAR_2000..=latest;
    let ahead = |at: &Timestamp| at.plus(clock_us.saturating_neg()).since(received) > AHEAD_US;
    let mut times = [Some(event.start), event.stop].into_iter().flatten();
    times.all(|at| range.contains(&at) && !ahead(&at))
}

/// A thread that panicked while it held the connection left its transaction rolled back, so the next may
/// go on.
pub(crate) fn lock(db: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    db.lock().unwrap_or_else(PoisonError::into_inner)
}
