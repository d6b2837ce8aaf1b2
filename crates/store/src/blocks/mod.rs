//! Blocks: immutable Parquet files of the samples of one head, sorted by series, then time, with an index of
//! their series (docs/format.md; decision 0005).
//!
//! - `write`, `block_file_writer`: from samples to a file. `container`, `schema`, `column_target`, `columns`: its parts.
//!   `index`: its series.
//! - `read`: back to samples. `archived_file`: a file that may be unavailable.
//! - `rollup_writer`, `rollup_reader`: files of rollups. `checks`, `damage`: checksums, and the cost of damage.

mod archived_file;
mod block_file_writer;
mod checks;
mod column_target;
mod columns;
mod container;
mod damage;
mod index;
mod read;
mod rollup_reader;
mod rollup_writer;
mod schema;
mod write;

pub(crate) use block_file_writer::{BlockFacts, NewBlock};
pub(crate) use column_target::{Lane, RawValues};
pub(crate) use index::Entry;
pub(crate) use read::{Opened, RowCursor};
pub(crate) use rollup_reader::RolledCursor;
pub(crate) use rollup_writer::Window;

use crate::files::disk::{Disk, ReadFile};
use crate::files::errors::{BlockError, DiskError};
use archived_file::ArchivedFile;
use model::Timestamp;
use parking_lot::Mutex;
use senders::json;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::Meter;

/// Most blocks with footer and directory in memory.
const OPENED_MAX: usize = 64;

/// A block's entry in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockNote {
    /// The file's name.
    pub(crate) file: String,
    pub(crate) rows: u64,
    pub(crate) series: u64,
    pub(crate) bytes: u64,
    /// First and last instant of its samples.
    #[serde(with = "json::time")]
    pub(crate) from: Timestamp,
    #[serde(with = "json::time")]
    pub(crate) to: Timestamp,
    /// Time of receipt of its newest batch.
    #[serde(with = "json::time")]
    pub(crate) received: Timestamp,
    /// Start of the part that is read when the block is opened, and its CRC-32C.
    pub(crate) tail: u64,
    pub(crate) tail_crc: u32,
    /// The first and the last log segment of its samples.
    pub(crate) log_first: u64,
    pub(crate) log_last: u64,
    /// How often its rows were merged; 0 for a block written from memory.
    #[serde(default)]
    pub(crate) level: u8,
    /// Length of its rollup windows, in microseconds; 0: it has samples.
    #[serde(default)]
    pub(crate) window_us: i64,
    /// For final rollups: the start of the first window and the end of the last, in microseconds since 1970.
    /// Such a file belongs to no log segments.
    #[serde(default)]
    pub(crate) settled: Option<(i64, i64)>,
    /// Whether it is in the archive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) archived: bool,
}

impl BlockNote {
    /// Number of columns in the file.
    const fn columns(&self) -> usize {
        if self.window_us == 0 { schema::COLUMNS } else { rollup_writer::COLUMNS }
    }
}

/// A readable block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) note: BlockNote,
    pub(crate) path: PathBuf,
    file: Arc<dyn ReadFile>,
    opened: Mutex<Option<Arc<Opened>>>,
    used: AtomicU64,
}

impl Block {
    /// Opens a block of the manifest; its footer is read on first use.
    ///
    /// # Errors
    /// The file is missing, cannot be read, or has another length.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, note: BlockNote) -> Result<Self, BlockError> {
        let path = dir.join(&note.file);
        let file = disk.open(&path).map_err(DiskError::of("open", &path))?;
        let length = file.length().map_err(DiskError::of("read", &path))?;
        if length != note.bytes {
            let why = format!("the file has {length} bytes; the manifest states {}", note.bytes);
            return Err(BlockError::Index { path, why });
        }
        Ok(Self { note, path, file, opened: Mutex::new(None), used: AtomicU64::new(0) })
    }

    /// A block in the archive; its file is opened on first read.
    pub(crate) fn archived(disk: &Arc<dyn Disk>, dir: &Path, note: BlockNote) -> Self {
        let path = dir.join(&note.file);
        let file = Arc::new(ArchivedFile::new(disk, path.clone(), note.bytes));
        Self { note, path, file, opened: Mutex::new(None), used: AtomicU64::new(0) }
    }

    /// Reads bytes of its file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.file.read_at(buf, offset).map_err(DiskError::of("read", &self.path))
    }

    /// Reads its footer and directory.
    ///
    /// # Errors
    /// They are damaged or cannot be read.
    pub(crate) fn check(&self) -> Result<(), BlockError> {
        self.opened(&Arc::new(Meter::default())).map(|_| ())
    }

    /// Whether it may have samples between two instants (bounds inclusive).
    pub(crate) fn touches(&self, from: i64, to: i64) -> bool {
        self.note.from.0 <= to && self.note.to.0 >= from
    }

    /// Its footer and directory, read if they are not in memory.
    ///
    /// # Errors
    /// They are damaged or cannot be read.
    pub(crate) fn opened(&self, meter: &Arc<Meter>) -> Result<Arc<Opened>, BlockError> {
        static CLOCK: AtomicU64 = AtomicU64::new(0);
        self.used.store(CLOCK.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let mut opened = self.opened.lock();
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let new = Arc::new(Opened::read(self, meter)?);
        *opened = Some(Arc::clone(&new));
        Ok(new)
    }

    fn is_opened(&self) -> bool {
        self.opened.lock().is_some()
    }

    fn close(&self) {
        *self.opened.lock() = None;
    }
}

/// Drops the least recently used footers, if there are too many.
pub(crate) fn close_unused<'a>(blocks: impl Iterator<Item = &'a Arc<Block>>) {
    let mut opened: Vec<&Arc<Block>> = blocks.filter(|block| block.is_opened()).collect();
    if let Some(surplus) = opened.len().checked_sub(OPENED_MAX) {
        // Each time is read once: a query that uses a block meanwhile would change the order while it is sorted.
        opened.sort_by_cached_key(|block| block.used.load(Ordering::Relaxed));
        opened.iter().take(surplus).for_each(|block| block.close());
    }
}
