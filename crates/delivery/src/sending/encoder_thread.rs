//! The encoder thread: it encodes batches as frames and stores them.

use crate::batches::frames::Span;
use crate::batches::pending_gaps_and_job_events::PendingEvents;
use crate::common::clock::Clock;
use crate::common::counters::Counters;
use crate::sending::outbox::{LiveFrame, Outbox};
use crate::sending::queue::QueueReceiver;
use model::{Batch, Cause};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::Encoder;

/// Time for the server to accept the frames in memory at shutdown.
const LAST_PATIENCE: Duration = Duration::from_millis(1500);

/// State of the encoder thread.
pub(crate) struct EncoderThread {
    batches: QueueReceiver,
    outbox: Arc<Outbox>,
    notes: Arc<PendingEvents>,
    counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
    encoder: Encoder,
    bytes: Vec<u8>,
}

impl EncoderThread {
    pub(crate) fn new(
        batches: QueueReceiver,
        outbox: &Arc<Outbox>,
        notes: &Arc<PendingEvents>,
        counters: &Arc<Counters>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let (outbox, notes) = (Arc::clone(outbox), Arc::clone(notes));
        let (counters, clock) = (Arc::clone(counters), Arc::clone(clock));
        Self {
            batches,
            outbox,
            notes,
            counters,
            clock,
            encoder: Encoder::default(),
            bytes: Vec::new(),
        }
    }

    /// Runs until the queue ends.
    pub(crate) fn run(mut self) {
        let mut patience = Some(Duration::ZERO);
        while let Some(most) = patience {
            patience = self.step(most);
        }
        self.outbox.end(LAST_PATIENCE);
    }

    /// Stores the next batch, if one arrives within `patience`, and maintains the outbox. Returns how long the next
    /// call may wait, or `None` once the queue has ended.
    pub(crate) fn step(&mut self, patience: Duration) -> Option<Duration> {
        if let Some(batch) = self.batches.next(patience).ok()? {
            self.keep(&batch);
            self.counters.encoded_batches.fetch_add(1, Ordering::Relaxed);
            self.batches.give_back(batch);
        }
        Some(self.outbox.maintain(self.clock.wall(), self.clock.steady_us()))
    }

    fn keep(&mut self, batch: &Batch) {
        let Self { encoder, bytes, .. } = self;
        bytes.clear();
        let span = Span::of(batch);
        let samples = u64::try_from(batch.values.len()).unwrap_or(u64::MAX);
        let gaps_from = batch.gaps.iter().map(|gap| gap.from).min();
        if let Err(e) = encoder.encode(batch, bytes) {
            log::error!("samples lost: cannot encode a batch: {e}");
            if gaps_from.is_some() {
                self.notes.arrived();
            }
            if let Some(span) = span {
                self.notes.add("", span.outside(), Cause::BatchesLost, &e.to_string());
            }
            self.counters.dropped_samples.fetch_add(samples, Ordering::Relaxed);
            return;
        }
        let (boot, seq, bytes) = (batch.boot, batch.seq, Arc::from(&**bytes));
        let frame = LiveFrame { boot, seq, bytes, span, samples, gaps_from };
        self.outbox.push(frame, self.clock.steady_us());
    }
}
