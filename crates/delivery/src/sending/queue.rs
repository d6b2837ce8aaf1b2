//! The queue of sealed batches between the tick and the encoder thread. It is bounded in bytes. Batches return after
//! use, so that the tick allocates no memory.

use crate::batches::seal::BatchOutput;
use model::{Batch, SeriesTable};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Maximum number of bytes in the queue.
const BYTES_MAX: usize = 1 << 20;
/// Maximum number of batches in the queue.
const BATCHES_MAX: usize = 64;
/// Bytes of a sample: its index and its value.
const SAMPLE_BYTES: usize = 12;

/// The queue has ended: no further batch follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of batches has ended")]
pub struct QueueEnded;

/// A batch in a box, because a queue has memory for all its items. `None`: the box is free.
type Slot = Box<Option<Batch>>;

/// An item in the queue.
#[derive(Debug)]
enum Item {
    Batch(Slot),
    /// The end of the queue.
    End,
}

/// Sending side of the queue, owned by the tick.
#[derive(Debug)]
pub struct QueueSender {
    to: SyncSender<Item>,
    spare: Receiver<Slot>,
    /// Free boxes, of the batches that came back.
    slots: Vec<Slot>,
    bytes: Arc<AtomicUsize>,
}

/// Receiving side of the queue, owned by the encoder thread.
#[derive(Debug)]
pub struct QueueReceiver {
    from: Receiver<Item>,
    spare: SyncSender<Slot>,
    bytes: Arc<AtomicUsize>,
    nothing: Arc<SeriesTable>,
}

/// Creates a queue.
pub fn queue() -> (QueueSender, QueueReceiver) {
    let (to, from) = sync_channel(BATCHES_MAX);
    let (give, spare) = sync_channel(BATCHES_MAX);
    let bytes = Arc::new(AtomicUsize::new(0));
    (
        QueueSender { to, spare, slots: Vec::new(), bytes: Arc::clone(&bytes) },
        QueueReceiver { from, spare: give, bytes, nothing: Arc::default() },
    )
}

fn bytes(batch: &Batch) -> usize {
    batch.values.len() * SAMPLE_BYTES
}

/// Handle that ends a queue from outside the tick.
#[derive(Debug)]
pub(crate) struct End {
    to: SyncSender<Item>,
}

impl QueueSender {
    /// Returns the handle that ends the queue.
    pub(crate) fn end(&self) -> End {
        End { to: self.to.clone() }
    }
}

impl End {
    /// Ends the queue after the batches in it.
    pub(crate) fn end(self) {
        // A encoder thread that has ended needs no message.
        self.to.send(Item::End).ok();
    }
}

impl BatchOutput for QueueSender {
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>> {
        let bytes = bytes(&batch);
        let there = self.bytes.load(Ordering::Relaxed);
        // A single large batch always fits.
        if there > 0 && there.saturating_add(bytes) > BYTES_MAX {
            return Err(Box::new(batch));
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut slot = self.slots.pop().unwrap_or_default();
        *slot = Some(batch);
        let Err(TrySendError::Full(item) | TrySendError::Disconnected(item)) =
            self.to.try_send(Item::Batch(slot))
        else {
            return Ok(());
        };
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        match item {
            Item::Batch(slot) => slot.map_or(Ok(()), |batch| Err(Box::new(batch))),
            Item::End => Ok(()),
        }
    }

    fn spare(&mut self) -> Option<Batch> {
        let mut slot = self.spare.try_recv().ok()?;
        let batch = slot.take();
        self.slots.push(slot);
        batch
    }
}

impl QueueReceiver {
    /// Returns the next batch, or `Ok(None)` if none arrives in time.
    ///
    /// # Errors
    /// The queue has ended.
    pub fn next(&self, patience: Duration) -> Result<Option<Batch>, QueueEnded> {
        match self.from.recv_timeout(patience) {
            Ok(Item::Batch(slot)) => {
                self.bytes.fetch_sub(slot.as_ref().as_ref().map_or(0, bytes), Ordering::Relaxed);
                Ok(*slot)
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(Item::End) | Err(RecvTimeoutError::Disconnected) => Err(QueueEnded),
        }
    }

    /// Returns a batch for reuse of its memory.
    pub fn give_back(&self, mut batch: Batch) {
        // No other component may hold this old table any more.
        batch.table = Arc::clone(&self.nothing);
        // If enough batches are spare, this one is freed.
        self.spare.try_send(Box::new(Some(batch))).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Boot, Origin};

    fn batch(samples: usize) -> Batch {
        Batch {
            origin: Origin::new("n").unwrap(),
            boot: Boot([0; 16]),
            seq: 0,
            table: Arc::default(),
            ticks: Vec::new(),
            index: vec![0; samples],
            values: vec![0.0; samples],
            gaps: Vec::new(),
            jobs: Vec::new(),
        }
    }

    #[test]
    fn bounded_in_bytes_and_in_number() {
        let (mut inlet, batches) = queue();
        assert!(inlet.put(batch(200_000)).is_ok());
        assert!(inlet.put(batch(1)).is_err());
        assert!(batches.next(Duration::ZERO).unwrap().is_some());
        for _ in 0..BATCHES_MAX {
            assert!(inlet.put(batch(1)).is_ok());
        }
        assert!(inlet.put(batch(1)).is_err());
    }

    #[test]
    fn memory_comes_back() {
        let (mut inlet, batches) = queue();
        inlet.put(batch(10)).unwrap();
        batches.give_back(batches.next(Duration::ZERO).unwrap().unwrap());
        assert_eq!(inlet.spare().unwrap().values.len(), 10);
        assert!(inlet.spare().is_none());
        inlet.put(batch(1)).unwrap();
        inlet.end().end();
        assert!(batches.next(Duration::from_secs(60)).unwrap().is_some());
        assert!(batches.next(Duration::from_secs(60)).is_err());
    }
}
