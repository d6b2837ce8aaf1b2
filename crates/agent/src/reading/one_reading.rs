//! One reading of one source: the part of a tick that may hang or panic. It owns all its data, so that the rest of
//! the agent can go on without it.

use crate::common::schedule::stamp;
use cgroups::Jobs;
use delivery::Clock;
use kernel::Root;
use model::{JobKey, Metric, Timestamp};
use sources::{
    Context, Open, Options, RingLimits, Sink, SinkPosition, Source, SourceError, SourceSpec,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The machine that the agent reads.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) root: Root,
    /// Boot time, which is the start of the machine's counters.
    pub(crate) boot: Timestamp,
}

/// A source with its samples. It moves to the thread that reads it.
pub(crate) struct Slot {
    pub(crate) source: Option<Box<dyn Source>>,
    pub(crate) sink: Sink,
    /// The options that the source was opened with.
    opened_with: Option<Arc<Options>>,
    /// Accounting state: until the source is opened, that of the earlier start; later, the state for the next
    /// start.
    pub(crate) state: Vec<u8>,
    /// End of the samples of an earlier start.
    pub(crate) until: Option<Timestamp>,
    /// Number of states that the source rejected.
    pub(crate) rejected: u64,
}

/// A task for a source.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Read everything, either for the tick of this instant or as a burst reading between two ticks.
    Collect { scheduled: Timestamp, period_us: i64, is_between: bool },
    /// Drain the kernel's queue.
    Drain,
    /// Read these jobs for the last time.
    Ended(Arc<[JobKey]>),
    /// Read everything for the last time, because the agent ends.
    Finish,
}

/// A reading that is about to start.
pub(crate) struct Reading {
    pub(crate) place: usize,
    pub(crate) spec: &'static SourceSpec,
    pub(crate) task: Task,
    pub(crate) slot: Box<Slot>,
    pub(crate) options: Arc<Options>,
    /// Optional metrics that no promotion enables now.
    pub(crate) off: Arc<[&'static Metric]>,
    pub(crate) keep: Option<RingLimits>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) budget_us: u64,
}

/// A completed reading.
pub(crate) struct Read {
    pub(crate) place: usize,
    pub(crate) task: Task,
    pub(crate) slot: Box<Slot>,
    /// Timestamp of its samples.
    pub(crate) at: Timestamp,
    /// Position of the sink before the reading.
    pub(crate) mark: SinkPosition,
    pub(crate) samples: usize,
    pub(crate) late_us: i64,
    pub(crate) steady_us: i64,
    pub(crate) cpu_us: i64,
    pub(crate) outcome: Outcome,
    /// Generation of the jobs that the reading used.
    pub(crate) jobs: u64,
}

/// The result of a reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    /// The source could not be opened.
    Closed(SourceError),
    /// The source was open, but gave no samples or not all.
    Failed(SourceError),
    /// The reading panicked with this message. The source and the samples it had pushed are lost.
    Panicked(String),
}

impl Slot {
    pub(crate) const fn new(sink: Sink) -> Self {
        Self { source: None, sink, opened_with: None, state: Vec::new(), until: None, rejected: 0 }
    }
}

impl Reading {
    /// Makes the reading. This may take long.
    pub(crate) fn make(mut self, clock: &dyn Clock) -> Read {
        let now = clock.wall();
        let (at, late_us) = match self.task {
            Task::Collect { scheduled, period_us, .. } => {
                (stamp(scheduled, period_us, now), now.since(scheduled))
            }
            Task::Drain | Task::Ended(_) | Task::Finish => (now, 0),
        };
        let (steady, cpu) = (clock.steady_us(), clock.thread_cpu_us());
        let before = self.slot.sink.len();
        let mark = self.slot.sink.mark();
        self.slot.sink.set_off(&self.off);
        self.slot.sink.set_keep(self.keep);
        self.slot.sink.begin(at);
        let outcome = match catch_unwind(AssertUnwindSafe(|| self.open_and_read(at))) {
            Ok(outcome) => outcome,
            Err(panic) => {
                self.slot.sink.cut_back(mark);
                drop_source(&mut self.slot);
                Outcome::Panicked(words_of(&*panic))
            }
        };
        Read {
            place: self.place,
            at,
            mark,
            samples: self.slot.sink.len().saturating_sub(before),
            late_us,
            steady_us: clock.steady_us().saturating_sub(steady),
            cpu_us: clock.thread_cpu_us().saturating_sub(cpu),
            task: self.task,
            slot: self.slot,
            outcome,
            jobs: self.jobs.generation(),
        }
    }

    fn open_and_read(&mut self, now: Timestamp) -> Outcome {
        let slot = &mut *self.slot;
        let as_reported = |with: &Arc<Options>| Arc::ptr_eq(with, &self.options);
        if !slot.opened_with.as_ref().is_some_and(as_reported) {
            slot.source = None;
        }
        let Machine { root, boot } = &*self.machine;
        let source = match &mut slot.source {
            Some(source) => source,
            None => match (self.spec.open)(&Open { root, options: &self.options, boot: *boot }) {
                Ok(mut source) => {
                    let state = std::mem::take(&mut slot.state);
                    if let Err(error) = source.resume(&state, slot.until.take()) {
                        log::warn!("source {}: {error}", self.spec.name);
                        slot.rejected += 1;
                    }
                    slot.opened_with = Some(Arc::clone(&self.options));
                    slot.source.insert(source)
                }
                Err(error) => return Outcome::Closed(error),
            },
        };
        let is_between = matches!(self.task, Task::Collect { is_between: true, .. });
        let cx = Context {
            root,
            now,
            boot: *boot,
            jobs: &self.jobs,
            budget_us: self.budget_us,
            is_between,
        };
        let result = match &self.task {
            Task::Collect { .. } => source.collect(&cx, &mut slot.sink),
            Task::Drain => source.drain(&cx, &mut slot.sink),
            Task::Finish => source.finish(&cx, &mut slot.sink, &mut slot.state),
            Task::Ended(keys) => {
                let mut result = Ok(());
                for key in &**keys {
                    let one = source.job_ended(key, &cx, &mut slot.sink);
                    result = result.and(one);
                }
                slot.sink.forget_soon(keys);
                result
            }
        };
        result.map_or_else(Outcome::Failed, |()| Outcome::Good)
    }
}

/// Closes a source, which may panic.
pub(crate) fn drop_source(slot: &mut Slot) {
    let source = slot.source.take();
    if catch_unwind(AssertUnwindSafe(|| drop(source))).is_err() {
        log::error!("a source panicked while it was closed");
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    words.unwrap_or("no words").chars().take(200).collect()
}
