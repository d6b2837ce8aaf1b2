//! Polls each scheduler for its jobs in a task of its own, and passes the records to the registry.
//!
//! A scheduler that does not answer is polled again after growing pauses, up to [`AGAIN_MAX`].

use crate::common::counts::{Counter, Timing};
use crate::common::tasks::stopped;
use jobs::{IngestStats, JobRecord, RegistryError};
use model::{ClusterId, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use schedulers::{Changes, Scheduler, SchedulerError};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Longest pause after a failed round, unless the period is longer.
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Most records passed to the registry at once. The events of agents wait meanwhile.
const RECORDS_AT_ONCE: usize = 1000;
/// Most messages about rejected records that are kept for display.
const REJECTED_SHOWN: usize = 10;

/// Passes the records of a scheduler to the registry. May wait for the disk.
pub(crate) type RecordSink =
    Arc<dyn Fn(&[JobRecord]) -> Result<IngestStats, RegistryError> + Send + Sync>;

/// A scheduler, and how to poll it.
pub(crate) struct Plan {
    pub(crate) scheduler: Box<dyn Scheduler>,
    /// The kind of scheduler: `oar`, `slurm` or `nodetime`.
    pub(crate) kind: &'static str,
    /// The interface to the scheduler: `database`, `rest` or `commands`.
    pub(crate) way: &'static str,
    pub(crate) period: Duration,
    /// Longest time of a round.
    pub(crate) round_time_max: Duration,
    /// How far back the first poll reads ended jobs.
    pub(crate) back: Duration,
}

/// The state and the counters of one scheduler's poller.
#[derive(Debug)]
pub(crate) struct PollStatus {
    pub(crate) cluster: ClusterId,
    pub(crate) kind: &'static str,
    pub(crate) way: &'static str,
    pub(crate) period: Duration,
    pub(crate) good: Counter,
    pub(crate) failed: Counter,
    /// Calls, statements or programs of successful rounds.
    pub(crate) calls: Counter,
    /// Records of jobs that were new to the registry.
    pub(crate) new: Counter,
    /// Records that changed a job in the registry.
    pub(crate) changed: Counter,
    /// Records that repeat what the registry already has.
    pub(crate) known: Counter,
    /// Reported entries that are not valid jobs, and records that the registry rejected.
    pub(crate) rejected: Counter,
    /// Records that the registry stored only in part.
    pub(crate) cut: Counter,
    /// Duration of rounds, including the registry's part.
    pub(crate) timing: Timing,
    now: Mutex<PollState>,
}

/// The current state of a poller.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollState {
    /// When the last successful round ended, by the wall clock and by the monotonic clock.
    pub(crate) last_success: Option<(Timestamp, Instant)>,
    /// The error of the last round, if it failed.
    pub(crate) failure: Option<String>,
    /// Messages about the entries rejected most recently.
    pub(crate) rejected: Vec<String>,
}

impl PollStatus {
    fn count_stats(&self, count_stats: &IngestStats) {
        let IngestStats { new, changed, known, rejected, cut, .. } = *count_stats;
        for (counter, count) in [
            (&self.new, new),
            (&self.changed, changed),
            (&self.known, known),
            (&self.rejected, rejected),
            (&self.cut, cut),
        ] {
            counter.add(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }

    /// Number of records that the registry accepted.
    pub(crate) fn records(&self) -> u64 {
        self.new.get() + self.changed.get() + self.known.get()
    }

    pub(crate) fn now(&self) -> PollState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, PollState> {
        self.now.lock()
    }
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    #[error("the registry rejected its records: {0}")]
    Registry(#[from] RegistryError),
    #[error("the thread that stores its records panicked")]
    Panicked,
}

/// The poll rounds of one scheduler.
pub(crate) struct Poller {
    scheduler: Box<dyn Scheduler>,
    status: Arc<PollStatus>,
    round_time_max: Duration,
    back: Duration,
    /// Records that the registry has not stored yet. The scheduler does not report them again.
    untold: Option<Changes>,
    failed_in_a_row: u32,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rounds").field("course", &self.status).finish_non_exhaustive()
    }
}

impl Poller {
    pub(crate) fn new(plan: Plan) -> Self {
        let Plan { scheduler, kind, way, period, round_time_max, back } = plan;
        let status = PollStatus {
            cluster: scheduler.cluster().clone(),
            kind,
            way,
            period,
            good: Counter::default(),
            failed: Counter::default(),
            calls: Counter::default(),
            new: Counter::default(),
            changed: Counter::default(),
            known: Counter::default(),
            rejected: Counter::default(),
            cut: Counter::default(),
            timing: Timing::default(),
            now: Mutex::default(),
        };
        let status = Arc::new(status);
        Self { scheduler, status, round_time_max, back, untold: None, failed_in_a_row: 0 }
    }

    pub(crate) fn status(&self) -> Arc<PollStatus> {
        Arc::clone(&self.status)
    }

    /// Polls until the server stops.
    pub(crate) async fn run(mut self, take: RecordSink, mut stopping: watch::Receiver<bool>) {
        loop {
            let began = Instant::now();
            let ended = tokio::select! {
                ended = self.round(&take) => ended,
                () = stopped(&mut stopping) => return,
            };
            let took = began.elapsed();
            self.status.timing.took(took);
            let pause = match ended {
                // The scheduler is free for half of the time, however many jobs wait. Hence the pause is as long as
                // the round took.
                Ok(true) => took.min(self.status.period),
                Ok(false) => self.status.period.saturating_sub(took),
                Err(error) => self.again(&error),
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopped(&mut stopping) => return,
            }
        }
    }

    /// Runs one round. Returns whether more jobs wait.
    async fn round(&mut self, take: &RecordSink) -> Result<bool, PollError> {
        if self.untold.is_none() {
            let now = crate::common::clock::now();
            let back = i64::try_from(self.back.as_micros()).unwrap_or(i64::MAX);
            let from = Timestamp(now.0.saturating_sub(back));
            let changes = timeout(self.round_time_max, self.scheduler.changes(from, now)).await;
            let silent = || SchedulerError::Silent {
                target: format!("{} ({})", self.status.kind, self.status.way),
                time: self.round_time_max,
            };
            self.untold = Some(changes.map_err(|_| silent())??);
        }
        let Some(changes) = &mut self.untold else { return Ok(false) };
        while !changes.records.is_empty() {
            let rest = changes.records.split_off(changes.records.len().min(RECORDS_AT_ONCE));
            let some: Arc<[JobRecord]> = std::mem::replace(&mut changes.records, rest).into();
            let (take, chunk) = (Arc::clone(take), Arc::clone(&some));
            let taken = tokio::task::spawn_blocking(move || take(&chunk)).await;
            match taken.map_err(|_| PollError::Panicked).and_then(|taken| Ok(taken?)) {
                Ok(count_stats) => self.status.count_stats(&count_stats),
                Err(error) => {
                    // The next round passes these records again, before it polls the scheduler.
                    changes.records.splice(0..0, some.iter().cloned());
                    return Err(error);
                }
            }
        }
        let changes = self.untold.take().unwrap_or_default();
        self.status.calls.add(usize::try_from(changes.calls).unwrap_or(usize::MAX));
        self.status.rejected.add(changes.rejected.len());
        self.went_well(changes.rejected);
        Ok(changes.has_more)
    }

    fn went_well(&mut self, rejected: Vec<String>) {
        let PollStatus { cluster, kind, way, .. } = &*self.status;
        let mut now = self.status.lock();
        match (self.failed_in_a_row, now.last_success) {
            (0, None) => log::info!(
                "{kind} ({cluster}): the scheduler reports its jobs through \
                                     its {way}"
            ),
            (0, Some(_)) => {}
            (failed, _) => {
                log::info!("{kind} ({cluster}): polls succeed again, after {failed} failed polls")
            }
        }
        if let Some(first) = rejected.first()
            && now.rejected.is_empty()
        {
            log::warn!("{kind} ({cluster}): some of its records are not valid jobs: {first}");
        }
        now.last_success = Some((crate::common::clock::now(), Instant::now()));
        now.failure = None;
        if !rejected.is_empty() {
            now.rejected = rejected;
            now.rejected.truncate(REJECTED_SHOWN);
        }
        drop(now);
        self.status.good.add(1);
        self.failed_in_a_row = 0;
    }

    /// Records that a round failed. Returns the pause before the next round.
    fn again(&mut self, error: &PollError) -> Duration {
        let PollStatus { cluster, kind, .. } = &*self.status;
        let text = error.to_string();
        if self.failed_in_a_row == 0 {
            log::warn!(
                "{kind} ({cluster}): {text}; the server polls again within {} s. Samples of nodes \
                 are stored meanwhile",
                AGAIN_MAX.as_secs()
            );
        } else {
            log::debug!("{kind} ({cluster}): {text}");
        }
        self.status.lock().failure = Some(text);
        self.status.failed.add(1);
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        pause(self.status.period, self.failed_in_a_row, RandomState::new().hash_one(0))
    }
}

/// Returns the pause after `failed` failed rounds in a row.
///
/// The pause doubles with each failure. A random factor between 0.5 and 1 keeps servers that lost the same scheduler
/// from returning together.
fn pause(period: Duration, failed: u32, chance: u64) -> Duration {
    let most = period.saturating_mul(2_u32.saturating_pow(failed.min(16)));
    let most = most.min(AGAIN_MAX.max(period));
    let half = most / 2;
    half + half.mul_f64((chance % 1024) as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use model::{JobFacts, JobId, JobKey, JobState};
    use std::collections::VecDeque;

    /// Returns prepared answers, and records the time range of each poll.
    struct TestScheduler {
        cluster: ClusterId,
        answers: VecDeque<Result<Changes, SchedulerError>>,
        polled: PolledRanges,
    }

    #[async_trait]
    impl Scheduler for TestScheduler {
        fn cluster(&self) -> &ClusterId {
            &self.cluster
        }

        async fn changes(
            &mut self,
            from: Timestamp,
            now: Timestamp,
        ) -> Result<Changes, SchedulerError> {
            self.polled.lock().push((from, now));
            match self.answers.pop_front() {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    fn record(id: i64) -> JobRecord {
        let cluster = ClusterId::new("oar").unwrap();
        let key = JobKey { cluster, id: JobId::new(id).unwrap() };
        JobRecord {
            facts: JobFacts { state_word: Some("Waiting".into()), ..JobFacts::default() },
            ..JobRecord::new(key, Timestamp::YEAR_2000, JobState::Waiting)
        }
    }

    fn changes(ids: std::ops::Range<i64>, has_more: bool) -> Changes {
        let records = ids.map(record).collect();
        Changes { records, has_more, rejected: Vec::new(), calls: 2 }
    }

    fn silent() -> SchedulerError {
        SchedulerError::Unreachable { target: "oar".to_owned(), what: "refused".to_owned() }
    }

    type Visibility = Arc<Mutex<Vec<i64>>>;
    /// The time range that each round polled.
    type PolledRanges = Arc<Mutex<Vec<(Timestamp, Timestamp)>>>;

    /// Returns rounds with these answers, the registry's records, and the time ranges of the polls.
    fn rounds(
        answers: Vec<Result<Changes, SchedulerError>>,
        registry_fails: u32,
    ) -> (Poller, RecordSink, Visibility, PolledRanges) {
        let (seen, polled) = (Visibility::default(), Arc::default());
        let cluster = ClusterId::new("oar").unwrap();
        let scheduler = Box::new(TestScheduler {
            cluster,
            answers: answers.into(),
            polled: Arc::clone(&polled),
        });
        let (into, fails) = (Arc::clone(&seen), Mutex::new(registry_fails));
        let take = move |records: &[JobRecord]| {
            let mut fails = fails.lock();
            if *fails > 0 {
                *fails -= 1;
                return Err(RegistryError::Full(1));
            }
            into.lock().extend(records.iter().map(|record| record.key.id.get()));
            let rejected = records.iter().filter(|record| record.key.id.get() == 13).count();
            let new = u64::try_from(records.len() - rejected).unwrap();
            Ok(IngestStats {
                new,
                rejected: u64::try_from(rejected).unwrap(),
                ..IngestStats::default()
            })
        };
        let period = Duration::from_millis(20);
        let plan = Plan {
            scheduler,
            kind: "oar",
            way: "database",
            period,
            round_time_max: Duration::from_millis(200),
            back: Duration::from_secs(3600),
        };
        (Poller::new(plan), Arc::new(take), seen, polled)
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn events_are_sent_in_parts_and_the_rest_follows_at_once() {
        let (rounds, take, seen, polled) =
            rounds(vec![Ok(changes(1..2501, true)), Ok(changes(2501..2502, false))], 0);
        let status = rounds.status();
        block_on(async {
            let (stop, stopping) = watch::channel(false);
            let running = tokio::spawn(rounds.run(take, stopping));
            while status.good.get() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            stop.send(true).unwrap();
            running.await.unwrap();
        });
        assert_eq!(*seen.lock(), (1..2502).collect::<Vec<_>>());
        assert_eq!((status.new.get(), status.rejected.get(), status.calls.get()), (2500, 1, 4));
        let polled = polled.lock();
        assert!(polled.iter().all(|(from, now)| now.since(*from) == 3_600_000_000), "{polled:?}");
    }

    #[test]
    fn records_that_the_registry_rejects_are_sent_again_before_the_next_poll() {
        let (mut rounds, take, seen, polled) = rounds(vec![Ok(changes(1..4, false))], 1);
        block_on(async {
            let error = rounds.round(&take).await.unwrap_err();
            assert!(error.to_string().starts_with("the registry rejected"), "{error}");
            assert!(seen.lock().is_empty());
            assert!(!rounds.round(&take).await.unwrap());
        });
        assert_eq!(*seen.lock(), [1, 2, 3]);
        assert_eq!(polled.lock().len(), 1);
    }

    #[test]
    fn a_failing_scheduler_is_polled_again_and_its_state_shows_it() {
        let (rounds, take, seen, _) = rounds(vec![Err(silent()), Ok(changes(1..2, false))], 0);
        let status = rounds.status();
        block_on(async {
            let (_stop, stopping) = watch::channel(false);
            let running = tokio::spawn(rounds.run(take, stopping));
            let began = Instant::now();
            while status.failed.get() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(status.now().failure.as_deref(), Some("oar: refused"));
            assert!(status.now().last_success.is_none());
            while status.good.get() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let paused = began.elapsed();
            assert!(paused >= Duration::from_millis(20), "{paused:?}");
            assert_eq!(status.now().failure, None);
            // The third answer never comes: the round ends by its own timeout.
            while status.failed.get() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let failure = status.now().failure.unwrap();
            assert_eq!(failure, "oar (database) did not respond within 0.2 s");
            running.abort();
        });
        assert_eq!(*seen.lock(), [1]);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_lie_apart() {
        let period = Duration::from_secs(2);
        assert_eq!(pause(period, 1, 0), Duration::from_secs(2));
        assert!(pause(period, 1, 1023) < Duration::from_secs(4));
        assert_eq!(pause(period, 40, 0), Duration::from_secs(15));
        assert!(pause(period, u32::MAX, u64::MAX) < Duration::from_secs(30));
        let hour = Duration::from_secs(3600);
        assert!(pause(hour, 3, 1023) < hour && pause(hour, 3, 0) == hour / 2);
    }
}
