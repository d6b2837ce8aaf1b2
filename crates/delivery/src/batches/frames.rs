//! Wire frames in the spool and the sender.

use model::{Batch, Gap, JobEvent, Metric, SeriesTable, Tick, Timestamp, poll_instants};
use wire::{Decoder, Frames};

/// Times of the first and the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

impl Span {
    /// Span of a batch; `None` if it has no sample. That of a poller is the span of its polls: devices may report samples of
    /// any instant, which must not move gaps of others.
    pub(crate) fn of(batch: &Batch) -> Option<Self> {
        let table = batch.origin.is_poller_group().then_some(&*batch.table);
        Self::of_samples(table, &batch.ticks, &batch.index)
    }

    /// Span of samples. `table`: the series of a poller's.
    fn of_samples(table: Option<&SeriesTable>, ticks: &[Tick], index: &[u32]) -> Option<Self> {
        let is_of_polls = |place: u32| {
            let entry = table.and_then(|table| table.entries.get(place as usize));
            entry.is_some_and(|entry| Metric::is_of_polls(&entry.metric.name))
        };
        let polls = table.map(|_| poll_instants(ticks, index, is_of_polls));
        let polls: Vec<Timestamp> = polls.into_iter().flatten().collect();
        let of_polls = Self::of_instants(polls.into_iter());
        of_polls.or_else(|| Self::of_instants(ticks.iter().map(|tick| tick.at)))
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
    let table = batch.origin.is_poller_group().then(|| batch.table().ok()).flatten();
    Some(FrameContent {
        span: Span::of_samples(table.as_ref(), &batch.ticks, &batch.index),
        samples: u64::try_from(batch.values.len()).unwrap_or(u64::MAX),
        gaps: batch.gaps,
        jobs: batch.jobs,
    })
}
