//! Limits for each sender: samples, job events and inserted rows per second of an origin, token or user, and gaps, series
//! and commands of a user.

use config::StorageSettings;
use model::{JobId, Timestamp};
use parking_lot::Mutex;
use senders::RUNS_DIVISOR;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use wire::Decoded;

/// Senders may accumulate unused samples for this long, so that an agent catches up faster after an outage.
const BURST_SECONDS: f64 = 60.0;
/// Maximum number of job events, and of killed tasks in them, per second of one sender. All senders share the
/// registry's writer.
const EVENTS_PER_SECOND_MAX: f64 = 200.0;
/// A batch whose latest sample is older than this is backlog: its sender keeps it and retries later.
const BACKLOG_US: i64 = 60 * Timestamp::SECOND;
/// Maximum number of remembered senders, of samples and of events; beyond it, those with little use are evicted.
const SENDERS_MAX: usize = 100_000;

/// Maximum number of gaps in a user's batch, and of a user's gaps within [`USER_TIME_US`].
const USER_BATCH_GAPS_MAX: usize = 64;
const USER_GAPS_MAX: usize = 2_000;
/// Maximum number of a user's commands that send within [`USER_TIME_US`]; each command is an origin.
const USER_RUNS_MAX: usize = 2_000;
/// One user's commands may have at most 1/4 of the series, and of the origins, of all commands.
const USER_SHARE: usize = 4;
/// The store evicts a command's origin after this time.
const USER_TIME_US: i64 = 2 * 3600 * Timestamp::SECOND;

/// The limit of samples was exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SampleRateExceeded {
    pub(crate) why: String,
    /// Whether the sender should keep the batch and retry, because it holds old samples.
    pub(crate) later: bool,
}

/// Recent use of each sender.
#[derive(Debug)]
pub(crate) struct SendLimits {
    /// Maximum number of samples per second of one sender.
    samples_max: u64,
    /// Samples and job events that each sender may still send.
    rates: Mutex<HashMap<String, Rate>>,
    users: Mutex<HashMap<u32, UserUse>>,
    /// Maximum number of a user's series and commands within [`USER_TIME_US`].
    user_series_max: usize,
    user_runs_max: usize,
}

/// An amount that a sender may still send, at a time.
#[derive(Debug)]
struct Rate {
    left: f64,
    at: Timestamp,
    max_per_second: f64,
}

#[derive(Debug, Default)]
struct UserUse {
    since: Option<Timestamp>,
    gaps: usize,
    runs: HashMap<JobId, RunUse>,
    hasher: RandomState,
}

/// Recent use of a command.
#[derive(Debug)]
struct RunUse {
    last: Timestamp,
    /// Hash of the latest counted table.
    table: u64,
    /// Hashes of its series.
    series: HashSet<u64>,
}

impl SendLimits {
    /// Creates the limits of a configuration.
    pub(crate) fn of(keep: &StorageSettings) -> Self {
        Self::new(keep.samples_per_second_max, keep.series_max, keep.origins_max)
    }

    /// Creates limits from the samples per second of one sender, and the total numbers of series and
    /// origins.
    fn new(samples_max: u64, series_max: u64, origins_max: u64) -> Self {
        let share = |all: u64| {
            usize::try_from(all).unwrap_or(usize::MAX).div_ceil(RUNS_DIVISOR * USER_SHARE)
        };
        Self {
            samples_max,
            rates: Mutex::default(),
            users: Mutex::default(),
            user_series_max: share(series_max),
            user_runs_max: USER_RUNS_MAX.min(share(origins_max)),
        }
    }

    /// Counts a sender's batch of samples.
    ///
    /// # Errors
    /// The sender exceeds the limit of samples per second: the batch must not be stored.
    pub(crate) fn take_samples(
        &self,
        sender: &str,
        batch: &Decoded,
        now: Timestamp,
    ) -> Result<(), SampleRateExceeded> {
        let (max, samples) = (self.samples_max, batch.index.len() as f64);
        if self.take(sender, samples, max as f64, now).is_ok() {
            return Ok(());
        }
        let newest = batch.ticks.iter().map(|tick| tick.at).max().unwrap_or(now);
        let why = format!(
            "{sender} sends more than {max} samples per second; `samples_per_second_max` of the server allows more"
        );
        Err(SampleRateExceeded { why, later: now.since(newest) > BACKLOG_US })
    }

    /// Counts the job events of a sender's batch.
    ///
    /// # Errors
    /// The sender exceeds the limit of events per second: it must send the batch again later.
    pub(crate) fn take_events(
        &self,
        sender: &str,
        batch: &Decoded,
        now: Timestamp,
    ) -> Result<(), SampleRateExceeded> {
        let events: usize = batch.jobs.iter().map(|event| 1 + event.oom_kills.len()).sum();
        let key = format!("events of {sender}");
        if events == 0 || self.take(&key, events as f64, EVENTS_PER_SECOND_MAX, now).is_ok() {
            return Ok(());
        }
        let why = format!("{sender} sends more than {EVENTS_PER_SECOND_MAX} job events per second");
        Err(SampleRateExceeded { why, later: true })
    }

    /// Counts inserted rows of a sender, or of a node.
    ///
    /// # Errors
    /// The sender exceeds this limit of rows per second: none may be stored. Whole seconds until they may.
    pub(crate) fn take_rows(
        &self,
        sender: &str,
        rows: usize,
        max: u64,
        now: Timestamp,
    ) -> Result<(), u32> {
        let key = format!("rows of {sender}");
        self.take(&key, rows as f64, max as f64, now).map_err(|seconds| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it saturates, and the bucket fills within a minute"
            )]
            let whole = seconds.ceil() as u32;
            whole.max(1)
        })
    }

    /// Takes an amount of what a sender may send.
    ///
    /// # Errors
    /// The sender has less left. Seconds until it has enough.
    fn take(&self, key: &str, amount: f64, max_per_second: f64, now: Timestamp) -> Result<(), f64> {
        let burst = max_per_second * BURST_SECONDS;
        let mut rates = self.rates.lock();
        if rates.len() >= SENDERS_MAX && !rates.contains_key(key) {
            rates.retain(|_, rate| rate.left_at(now) < rate.max_per_second * BURST_SECONDS);
            if rates.len() >= SENDERS_MAX {
                rates.clear();
            }
        }
        let full = || Rate { left: burst, at: now, max_per_second };
        let rate = rates.entry(key.to_owned()).or_insert_with(full);
        let available = rate.left_at(now);
        (rate.left, rate.at) = (available, rate.at.max(now));
        // An amount larger than the whole burst passes if the sender used nothing else.
        if amount > available && available < burst {
            return Err((amount.min(burst) - available) / max_per_second);
        }
        rate.left = available - amount;
        Ok(())
    }

    /// Counts a batch of a user's command.
    ///
    /// # Errors
    /// The user's commands exceed the limits of gaps, series or commands.
    pub(crate) fn take_of_user(
        &self,
        uid: u32,
        run: JobId,
        batch: &Decoded,
        now: Timestamp,
    ) -> Result<(), String> {
        let gaps = batch.gaps.len();
        if gaps > USER_BATCH_GAPS_MAX {
            return Err(format!("a user's batch has {USER_BATCH_GAPS_MAX} gaps at most"));
        }
        let mut users = self.users.lock();
        if users.len() >= SENDERS_MAX && !users.contains_key(&uid) {
            users.retain(|_, used| !used.is_over(now));
            if users.len() >= SENDERS_MAX {
                return Err("too many users send samples; try again in a while".to_owned());
            }
        }
        let used = users.entry(uid).or_default();
        if used.is_over(now) {
            (used.since, used.gaps) = (Some(now), 0);
        }
        used.runs.retain(|_, run| now.since(run.last) < USER_TIME_US);
        if used.gaps + gaps > USER_GAPS_MAX {
            return Err(format!("user {uid} reports more than {USER_GAPS_MAX} gaps in two hours"));
        }
        let runs_max = self.user_runs_max;
        if used.runs.len() >= runs_max && !used.runs.contains_key(&run) {
            return Err(format!("user {uid} sends of more than {runs_max} commands in two hours"));
        }
        used.take_series(run, batch, (now, self.user_series_max)).map_err(|max| {
            format!("the commands of user {uid} have more than {max} series in two hours")
        })?;
        used.gaps += gaps;
        Ok(())
    }
}

impl UserUse {
    /// Counts the new series of a batch.
    fn take_series(
        &mut self,
        run: JobId,
        batch: &Decoded,
        (now, max): (Timestamp, usize),
    ) -> Result<(), usize> {
        if let Some(known) = self.runs.get_mut(&run).filter(|run| run.table == batch.table_hash) {
            known.last = now;
            return Ok(());
        }
        let entries = batch.table().map(|table| table.entries).unwrap_or_default();
        let hashes = entries.iter().map(|entry| self.hasher.hash_one(entry.series()));
        let hashes: HashSet<u64> = hashes.collect();
        let before: usize = self.runs.values().map(|run| run.series.len()).sum();
        let known = self.runs.get(&run).map(|run| &run.series);
        let new =
            hashes.iter().filter(|hash| known.is_none_or(|known| !known.contains(hash))).count();
        if before.saturating_add(new) > max {
            return Err(max);
        }
        let empty = || RunUse { last: now, table: 0, series: HashSet::new() };
        let run = self.runs.entry(run).or_insert_with(empty);
        (run.last, run.table) = (now, batch.table_hash);
        run.series.extend(hashes);
        Ok(())
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.since.is_none_or(|since| now.since(since) >= USER_TIME_US)
    }
}

impl Rate {
    /// Returns the amount that the sender may send now.
    fn left_at(&self, now: Timestamp) -> f64 {
        let seconds = Timestamp(now.since(self.at).max(0)).seconds();
        let left = self.left + seconds * self.max_per_second;
        left.min(self.max_per_second * BURST_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ingest::{batch, frame};
    use model::{Batch, Cause, DeviceId, Gap, Tick};
    use wire::{Decoder, Frames};

    const MAX: u64 = 10;

    fn decoded(batch: &Batch) -> Decoded {
        let bytes = frame(batch);
        Decoder::default().decode(&Frames::of(&bytes).next().unwrap().unwrap()).unwrap()
    }

    fn of_samples(count: usize, at: Timestamp) -> Decoded {
        let mut batch = batch("n1", 0);
        batch.ticks = vec![Tick { at, samples: u32::try_from(count).unwrap() }];
        (batch.index, batch.values) = (vec![0; count], vec![0.5; count]);
        decoded(&batch)
    }

    #[test]
    fn a_flood_of_one_origin_is_cut_and_others_go_on() {
        let limits = SendLimits::new(MAX, 1_000_000, 1_000_000);
        let start = crate::now();
        let at = |second: i64| start.plus(second * Timestamp::SECOND);
        let take = |sender: &str, count, second| {
            limits.take_samples(sender, &of_samples(count, at(second)), at(second))
        };
        // 60 s of samples have accumulated; after that, 10 samples per second pass.
        let passed: usize = (0..100).filter(|_| take("n1", 30, 0).is_ok()).count() * 30;
        assert_eq!(passed, 600);
        let rejected = take("n1", 30, 0).unwrap_err();
        assert!(
            !rejected.later && rejected.why.contains("n1") && rejected.why.contains("10 samples")
        );
        assert_eq!(take("n2", 30, 0), Ok(()));
        let passed = (1..=30).filter(|second| take("n1", 30, *second).is_ok()).count();
        assert_eq!(passed, 10, "300 of 900 samples in 30 seconds");
        // A spool sent after an outage is delayed, not lost.
        let old = of_samples(30, start.plus(-3600 * Timestamp::SECOND));
        assert!(limits.take_samples("n1", &old, at(30)).unwrap_err().later);
        assert_eq!(limits.take_samples("n1", &old, at(60)), Ok(()));
    }

    #[test]
    fn a_sender_of_too_many_rows_learns_when_to_send_again() {
        let limits = SendLimits::new(MAX, 1_000_000, 1_000_000);
        let start = crate::now();
        let take = |sender, rows, second: i64| {
            limits.take_rows(sender, rows, 10, start.plus(second * Timestamp::SECOND))
        };
        assert_eq!(take("a", 600, 0), Ok(()));
        assert_eq!(take("a", 25, 0), Err(3));
        assert_eq!(take("b", 25, 0), Ok(()), "another sender");
        assert_eq!(take("a", 25, 2), Err(1));
        assert_eq!(take("a", 25, 3), Ok(()));
        let sends = limits.take_samples("a", &of_samples(5, start), start);
        assert_eq!(sends, Ok(()), "batches have a limit of their own");
    }

    #[test]
    fn a_batch_larger_than_the_burst_passes_alone() {
        let limits = SendLimits::new(MAX, 1_000_000, 1_000_000);
        let now = crate::now();
        let large = of_samples(1000, now);
        assert_eq!(limits.take_samples("n1", &large, now), Ok(()));
        assert!(limits.take_samples("n1", &of_samples(1, now), now).is_err());
    }

    #[test]
    fn one_users_gaps_and_commands_are_bounded() {
        let limits = SendLimits::new(MAX, 1_000_000, 1_000_000);
        let now = crate::now();
        let of_gaps = |count: usize| {
            let mut batch = batch("n1/run-7", 0);
            let gap = Gap {
                origin: batch.origin.clone(),
                device: DeviceId::new("n1").unwrap(),
                source: "".into(),
                from: now.plus(-1),
                to: now,
                cause: Cause::EventsLost,
                detail: "".into(),
            };
            batch.gaps = vec![gap; count];
            decoded(&batch)
        };
        let run = |id| JobId::new(id).unwrap();
        let take = |uid, id, gaps, now| limits.take_of_user(uid, run(id), &of_gaps(gaps), now);
        assert!(take(7, 1, 1000, now).is_err());
        let taken: usize = (0..220).filter(|_| take(7, 1, 50, now).is_ok()).count() * 50;
        assert_eq!(taken, USER_GAPS_MAX);
        assert_eq!(take(8, 2, 50, now), Ok(()));
        let runs = (1..5000).filter(|id| take(9, *id, 0, now).is_ok()).count();
        assert_eq!(runs, USER_RUNS_MAX);
        let later = now.plus(USER_TIME_US);
        assert_eq!((take(7, 1, 50, later), take(9, 9999, 0, later)), (Ok(()), Ok(())));
    }

    #[test]
    fn one_users_series_leave_capacity_for_others() {
        let limits = SendLimits::new(MAX, 160, 1_000_000);
        let now = crate::now();
        let of_series = |first: usize, count: usize| {
            let mut batch = batch("n1/run-7", 0);
            let entry = batch.table.entries[0].clone();
            let entries = (first..first + count).map(|n| {
                let labels = model::Labels::new([("pid", &*n.to_string())]).unwrap();
                model::SeriesEntry { labels, ..entry.clone() }
            });
            batch.table = std::sync::Arc::new(model::SeriesTable { entries: entries.collect() });
            (batch.index, batch.values) = (vec![0], vec![0.5]);
            batch.ticks = vec![Tick { at: now, samples: 1 }];
            decoded(&batch)
        };
        let take = |uid, run: i64, first, count, now| {
            let batch = of_series(first, count);
            limits.take_of_user(uid, JobId::new(run).unwrap(), &batch, now)
        };
        // 1/16 of 160: a quarter of the quarter available to all commands.
        assert_eq!(take(7, 1, 0, 6, now), Ok(()));
        assert_eq!(take(7, 1, 0, 6, now), Ok(()), "the same again");
        assert_eq!(take(7, 1, 2, 6, now), Ok(()), "two more");
        assert!(take(7, 2, 0, 3, now).unwrap_err().contains("more than 10 series"));
        assert_eq!(take(7, 2, 0, 2, now), Ok(()));
        assert_eq!(take(8, 3, 0, 10, now), Ok(()), "another user has room of the same size");
        assert_eq!(take(7, 2, 0, 10, now.plus(USER_TIME_US)), Ok(()));
    }
}
