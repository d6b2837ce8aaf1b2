//! What the parts behind the seal count, for whoever measures them.

use std::sync::atomic::{AtomicI64, AtomicU64};

/// Each counter is set by one part and read by the program's own metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of frames in memory.
    pub unsent_bytes: AtomicU64,
    /// Bytes of the spool.
    pub spool_bytes: AtomicU64,
    /// Files of the spool.
    pub spool_segments: AtomicU64,
    /// Instant of the oldest sample that is not acknowledged; 0 if all are.
    pub oldest_unacked_us: AtomicI64,
    /// Batches that the server acknowledged.
    pub sent_batches: AtomicU64,
    /// Batches that the server rejected permanently.
    pub refused_batches: AtomicU64,
    /// Samples that the server rejected of batches that it stored.
    pub refused_samples: AtomicU64,
    /// Samples without room in memory or in the spool, too old, or of rejected batches.
    pub dropped_samples: AtomicU64,
    /// Longest time until the next batch, by what was sealed last; 0 before that.
    pub wait_us: AtomicI64,
}
