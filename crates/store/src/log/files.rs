//! The log being written: segments of records, one fdatasync for all that waited.
//!
//! A segment begins with `jmlog\0\0\x01` and its number (8 bytes, little endian); records follow. A
//! segment is written by one process and never opened for writing again. After an error nothing is known
//! of what was written since the last success, so the segment is cut there and left, and the next append
//! begins another.

use crate::files::disk::{Disk, WriteFile};
use crate::files::errors::DiskError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// First bytes of a segment.
pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"jmlog\0\0\x01";
/// Bytes before the first record.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 16;

/// The name of a segment's file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:016}.log")
}

/// The number in a segment's file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// How many bytes each segment on the disk has.
#[derive(Debug, Default)]
pub(crate) struct LogSizes(Mutex<BTreeMap<u64, u64>>);

impl LogSizes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a segment's length.
    pub(crate) fn set(&self, number: u64, bytes: u64) {
        self.lock().insert(number, bytes);
    }

    /// Takes the segments up to `through`, which a block holds by now, off the books.
    pub(crate) fn forget(&self, through: u64) {
        self.lock().retain(|number, _| *number > through);
    }

    /// Bytes on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().values().sum()
    }

    /// Segments on the disk.
    pub(crate) fn segments(&self) -> u64 {
        self.lock().len() as u64
    }
}

/// The log of a data directory.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    open: Option<OpenSegment>,
    sizes: Arc<LogSizes>,
    next: u64,
}

#[derive(Debug)]
struct OpenSegment {
    number: u64,
    path: PathBuf,
    file: Box<dyn WriteFile>,
    /// Bytes known to be on the disk.
    good: u64,
}

impl Log {
    /// A log that goes on after the segments that `sizes` knows.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        segment_bytes: u64,
        sizes: Arc<LogSizes>,
        next: u64,
    ) -> Self {
        Self { disk, dir, segment_bytes, open: None, sizes, next }
    }

    /// Appends records and waits until they are on the disk.
    ///
    /// # Errors
    /// They are not, or may not be: none of them may be acknowledged.
    pub(crate) fn append(&mut self, records: &[u8]) -> Result<(), DiskError> {
        if self.open.as_ref().is_some_and(|segment| segment.good >= self.segment_bytes) {
            self.rotate();
        }
        let mut segment = match self.open.take() {
            Some(segment) => segment,
            None => self.begin()?,
        };
        let written = segment.file.write(records).and_then(|()| segment.file.sync());
        match written {
            Ok(()) => {
                segment.good += records.len() as u64;
                self.sizes.set(segment.number, segment.good);
                self.open = Some(segment);
                Ok(())
            }
            Err(error) => {
                let path = segment.path.clone();
                self.abandon(segment);
                Err(DiskError { what: "append to the log", path, error })
            }
        }
    }

    /// Closes the segment being written; the next append begins another. Gives the number up to which
    /// every record appended so far lies.
    pub(crate) fn rotate(&mut self) -> u64 {
        self.open = None;
        self.next.saturating_sub(1)
    }

    fn begin(&mut self) -> Result<OpenSegment, DiskError> {
        let number = self.next;
        // A number is never used twice: a file that could be made but not written may lie there.
        self.next += 1;
        let path = self.dir.join(segment_name(number));
        let failed = |error| DiskError { what: "begin a log segment", path: path.clone(), error };
        let mut file = self.disk.create(&path).map_err(failed)?;
        let header = [SEGMENT_MAGIC, number.to_le_bytes()].concat();
        let made = file.write(&header).and_then(|()| self.disk.sync_dir(&self.dir));
        match made {
            Ok(()) => {
                let good = SEGMENT_HEADER_BYTES;
                Ok(OpenSegment { number, path, file, good })
            }
            Err(error) => {
                let error = failed(error);
                drop(file);
                self.remove_unused(&path);
                Err(error)
            }
        }
    }

    /// Cuts a segment after its last byte known to be good. Where even that fails the tail stays: replay
    /// keeps whole records in it, which were sent again by then and are known as duplicates.
    fn abandon(&self, segment: OpenSegment) {
        let OpenSegment { path, file, good, .. } = segment;
        drop(file);
        if good <= SEGMENT_HEADER_BYTES {
            self.remove_unused(&path);
            return;
        }
        match self.disk.truncate(&path, good) {
            Ok(()) | Err(_) => {}
        }
    }

    /// Removes a segment that holds nothing. One that stays is removed at the next start.
    fn remove_unused(&self, path: &Path) {
        match self.disk.remove(path) {
            Ok(()) | Err(_) => {}
        }
    }
}
