//! What can go wrong, in types.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server has it.
    #[error("{dir}: another server uses this data directory; stop it or give another --data")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// Written by a newer program.
    #[error(
        "{path}: format {found} is newer than {known}, which this program knows; use a newer one"
    )]
    Newer {
        /// The file `FORMAT`.
        path: PathBuf,
        /// The version in it.
        found: u32,
        /// The newest this program knows.
        known: u32,
    },
    /// The directory holds files and no `FORMAT`, or one that is no version.
    #[error("{path}: {why}; give an empty directory or one that a server made")]
    NotOurs {
        /// The file `FORMAT`.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The manifest is damaged: it names the blocks, so nothing can be told without it.
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
    /// A block that the manifest names is missing or damaged.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot {what}: {error}")]
pub struct DiskError {
    /// What was tried.
    pub what: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// The system's answer; part of the text, so no source of its own.
    pub error: io::Error,
}

impl DiskError {
    /// For `map_err`: what was tried on which file.
    pub(crate) fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { what, path: path.to_owned(), error }
    }

    /// Whether the file system has no room left.
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
    /// The Parquet library's word.
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
    /// Whether it says that this file is damaged.
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
