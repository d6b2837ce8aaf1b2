//! Counters of the outbox, the spool and the sender, for the program's own metrics.

use std::sync::atomic::{AtomicI64, AtomicU64};

/// Counters of a delivery. One component updates each, and the program's own metrics read it.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of frames in memory.
    pub unsent_bytes: AtomicU64,
    /// Bytes in the spool.
    pub spool_bytes: AtomicU64,
    /// Number of segments in the spool.
    pub spool_segments: AtomicU64,
    /// Time of the oldest sample that is not acknowledged; 0 if all are.
    pub oldest_unacked_us: AtomicI64,
    /// Number of sealed batches that are encoded: in memory, in the spool, sent or lost.
    pub encoded_batches: AtomicU64,
    /// Number of batches that the server acknowledged.
    pub sent_batches: AtomicU64,
    /// Number of batches that the server rejected permanently.
    pub rejected_batches: AtomicU64,
    /// Number of samples that the server rejected in stored batches.
    pub rejected_samples: AtomicU64,
    /// Number of lost samples: no room in memory or spool, too old, or in rejected batches.
    pub dropped_samples: AtomicU64,
    /// Longest time until the next batch, as of the last sealing; 0 before that.
    pub wait_us: AtomicI64,
}
