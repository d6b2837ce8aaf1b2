//! Ingests node reports about jobs.

use crate::presence::reports_of_inputs::{self, Reporter};
use crate::runs::store_visits::{Ingestion, Pending, TimedEvent, VisitChange, ingest};
use crate::runs::{env_requests, oom_kills};
use crate::{Registry, RegistryError};
use model::{ClusterId, JobEvent, Timestamp};
use rusqlite::TransactionBehavior;
use std::collections::BTreeSet;

/// Counts of ingested events by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Jobs that started on a device.
    pub began: u64,
    /// Jobs that ended on a device.
    pub ended: u64,
    /// Events without new facts about allocations.
    pub known: u64,
    /// Events with a new request environment variable. Other counts may include them too.
    pub requested: u64,
    /// Rejected events: an impossible time, a cluster such as `LOCAL`, a local job that was registered for another device, or too many
    /// visits of the job, in total or on the device.
    pub rejected: u64,
}

impl Registry {
    /// Stores node reports in one transaction. They are on disk when this returns. `received` is the time
    /// of reception. Events may be duplicate, late and in any order. Rejected events are counted; the
    /// others are stored.
    ///
    /// # Errors
    /// SQLite fails or the registry is full. Nothing is stored then, and the caller can retry.
    pub fn apply(
        &self,
        events: &[JobEvent],
        received: Timestamp,
    ) -> Result<Applied, RegistryError> {
        self.apply_by(events, received, (Reporter::Agent, 0))
    }

    /// Stores reports of a node with a known clock offset. The node's clock is that many microseconds ahead
    /// of the server's. Visits keep the node's times; comparisons with records use the server's.
    ///
    /// # Errors
    /// As [`Registry::apply`].
    pub fn apply_by(
        &self,
        events: &[JobEvent],
        received: Timestamp,
        (reporter, clock_us): (Reporter, i64),
    ) -> Result<Applied, RegistryError> {
        let mut applied = Applied::default();
        if events.is_empty() {
            return Ok(applied);
        }
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let pending = Pending::default();
        let mut killed_on = BTreeSet::new();
        let mut taking = Ingestion { limits: &self.limits, users: &self.users, pending };
        for event in events {
            let outcome = if !possible(event, clock_us, received) {
                VisitChange::Rejected
            } else if reports_of_inputs::note(&change, event, reporter)? {
                ingest(&change, TimedEvent { event, clock_us }, &mut taking)?
            } else {
                VisitChange::Known
            };
            if outcome == VisitChange::Rejected {
                reports_of_inputs::forget(&change, event)?;
            } else {
                applied.requested += u64::from(env_requests::note(&change, event)?);
                if oom_kills::note(&change, event)? {
                    killed_on.insert(&event.device);
                }
            }
            match outcome {
                VisitChange::Began => applied.began += 1,
                VisitChange::Ended => applied.ended += 1,
                VisitChange::Both => {
                    (applied.began, applied.ended) = (applied.began + 1, applied.ended + 1)
                }
                VisitChange::Known => applied.known += 1,
                VisitChange::Rejected => applied.rejected += 1,
            }
        }
        taking.pending.finish(&change, &self.users)?;
        for device in killed_on {
            oom_kills::cut(&change, device)?;
        }
        change.commit()?;
        Ok(applied)
    }
}

/// Maximum time by which a start or an end may be ahead of the server's clock: 60 s. Jobs do not begin
/// or end in the future.
const AHEAD_US: i64 = 60 * Timestamp::SECOND;

/// Tests whether an event is plausible: its cluster, and its times. A cluster `Local` or `LOCAL` would pass for the
/// cluster of `jobmeter run`. Times before the year 2000 or more than 24 h ahead are clock
/// errors. So is a start or an end more than [`AHEAD_US`] ahead by the server's clock. An end before
/// the start comes from a clock that was set back, and counts as an end at the start.
fn possible(event: &JobEvent, clock_us: i64, received: Timestamp) -> bool {
    let latest = received.plus(24 * 3600 * Timestamp::SECOND);
    let range = Timestamp::YEAR_2000..=latest;
    let ahead = |at: &Timestamp| at.plus(clock_us.saturating_neg()).since(received) > AHEAD_US;
    let mut times = [Some(event.start), event.stop].into_iter().flatten();
    let cluster = &event.key.cluster;
    (cluster.as_str() == ClusterId::LOCAL || !cluster.reads_as_local())
        && times.all(|at| range.contains(&at) && !ahead(&at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};
    use model::{DeviceId, JobId, JobKey};

    fn event(second: i64, device: &str) -> JobEvent {
        let key = JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(7).unwrap() };
        JobEvent {
            key,
            display_id: "7".into(),
            device: DeviceId::new(device).unwrap(),
            user: None,
            uid: Some(1000),
            start: Timestamp::from_seconds(1_700_000_000 + second),
            stop: None,
            monitor: None,
            oom_kills: Vec::new(),
        }
    }

    /// Returns the number of rows that a registry writes for events, frame by frame.
    fn rows(registry: &Registry, frames: &[&[JobEvent]]) -> i64 {
        let total = || -> i64 {
            registry
                .writer
                .lock()
                .query_row("SELECT total_changes()", [], |row| row.get(0))
                .unwrap()
        };
        let before = total();
        for frame in frames {
            let applied = registry.apply(frame, Timestamp::from_seconds(1_700_900_000)).unwrap();
            assert_eq!(applied.rejected, 0);
        }
        total() - before
    }

    #[test]
    fn no_cluster_passes_for_that_of_local_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
        let at = Timestamp::from_seconds(1_700_900_000);
        let taken = |cluster: &str| {
            let mut event = event(0, "n1");
            event.key.cluster = ClusterId::new(cluster).unwrap();
            registry.apply(&[event], at).unwrap()
        };
        for cluster in ["LOCAL", "Local"] {
            assert_eq!(taken(cluster), Applied { rejected: 1, ..Applied::default() }, "{cluster}");
        }
        assert_eq!(taken("local").began, 1);
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
        // One more visit of a job with many visits recomputes all its runs, but writes only its own rows.
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
