//! Limits on what one sender brings: samples per second of each origin or user, and what a user's commands add
//! to the store's books.

use model::{JobId, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::Decoded;

/// Senders may save up unused samples for this long: an agent that was cut off catches up faster.
const BURST_SECONDS: f64 = 60.0;
/// A batch whose newest sample is older than this is backlog: its sender keeps it and sends it again.
const BACKLOG_US: i64 = 60 * Timestamp::SECOND;
/// Most senders remembered; beyond it, those that used little are forgotten.
const SENDERS_MAX: usize = 50_000;

/// Most gaps in one batch of a user, and of one user within [`USER_TIME_US`].
const USER_BATCH_GAPS_MAX: usize = 64;
const USER_GAPS_MAX: usize = 2_000;
/// Most commands of one user that send within [`USER_TIME_US`]: each is an origin.
const USER_RUNS_MAX: usize = 2_000;
/// The store forgets an origin of a command after as long.
const USER_TIME_US: i64 = 2 * 3600 * Timestamp::SECOND;

/// What exceeds the limit of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooFast {
    pub(crate) why: String,
    /// Whether its sender should keep the batch and send it again: it holds old samples.
    pub(crate) later: bool,
}

/// What senders brought of late.
#[derive(Debug)]
pub(crate) struct SendLimits {
    /// Most samples per second of one sender.
    samples_max: u64,
    /// Samples that a sender may bring now, and as of when.
    rates: Mutex<HashMap<String, (f64, Timestamp)>>,
    users: Mutex<HashMap<u32, UserUse>>,
}

#[derive(Debug, Default)]
struct UserUse {
    since: Option<Timestamp>,
    gaps: usize,
    runs: HashMap<JobId, Timestamp>,
}

impl SendLimits {
    /// Limits with so many samples per second of one origin or user.
    pub(crate) fn new(samples_max: u64) -> Self {
        Self { samples_max, rates: Mutex::default(), users: Mutex::default() }
    }

    /// Takes note of a batch of samples of a sender.
    ///
    /// # Errors
    /// The sender brings more samples per second than the limit: the batch is not to be stored.
    pub(crate) fn take_samples(
        &self,
        sender: &str,
        batch: &Decoded,
        now: Timestamp,
    ) -> Result<(), TooFast> {
        let max = self.samples_max;
        let (samples, max_per_second) = (batch.index.len() as f64, max as f64);
        let burst = max_per_second * BURST_SECONDS;
        let mut rates = lock(&self.rates);
        if rates.len() >= SENDERS_MAX && !rates.contains_key(sender) {
            rates.retain(|_, (left, at)| left_at(*left, *at, now, max_per_second) < burst);
            if rates.len() >= SENDERS_MAX {
                rates.clear();
            }
        }
        let (left, at) = rates.entry(sender.to_owned()).or_insert((burst, now));
        let available = left_at(*left, *at, now, max_per_second);
        (*left, *at) = (available, (*at).max(now));
        // One batch larger than all that can be saved passes when nothing else was used.
        if samples > available && available < burst {
            let newest = batch.ticks.iter().map(|tick| tick.at).max().unwrap_or(now);
            let why = format!(
                "{sender} sends more than {max} samples per second; \
                 `samples_per_second_max` of the server allows more"
            );
            return Err(TooFast { why, later: now.since(newest) > BACKLOG_US });
        }
        *left = available - samples;
        Ok(())
    }

    /// Takes note of a batch of a user's command.
    ///
    /// # Errors
    /// The user's commands bring more gaps, or are more, than may be.
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
        let mut users = lock(&self.users);
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
        used.runs.retain(|_, last| now.since(*last) < USER_TIME_US);
        if used.gaps + gaps > USER_GAPS_MAX {
            return Err(format!("user {uid} reports more than {USER_GAPS_MAX} gaps in two hours"));
        }
        if used.runs.len() >= USER_RUNS_MAX && !used.runs.contains_key(&run) {
            return Err(format!(
                "user {uid} sends of more than {USER_RUNS_MAX} commands in two hours"
            ));
        }
        used.gaps += gaps;
        used.runs.insert(run, now);
        Ok(())
    }
}

impl UserUse {
    fn is_over(&self, now: Timestamp) -> bool {
        self.since.is_none_or(|since| now.since(since) >= USER_TIME_US)
    }
}

/// What a sender may bring now, of what was left at an instant.
fn left_at(left: f64, at: Timestamp, now: Timestamp, max_per_second: f64) -> f64 {
    let seconds = Timestamp(now.since(at).max(0)).seconds();
    (left + seconds * max_per_second).min(max_per_second * BURST_SECONDS)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let limits = SendLimits::new(MAX);
        let start = crate::now();
        let at = |second: i64| start.plus(second * Timestamp::SECOND);
        let take = |sender: &str, count, second| {
            limits.take_samples(sender, &of_samples(count, at(second)), at(second))
        };
        // Saved up: a minute's samples. Then 10 per second, whatever is sent.
        let passed: usize = (0..100).filter(|_| take("n1", 30, 0).is_ok()).count() * 30;
        assert_eq!(passed, 600);
        let refused = take("n1", 30, 0).unwrap_err();
        assert!(!refused.later && refused.why.contains("n1") && refused.why.contains("10 samples"));
        assert_eq!(take("n2", 30, 0), Ok(()));
        let passed = (1..=30).filter(|second| take("n1", 30, *second).is_ok()).count();
        assert_eq!(passed, 10, "300 of 900 samples in 30 seconds");
        // A spool that is sent after an outage waits instead of being lost.
        let old = of_samples(30, start.plus(-3600 * Timestamp::SECOND));
        assert!(limits.take_samples("n1", &old, at(30)).unwrap_err().later);
        assert_eq!(limits.take_samples("n1", &old, at(60)), Ok(()));
    }

    #[test]
    fn a_batch_larger_than_the_burst_passes_alone() {
        let limits = SendLimits::new(MAX);
        let now = crate::now();
        let large = of_samples(1000, now);
        assert_eq!(limits.take_samples("n1", &large, now), Ok(()));
        assert!(limits.take_samples("n1", &of_samples(1, now), now).is_err());
    }

    #[test]
    fn one_users_gaps_and_commands_are_bounded() {
        let limits = SendLimits::new(MAX);
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
}
