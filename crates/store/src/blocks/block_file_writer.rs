//! A file of samples or rollups while it is written: it has a temporary name until it is complete.

use super::columns::Effort;
use super::rollup_writer::{RolledWriter, Window};
use super::write::BlockWriter;
use super::{Block, BlockNote};
use crate::files::disk::Disk;
use crate::files::errors::{BlockError, DiskError};
use crate::head::series_builder::SeriesRows;
use crate::settings::Settings;
use model::{Series, Timestamp};
use std::path::{Path, PathBuf};

/// Facts about a block that are known before its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockFacts {
    /// The first and the last log segment of its samples.
    pub(crate) log: (u64, u64),
    /// How often its rows were merged.
    pub(crate) level: u8,
    /// Length of its rollup windows, in microseconds; 0: it has samples.
    pub(crate) window_us: i64,
    /// For final rollups: their time range.
    pub(crate) settled: Option<(i64, i64)>,
}

#[derive(Debug)]
enum Writer {
    Samples(Box<BlockWriter>),
    Windows(Box<RolledWriter>),
}

/// A block while it is written; dropped before it is finished, it leaves no file.
#[derive(Debug)]
pub(crate) struct NewBlock<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    of: BlockFacts,
    name: String,
    other: PathBuf,
    writer: Option<Writer>,
}

impl<'a> NewBlock<'a> {
    /// Begins a block in the directory of its kind.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn create(
        disk: &'a dyn Disk,
        dir: &'a Path,
        settings: &Settings,
        of: BlockFacts,
    ) -> Result<Self, BlockError> {
        let ((first, last), seconds) = (of.log, of.window_us / Timestamp::SECOND);
        let name = match of.window_us {
            0 => format!("{first:016}-{last:016}.parquet"),
            _ => match of.settled {
                None => format!("{first:016}-{last:016}-{seconds}s.parquet"),
                Some((from, to)) => {
                    let (from, to) = (from / Timestamp::SECOND, to / Timestamp::SECOND);
                    format!("settled-{from}-{to}-{seconds}s.parquet")
                }
            },
        };
        let other = dir.join(format!("{name}.tmp"));
        let file = disk.create(&other).map_err(DiskError::of("write", &other))?;
        let mut new = Self { disk, dir, of, name, other, writer: None };
        let effort = if of.level > 0 { Effort::High } else { Effort::Low };
        let writer = match of.window_us {
            0 => BlockWriter::new(file, settings, effort).map(Box::new).map(Writer::Samples),
            _ => RolledWriter::new(file, settings).map(Box::new).map(Writer::Windows),
        };
        new.writer = Some(writer.map_err(|source| new.parquet(source))?);
        Ok(new)
    }

    /// The same with another name.
    pub(crate) fn named(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// Adds rows of a series: the next series, or more of the current one.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn series(&mut self, rows: SeriesRows<'_>) -> Result<(), BlockError> {
        let Some(Writer::Samples(writer)) = &mut self.writer else { return Ok(()) };
        writer.series(rows).map_err(|source| self.parquet(source))
    }

    /// Adds windows of a series: the next series, or more of the current one.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn windows(&mut self, of: &Series, windows: &[Window]) -> Result<(), BlockError> {
        let Some(Writer::Windows(writer)) = &mut self.writer else { return Ok(()) };
        writer.series(of, windows).map_err(|source| self.parquet(source))
    }

    /// Writes the rest, syncs the file, and gives the block its name.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn finish(mut self, received: Timestamp) -> Result<Block, BlockError> {
        let nothing = || BlockError::Index { path: self.other.clone(), why: "no rows".to_owned() };
        let writer = self.writer.take().ok_or_else(nothing)?;
        let written = match writer {
            Writer::Samples(writer) => writer.finish(),
            Writer::Windows(writer) => writer.finish(),
        };
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
            window_us: self.of.window_us,
            settled: self.of.settled,
            archived: false,
        };
        Block::open(self.disk, self.dir, note)
    }

    fn parquet(&self, error: parquet::errors::ParquetError) -> BlockError {
        BlockError::Parquet { path: self.other.clone(), error }
    }

    /// If this fails, the next start removes the file.
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
