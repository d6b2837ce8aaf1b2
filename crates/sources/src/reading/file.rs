//! A kernel file that a source reads at every tick.

use crate::SourceError;
use kernel::{OpenFile, Root};
use std::fmt::Display;

/// A file that stays open, with the memory it is read into.
#[derive(Debug)]
pub(crate) struct TickFile {
    path: &'static str,
    file: OpenFile,
    buf: Vec<u8>,
}

impl TickFile {
    /// Opens a file; the path has no leading `/`.
    ///
    /// # Errors
    /// The file is absent, denied, or fails.
    pub(crate) fn open(root: &Root, path: &'static str) -> Result<Self, SourceError> {
        Ok(Self { path, file: root.open(path)?, buf: Vec::new() })
    }

    /// The current content of the file.
    ///
    /// # Errors
    /// The kernel rejects the read.
    pub(crate) fn read(&mut self) -> Result<&[u8], SourceError> {
        self.file.read(&mut self.buf).map_err(|e| broken(self.path, e))?;
        Ok(&self.buf)
    }

    /// The current content of a file that the kernel prints at once, see [`OpenFile::read_single`].
    ///
    /// # Errors
    /// The kernel rejects the read.
    pub(crate) fn read_single(&mut self) -> Result<&[u8], SourceError> {
        self.file.read_single(&mut self.buf).map_err(|e| broken(self.path, e))?;
        Ok(&self.buf)
    }
}

/// The error of a file with invalid content.
pub(crate) fn broken(path: &str, why: impl Display) -> SourceError {
    SourceError::broken(format!("/{path}: {why}"))
}
