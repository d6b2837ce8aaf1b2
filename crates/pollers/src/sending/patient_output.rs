//! A queue that waits for its reader, for an input that may be faster than the server.

use delivery::{BatchOutput, Counters, QueueSender};
use model::Batch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of frames in memory above which the queue waits: half of what leads to the spool.
const UNSENT_MAX: u64 = 512 << 10;
/// Interval between attempts.
const STEP: Duration = Duration::from_millis(1);
/// Attempts to pass on a batch, where the alternative is a loss.
const ATTEMPTS_MAX: u32 = 10_000;
/// The same where the spool accepts what the server does not.
const SPOOL_ATTEMPTS_MAX: u32 = 50;

/// The queue of a delivery.
#[derive(Debug)]
pub(super) struct PatientOutput {
    inlet: QueueSender,
    counters: Arc<Counters>,
    /// Attempts while the server has not accepted what is in memory.
    unsent_attempts_max: u32,
}

impl PatientOutput {
    pub(super) fn new(inlet: QueueSender, counters: &Arc<Counters>, has_spool: bool) -> Self {
        let unsent_attempts_max = if has_spool { SPOOL_ATTEMPTS_MAX } else { ATTEMPTS_MAX };
        Self { inlet, counters: Arc::clone(counters), unsent_attempts_max }
    }
}

impl BatchOutput for PatientOutput {
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>> {
        let is_full = || self.counters.unsent_bytes.load(Ordering::Relaxed) > UNSENT_MAX;
        for _ in 0..self.unsent_attempts_max {
            if !is_full() {
                break;
            }
            std::thread::sleep(STEP);
        }
        let mut batch = batch;
        for _ in 0..ATTEMPTS_MAX {
            match self.inlet.put(batch) {
                Ok(()) => return Ok(()),
                Err(rejected) => batch = *rejected,
            }
            std::thread::sleep(STEP);
        }
        self.inlet.put(batch)
    }

    fn spare(&mut self) -> Option<Batch> {
        self.inlet.spare()
    }
}
