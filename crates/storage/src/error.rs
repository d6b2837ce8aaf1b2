//! The error of a store's answers.

use std::error::Error;

/// Why a store cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The engine does not answer now: the same request may succeed later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A file or a table cannot be read.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}
