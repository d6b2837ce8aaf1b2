//! Appends records to a file that others may read meanwhile.
//!
//! Rows become visible with the number of rows of their table, and everything of an append is durable when it returns.

#[cfg(test)]
mod tests;

use crate::chunks::Chunks;
use crate::error::{FileError, Result};
use crate::groups::{
    ALIGN, Group, JOB_LINK_BYTES, ROOT_LINK_BYTES, add_link, new_group, read_group,
};
use crate::header::size;
use crate::io::{Io, Step};
use crate::layout::Layout;
use crate::objects::{self, INDEX_AT, PREFIX_BYTES, ROWS_AT, SUPERBLOCK_BYTES};
use colmet::backends::BACKENDS;
use colmet::record::Record;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::time::Duration;

/// Most jobs of a file: an object header has at most 65 535 messages.
pub const JOBS_MAX: usize = 50_000;
/// The highest level of deflate.
const LEVEL_MAX: u32 = 9;
/// Records of which the rows are in memory at once: at most 10 MB.
const RECORDS_AT_ONCE: usize = 1024;
/// A table without a new row for this time gets its last chunk compressed.
const QUIET: Duration = Duration::from_secs(300);
/// Most such chunks of one append.
const PACKED_AT_ONCE: usize = 64;

/// A file that is written.
#[derive(Debug)]
pub struct Writer {
    io: Io,
    /// Level of deflate; 0: rows are not compressed.
    level: u32,
    layouts: Vec<Layout>,
    root: Group,
    jobs: BTreeMap<u64, Group>,
    tables: BTreeMap<TableKey, Table>,
    /// Tables of which the last chunk is not compressed, and when they had a row. A table is there once.
    plain: VecDeque<(Duration, TableKey)>,
    /// Whether a change failed: the file is not what this writer has in memory.
    has_failed: bool,
    /// Old addresses of chunks of each layout, and when they became old.
    old: Vec<VecDeque<(Duration, u64)>>,
}

/// Job and layout.
type TableKey = (u64, usize);

#[derive(Clone, Copy, Debug)]
struct Table {
    header: u64,
    rows: u64,
    /// When it got its last row.
    written: Duration,
    /// Whether it is among those with a plain chunk.
    is_plain: bool,
}

/// How many rows a table has before some records, and how many of them it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRows {
    /// The job's number.
    pub job: u64,
    /// The backend.
    pub table: String,
    /// Rows before the records.
    pub before: u64,
    /// Rows that the records add.
    pub added: u64,
}

impl Writer {
    /// Begins a file. `level` is that of deflate, 0 to 9; 0: rows are not compressed.
    ///
    /// # Errors
    /// The system rejects it.
    pub fn create(file: File, level: u32) -> Result<Self> {
        let header = SUPERBLOCK_BYTES.next_multiple_of(ALIGN);
        let mut io = Io::create(file, header)?;
        let root = new_group(&mut io, objects::group(&root_attributes(level)), ROOT_LINK_BYTES)?;
        io.publish()?;
        Ok(Self::new(io, level, root))
    }

    fn new(io: Io, level: u32, root: Group) -> Self {
        let backends = BACKENDS.into_iter().filter(|backend| backend.is_of_python());
        let layouts: Vec<_> = backends.map(Layout::new).collect();
        let old = layouts.iter().map(|_| VecDeque::new()).collect();
        let (jobs, tables) = (BTreeMap::new(), BTreeMap::new());
        let plain = VecDeque::new();
        Self { io, level, layouts, root, jobs, tables, plain, has_failed: false, old }
    }

    /// Continues a file of this writer with its level.
    ///
    /// # Errors
    /// It is damaged, or another program wrote it, or the system rejects it.
    pub fn open(file: File) -> Result<Self> {
        let io = Io::open(file)?;
        let header = SUPERBLOCK_BYTES.next_multiple_of(ALIGN);
        let (root, links) = read_group(&io, header)?;
        let mut found = vec![0; objects::group(&root_attributes(0)).concat().len()];
        io.read(header + PREFIX_BYTES, &mut found)?;
        let is_of = |level: &u32| objects::group(&root_attributes(*level)).concat() == found;
        let level = (0..=LEVEL_MAX).find(is_of).ok_or(FileError::Other)?;
        let mut writer = Self::new(io, level, root);
        for (name, header) in links {
            let job = name.strip_prefix("job_").and_then(|job| job.parse().ok());
            let (Some(job), (group, links)) = (job, read_group(&writer.io, header)?) else {
                return Err(FileError::Other);
            };
            writer.jobs.insert(job, group);
            for (name, header) in links {
                let layout = writer.layouts.iter().position(|layout| layout.backend.id == name);
                let layout = layout.ok_or(FileError::Other)?;
                let rows = writer.io.read_u64(header + ROWS_AT)?;
                let table = Table { header, rows, written: Duration::ZERO, is_plain: false };
                writer.keep((job, layout), table);
            }
        }
        Ok(writer)
    }

    /// Bytes of the file without its empty end.
    pub fn bytes(&self) -> u64 {
        self.io.bytes()
    }

    /// Compresses what is not, as long as there is time, and takes the empty end of the file away, which a file that grows has.
    ///
    /// # Errors
    /// The system rejects it.
    pub fn close(&mut self, has_time: &dyn Fn() -> bool) -> Result<()> {
        while !self.has_failed && has_time() {
            if self.pack_quiet(Duration::MAX, Duration::ZERO)? == 0 {
                break;
            }
            self.io.publish()?;
        }
        self.io.trim()
    }

    /// Compresses the last chunks of some tables that had no row for a time. Returns how many they were.
    fn pack_quiet(&mut self, now: Duration, quiet: Duration) -> Result<usize> {
        let mut packed = 0;
        let is_due = |(since, _): &&(Duration, TableKey)| now.saturating_sub(*since) >= quiet;
        while packed < PACKED_AT_ONCE
            && let Some((since, key)) = self.plain.front().filter(is_due).copied()
        {
            self.plain.pop_front();
            let Self { io, layouts, old, tables, .. } = self;
            let (Some(table), Some(layout), Some(old)) =
                (tables.get_mut(&key), layouts.get(key.1), old.get_mut(key.1))
            else {
                continue;
            };
            if table.written > since {
                self.plain.push_back((table.written, key));
                continue;
            }
            table.is_plain = false;
            let chunk_rows = layout.chunk_rows as u64;
            let (number, rows) = (table.rows / chunk_rows, size(table.rows % chunk_rows));
            if rows > 0 {
                let root_at = table.header + INDEX_AT;
                let mut chunks = Chunks { io, layout, old, level: self.level, now };
                chunks.pack_last(root_at, number, rows)?;
                packed += 1;
            }
        }
        Ok(packed)
    }

    /// Notes a table in memory, also among those with a plain chunk.
    fn keep(&mut self, key: TableKey, mut table: Table) {
        if self.level > 0 && !table.is_plain {
            table.is_plain = true;
            self.plain.push_back((table.written, key));
        }
        self.tables.insert(key, table);
    }

    /// Whether these records fit.
    pub fn has_space_for(&self, records: &[Record]) -> bool {
        let is_new = |record: &&Record| !self.jobs.contains_key(&record.job);
        let mut new: Vec<_> = records.iter().filter(is_new).map(|record| record.job).collect();
        new.sort_unstable();
        new.dedup();
        self.jobs.len() + new.len() <= JOBS_MAX
    }

    /// The tables of records before [`Writer::append`].
    pub fn rows_before(&self, records: &[Record]) -> Vec<TableRows> {
        let mut added: BTreeMap<TableKey, u64> = BTreeMap::new();
        for record in records {
            if let Some(layout) = self.layout_of(record) {
                *added.entry((record.job, layout)).or_default() += 1;
            }
        }
        let rows = added.into_iter().filter_map(|((job, layout), added)| {
            let before = self.tables.get(&(job, layout)).map_or(0, |table| table.rows);
            let table = self.layouts.get(layout)?.backend.id.to_owned();
            Some(TableRows { job, table, before, added })
        });
        rows.collect()
    }

    /// Takes records away that were appended to these tables, unless other ones follow them.
    ///
    /// # Errors
    /// The system rejects it.
    pub fn cut(&mut self, tables: &[TableRows]) -> Result<()> {
        self.has_failed = true;
        for TableRows { job, table, before, added } in tables {
            let layout = self.layouts.iter().position(|layout| layout.backend.id == *table);
            let found = layout.and_then(|layout| self.tables.get_mut(&(*job, layout)));
            if let Some(found) = found
                && (*before..=before.saturating_add(*added)).contains(&found.rows)
            {
                found.rows = *before;
                self.io.change(Step::Rows, found.header + ROWS_AT, &before.to_le_bytes());
            }
        }
        self.io.publish()?;
        self.has_failed = false;
        Ok(())
    }

    /// Appends records durably and visibly. After an error the file must be opened again: it has some of them.
    ///
    /// `now` is a time that only grows. Records of backends that Colmet's collector does not know are left out.
    ///
    /// # Errors
    /// The file has too many jobs, or the system rejects it.
    pub fn append(&mut self, records: &[Record], now: Duration) -> Result<()> {
        if !self.has_space_for(records) {
            return Err(FileError::Full(self.jobs.len()));
        }
        self.has_failed = true;
        for records in records.chunks(RECORDS_AT_ONCE) {
            let mut rows: BTreeMap<TableKey, Vec<u8>> = BTreeMap::new();
            for record in records {
                if let Some(place) = self.layout_of(record)
                    && let Some(layout) = self.layouts.get(place)
                {
                    layout.write_row(record, rows.entry((record.job, place)).or_default());
                }
            }
            for (key, rows) in rows {
                self.append_rows(key, &rows, now)?;
            }
        }
        self.pack_quiet(now, QUIET)?;
        self.io.publish()?;
        self.has_failed = false;
        Ok(())
    }

    fn layout_of(&self, record: &Record) -> Option<usize> {
        self.layouts.iter().position(|layout| layout.backend == record.backend)
    }

    fn append_rows(&mut self, key: TableKey, mut rows: &[u8], now: Duration) -> Result<()> {
        let mut table = self.table(key)?;
        let Self { io, layouts, old, .. } = self;
        let (Some(layout), Some(old)) = (layouts.get(key.1), old.get_mut(key.1)) else {
            return Ok(());
        };
        let mut chunks = Chunks { io, layout, old, level: self.level, now };
        while !rows.is_empty() {
            let chunk_rows = layout.chunk_rows as u64;
            let (number, within) = (table.rows / chunk_rows, table.rows % chunk_rows);
            let count = (rows.len() / layout.row_bytes).min(layout.chunk_rows - size(within));
            let (part, rest) = rows.split_at(count * layout.row_bytes);
            chunks.write(table.header + INDEX_AT, number, size(within), part)?;
            table.rows += count as u64;
            rows = rest;
        }
        self.io.change(Step::Rows, table.header + ROWS_AT, &table.rows.to_le_bytes());
        table.written = now;
        self.keep(key, table);
        Ok(())
    }

    /// The table of a job, a new one if there is none.
    fn table(&mut self, key: TableKey) -> Result<Table> {
        if let Some(table) = self.tables.get(&key) {
            return Ok(*table);
        }
        let (job, layout) = key;
        let mut group = match self.jobs.get(&job) {
            Some(group) => *group,
            None => {
                let title = format!("Job {job}");
                let messages =
                    objects::group(&[("CLASS", "GROUP"), ("TITLE", &title), ("VERSION", "1.0")]);
                let group = new_group(&mut self.io, messages, JOB_LINK_BYTES)?;
                add_link(&mut self.io, &mut self.root, &format!("job_{job}"), group.header)?;
                group
            }
        };
        let layout = self.layouts.get(layout).ok_or(FileError::Other)?;
        let title = format!("Metrics for the Job {job}");
        let header = self.io.add(&objects::table(layout, &title, self.level), ALIGN, 0)?;
        add_link(&mut self.io, &mut group, layout.backend.id, header)?;
        self.jobs.insert(job, group);
        Ok(Table { header, rows: 0, written: Duration::ZERO, is_plain: false })
    }
}

/// The attributes by which a file is recognised.
fn root_attributes(level: u32) -> [(&'static str, &'static str); 5] {
    const LEVELS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    [
        ("CLASS", "GROUP"),
        ("PYTABLES_FORMAT_VERSION", "2.1"),
        ("TITLE", "Colmet, written by jobmeter, version 1"),
        ("VERSION", "1.0"),
        ("complevel", LEVELS.get(size(u64::from(level))).copied().unwrap_or_default()),
    ]
}
