//! What nodes report of jobs goes into the registry.

use crate::common::registry::lock;
use crate::runs::store_visits::{Pending, Taking, Timed, VisitChange, tell};
use crate::runs::{env_requests, oom_kills};
use crate::{Registry, RegistryError};
use model::{JobEvent, Timestamp};
use rusqlite::TransactionBehavior;

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
    /// or one visit too many of its job, or of its job on its device.
    pub refused: u64,
}

impl Registry {
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
        let pending = Pending::default();
        let mut taking = Taking { limits: &self.limits, users: &self.users, pending };
        for event in events {
            let told = if possible(event, clock_us, received) {
                tell(&change, Timed { event, clock_us }, &mut taking)?
            } else {
                VisitChange::Refused
            };
            if told != VisitChange::Refused {
                applied.asked += u64::from(env_requests::note(&change, event)?);
                oom_kills::note(&change, event)?;
            }
            match told {
                VisitChange::Began => applied.began += 1,
                VisitChange::Ended => applied.ended += 1,
                VisitChange::Both => {
                    (applied.began, applied.ended) = (applied.began + 1, applied.ended + 1)
                }
                VisitChange::Known => applied.known += 1,
                VisitChange::Refused => applied.refused += 1,
            }
        }
        taking.pending.finish(&change, &self.users)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};
    use model::{ClusterId, DeviceId, JobId, JobKey};

    fn event(second: i64, device: &str) -> JobEvent {
        let key = JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(7).unwrap() };
        JobEvent {
            key,
            spelling: "7".into(),
            device: DeviceId::new(device).unwrap(),
            user: None,
            uid: Some(1000),
            start: Timestamp::from_seconds(1_700_000_000 + second),
            stop: None,
            monitor: None,
            oom_kills: Vec::new(),
        }
    }

    /// How many rows a registry writes for events, one frame after the other.
    fn rows(registry: &Registry, frames: &[&[JobEvent]]) -> i64 {
        let total = || -> i64 {
            lock(&registry.writer)
                .query_row("SELECT total_changes()", [], |row| row.get(0))
                .unwrap()
        };
        let before = total();
        for frame in frames {
            let applied = registry.apply(frame, Timestamp::from_seconds(1_700_900_000)).unwrap();
            assert_eq!(applied.refused, 0);
        }
        total() - before
    }

    #[test]
    fn many_events_of_one_job_and_device_cost_rows_in_line_with_their_number() {
        let open = |dir: &tempfile::TempDir| {
            let path = dir.path().join("registry.sqlite");
            Registry::open(&path, Limits::default(), Users::default).unwrap()
        };
        for apart in [1, 200] {
            let of = |count| {
                let dir = tempfile::tempdir().unwrap();
                let events: Vec<_> = (0..count).map(|n| event(apart * n, "n1")).collect();
                rows(&open(&dir), &[&events])
            };
            let (few, many) = (of(64), of(512));
            assert!(many <= 9 * few, "{few} rows for 64 events, {many} for 512");
            assert!(many <= 20 * 512, "{many} rows for 512 events");
        }
        // One visit more of a job with many, which has all of its runs worked out, writes its own rows.
        let dir = tempfile::tempdir().unwrap();
        let registry = open(&dir);
        let nodes: Vec<_> = (0..512).map(|n| event(n % 7, &format!("n{n}"))).collect();
        rows(&registry, &[&nodes]);
        let again = [event(20, "n1")];
        let later = [event(30, "n1")];
        let written = rows(&registry, &[&again, &later]);
        assert!(written <= 40, "{written} rows");
    }
}
