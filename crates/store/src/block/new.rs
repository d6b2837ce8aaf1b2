//! A block on its way to the disk: under another name until it is whole.

use super::write::BlockWriter;
use super::{Block, BlockNote};
use crate::disk::Disk;
use crate::error::{BlockError, DiskError};
use crate::settings::Settings;
use crate::slab::SeriesRows;
use model::Timestamp;
use std::path::{Path, PathBuf};

/// What of a block is known before its rows are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    /// The first and the last log segment whose samples it holds.
    pub(crate) log: (u64, u64),
    /// How often its rows have been merged.
    pub(crate) level: u8,
}

/// A block that is being written; dropped before it is finished, it leaves no file.
#[derive(Debug)]
pub(crate) struct NewBlock<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    of: Of,
    name: String,
    other: PathBuf,
    writer: Option<BlockWriter>,
}

impl<'a> NewBlock<'a> {
    /// Begins a block in the directory of the blocks.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn create(
        disk: &'a dyn Disk,
        dir: &'a Path,
        settings: &Settings,
        of: Of,
    ) -> Result<Self, BlockError> {
        let name = format!("{:016}-{:016}.parquet", of.log.0, of.log.1);
        let other = dir.join(format!("{name}.tmp"));
        let file = disk.create(&other).map_err(DiskError::of("write", &other))?;
        let mut new = Self { disk, dir, of, name, other, writer: None };
        let writer = BlockWriter::new(file, settings);
        new.writer = Some(writer.map_err(|source| new.parquet(source))?);
        Ok(new)
    }

    /// Adds rows of a series: the next one, or more of the one before.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn series(&mut self, rows: SeriesRows<'_>) -> Result<(), BlockError> {
        let written = self.writer.as_mut().map_or(Ok(()), |writer| writer.series(rows));
        written.map_err(|source| self.parquet(source))
    }

    /// Writes the rest, and gives the block its name; all of it is on the disk when this returns.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn finish(mut self, received: Timestamp) -> Result<Block, BlockError> {
        let nothing = || BlockError::Index { path: self.other.clone(), why: "no rows".to_owned() };
        let writer = self.writer.take().ok_or_else(nothing)?;
        let written = writer.finish();
        let path = self.dir.join(&self.name);
        let named = written.map_err(|source| self.parquet(source)).and_then(|written| {
            self.disk.rename(&self.other, &path).map_err(DiskError::of("rename", &path))?;
            self.disk.sync_dir(self.dir).map_err(DiskError::of("sync", self.dir))?;
            Ok(written)
        });
        if named.is_err() {
            self.remove();
        }
        let written = named?;
        let (log_first, log_last) = self.of.log;
        let note = BlockNote {
            file: self.name.clone(),
            rows: written.rows,
            series: written.series,
            bytes: written.bytes,
            from: Timestamp(written.from),
            to: Timestamp(written.to),
            received,
            tail: written.tail,
            tail_crc: written.tail_crc,
            log_first,
            log_last,
            level: self.of.level,
        };
        Block::open(self.disk, self.dir, note)
    }

    fn parquet(&self, source: parquet::errors::ParquetError) -> BlockError {
        BlockError::Parquet { path: self.other.clone(), source }
    }

    /// Where this fails the next start removes the file.
    fn remove(&self) {
        self.disk.remove(&self.other).unwrap_or_default();
    }
}

impl Drop for NewBlock<'_> {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            self.remove();
        }
    }
}
