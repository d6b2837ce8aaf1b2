//! Wire frames in the spool and the sender.

use model::{Batch, Gap, JobEvent, Timestamp};
use wire::{Decoder, Frames};

/// Times of the first and the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

impl Span {
    /// Span of a batch; `None` if it has no sample.
    pub(crate) fn of(batch: &Batch) -> Option<Self> {
        Self::of_instants(batch.ticks.iter().map(|tick| tick.at))
    }

    fn of_instants(instants: impl Iterator<Item = Timestamp> + Clone) -> Option<Self> {
        Some(Self { first: instants.clone().min()?, last: instants.max()? })
    }

    /// Smallest span that contains both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Instants just outside the span: the bounds of the gap if the samples are lost.
    pub(crate) const fn outside(self) -> (Timestamp, Timestamp) {
        (self.first.plus(-1), self.last.plus(1))
    }
}

/// Content of a frame, needed if the frame is lost.
pub(crate) struct FrameContent {
    pub(crate) span: Option<Span>,
    pub(crate) samples: u64,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) jobs: Vec<JobEvent>,
}

/// Decodes a frame. Returns `None` if it is invalid.
pub(crate) fn inside(bytes: &[u8]) -> Option<FrameContent> {
    let frame = Frames::of(bytes).next()?.ok()?;
    let batch = Decoder::default().decode(&frame).ok()?;
    Some(FrameContent {
        span: Span::of_instants(batch.ticks.iter().map(|tick| tick.at)),
        samples: u64::try_from(batch.values.len()).unwrap_or(u64::MAX),
        gaps: batch.gaps,
        jobs: batch.jobs,
    })
}
