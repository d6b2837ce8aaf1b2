//! The log while it is written: segments of records, one fdatasync for all waiting batches.
//!
//! A segment begins with `jmlog\0\0\x01` and its number (8 bytes, little endian); records follow. One process
//! writes a segment and never reopens it for writing.
//! After an error, the state of the bytes written since the last success is unknown. The segment is truncated
//! there and left; the next append begins another.

use crate::files::disk::{Disk, WriteFile};
use crate::files::errors::DiskError;
use crate::files::point::Point;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Size of each segment on the disk, in bytes.
#[derive(Debug, Default)]
pub(crate) struct LogSizes {
    bytes: Mutex<BTreeMap<u64, u64>>,
    /// The first and the last segment with bytes of a failed append that could not be cut off.
    uncut: Mutex<Option<(u64, u64)>>,
}

impl LogSizes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.bytes.lock()
    }

    /// Records a segment's length.
    pub(crate) fn set(&self, number: u64, bytes: u64) {
        self.lock().insert(number, bytes);
    }

    /// Removes the segments up to `through`, which a block contains.
    pub(crate) fn forget(&self, through: u64) {
        self.lock().retain(|number, _| *number > through);
        self.uncut.lock().take_if(|(_, last)| *last <= through);
    }

    /// Whether a replay may store batches before a point that this process stores after it: bytes of a failed append could
    /// not be cut off, and no block covers them. `covered`: the last segment that a block covers.
    pub(crate) fn may_change_before(&self, point: Point, covered: u64) -> Option<u64> {
        let (first, last) = (*self.uncut.lock())?;
        let is_open = last > covered && point > Point::of_segment(covered.saturating_add(1));
        (is_open && point.segment() > first).then_some(first)
    }

    fn set_uncut(&self, number: u64) {
        let mut uncut = self.uncut.lock();
        *uncut = Some((uncut.map_or(number, |(first, _)| first), number));
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
    /// Number of synced bytes.
    good: u64,
}

impl Log {
    /// A log that continues after the segments in `sizes`.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        segment_bytes: u64,
        sizes: Arc<LogSizes>,
        next: u64,
    ) -> Self {
        Self { disk, dir, segment_bytes, open: None, sizes, next }
    }

    /// Appends records and syncs them. Returns the place of the first one.
    ///
    /// # Errors
    /// The records are not, or may not be, on the disk: none of them may be acknowledged.
    pub(crate) fn append(&mut self, records: &[u8]) -> Result<u64, DiskError> {
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
                let Point { place, .. } = Point::of_record(segment.number, segment.good);
                segment.good += records.len() as u64;
                self.sizes.set(segment.number, segment.good);
                self.open = Some(segment);
                Ok(place)
            }
            Err(error) => {
                let path = segment.path.clone();
                self.abandon(segment);
                Err(DiskError { what: "append to the log", path, error })
            }
        }
    }

    /// Closes the current segment; the next append begins another. Returns the last segment number in use so far.
    pub(crate) fn rotate(&mut self) -> u64 {
        self.open = None;
        self.next.saturating_sub(1)
    }

    fn begin(&mut self) -> Result<OpenSegment, DiskError> {
        let number = self.next;
        // A number is never reused: a file that was created but not written may exist.
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

    /// Truncates a segment after its last synced byte. If even that fails, the tail remains.
    /// Replay keeps its whole records; their senders have sent them again by then, and they count as duplicates.
    fn abandon(&self, segment: OpenSegment) {
        let OpenSegment { number, path, file, good } = segment;
        drop(file);
        if good <= SEGMENT_HEADER_BYTES {
            if self.disk.remove(&path).is_err() {
                self.sizes.set_uncut(number);
            }
            return;
        }
        if self.disk.truncate(&path, good).is_err() {
            self.sizes.set_uncut(number);
        }
    }

    /// Removes an empty segment. If that fails, the next start removes it.
    fn remove_unused(&self, path: &Path) {
        match self.disk.remove(path) {
            Ok(()) | Err(_) => {}
        }
    }
}
