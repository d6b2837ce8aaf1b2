//! Batches on their way in, and what becomes of each.

use model::Timestamp;
use wire::Decoded;

/// A batch as it came.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The frame's bytes as received, header included: what the log keeps.
    pub frame: Vec<u8>,
    /// What [`wire::Decoder`] read in them.
    pub decoded: Decoded,
    /// When it was received, by this machine's clock.
    pub received: Timestamp,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is on this machine's disk, and can be queried.
    Stored {
        /// How many of its samples were refused.
        samples_refused: u32,
        /// Why; empty when none was.
        reason: String,
    },
    /// It was stored before, and is kept once.
    Duplicate,
    /// It never will be: set it aside.
    RefusedForGood(String),
    /// Not now: keep it and come again.
    RefusedForNow(NotNow),
}

/// Why a batch cannot be stored now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// More batches wait for the log than may.
    #[error("too many batches wait for the disk; come again in a second")]
    QueueFull,
    /// The log has reached its limit: the blocks are behind.
    #[error("the log is full ({bytes} bytes): blocks cannot be written as fast, or not at all")]
    LogFull {
        /// Its bytes.
        bytes: u64,
    },
    /// The samples in memory have reached their limit: the blocks are behind.
    #[error(
        "memory for samples is full ({bytes} bytes): blocks cannot be written as fast, or not at all"
    )]
    HeadFull {
        /// Their bytes.
        bytes: u64,
    },
    /// The file system has no room.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The disk answered with an error.
    #[error("the disk failed: {0}")]
    Failed(String),
    /// More origins than may be known at once.
    #[error("too many origins: {0} are known")]
    Origins(usize),
    /// The store is being closed.
    #[error("the server is stopping")]
    Closing,
}

impl NotNow {
    /// Whether it is for want of room, which HTTP says with 507.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::LogFull { .. } | Self::HeadFull { .. } | Self::DiskFull(_))
    }
}
