//! What a source is, and what it may do.

use crate::{Options, Sane, Sink, SourceError};
use cgroups::Jobs;
use kernel::Root;
use model::setting::OptionSpec;
use model::{Metric, Timestamp};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A source as the rest of the program sees it: one constant in each file. From it come the
/// configuration keys, the defaults, the manual, the name checks and `jobmeter sources`.
#[derive(Debug)]
pub struct SourceSpec {
    /// Name in the configuration, of the file, and first word of its metrics.
    pub name: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
    /// The kernel's files or calls, as the manual shows them.
    pub reads: &'static [&'static str],
    /// What a tick costs, with the machine it was measured on, or what it grows with.
    pub cost: &'static str,
    /// How often it is read when nobody says otherwise.
    pub every: Every,
    /// Every metric it may produce; producing another is a bug that the tests catch.
    pub metrics: &'static [&'static Metric],
    /// What true values of them cannot be.
    pub sane: &'static [Sane],
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Opens the source, or says why this machine has none. Called at start, and again now and then
    /// while it is absent or denied.
    pub open: fn(&Open<'_>) -> Result<Box<dyn Source>, SourceError>,
}

/// How often a source is read when nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// At every tick of the agent.
    Tick,
    /// Not more often than this, as it costs more.
    AtLeast(Duration),
}

/// What a source is opened with.
#[derive(Debug)]
pub struct Open<'a> {
    /// The machine's files.
    pub root: &'a Root,
    /// The source's checked options.
    pub options: &'a Options,
    /// When the machine booted: the start of its counters.
    pub boot: Timestamp,
}

/// What a source reads with.
#[derive(Debug)]
pub struct Context<'a> {
    /// The machine's files.
    pub root: &'a Root,
    /// The scheduled instant of the tick, which its samples carry.
    pub now: Timestamp,
    /// When the machine booted: the start of its counters.
    pub boot: Timestamp,
    /// The jobs on this node, as their cgroups show.
    pub jobs: &'a Jobs,
    /// Microseconds of processor time this reading should not pass; a source that reads per process
    /// stops there and goes on at the next tick where it stopped.
    pub budget_us: u64,
    /// It is a reading between two ticks, of a burst: its samples are kept back, and may never be sent.
    pub is_between: bool,
}

/// The queues of a source that needs no drain now.
#[derive(Clone, Copy, Debug)]
pub struct Quiet<'a> {
    /// What becomes readable when something waits; none: it waits for the queues of others, as whatever comes into
    /// one is told to each source that waits.
    pub queues: [Option<BorrowedFd<'a>>; 2],
    /// It needs a drain after so long even when nothing comes.
    pub at_most: Duration,
}

/// Reads counters, when told to, into a sink.
pub trait Source: Send {
    /// Reads everything once. Time and files come from the caller, so that tests own both. In the
    /// steady state (the same series as last time) it allocates nothing.
    ///
    /// # Errors
    /// Nothing could be read; what had been pushed before the error is kept.
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError>;

    /// Called often between ticks, for sources with a queue in the kernel that must not overflow.
    ///
    /// # Errors
    /// As [`Self::collect`].
    fn drain(&mut self, _cx: &Context<'_>, _out: &mut Sink) -> Result<(), SourceError> {
        Ok(())
    }

    /// How often [`Self::drain`] wants to be called, if at all.
    fn drain_every(&self) -> Option<Duration> {
        None
    }

    /// Where nothing can need a drain until something comes into its queues: what becomes readable then.
    /// While this is `Some`, [`Self::drain`] is called at the next multiple of [`Self::drain_every`] after that,
    /// and not at every one.
    fn quiet(&self) -> Option<Quiet<'_>> {
        None
    }

    /// The agent ends: reads everything for the last time, and appends to `state` what the next start needs
    /// to continue the counters. Sources without a state do nothing.
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

    /// Takes the state that [`Self::finish`] of an earlier start wrote, before the first reading; empty if
    /// there is none. `until`: until when samples of an earlier start exist, if any.
    ///
    /// # Errors
    /// The state is rejected; the source then works without it.
    fn resume(&mut self, _state: &[u8], _until: Option<Timestamp>) -> Result<(), SourceError> {
        Ok(())
    }

    /// A job's cgroup is about to be forgotten: the last chance to read it. `cx.jobs` still has it.
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
