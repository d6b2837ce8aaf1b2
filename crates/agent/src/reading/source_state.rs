//! What the agent knows of a source: when it is due, how it is, what it cost, what it failed to give.

mod demand;
mod drains;
mod holes;

use crate::common::schedule::{Due, Schedule};
use crate::reading::burst::Burst;
use crate::reading::pace::{Change, Pace};
use crate::reading::part_status::Parts;
use crate::reading::plan::SourcePlan;
use crate::reading::work::{Outcome, Read, Slot, Task, drop_source};
use delivery::Notes;
pub(crate) use demand::BETWEEN;
use drains::Drains;
use holes::{Hole, cause};
use model::{Cause, Metric, Timestamp};
use sources::{Options, SourceError, SourceSpec};
use std::sync::Arc;
use std::time::Duration;

/// How long a source that could not be opened, or goes on failing, is left alone.
const RETRY_US: i64 = 60 * Timestamp::SECOND;
/// Failures in a row after which a source is opened anew, at the next tick.
const FAILURES_REOPEN: u32 = 2;
/// Failures in a row after which it is left alone for a while.
const FAILURES_RETRY: u32 = 4;
/// Times that a source may be set aside for taking too long; then it is off.
pub(crate) const PARKS_MAX: u32 = 8;
/// Ticks missed within less than this make no gap: at a period of a millisecond they are everyday.
const HOLE_MIN_US: i64 = Timestamp::SECOND;

/// How a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It was never read.
    New,
    /// It gives samples.
    Working,
    /// It gives none, for this reason.
    Failing(SourceError),
    /// It is being read for longer than it may take, aside from the others.
    Parked,
    /// It was set aside too often.
    Off,
}

/// What a source cost and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Readings.
    pub(crate) reads: u64,
    /// Samples they gave.
    pub(crate) samples: u64,
    /// Readings that failed.
    pub(crate) errors: u64,
    /// Those of them that panicked.
    pub(crate) panics: u64,
    /// Readings that took longer than they may.
    pub(crate) timeouts: u64,
    /// Ticks that came too late to be taken.
    pub(crate) missed: u64,
    /// Processor time of all readings.
    pub(crate) cpu_us: u64,
    /// Time of all readings.
    pub(crate) wall_us: u64,
    /// Bytes of samples that are kept of readings between its ticks.
    pub(crate) kept_bytes: usize,
    /// Samples of those that had to make room before their time.
    pub(crate) kept_cut: u64,
    /// Samples that its sink refused.
    pub(crate) refused: u64,
    /// Accounting states that it rejected.
    pub(crate) states_rejected: u64,
    /// How late the last tick's reading began.
    pub(crate) late_us: i64,
    /// Processor time of the last reading.
    pub(crate) last_cpu_us: u64,
}

/// A source.
pub(crate) struct Entry {
    pub(crate) spec: &'static SourceSpec,
    pub(crate) options: Arc<Options>,
    pub(crate) enabled: bool,
    pub(crate) schedule: Schedule,
    /// What the configuration says; the schedule's is longer where the source costs too much.
    period: Duration,
    /// While no job is on the node.
    period_idle: Option<Duration>,
    is_idle: bool,
    /// Metrics that nobody wants now.
    pub(crate) off: Arc<[&'static Metric]>,
    /// What is read between the ticks.
    pub(crate) burst: Option<Burst>,
    pace: Pace,
    /// Hundredths of a processor that it may take.
    percent_max: u64,
    /// Away while the source is being read.
    pub(crate) slot: Option<Box<Slot>>,
    pub(crate) state: State,
    pub(crate) stats: Stats,
    pub(crate) series: usize,
    /// Since when, by the steady clock, it is read aside from the others, and how long it may be.
    aside: Option<(i64, i64)>,
    drains: Drains,
    retry_us: i64,
    failures: u32,
    parks: u32,
    last: Option<Timestamp>,
    hole: Option<Hole>,
    parts: Parts,
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
            retry_us: i64::MIN,
            failures: 0,
            parks: 0,
            last: None,
            hole: None,
            parts: Parts::default(),
        }
    }

    /// Gives a source that was off another chance.
    pub(crate) fn forgive(&mut self) {
        self.parks = 0;
        self.retry_us = i64::MIN;
        if self.state == State::Off {
            self.state = State::New;
        }
    }

    /// Takes what has come: a tick, or a reading between two. `None`: there is nothing to read, and nothing
    /// to be said.
    pub(crate) fn take_tick(
        &mut self,
        now: Timestamp,
        steady_us: i64,
        notes: &Notes,
    ) -> Option<Task> {
        let between = self.burst.as_mut().and_then(|burst| burst.take(now));
        let Some(Due { at, missed }) = self.schedule.take(now) else {
            return self.take_between(between?, now, steady_us);
        };
        if matches!(self.state, State::Parked | State::Off) {
            self.tell_hole(at, steady_us, notes);
            return None;
        }
        if self.slot.is_none() {
            self.stats.missed += missed + 1;
            return None;
        }
        if steady_us < self.retry_us {
            self.tell_hole(at, steady_us, notes);
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

    fn missed(&self, at: Timestamp, notes: &Notes) {
        if let (Some(last), None) = (self.last, &self.hole)
            && at.since(last) > HOLE_MIN_US
        {
            let late = "the tick before came too late to be taken";
            notes.add(self.spec.name, (last, at), Cause::MissedTicks, late);
        }
    }

    /// The source is slow: its thread goes on reading it aside, and another one with the rest of the tick.
    pub(crate) fn set_aside(&mut self, since_us: i64, limit_us: i64) {
        self.aside = Some((since_us, limit_us));
        log::debug!("source {} is slow; the others go on without it", self.spec.name);
    }

    /// When a source that is read aside will have taken longer than it may.
    pub(crate) fn overrun_us(&self) -> Option<i64> {
        let (since_us, limit_us) = self.aside.filter(|_| self.state != State::Parked)?;
        Some(since_us.saturating_add(limit_us))
    }

    /// The source takes longer than it may: what it reads will be too old.
    pub(crate) fn park(&mut self, steady_us: i64) {
        let limit_us = self.aside.map_or(0, |(_, limit_us)| limit_us);
        self.parks += 1;
        self.stats.timeouts += 1;
        self.state = State::Parked;
        let what = format!("it took longer than {} ms", limit_us / 1000);
        log::error!("source {}: {what}; it is set aside until it answers", self.spec.name);
        self.open_hole(Cause::SourceTimeout, what, steady_us);
    }

    /// A thread that read the source aside has come back.
    pub(crate) fn come_back(&mut self, read: Read, steady_us: i64, notes: &Notes) {
        self.aside = None;
        if self.state == State::Parked {
            self.unpark(read)
        } else {
            self.record(read, steady_us, notes)
        }
    }

    fn unpark(&mut self, read: Read) {
        let Read { mut slot, mark, .. } = read;
        // What it read is older than it says.
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
                "source {} took too long {} times and is off; SIGHUP switches it on again",
                self.spec.name,
                self.parks
            );
        } else {
            self.state = State::New;
            log::warn!("source {} answers again", self.spec.name);
        }
    }

    /// Takes back a source that was read in time.
    pub(crate) fn record(&mut self, read: Read, steady_us: i64, notes: &Notes) {
        let Read { task, mut slot, at, mark, samples, late_us, cpu_us, outcome, .. } = read;
        let (took_us, is_between) =
            (read.steady_us, matches!(task, Task::Collect { is_between: true, .. }));
        if is_between {
            slot.sink.keep_back(mark, self.burst.as_ref().and_then(Burst::wanted));
        }
        self.series = slot.sink.series();
        let refused = slot.sink.counts();
        self.stats.refused = refused.all();
        self.stats.states_rejected = slot.rejected;
        (self.stats.kept_bytes, self.stats.kept_cut) =
            (slot.sink.kept_bytes(), slot.sink.kept_cut());
        let (spec, options) = (self.spec, &self.options);
        let is_told_what = || is_told_what(spec, options);
        self.parts.tell(spec.name, slot.sink.parts(), is_told_what);
        self.slot = Some(slot);
        self.wish_for_drains(steady_us);
        if !self.enabled {
            self.let_go();
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
            // A job that is gone before its last reading is no fault of the source.
            Outcome::Failed(_) if matches!(task, Task::Ended(_)) => {}
            // What was there when it was opened has gone, or was never looked for: that is no fault.
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

    /// Reads it more rarely if it costs more than it may, and as often as it should again if it does not.
    fn keep_pace(&mut self, cpu_us: u64, at: Timestamp) {
        let period_us = u64::try_from(self.base().as_micros()).unwrap_or(u64::MAX);
        let Some(change) = self.pace.reading(cpu_us, period_us, self.percent_max) else { return };
        let slowed = self.base().saturating_mul(self.pace.factor);
        self.schedule = Schedule::new(slowed, at.plus(1));
        let (name, percent, every) = (self.spec.name, self.percent_max, slowed.as_secs_f64());
        let rate = self.pace.rate();
        match change {
            Change::Slower => log::warn!(
                "source {name} takes more than {percent} % of a processor: it is read {rate}, every {every} s, \
                 until it takes less"
            ),
            Change::Faster => {
                log::warn!("source {name} takes less again: it is read {rate}, every {every} s")
            }
        }
    }

    fn good(&mut self, task: &Task, at: Timestamp, notes: &Notes) {
        let Task::Collect { is_between, .. } = task else { return };
        if matches!(self.state, State::Failing(_)) {
            log::info!("source {} works again", self.spec.name);
        }
        self.state = State::Working;
        self.failures = 0;
        // What is read between the ticks may never be sent: a hole goes on to the next tick.
        if *is_between {
            return;
        }
        if let Some(hole) = self.hole.take() {
            notes.add(self.spec.name, (hole.from, at), hole.cause, &hole.detail);
        }
        self.last = Some(at);
    }

    fn closed(&mut self, error: SourceError, at: Timestamp, steady_us: i64, notes: &Notes) {
        self.retry_us = steady_us.saturating_add(RETRY_US);
        if matches!(error, SourceError::Broken(_)) {
            self.stats.errors += 1;
        }
        // Something that this machine has no more is no gap; something that is closed or broken is.
        if matches!(error, SourceError::Absent(_)) {
            self.tell_hole_at_end(at, notes);
            self.last = None;
        } else {
            self.open_hole(cause(&error), error.to_string(), steady_us);
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
        self.open_hole(cause(&error), error.to_string(), steady_us);
        self.fail(error);
    }

    fn panicked(&mut self, words: &str, steady_us: i64) {
        self.stats.errors += 1;
        self.stats.panics += 1;
        self.retry_us = steady_us.saturating_add(RETRY_US);
        let what = format!("it panicked: {words}");
        self.open_hole(Cause::SourceBroken, what.clone(), steady_us);
        self.fail(SourceError::broken(what));
    }

    /// Says what keeps the source from working, when it is something new.
    fn fail(&mut self, error: SourceError) {
        let name = self.spec.name;
        let known = matches!(&self.state, State::Failing(old) if *old == error);
        match &error {
            SourceError::Absent(_) if !known && is_told_what(self.spec, &self.options) => {
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

/// Whether the settings say what a source is to read: then it is no matter of course that the machine lacks it.
fn is_told_what(spec: &SourceSpec, options: &Options) -> bool {
    !options.are_defaults(spec.options)
}
