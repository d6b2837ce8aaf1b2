//! Appends records to a file that others may read meanwhile.
//!
//! Rows become visible with the number of rows of their table, and everything of an append is durable when it returns.

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
    /// Old addresses of chunks of each layout, and when they became old.
    old: Vec<VecDeque<(Duration, u64)>>,
}

/// Job and layout.
type TableKey = (u64, usize);

#[derive(Clone, Copy, Debug)]
struct Table {
    header: u64,
    rows: u64,
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
        Self { io, level, layouts, root, jobs: BTreeMap::new(), tables: BTreeMap::new(), old }
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
                writer.tables.insert((job, layout), Table { header, rows });
            }
        }
        Ok(writer)
    }

    /// Bytes of the file without its empty end.
    pub fn bytes(&self) -> u64 {
        self.io.bytes()
    }

    /// Takes the empty end of the file away, which a file that grows has.
    ///
    /// # Errors
    /// The system rejects it.
    pub fn trim(&mut self) -> Result<()> {
        self.io.trim()
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
        self.io.publish()
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
        self.io.publish()
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
        self.tables.insert(key, table);
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
        Ok(Table { header, rows: 0 })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::REUSE_AFTER;
    use crate::reader::{Cell, Reader};
    use colmet::backends::{PERFHW, PROCSTATS};
    use colmet::record::Value;
    use model::Timestamp;
    use std::ops::ControlFlow;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const NOW: Duration = Duration::ZERO;

    fn record(job: u64, second: i64) -> Record {
        let backend = if job == 0 { &PROCSTATS } else { &PERFHW };
        let mut record = Record::new(backend, "n1", job, Timestamp::from_seconds(second));
        record.set("counter_1", Value::Signed(second * 3));
        record
    }

    fn file(path: &Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    /// The instants in the table of a job.
    fn seconds(path: &Path, job: u64) -> Vec<i64> {
        let reader = Reader::open(path).unwrap();
        let tables = reader.tables(job).unwrap();
        let [table] = &tables[..] else { panic!("{tables:?}") };
        let column = |name| table.columns.iter().find(|column| column.name == name);
        let (at, counter) = (column("timestamp").unwrap(), column("counter_1"));
        let mut out = Vec::new();
        let mut each = |row: &[u8]| {
            let Some(Cell::Integer(second)) = at.cell(row) else { panic!("no number") };
            if let Some(counter) = counter {
                assert_eq!(counter.cell(row), Some(Cell::Integer(second * 3)));
            }
            out.push(second);
            ControlFlow::Continue(())
        };
        reader.rows(table, &mut each).unwrap();
        out
    }

    #[test]
    fn rows_are_read_as_appended_over_all_levels_of_an_index() {
        let dir = tempfile::tempdir().unwrap();
        for level in [0, 6] {
            let path = dir.path().join(format!("{level}"));
            let mut writer = Writer::create(file(&path), level).unwrap();
            // Small chunks, so that the index has three levels.
            writer.layouts.iter_mut().for_each(|layout| layout.chunk_rows = 2);
            let mut next = 0;
            for count in [1, 1, 5, 200, 1, 9000] {
                let records: Vec<_> =
                    (next..next + count).map(|second| record(7, second)).collect();
                writer.append(&records, NOW).unwrap();
                next += count;
                if next < 300 {
                    assert_eq!(seconds(&path, 7), (0..next).collect::<Vec<_>>());
                }
            }
            assert_eq!(seconds(&path, 7), (0..next).collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_jobs_and_a_file_that_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut writer = Writer::create(file(&path), 1).unwrap();
        let jobs = 0..3000;
        for second in 0..2 {
            let records: Vec<_> = jobs.clone().map(|job| record(job, second)).collect();
            writer.append(&records, NOW).unwrap();
        }
        // As after a kill.
        drop(writer);
        let mut writer = Writer::open(file(&path)).unwrap();
        writer.append(&[record(5, 2), record(9000, 2)], NOW).unwrap();
        writer.trim().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), writer.bytes());
        let mut found = Reader::open(&path).unwrap().jobs().unwrap();
        found.sort_unstable();
        assert_eq!(found, jobs.chain([9000]).collect::<Vec<_>>());
        assert_eq!(
            [seconds(&path, 5), seconds(&path, 0), seconds(&path, 9000)],
            [vec![0, 1, 2], vec![0, 1], vec![2]]
        );
    }

    #[test]
    fn rows_that_are_cut_are_replaced_also_in_a_compressed_chunk() {
        let dir = tempfile::tempdir().unwrap();
        let rows = 60;
        for level in [0, 5] {
            let path = dir.path().join(format!("{level}"));
            let mut writer = Writer::create(file(&path), level).unwrap();
            let records = |range: std::ops::Range<i64>| {
                range.map(|second| record(7, second)).collect::<Vec<_>>()
            };
            writer.append(&records(0..rows), NOW).unwrap();
            let noted = writer.rows_before(&records(rows..rows * 10));
            assert_eq!((noted[0].before, noted[0].added), (60, 540));
            writer.append(&records(rows..rows * 10), NOW).unwrap();
            let mut writer = Writer::open(file(&path)).unwrap();
            writer.cut(&noted).unwrap();
            assert_eq!(seconds(&path, 7), (0..rows).collect::<Vec<_>>());
            writer.append(&records(rows..rows * 3), NOW).unwrap();
            assert_eq!(seconds(&path, 7), (0..rows * 3).collect::<Vec<_>>());
            // Rows that followed the noted ones remain.
            let noted = [TableRows { before: 1, added: 2, ..noted[0].clone() }];
            writer.cut(&noted).unwrap();
            assert_eq!(seconds(&path, 7).len(), 180);
        }
    }

    #[test]
    fn old_addresses_are_used_again_after_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(file(&dir.path().join("a")), 9).unwrap();
        let rows = i64::try_from(
            writer.layouts.iter().find(|it| *it.backend == PERFHW).unwrap().chunk_rows,
        )
        .unwrap();
        let mut grown = Vec::new();
        for round in 0..4 {
            let now = REUSE_AFTER * u32::from(round >= 2);
            let before = writer.bytes();
            // Two appends, so that the first rows are not compressed.
            let records: Vec<_> = (0..rows).map(|second| record(7, second)).collect();
            writer.append(&records[..1], now).unwrap();
            writer.append(&records[1..], now).unwrap();
            grown.push(writer.bytes() - before > 60_000);
        }
        assert_eq!(grown, [true, true, false, false]);
    }

    #[test]
    fn damaged_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut writer = Writer::create(file(&path), 3).unwrap();
        writer.append(&(0..300).map(|second| record(7, second)).collect::<Vec<_>>(), NOW).unwrap();
        writer.trim().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let used = whole.len();
        // Bytes in turn: no panic, and no endless reading.
        for place in (0..used).step_by(61) {
            let damaged = file(&path);
            damaged.write_all_at(&[!whole[place]], place as u64).unwrap();
            if let Ok(reader) = Reader::open(&path) {
                for table in reader.tables(7).unwrap_or_default() {
                    reader.rows(&table, &mut |_| ControlFlow::Continue(())).ok();
                }
            }
            Writer::open(file(&path)).ok();
            damaged.write_all_at(&whole[place..=place], place as u64).unwrap();
        }
        std::fs::write(&path, &whole[..used / 2]).unwrap();
        assert!(Writer::open(file(&path)).is_err());
    }
}
