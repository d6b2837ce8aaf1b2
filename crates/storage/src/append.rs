//! Incoming batches and their outcomes.

use model::Timestamp;
use wire::Decoded;

/// A received batch.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The frame's bytes as received, header included: the log stores them.
    pub frame: Vec<u8>,
    /// The frame as decoded by [`wire::Decoder`].
    pub decoded: Decoded,
    /// Time of receipt, by this machine's clock.
    pub received: Timestamp,
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stored: it is on this machine's disk, and can be queried.
    Stored {
        /// Number of rejected samples.
        samples_rejected: u32,
        /// The reason; empty if none was rejected.
        reason: String,
    },
    /// A duplicate: it was stored before, and is stored once.
    Duplicate,
    /// Rejected permanently: the sender sets it aside.
    RejectedPermanently(String),
    /// Inserted rows, of which at least one cannot be stored: nothing is stored.
    RejectedWhole {
        /// The position of its series in the batch's table.
        place: u32,
        /// The reason.
        why: String,
    },
    /// Rejected temporarily: the sender keeps it and retries.
    RejectedTemporarily(DeferReason),
}

/// Why a batch cannot be stored now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeferReason {
    /// Too many batches wait for the log.
    #[error("too many batches wait for the disk; retry in a second")]
    QueueFull,
    /// The log has reached its limit: block writing is behind.
    #[error("the log is full ({bytes} bytes): blocks cannot be written as fast, or not at all")]
    LogFull {
        /// Its bytes.
        bytes: u64,
    },
    /// The samples in memory have reached their limit: block writing is behind.
    #[error(
        "memory for samples is full ({bytes} bytes): blocks cannot be written as fast, or not at all"
    )]
    HeadFull {
        /// Their bytes.
        bytes: u64,
    },
    /// The file system is full.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The disk returned an error.
    #[error("the disk failed: {0}")]
    Failed(String),
    /// The engine of the store does not answer.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Too many known origins.
    #[error("too many origins: {0}")]
    Origins(usize),
    /// The store is closing.
    #[error("the server is stopping")]
    Closing,
}

impl DeferReason {
    /// Whether storage is full; HTTP reports that as 507.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::LogFull { .. } | Self::HeadFull { .. } | Self::DiskFull(_))
    }
}
