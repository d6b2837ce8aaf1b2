//! Why a delivery does not start.

use std::io;
use std::path::PathBuf;

/// Why a delivery does not start.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The spool's folder cannot be used.
    #[error("spool {}: {why}", dir.display())]
    Spool {
        /// Which.
        dir: PathBuf,
        /// The system's reason.
        why: io::Error,
    },
    /// The system starts no thread.
    #[error("a thread: {0}")]
    Thread(#[from] io::Error),
    /// The system gives no random bits.
    #[error("the kernel gives no random bits")]
    Random,
}
