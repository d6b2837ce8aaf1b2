//! Reasons why a delivery does not start.

use std::io;
use std::path::PathBuf;

/// Reason why a delivery does not start.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The spool's folder cannot be used.
    #[error("spool {}: {why}", dir.display())]
    Spool {
        /// The folder.
        dir: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
    /// The operating system cannot start a thread.
    #[error("a thread: {0}")]
    Thread(#[from] io::Error),
    /// The operating system provides no random bits.
    #[error("the kernel provides no random bytes")]
    Random,
}
