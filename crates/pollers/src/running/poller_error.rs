//! Why a poller does not start.

use crate::sending::GroupsError;
use std::io;
use std::path::PathBuf;

/// Why a poller does not start.
#[derive(Debug, thiserror::Error)]
pub enum PollerError {
    /// The folder of the description files cannot be read.
    #[error("cannot read {}: {why}", dir.display())]
    Directory {
        /// The folder.
        dir: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
    /// A group cannot start.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The machine has no name, or the operating system gives no thread or signal.
    #[error("{0}")]
    Machine(String),
}
