//! Reads Colmet's files: those of its collector, and ours.

use crate::error::{FileError, Result};
use crate::filters::{DEFLATE, FLETCHER32, SHUFFLE, inflate, unshuffle};
use crate::header::{Message, bytes_at, links, messages, number, size};
use crate::io::u64_of;
use crate::objects::{DATASPACE, DATATYPE, FILTERS, LAYOUT, SIGNATURE, UNDEFINED};
use crate::types::columns;
pub use crate::types::{Cell, Column};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most bytes of a chunk.
const CHUNK_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most chunks of a table: 8 bytes of memory for each.
const CHUNKS_MAX: usize = 50_000_000;
/// What the names of groups begin with.
const GROUP: &str = "job_";

/// A file that is read.
#[derive(Debug)]
pub struct Reader {
    file: File,
    root: u64,
}

/// A table of a job.
#[derive(Debug)]
pub struct Table {
    /// Its name: a backend.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// How many rows it has.
    pub rows: u64,
    row_bytes: usize,
    chunk_rows: usize,
    index: u64,
    filters: Vec<u16>,
}

/// A chunk that was found.
struct Found {
    number: u64,
    address: u64,
    bytes: usize,
    left_out: u64,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is no HDF5 file of a version that is known.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let mut head = [0; 96];
        let read = file.read_exact_at(&mut head, 0);
        if read.is_err() || !head.starts_with(SIGNATURE) {
            return Err(FileError::Damaged("its signature"));
        }
        // Version 1 has four bytes more.
        let root = match head {
            [_, _, _, _, _, _, _, _, 0, _, _, _, _, 8, 8, ..] => number(&head, 64, 8)?,
            [_, _, _, _, _, _, _, _, 1, _, _, _, _, 8, 8, ..] => number(&head, 68, 8)?,
            _ => return Err(FileError::Unknown("a superblock of a newer version".to_owned())),
        };
        Ok(Self { file, root })
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(bytes, address)
            .map_err(|_| FileError::Damaged("an address is beyond its end"))
    }

    fn messages(&self, address: u64) -> Result<Vec<Message>> {
        messages(&|address, bytes| self.read(address, bytes), address)
    }

    fn links(&self, address: u64) -> Result<Vec<(String, u64)>> {
        links(&|address, bytes| self.read(address, bytes), &self.messages(address)?)
    }

    /// The numbers of the jobs in the file, in the order of the file.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn jobs(&self) -> Result<Vec<u64>> {
        let names = self.links(self.root)?;
        Ok(names.iter().filter_map(|(name, _)| name.strip_prefix(GROUP)?.parse().ok()).collect())
    }

    /// The tables of a job; none if the file has no such job.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn tables(&self, job: u64) -> Result<Vec<Table>> {
        let name = format!("{GROUP}{job}");
        let group = self.links(self.root)?.into_iter().find(|(of, _)| *of == name);
        let Some((_, group)) = group else { return Ok(Vec::new()) };
        self.links(group)?.into_iter().map(|(name, at)| self.table(name, at)).collect()
    }

    fn table(&self, name: String, address: u64) -> Result<Table> {
        let messages = self.messages(address)?;
        let find = |kind| {
            let found = messages.iter().find(|message| message.kind == kind);
            found.map(|message| message.body.as_slice())
        };
        let needed = |kind| find(kind).ok_or(FileError::Damaged("a table lacks a message"));
        let space = needed(DATASPACE)?;
        let version = number(space, 0, 1)?;
        if number(space, 1, 1)? != 1 {
            return Err(FileError::Unknown("a table with more than one dimension".to_owned()));
        }
        let rows = number(space, if version == 1 { 8 } else { 4 }, 8)?;
        let (columns, row_bytes) = columns(needed(DATATYPE)?)?;
        let layout = needed(LAYOUT)?;
        if (number(layout, 0, 1)?, number(layout, 1, 1)?, number(layout, 2, 1)?) != (3, 2, 2) {
            return Err(FileError::Unknown("rows that are not in chunks".to_owned()));
        }
        let chunk_rows = size(number(layout, 11, 4)?);
        let filters = find(FILTERS).map(filters).transpose()?.unwrap_or_default();
        let chunk_bytes = chunk_rows.saturating_mul(row_bytes);
        if chunk_rows == 0 || chunk_bytes > CHUNK_BYTES_MAX {
            return Err(FileError::Damaged("the size of a chunk"));
        }
        let index = number(layout, 3, 8)?;
        Ok(Table { name, columns, rows, row_bytes, chunk_rows, index, filters })
    }

    /// Passes each row of a table, in their order, until `each` breaks.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn rows(
        &self,
        table: &Table,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut left = table.rows;
        for (number, chunk) in (0_u64..).zip(self.chunks(table)?) {
            if chunk.number != number {
                return Err(FileError::Damaged("a chunk is missing"));
            }
            let bytes = self.chunk(table, &chunk)?;
            let rows = bytes.chunks_exact(table.row_bytes).take(size(left));
            left = left.saturating_sub(rows.len() as u64);
            for row in rows {
                if each(row).is_break() {
                    return Ok(());
                }
            }
        }
        if left == 0 { Ok(()) } else { Err(FileError::Damaged("a chunk is missing")) }
    }

    /// The chunks with rows, in their order.
    fn chunks(&self, table: &Table) -> Result<Vec<Found>> {
        let most = table.rows.div_ceil(table.chunk_rows as u64);
        let mut out = Vec::new();
        if table.index != UNDEFINED && most > 0 {
            self.node(table, table.index, u64::MAX, most, &mut out)?;
        }
        Ok(out)
    }

    fn node(
        &self,
        table: &Table,
        address: u64,
        above: u64,
        most: u64,
        out: &mut Vec<Found>,
    ) -> Result<()> {
        let damaged = || FileError::Damaged("a node of a table's chunks");
        let head = bytes_at(&|at, bytes| self.read(at, bytes), address, 24)?;
        let level = number(&head, 5, 1)?;
        // Levels fall, so no node is read within itself.
        if !head.starts_with(b"TREE\x01") || level >= above || out.len() > CHUNKS_MAX {
            return Err(damaged());
        }
        let used = size(number(&head, 6, 2)?);
        let entries = bytes_at(&|at, bytes| self.read(at, bytes), address + 24, used * 32)?;
        for entry in entries.chunks_exact(32) {
            let number = number(entry, 8, 8)? / table.chunk_rows as u64;
            let child = u64_of(entry.get(24..).unwrap_or_default());
            if number >= most {
                break;
            }
            if level > 0 {
                self.node(table, child, level, most, out)?;
                continue;
            }
            let key = u64_of(entry);
            let bytes = size(key & u64::from(u32::MAX));
            out.push(Found { number, address: child, bytes, left_out: key >> 32 });
        }
        Ok(())
    }

    /// The rows of a chunk.
    fn chunk(&self, table: &Table, chunk: &Found) -> Result<Vec<u8>> {
        let most = table.chunk_rows * table.row_bytes;
        if chunk.bytes > CHUNK_BYTES_MAX {
            return Err(FileError::Damaged("the size of a chunk"));
        }
        let mut bytes = bytes_at(&|at, bytes| self.read(at, bytes), chunk.address, chunk.bytes)?;
        for (place, filter) in table.filters.iter().enumerate().rev() {
            if chunk.left_out >> place & 1 == 1 {
                continue;
            }
            bytes = match *filter {
                DEFLATE => inflate(&bytes, most)?,
                SHUFFLE => unshuffle(&bytes, table.row_bytes),
                // Its checksum is at the end.
                FLETCHER32 => {
                    bytes.truncate(bytes.len().saturating_sub(4));
                    bytes
                }
                other => {
                    return Err(FileError::Unknown(format!("compression {}", filter_name(other))));
                }
            };
        }
        if bytes.len() == most {
            Ok(bytes)
        } else {
            Err(FileError::Damaged("a chunk is too short"))
        }
    }
}

fn filter_name(filter: u16) -> String {
    match filter {
        305 => "lzo".to_owned(),
        307 => "bzip2".to_owned(),
        32001 => "blosc".to_owned(),
        other => format!("number {other}"),
    }
}

/// The numbers of the filters of a table.
fn filters(body: &[u8]) -> Result<Vec<u16>> {
    let (version, count) = (number(body, 0, 1)?, number(body, 1, 1)?);
    let mut place = if version == 1 { 8 } else { 2 };
    let mut out = Vec::new();
    for _ in 0..count {
        let filter = number(body, place, 2)?;
        // Of version 2, known filters have no length of a name.
        let has_name = version == 1 || filter >= 256;
        let name = if has_name { size(number(body, place + 2, 2)?) } else { 0 };
        place += if has_name { 4 } else { 2 };
        let values = size(number(body, place + 2, 2)?);
        place += 4 + if version == 1 { name.next_multiple_of(8) } else { name } + values * 4;
        if version == 1 && values % 2 == 1 {
            place += 4;
        }
        out.push(u16::try_from(filter).unwrap_or_default());
    }
    Ok(out)
}
