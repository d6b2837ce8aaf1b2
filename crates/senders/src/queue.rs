//! The batches that wait for a store's writer, bounded by number and bytes.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use storage::{Done, Incoming};

/// Most bytes of batches in one commit.
const COMMIT_BYTES: usize = 32 << 20;

/// Batches that wait for the writer.
#[derive(Default)]
pub struct BatchQueue {
    waiting: Mutex<Waiting>,
    queued: Condvar,
}

impl fmt::Debug for BatchQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BatchQueue")
    }
}

/// Batches of one call of a store.
pub struct Request {
    /// The batches.
    pub batches: Vec<Incoming>,
    /// Receives their outcomes.
    pub done: Done,
    cost: usize,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("batches", &self.batches.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    batches: usize,
    bytes: usize,
    closing: bool,
    /// There may be work beside batches.
    woken: bool,
}

/// Work for the writer.
#[derive(Debug)]
pub struct Work {
    /// What waits, up to one commit's worth.
    pub requests: Vec<Request>,
    /// The store is closing, and nothing more waits.
    pub closing: bool,
}

impl BatchQueue {
    /// Adds batches. Returns `done` if they exceed the limits, or if the store is closing, which the flag states.
    ///
    /// # Errors
    /// Nothing was added.
    pub fn add(
        &self,
        batches: Vec<Incoming>,
        done: Done,
        (batches_max, bytes_max): (usize, usize),
    ) -> Result<(), (Done, bool)> {
        let cost = batches.iter().map(cost).sum();
        let mut waiting = self.waiting.lock();
        let full = waiting.bytes + cost > bytes_max && waiting.bytes > 0
            || waiting.batches + batches.len() > batches_max && waiting.batches > 0;
        if full || waiting.closing {
            return Err((done, waiting.closing));
        }
        waiting.bytes += cost;
        waiting.batches += batches.len();
        waiting.requests.push_back(Request { batches, done, cost });
        drop(waiting);
        self.queued.notify_one();
        Ok(())
    }

    /// Waits for work, at most a second, and takes up to one commit's worth.
    pub fn take(&self) -> Work {
        let mut waiting = self.waiting.lock();
        let idle = |waiting: &mut Waiting| {
            waiting.requests.is_empty() && !waiting.closing && !waiting.woken
        };
        self.queued.wait_while_for(&mut waiting, idle, Duration::from_secs(1));
        let (mut requests, mut bytes) = (Vec::new(), 0);
        while bytes < COMMIT_BYTES
            && let Some(request) = waiting.requests.pop_front()
        {
            bytes += request.cost;
            waiting.bytes -= request.cost;
            waiting.batches -= request.batches.len();
            requests.push(request);
        }
        waiting.woken = false;
        Work { requests, closing: waiting.closing && waiting.requests.is_empty() }
    }

    /// Wakes the writer without a batch.
    pub fn wake(&self) {
        self.waiting.lock().woken = true;
        self.queued.notify_one();
    }

    /// Rejects further batches.
    pub fn close(&self) {
        self.waiting.lock().closing = true;
        self.queued.notify_one();
    }

    /// Number of waiting batches, and their bytes.
    pub fn sizes(&self) -> (usize, usize) {
        let waiting = self.waiting.lock();
        (waiting.batches, waiting.bytes)
    }
}

/// Approximate memory of a waiting batch, in bytes. Its decoded table is not counted separately: it is about
/// eight times as large as in the compressed frame.
const fn cost(incoming: &Incoming) -> usize {
    let decoded = &incoming.decoded;
    incoming.frame.len() * 9 + decoded.values.len() * 20 + decoded.ticks.len() * 16 + 256
}
