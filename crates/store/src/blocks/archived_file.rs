//! The file of an archived block.

use crate::files::disk::{Disk, ReadFile};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is opened on first read, and again after a failure: its file system may be mounted later.
#[derive(Debug)]
pub(super) struct ArchivedFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    bytes: u64,
    file: Mutex<Option<Arc<dyn ReadFile>>>,
}

impl ArchivedFile {
    pub(super) fn new(disk: &Arc<dyn Disk>, path: PathBuf, bytes: u64) -> Self {
        Self { disk: Arc::clone(disk), path, bytes, file: Mutex::default() }
    }

    fn file(&self) -> io::Result<Arc<dyn ReadFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let new = self.disk.open(&self.path)?;
        let length = new.length()?;
        if length != self.bytes {
            let why = format!("it has {length} bytes; the manifest states {}", self.bytes);
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        *file = Some(Arc::clone(&new));
        Ok(new)
    }
}

impl ReadFile for ArchivedFile {
    fn length(&self) -> io::Result<u64> {
        self.file()?.length()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.file()?.read_at(buf, offset);
        if read.is_err() {
            *self.file.lock() = None;
        }
        read
    }
}
