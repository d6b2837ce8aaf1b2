//! Sealed batches on their way to the thread that keeps them: bounded in bytes, and without memory asked
//! for from tick to batch, as each batch comes back empty when it is sent.

use crate::batches::seal::Outlet;
use model::{Batch, SeriesTable};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Most bytes of batches on their way.
const BYTES_MAX: usize = 1 << 20;
/// Most batches on their way.
const BATCHES_MAX: usize = 64;
/// Bytes of a sample: its place and its value.
const SAMPLE_BYTES: usize = 12;

/// No batch will come any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of batches has ended")]
pub struct QueueEnded;

/// What is on its way.
#[derive(Debug)]
enum Item {
    Batch(Batch),
    /// Nothing more will come.
    End,
}

/// The end that the tick has.
#[derive(Debug)]
pub struct Inlet {
    to: SyncSender<Item>,
    spare: Receiver<Batch>,
    bytes: Arc<AtomicUsize>,
}

/// The end that the keeping thread has.
#[derive(Debug)]
pub struct Queued {
    from: Receiver<Item>,
    spare: SyncSender<Batch>,
    bytes: Arc<AtomicUsize>,
    nothing: Arc<SeriesTable>,
}

/// A queue.
pub fn queue() -> (Inlet, Queued) {
    let (to, from) = sync_channel(BATCHES_MAX);
    let (give, spare) = sync_channel(BATCHES_MAX);
    let bytes = Arc::new(AtomicUsize::new(0));
    (
        Inlet { to, spare, bytes: Arc::clone(&bytes) },
        Queued { from, spare: give, bytes, nothing: Arc::default() },
    )
}

fn bytes(batch: &Batch) -> usize {
    batch.values.len() * SAMPLE_BYTES
}

/// Ends a queue from outside of the tick.
#[derive(Debug)]
pub(crate) struct End {
    to: SyncSender<Item>,
}

impl Inlet {
    /// What ends the queue.
    pub(crate) fn end(&self) -> End {
        End { to: self.to.clone() }
    }
}

impl End {
    /// Nothing more will come than what is on its way already.
    pub(crate) fn end(self) {
        // A thread that keeps no more needs no telling.
        self.to.send(Item::End).ok();
    }
}

impl Outlet for Inlet {
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>> {
        let bytes = bytes(&batch);
        let there = self.bytes.load(Ordering::Relaxed);
        // One large batch alone always fits.
        if there > 0 && there.saturating_add(bytes) > BYTES_MAX {
            return Err(Box::new(batch));
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let Err(TrySendError::Full(item) | TrySendError::Disconnected(item)) =
            self.to.try_send(Item::Batch(batch))
        else {
            return Ok(());
        };
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        match item {
            Item::Batch(batch) => Err(Box::new(batch)),
            Item::End => Ok(()),
        }
    }

    fn spare(&mut self) -> Option<Batch> {
        self.spare.try_recv().ok()
    }
}

impl Queued {
    /// The next batch; `Ok(None)` when none came in time.
    ///
    /// # Errors
    /// None will come any more.
    pub fn next(&self, patience: Duration) -> Result<Option<Batch>, QueueEnded> {
        match self.from.recv_timeout(patience) {
            Ok(Item::Batch(batch)) => {
                self.bytes.fetch_sub(bytes(&batch), Ordering::Relaxed);
                Ok(Some(batch))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(Item::End) | Err(RecvTimeoutError::Disconnected) => Err(QueueEnded),
        }
    }

    /// Gives a batch back for its memory.
    pub fn give_back(&self, mut batch: Batch) {
        // Its table may be an old one that nobody else holds.
        batch.table = Arc::clone(&self.nothing);
        // With enough of them there, this one's memory is freed.
        self.spare.try_send(batch).ok();
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
