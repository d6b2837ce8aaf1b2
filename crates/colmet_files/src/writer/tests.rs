//! Files of the writer, read by the reader.

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
            let records: Vec<_> = (next..next + count).map(|second| record(7, second)).collect();
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
    writer.close(&|| true).unwrap();
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
        let records =
            |range: std::ops::Range<i64>| range.map(|second| record(7, second)).collect::<Vec<_>>();
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
    let rows =
        i64::try_from(writer.layouts.iter().find(|it| *it.backend == PERFHW).unwrap().chunk_rows)
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
fn quiet_tables_are_compressed_and_continued() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut writer = Writer::create(file(&path), 5).unwrap();
    let mut now = NOW;
    for job in 1..=200 {
        for second in 0..5 {
            writer.append(&[record(job, second)], now).unwrap();
            now += Duration::from_secs(10);
        }
    }
    // About 13 jobs have plain chunks at once: one for 350 s, and its address is used again after 300 s.
    assert!(writer.bytes() < 2_500_000, "{}", writer.bytes());
    for job in [1, 2, 200] {
        writer.append(&[record(job, 5)], now).unwrap();
    }
    let expected =
        |job| -> Vec<i64> { (0..if [1, 2, 200].contains(&job) { 6 } else { 5 }).collect() };
    let check = || (1..=200).for_each(|job| assert_eq!(seconds(&path, job), expected(job)));
    check();
    let plain = writer.plain.len();
    writer.close(&|| true).unwrap();
    assert!(plain > 3 && writer.plain.is_empty(), "{plain}");
    check();
    let mut writer = Writer::open(file(&path)).unwrap();
    writer.append(&[record(7, 5)], now).unwrap();
    assert_eq!(seconds(&path, 7), (0..6).collect::<Vec<_>>());
}

#[test]
fn damaged_files_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut writer = Writer::create(file(&path), 3).unwrap();
    writer.append(&(0..300).map(|second| record(7, second)).collect::<Vec<_>>(), NOW).unwrap();
    writer.close(&|| true).unwrap();
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
