//! Missing samples and their causes: every loss is recorded.

use crate::{DeviceId, Origin, Timestamp};

/// Missing samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The expected sender.
    pub origin: Origin,
    /// The device.
    pub device: DeviceId,
    /// The source; empty for all sources.
    pub source: Box<str>,
    /// Time of the last sample before the gap.
    pub from: Timestamp,
    /// Time of the first sample after it.
    pub to: Timestamp,
    /// The cause.
    pub cause: Cause,
    /// Details from the component that lost them: a server's reason, a count.
    pub detail: Box<str>,
}

/// Why samples are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The agent did not run.
    AgentDown,
    /// The tick was too late to be read, or the machine slept.
    MissedTicks,
    /// The source exceeded its time limit and was parked.
    SourceTimeout,
    /// The source returned impossible values, or panicked.
    SourceBroken,
    /// A permission was revoked.
    PermissionLost,
    /// The kernel dropped exit or fork events because its buffer was full.
    EventsLost,
    /// The spool reached its limit and evicted its oldest segment.
    SpoolFull,
    /// The spool's bytes were damaged.
    SpoolDamaged,
    /// The server rejected a batch permanently.
    Rejected,
    /// The agent or the server rejected a series: too many series, or an impossible time.
    SeriesRejected,
    /// Batches are missing between two that arrived.
    BatchesLost,
    /// The batch arrived after its entry in the dedup window was evicted.
    TooLate,
    /// The server's log was damaged.
    LogDamaged,
    /// The poller, or the feed of a wattmeter, did not run.
    PollerDown,
}

impl Cause {
    /// Every cause, in the order of the wire's numbers.
    pub const ALL: [Self; 14] = [
        Self::AgentDown,
        Self::MissedTicks,
        Self::SourceTimeout,
        Self::SourceBroken,
        Self::PermissionLost,
        Self::EventsLost,
        Self::SpoolFull,
        Self::SpoolDamaged,
        Self::Rejected,
        Self::SeriesRejected,
        Self::BatchesLost,
        Self::TooLate,
        Self::LogDamaged,
        Self::PollerDown,
    ];

    /// Causes that `jobmeter run` and its delivery report; only agents and the server report the others.
    pub const OF_RUNS: [Self; 7] = [
        Self::SourceBroken,
        Self::EventsLost,
        Self::SpoolFull,
        Self::SpoolDamaged,
        Self::BatchesLost,
        Self::Rejected,
        Self::SeriesRejected,
    ];

    /// The words shown to people and stored in the table `gaps`.
    pub const fn words(self) -> &'static str {
        match self {
            Self::AgentDown => "agent down",
            Self::MissedTicks => "missed ticks",
            Self::SourceTimeout => "source timed out",
            Self::SourceBroken => "source broken",
            Self::PermissionLost => "permission lost",
            Self::EventsLost => "events lost",
            Self::SpoolFull => "spool full",
            Self::SpoolDamaged => "spool damaged",
            Self::Rejected => "rejected",
            Self::SeriesRejected => "series rejected",
            Self::BatchesLost => "batches lost",
            Self::TooLate => "too late",
            Self::LogDamaged => "log damaged",
            Self::PollerDown => "poller down",
        }
    }

    /// Whether the sender did not run.
    pub const fn is_down(self) -> bool {
        matches!(self, Self::AgentDown | Self::PollerDown)
    }

    /// The cause with these words.
    pub fn from_words(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.words() == words)
    }
}
