//! The queue between the log's writer, which hands over the samples in memory, and the block writer.

use crate::files::errors::BlockError;
use crate::files::point::Point;
use crate::head::samples::Head;
use parking_lot::{Condvar, Mutex};
use senders::json::MetricJson;
use senders::{Bookkeeping, Gaps, OriginState, Received};
use std::sync::Arc;
use std::time::Duration;

/// These records as a manifest stores them.
#[derive(Debug)]
pub(crate) struct Covered {
    pub(crate) origins: Vec<OriginState>,
    pub(crate) damage: Vec<Received>,
    pub(crate) metrics: Vec<MetricJson>,
    /// The gaps, if they changed since the previous manifest.
    pub(crate) gaps: Option<Gaps>,
    pub(crate) gaps_forgotten: u64,
}

impl Covered {
    /// The records at this moment, for a manifest that covers the log through a segment.
    pub(crate) fn of(books: &mut Bookkeeping, through: u64) -> Self {
        if books.gaps.changed() {
            books.gaps.place_own(Point::end_of_segment(through).place);
        }
        let gaps = books.gaps.changed().then(|| books.gaps.clone());
        books.gaps.written();
        Self {
            origins: books.origins.all().cloned().collect(),
            damage: books.origins.damage.clone(),
            metrics: books.registry.catalogue_json(),
            gaps,
            gaps_forgotten: books.gaps.forgotten(),
        }
    }
}

/// Longest wait before a failed block is tried again, in seconds: after a full disk, writing resumes within 5
/// s of free space.
/// A try on a full disk ends at its first rows, so it costs little.
const RETRY_SECONDS_MAX: u64 = 4;

/// Samples for a block, with the store's records of the moment when they were complete.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) head: Arc<Head>,
    pub(crate) covered: Arc<Covered>,
    /// The last log segment of these samples and records.
    pub(crate) through: u64,
}

/// Shared by the log's writer, the block writer and threads that wait for a block.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Slot {
    job: Option<Job>,
    /// A job was taken, and is not done.
    busy: bool,
    closing: bool,
    /// Number of requested blocks, and how many of these requests a job has fulfilled or will.
    wanted: u64,
    handed: u64,
    written: u64,
    failures: u64,
    error: String,
}

impl FlushQueue {
    /// Whether another job can be handed over.
    pub(crate) fn is_free(&self) -> bool {
        let slot = self.slot.lock();
        slot.job.is_none() && !slot.busy
    }

    /// Whether a thread waits for a block without a job.
    pub(crate) fn is_wanted(&self) -> bool {
        let slot = self.slot.lock();
        slot.wanted > slot.handed
    }

    /// Hands a job over.
    pub(crate) fn hand(&self, job: Job) {
        let mut slot = self.slot.lock();
        slot.job = Some(job);
        slot.handed = slot.wanted;
        self.changed.notify_all();
    }

    /// Ends the block writer; a job in progress may finish.
    pub(crate) fn close(&self) {
        self.slot.lock().closing = true;
        self.changed.notify_all();
    }

    /// Requests a block of all that is stored by now, and waits until it is written.
    ///
    /// # Errors
    /// A block failed while waiting, or the store is closing: the reason.
    pub(crate) fn wait(&self, request: impl FnOnce()) -> Result<(), String> {
        let (number, failures) = {
            let mut slot = self.slot.lock();
            slot.wanted += 1;
            // A failed block is tried again at once.
            self.changed.notify_all();
            (slot.wanted, slot.failures)
        };
        request();
        let waiting =
            |slot: &mut Slot| slot.written < number && slot.failures == failures && !slot.closing;
        let mut slot = self.slot.lock();
        self.changed.wait_while(&mut slot, waiting);
        match slot.written >= number {
            true => Ok(()),
            false if slot.failures > failures => Err(slot.error.clone()),
            false => Err("the store is closing".to_owned()),
        }
    }

    /// Waits for the next job; `None` if the store is closing.
    pub(crate) fn next(&self) -> Option<Job> {
        let idle = |slot: &mut Slot| slot.job.is_none() && !slot.closing;
        let mut slot = self.slot.lock();
        self.changed.wait_while(&mut slot, idle);
        let job = slot.job.take();
        slot.busy = job.is_some();
        job
    }

    /// Ends the job that was taken.
    pub(crate) fn done(&self) {
        let mut slot = self.slot.lock();
        slot.busy = false;
        slot.written = slot.handed;
        self.changed.notify_all();
    }

    /// Waits before another try; false if the store is closing.
    pub(crate) fn failed(&self, error: &BlockError, tries: u32) -> bool {
        let mut slot = self.slot.lock();
        slot.failures += 1;
        slot.error = error.to_string();
        self.changed.notify_all();
        let wanted = slot.wanted;
        let wait = retry_after(tries);
        let idle = |slot: &mut Slot| !slot.closing && slot.wanted == wanted;
        self.changed.wait_while_for(&mut slot, idle, wait);
        !slot.closing
    }
}

/// How long to wait after a failed try; the first try has the number 0.
fn retry_after(tries: u32) -> Duration {
    Duration::from_secs(1_u64.checked_shl(tries).unwrap_or(u64::MAX).min(RETRY_SECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_tried_again_within_five_seconds_however_often_it_failed() {
        for tries in (0..200).chain([u32::MAX]) {
            let wait = retry_after(tries);
            assert!((1..5).contains(&wait.as_secs()), "{tries}: {wait:?}");
        }
    }
}
