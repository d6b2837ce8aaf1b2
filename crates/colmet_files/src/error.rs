//! Why a file is not read or written.

use std::io;
use thiserror::Error;

/// An error of a file. The caller knows its path.
#[derive(Debug, Error)]
pub enum FileError {
    /// The system rejects it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no HDF5 file, or not a whole one.
    #[error("it is no HDF5 file, or a damaged one: {0}")]
    Damaged(&'static str),
    /// It uses a part of HDF5 that is not known here.
    #[error(
        "it has {0}, which is not read; convert it with `h5repack -f SHUF -f GZIP=5 FILE COPY`"
    )]
    Unknown(String),
    /// Another program wrote it.
    #[error("another program wrote it")]
    Other,
    /// The file has as many jobs as it can hold.
    #[error("the file has {0} jobs, the most that it can have")]
    Full(usize),
}

/// A result with [`FileError`].
pub type Result<T> = std::result::Result<T, FileError>;
