//! The store's error types.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server uses it.
    #[error("{dir}: another server uses this data directory; stop it or set another --data")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// Written by a newer program.
    #[error(
        "{path}: format {found} is newer than {known}, the newest that this program supports; use \
         a newer program"
    )]
    Newer {
        /// The file `FORMAT`.
        path: PathBuf,
        /// The version in it.
        found: u32,
        /// The newest version that this program supports.
        known: u32,
    },
    /// The directory contains files without a valid `FORMAT`.
    #[error("{path}: {why}; use an empty directory or one that a server created")]
    NotOurs {
        /// The file `FORMAT`.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The manifest is damaged. It lists the blocks, so nothing can be read without it.
    #[error("{path}: {why}; restore the directory from a backup")]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A block of the manifest is missing or damaged.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot {what}: {error}")]
pub struct DiskError {
    /// The operation.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's error; part of the text, so it is not a separate source.
    pub error: io::Error,
}

impl DiskError {
    /// For `map_err`: adds the operation and the file.
    pub(crate) fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { what, path: path.to_owned(), error }
    }

    /// Whether the file system is full.
    pub fn is_full(&self) -> bool {
        matches!(
            self.error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

/// A block that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An error of the Parquet library.
    #[error("{path}: {error}")]
    Parquet {
        /// The block.
        path: PathBuf,
        /// What is wrong.
        error: parquet::errors::ParquetError,
    },
    /// The block's own index is damaged.
    #[error("{path}: the index is damaged: {why}; restore the file from a backup")]
    Index {
        /// The block.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl BlockError {
    /// Whether the error means that this file is damaged.
    pub(crate) fn is_damage_of(&self, file: &Path) -> bool {
        match self {
            Self::Disk(_) => false,
            Self::Parquet { path, .. } | Self::Index { path, .. } => path == file,
        }
    }
}

/// Why a block could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FlushError(pub(crate) String);
