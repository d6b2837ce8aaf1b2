//! The declaration of a source, and the trait that it implements.

use crate::{Options, Sink, SourceError, ValueBounds};
use cgroups::Jobs;
use kernel::Root;
use model::setting::OptionSpec;
use model::{Metric, Timestamp};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The declaration of a source: one constant in each file. It provides the configuration keys,
/// the defaults, the manual, the name checks and `jobmeter sources`.
#[derive(Debug)]
pub struct SourceSpec {
    /// Name of the source, of its file and of its configuration section; first word of its metrics.
    pub name: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
    /// The kernel's files or calls, as the manual shows them.
    pub reads: &'static [&'static str],
    /// Cost of a reading, with the machine of the measurement, or the quantity that it grows with.
    pub cost: &'static str,
    /// Default interval of readings.
    pub every: Every,
    /// Every metric that it may push; tests fail if it pushes another one.
    pub metrics: &'static [&'static Metric],
    /// Bounds of their possible values.
    pub sane: &'static [ValueBounds],
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Opens the source, or returns why this machine has none. The agent calls it at startup, and repeatedly
    /// while the source is absent or denied.
    pub open: fn(&Open<'_>) -> Result<Box<dyn Source>, SourceError>,
    /// Errors in well-formed options that depend on this machine: option and message. Starts and counts nothing.
    pub check: fn(&Root, &Options) -> Vec<(&'static str, String)>,
    /// Whether it may be read between ticks, for a burst. A source that reports some data only once may not, nor one
    /// that queries another program or computer.
    pub may_burst: bool,
    /// Whether `jobmeter run` measures its command with this source.
    pub run: RunSamples,
}

impl SourceSpec {
    /// The fields that most sources leave as they are.
    pub const DEFAULT: Self = Self {
        name: "",
        help: "",
        reads: &[],
        cost: "",
        every: Every::Tick,
        metrics: &[],
        sane: &[],
        options: &[],
        open: |_| Err(SourceError::absent("an `open` in its declaration")),
        check: |_, _| Vec::new(),
        may_burst: true,
        run: RunSamples::Never,
    };
}

/// Samples of a source that `jobmeter run` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSamples {
    /// None: `jobmeter run` does not read the source.
    Never,
    /// Those of a job that no agent reads.
    WithoutAgent,
    /// Those of every job: they continue the agent's counters.
    Always,
}

/// Default interval of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// At every tick of the agent.
    Tick,
    /// At most once per this interval, because a reading is expensive.
    AtLeast(Duration),
}

/// Input of [`SourceSpec::open`].
#[derive(Debug)]
pub struct Open<'a> {
    /// The machine's files.
    pub root: &'a Root,
    /// The source's checked options.
    pub options: &'a Options,
    /// When the machine booted: the start of its counters.
    pub boot: Timestamp,
}

/// Input of a reading.
#[derive(Debug)]
pub struct Context<'a> {
    /// The machine's files.
    pub root: &'a Root,
    /// The scheduled time of the tick, and the timestamp of its samples.
    pub now: Timestamp,
    /// When the machine booted: the start of its counters.
    pub boot: Timestamp,
    /// The jobs on this node, by their cgroups.
    pub jobs: &'a Jobs,
    /// Budget of processor time for this reading, in microseconds. A source that reads per process stops at
    /// the budget and continues there at the next tick.
    pub budget_us: u64,
    /// This reading is between two ticks, for a burst: its samples are held back and may never be sent.
    pub is_between: bool,
}

/// The queues of a source that needs no drain at present.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleQueues<'a> {
    /// Descriptors that become readable when an event waits. `None`: the source depends on the queues of
    /// other sources, because the agent wakes every waiting source for each event about a job.
    pub queues: [Option<BorrowedFd<'a>>; 2],
    /// Whether events in `queues` may wait until the next drain, because they are about no job.
    pub is_calm: bool,
    /// A descriptor that becomes readable when a task is moved into a job.
    pub moves: Option<BorrowedFd<'a>>,
    /// The source needs a drain after this time even without an event.
    pub at_most: Duration,
}

/// Reads counters, on request, into a sink.
pub trait Source: Send {
    /// Reads everything once. The caller provides time and files, so that tests control both. In the
    /// steady state (the same series as last time) it allocates nothing.
    ///
    /// # Errors
    /// Nothing could be read; samples pushed before the error remain.
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError>;

    /// Called often between ticks, for sources with a queue in the kernel that must not overflow.
    ///
    /// # Errors
    /// As [`Self::collect`].
    fn drain(&mut self, _cx: &Context<'_>, _out: &mut Sink) -> Result<(), SourceError> {
        Ok(())
    }

    /// Interval at which [`Self::drain`] is to be called, if at all.
    fn drain_every(&self) -> Option<Duration> {
        None
    }

    /// Descriptors to poll while no drain is needed until an event arrives. While this is `Some`, the agent
    /// calls [`Self::drain`] only at the next multiple of [`Self::drain_every`] after an event, instead of at
    /// each multiple.
    fn quiet(&self) -> Option<IdleQueues<'_>> {
        None
    }

    /// Called at shutdown: reads everything for the last time, and appends the state to `state` that the next
    /// start needs to continue the counters. Sources without state do nothing.
    ///
    /// # Errors
    /// As [`Self::collect`].
    fn finish(
        &mut self,
        _cx: &Context<'_>,
        _out: &mut Sink,
        _state: &mut Vec<u8>,
    ) -> Result<(), SourceError> {
        Ok(())
    }

    /// Restores the state that [`Self::finish`] of an earlier run wrote, before the first reading; empty if
    /// there is none. `until`: end of the samples of earlier runs, if any.
    ///
    /// # Errors
    /// The state is rejected; the source then starts without it.
    fn resume(&mut self, _state: &[u8], _until: Option<Timestamp>) -> Result<(), SourceError> {
        Ok(())
    }

    /// Whether [`Self::job_ended`] or [`Self::finish`] reads anything: then the agent waits for a slow reading of this
    /// source before it drops a job, and before it ends.
    fn has_last_reading(&self) -> bool {
        false
    }

    /// Called before the agent drops a job's cgroup: the last chance to read it. `cx.jobs` still
    /// contains it.
    ///
    /// # Errors
    /// As [`Self::collect`].
    fn job_ended(
        &mut self,
        _job: &model::JobKey,
        _cx: &Context<'_>,
        _out: &mut Sink,
    ) -> Result<(), SourceError> {
        Ok(())
    }
}
