//! State of a source in the agent: schedule, status, cost and gaps.

mod demand;
mod drains;
mod source_gaps;

use crate::common::schedule::{Due, Schedule};
use crate::reading::burst::Burst;
use crate::reading::one_reading::{Outcome, Read, Slot, Task, drop_source};
use crate::reading::part_status::PartStatuses;
use crate::reading::plan::SourcePlan;
use crate::reading::throttling::{Change, Pace};
use delivery::PendingEvents;
use drains::Drains;
use model::{Cause, Metric, Timestamp};
use source_gaps::{Outage, cause};
use sources::{Options, SourceError, SourceSpec};
use std::sync::Arc;
use std::time::Duration;

/// Delay before the next attempt after a source failed to open or failed repeatedly.
const RETRY_US: i64 = 60 * Timestamp::SECOND;
/// Consecutive failures after which the next tick reopens a source.
const FAILURES_REOPEN: u32 = 2;
/// Consecutive failures after which a source pauses for `RETRY_US`.
const FAILURES_RETRY: u32 = 4;
/// Timeouts after which a source is switched off.
pub(crate) const PARKS_MAX: u32 = 8;
/// Shortest gap for missed ticks. With a period of 1 ms, shorter ones occur all the time.
const OUTAGE_MIN_US: i64 = Timestamp::SECOND;

/// Status of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The source was never read.
    New,
    /// The source gives samples.
    Working,
    /// The source gives no samples, for this reason.
    Failing(SourceError),
    /// The reading exceeded its time limit and continues aside from the others.
    Parked,
    /// The source exceeded its time limit too often.
    Off,
}

/// Cost and results of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Number of readings.
    pub(crate) reads: u64,
    /// Number of samples from the readings.
    pub(crate) samples: u64,
    /// Number of failed readings.
    pub(crate) errors: u64,
    /// Number of readings that panicked.
    pub(crate) panics: u64,
    /// Number of readings that exceeded their time limit.
    pub(crate) timeouts: u64,
    /// Number of ticks that were missed.
    pub(crate) missed: u64,
    /// Processor time of all readings.
    pub(crate) cpu_us: u64,
    /// Elapsed time of all readings.
    pub(crate) wall_us: u64,
    /// Bytes of burst samples in memory.
    pub(crate) kept_bytes: usize,
    /// Number of burst samples that were evicted early to stay within the memory limit.
    pub(crate) kept_cut: u64,
    /// Number of samples that the sink rejected.
    pub(crate) rejected: u64,
    /// Number of accounting states that the source rejected.
    pub(crate) states_rejected: u64,
    /// Delay of the latest tick's reading.
    pub(crate) late_us: i64,
    /// Processor time of the latest reading.
    pub(crate) last_cpu_us: u64,
}

/// A source with its state.
pub(crate) struct Entry {
    pub(crate) spec: &'static SourceSpec,
    pub(crate) options: Arc<Options>,
    pub(crate) enabled: bool,
    pub(crate) schedule: Schedule,
    /// Configured period. The schedule's period is longer while the source is throttled.
    period: Duration,
    /// Configured period while the node has no job.
    period_idle: Option<Duration>,
    is_idle: bool,
    /// Optional metrics that no promotion enables now.
    pub(crate) off: Arc<[&'static Metric]>,
    /// Burst between the ticks.
    pub(crate) burst: Option<Burst>,
    pace: Pace,
    /// Limit in hundredths of a processor.
    percent_max: u64,
    /// The source and its samples. `None` while the source is being read.
    pub(crate) slot: Option<Box<Slot>>,
    pub(crate) state: State,
    pub(crate) stats: Stats,
    pub(crate) series: usize,
    /// Monotonic start of a reading that continues aside from the others, and its time limit.
    aside: Option<(i64, i64)>,
    drains: Drains,
    /// Whether the source reads jobs, or its counters, for the last time.
    has_last_reading: bool,
    retry_us: i64,
    failures: u32,
    parks: u32,
    last: Option<Timestamp>,
    outage: Option<Outage>,
    parts: PartStatuses,
}

impl Entry {
    pub(crate) fn new(source: &SourcePlan, slot: Slot, percent_max: u64, now: Timestamp) -> Self {
        Self {
            spec: source.spec,
            options: Arc::clone(&source.options),
            enabled: source.enabled,
            schedule: Schedule::new(source.period, now),
            period: source.period,
            period_idle: source.period_idle,
            is_idle: false,
            off: Arc::clone(&source.off),
            burst: source.burst.map(|plan| Burst::new(plan, now)),
            pace: Pace::new(),
            percent_max,
            slot: Some(Box::new(slot)),
            state: State::New,
            stats: Stats::default(),
            series: 0,
            aside: None,
            drains: Drains::default(),
            has_last_reading: false,
            retry_us: i64::MIN,
            failures: 0,
            parks: 0,
            last: None,
            outage: None,
            parts: PartStatuses::default(),
        }
    }

    /// Whether the source can be read now.
    pub(crate) fn is_open(&self) -> bool {
        self.enabled && self.slot.as_ref().is_some_and(|slot| slot.source.is_some())
    }

    /// Whether the source is being read aside and will be back for a last reading.
    pub(crate) fn owes_last_reading(&self) -> bool {
        let is_aside = self.slot.is_none() && self.state != State::Parked;
        self.enabled && self.has_last_reading && is_aside
    }

    /// Enables a source again that was switched off after timeouts.
    pub(crate) fn forgive(&mut self) {
        self.parks = 0;
        self.retry_us = i64::MIN;
        if self.state == State::Off {
            self.state = State::New;
        }
    }

    /// Takes a due tick or burst reading. Returns `None` if there is nothing to read.
    pub(crate) fn take_tick(
        &mut self,
        now: Timestamp,
        steady_us: i64,
        notes: &PendingEvents,
    ) -> Option<Task> {
        let between = self.burst.as_mut().and_then(|burst| burst.take(now));
        let Some(Due { at, missed }) = self.schedule.take(now) else {
            return self.take_between(between?, now, steady_us);
        };
        if matches!(self.state, State::Parked | State::Off) {
            self.report_outage(at, steady_us, notes);
            return None;
        }
        if self.slot.is_none() {
            self.stats.missed += missed + 1;
            return None;
        }
        if steady_us < self.retry_us {
            self.report_outage(at, steady_us, notes);
            return None;
        }
        if missed > 0 {
            self.stats.missed += missed;
            self.missed(at, notes);
        }
        self.drained(now, steady_us);
        let period_us = self.schedule.period_us();
        Some(Task::Collect { scheduled: at, period_us, is_between: false })
    }

    fn missed(&self, at: Timestamp, notes: &PendingEvents) {
        if let (Some(last), None) = (self.last, &self.outage)
            && at.since(last) > OUTAGE_MIN_US
        {
            let late = "the previous tick was skipped because it came too late";
            notes.add(self.spec.name, (last, at), Cause::MissedTicks, late);
        }
    }

    /// Sets a slow source aside. Its thread goes on reading it, and another thread continues the tick.
    pub(crate) fn set_aside(&mut self, since_us: i64, limit_us: i64) {
        self.aside = Some((since_us, limit_us));
        log::debug!(
            "source {} is slow; the agent reads the other sources meanwhile",
            self.spec.name
        );
    }

    /// Monotonic time at which a reading that was set aside exceeds its limit.
    pub(crate) fn overrun_us(&self) -> Option<i64> {
        let (since_us, limit_us) = self.aside.filter(|_| self.state != State::Parked)?;
        Some(since_us.saturating_add(limit_us))
    }

    /// Marks a reading that exceeded its time limit. Its samples will be too old.
    pub(crate) fn park(&mut self, steady_us: i64) {
        let limit_us = self.aside.map_or(0, |(_, limit_us)| limit_us);
        self.parks += 1;
        self.stats.timeouts += 1;
        self.state = State::Parked;
        let what = format!("its reading took longer than {} ms", limit_us / 1000);
        log::error!(
            "source {}: {what}; the agent continues without it until the reading ends",
            self.spec.name
        );
        self.begin_outage(Cause::SourceTimeout, what, steady_us);
    }

    /// Takes back a source from a thread that read it aside.
    pub(crate) fn come_back(&mut self, read: Read, steady_us: i64, notes: &PendingEvents) {
        self.aside = None;
        if self.state == State::Parked {
            self.unpark(read)
        } else {
            self.record(read, steady_us, notes)
        }
    }

    fn unpark(&mut self, read: Read) {
        let Read { mut slot, mark, .. } = read;
        // The samples are older than their timestamps.
        slot.sink.cut_back(mark);
        if !self.enabled {
            drop_source(&mut slot);
        }
        self.slot = Some(slot);
        if self.parks >= PARKS_MAX {
            self.state = State::Off;
            if let Some(slot) = &mut self.slot {
                drop_source(slot);
            }
            log::error!(
                "source {} exceeded its time limit {} times and is disabled; send SIGHUP to enable \
                 it again",
                self.spec.name,
                self.parks
            );
        } else {
            self.state = State::New;
            log::warn!("source {} works again", self.spec.name);
        }
    }

    /// Takes back a source that was read in time.
    pub(crate) fn record(&mut self, read: Read, steady_us: i64, notes: &PendingEvents) {
        let Read { task, mut slot, at, mark, samples, late_us, cpu_us, outcome, .. } = read;
        let (took_us, is_between) =
            (read.steady_us, matches!(task, Task::Collect { is_between: true, .. }));
        if is_between {
            slot.sink.keep_back(mark, self.burst.as_ref().and_then(Burst::wanted));
        }
        self.series = slot.sink.series();
        let rejected = slot.sink.counts();
        self.stats.rejected = rejected.all();
        self.stats.states_rejected = slot.rejected;
        (self.stats.kept_bytes, self.stats.kept_cut) =
            (slot.sink.kept_bytes(), slot.sink.kept_cut());
        let (spec, options) = (self.spec, &self.options);
        let has_own_options = || has_own_options(spec, options);
        self.parts.log_changes(spec.name, slot.sink.parts(), has_own_options);
        self.has_last_reading = slot.source.as_ref().is_some_and(|it| it.has_last_reading());
        self.slot = Some(slot);
        self.update_drain_interval(steady_us);
        if !self.enabled {
            self.end_demand();
        }
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        self.stats.reads += 1;
        self.stats.samples += u64::try_from(samples).unwrap_or(u64::MAX);
        self.stats.cpu_us += number(cpu_us);
        self.stats.wall_us += number(took_us);
        if is_between {
            self.keep_burst_pace(number(cpu_us), at);
        } else if let Task::Collect { .. } = task {
            self.stats.late_us = late_us;
            self.stats.last_cpu_us = number(cpu_us);
            let (name, series) = (self.spec.name, self.series);
            log::debug!("source {name}: {samples} samples of {series} series in {cpu_us} us");
            self.keep_pace(number(cpu_us), at);
        }
        match outcome {
            Outcome::Good => self.good(&task, at, notes),
            Outcome::Closed(error) => self.closed(error, at, steady_us, notes),
            // A job may be gone before its last reading. That is no fault of the source.
            Outcome::Failed(_) if matches!(task, Task::Ended(_)) => {}
            // The hardware or file has disappeared since the source was opened. That is no fault.
            Outcome::Failed(error @ SourceError::Absent(_)) => {
                if let Some(slot) = &mut self.slot {
                    drop_source(slot);
                }
                self.closed(error, at, steady_us, notes);
            }
            Outcome::Failed(error) => self.failed(error, steady_us),
            Outcome::Panicked(words) => self.panicked(&words, steady_us),
        }
    }

    /// Throttles a source that costs too much, and restores its rate when it costs less.
    fn keep_pace(&mut self, cpu_us: u64, at: Timestamp) {
        let period_us = u64::try_from(self.base().as_micros()).unwrap_or(u64::MAX);
        let Some(change) = self.pace.reading(cpu_us, period_us, self.percent_max) else { return };
        let slow_period = self.base().saturating_mul(self.pace.factor);
        self.schedule = Schedule::new(slow_period, at.plus(1));
        let (name, percent, every) = (self.spec.name, self.percent_max, slow_period.as_secs_f64());
        let rate = self.pace.rate();
        match change {
            Change::Slower => log::warn!(
                "source {name} uses more than {percent} % of a processor; the agent reads it \
                 {rate}, every {every} s, until it uses less"
            ),
            Change::Faster => {
                log::warn!(
                    "source {name} uses less processor time again; the agent reads it \
                            {rate}, every {every} s"
                )
            }
        }
    }

    fn good(&mut self, task: &Task, at: Timestamp, notes: &PendingEvents) {
        let Task::Collect { is_between, .. } = task else { return };
        if matches!(self.state, State::Failing(_)) {
            log::info!("source {} works again", self.spec.name);
        }
        self.state = State::Working;
        self.failures = 0;
        // Burst samples may never be sent, so a gap lasts until the next tick.
        if *is_between {
            return;
        }
        if let Some(outage) = self.outage.take() {
            notes.add(self.spec.name, (outage.from, at), outage.cause, &outage.detail);
        }
        self.last = Some(at);
    }

    fn closed(&mut self, error: SourceError, at: Timestamp, steady_us: i64, notes: &PendingEvents) {
        self.retry_us = steady_us.saturating_add(RETRY_US);
        if matches!(error, SourceError::Broken(_)) {
            self.stats.errors += 1;
        }
        // A source that the machine no longer has leaves no gap. A denied or broken source does.
        if matches!(error, SourceError::Absent(_)) {
            self.report_outage_at_end(at, notes);
            self.last = None;
        } else {
            self.begin_outage(cause(&error), error.to_string(), steady_us);
        }
        self.fail(error);
    }

    fn failed(&mut self, error: SourceError, steady_us: i64) {
        self.failures += 1;
        self.stats.errors += 1;
        if self.failures >= FAILURES_REOPEN
            && let Some(slot) = &mut self.slot
        {
            drop_source(slot);
        }
        if self.failures >= FAILURES_RETRY {
            self.retry_us = steady_us.saturating_add(RETRY_US);
        }
        self.begin_outage(cause(&error), error.to_string(), steady_us);
        self.fail(error);
    }

    fn panicked(&mut self, words: &str, steady_us: i64) {
        self.stats.errors += 1;
        self.stats.panics += 1;
        self.retry_us = steady_us.saturating_add(RETRY_US);
        let what = format!("the source panicked: {words}");
        self.begin_outage(Cause::SourceBroken, what.clone(), steady_us);
        self.fail(SourceError::broken(what));
    }

    /// Records an error of the source, and logs it if it is new.
    fn fail(&mut self, error: SourceError) {
        let name = self.spec.name;
        let known = matches!(&self.state, State::Failing(old) if *old == error);
        match &error {
            SourceError::Absent(_) if !known && has_own_options(self.spec, &self.options) => {
                log::warn!("source {name} is {error}");
            }
            SourceError::Absent(_) if !known => log::info!("source {name} is {error}"),
            SourceError::Denied { .. } if !known => log::warn!("source {name} is {error}"),
            SourceError::Broken(_) => log::error!("source {name} is {error}"),
            _ => {}
        }
        self.state = State::Failing(error);
    }
}

/// Whether options of a source differ from the defaults. Then a warning is due if the machine lacks it.
fn has_own_options(spec: &SourceSpec, options: &Options) -> bool {
    !options.are_defaults(spec.options)
}
