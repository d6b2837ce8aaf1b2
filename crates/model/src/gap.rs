//! What is missing, and why: nothing is dropped unseen.

use crate::{DeviceId, Origin, Timestamp};

/// Samples that should be there and are not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// Who should have sent them.
    pub origin: Origin,
    /// Of which device.
    pub device: DeviceId,
    /// Of which source; empty for all of them.
    pub source: Box<str>,
    /// The last instant before the hole that has its samples.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// Why.
    pub cause: Cause,
    /// What the one who lost them says: a server's reason, a count.
    pub detail: Box<str>,
}

/// Why samples are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The agent did not run.
    AgentDown,
    /// The tick came too late to be taken, or the machine slept.
    MissedTicks,
    /// The source took longer than it may, and was parked.
    SourceTimeout,
    /// The source answered nonsense, or panicked.
    SourceBroken,
    /// A permission that was there is gone.
    PermissionLost,
    /// The kernel dropped exit or fork events: its buffer was full.
    EventsLost,
    /// The spool reached its limit; the oldest segment went.
    SpoolFull,
    /// The spool's bytes were damaged.
    SpoolDamaged,
    /// The server refused a batch for good.
    Refused,
    /// One series of the batch was refused: too many, or an impossible time.
    SeriesRefused,
    /// Batches are missing between two that arrived.
    BatchesLost,
    /// The batch came after its place in the dedupe window was given up.
    TooLate,
    /// The server's log was damaged.
    LogDamaged,
}

impl Cause {
    /// Every cause, in the order of the wire's numbers.
    pub const ALL: [Self; 13] = [
        Self::AgentDown,
        Self::MissedTicks,
        Self::SourceTimeout,
        Self::SourceBroken,
        Self::PermissionLost,
        Self::EventsLost,
        Self::SpoolFull,
        Self::SpoolDamaged,
        Self::Refused,
        Self::SeriesRefused,
        Self::BatchesLost,
        Self::TooLate,
        Self::LogDamaged,
    ];

    /// Those that `jobmeter run` notes; all others are known to agents and the server alone.
    pub const OF_RUNS: [Self; 2] = [Self::SourceBroken, Self::EventsLost];

    /// The words shown to people and found in the table `gaps`.
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
            Self::Refused => "refused",
            Self::SeriesRefused => "series refused",
            Self::BatchesLost => "batches lost",
            Self::TooLate => "too late",
            Self::LogDamaged => "log damaged",
        }
    }

    /// The cause of its words.
    pub fn from_words(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.words() == words)
    }
}
