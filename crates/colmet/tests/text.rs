//! The text of records equals that of Colmet's collector.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests end at the first surprise"
)]

use colmet::backends::{Backend, Column, ColumnType, Shown};
use colmet::frame::Records;
use colmet::record::{Record, Value};
use model::Timestamp;
use std::path::Path;

fn recorded(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/colmet");
    std::fs::read(folder.join(name)).unwrap()
}

fn text(records: &[Record]) -> String {
    let mut text = String::new();
    records.iter().for_each(|record| colmet::text::write(record, &|_| 0, &mut text));
    text
}

fn same_lines(found: &str, expected: &str) {
    for (number, (found, expected)) in (1..).zip(found.lines().zip(expected.lines())) {
        assert_eq!(found, expected, "line {number}");
    }
    assert!(found == expected, "the end differs");
}

/// Colmet's own classes printed these texts.
#[test]
fn records_are_printed_as_colmet_prints_them() {
    for name in ["colmet_py0610_all10_synthetic", "colmet_py0610_magnitudes"] {
        let message = recorded(&format!("{name}.bin"));
        let records: Vec<_> = Records::of(&message).collect::<Result<_, _>>().unwrap();
        let expected = String::from_utf8(recorded(&format!("{name}.txt"))).unwrap();
        same_lines(&text(&records), &expected);
    }
}

/// A value of which `shown` is the text: `579M (bytes)` is 592896 kibibytes.
fn value(column: &Column, shown: &str) -> Value {
    let number = shown.split(' ').next().unwrap();
    let digits = number.trim_end_matches(|c: char| c.is_alphabetic());
    let prefix = number.strip_prefix(digits).unwrap();
    let place = |prefixes: &[&str]| {
        i32::try_from(prefixes.iter().position(|it| *it == prefix).unwrap()).unwrap()
    };
    let factor = match column.shown {
        Shown::Plain | Shown::Seconds | Shown::Celsius => 1.0,
        Shown::Count => 1e3_f64.powi(place(&["", "K", "M", "G", "T"])),
        Shown::Bytes => 1024_f64.powi(place(&["", "K", "M", "G", "T"])),
        Shown::Kibibytes => 1024_f64.powi(place(&["K", "M", "G", "T"])),
        Shown::Microseconds => 1e3_f64.powi(place(&["u", "m", ""])),
        Shown::Nanoseconds => 1e3_f64.powi(place(&["n", "u", "m", ""])),
        Shown::MebibyteMicroseconds => {
            1024_f64.powi(place(&["", "K", "M", "G", "T"])) * 1e6 / 1_048_576.0
        }
        Shown::Date => {
            let [day, month, year] = number.split('/').collect::<Vec<_>>()[..] else { panic!() };
            let time = shown.rsplit(' ').next().unwrap();
            let at = Timestamp::parse(&format!("{year}-{month}-{day}T{time}Z")).unwrap();
            return Value::Unsigned(u64::try_from(at.0 / Timestamp::SECOND).unwrap());
        }
    };
    if column.kind == ColumnType::Text {
        return Value::Text(shown.into());
    }
    let found = digits.parse::<f64>().unwrap() * factor;
    Value::of(column.kind, found).unwrap_or_else(|| Value::missing(column.kind))
}

/// The record of a block of text.
fn record(block: &str) -> Record {
    let (head, lines) = block.split_once(" -> {\n").unwrap();
    let (seconds, head) = head.split_once("  Job(").unwrap();
    let (job, head) = head.split_once(")/ ").unwrap();
    let (backend, host) = head.split_once(" -> Host(").unwrap();
    let backend = Backend::of_python(backend).unwrap();
    let at = Timestamp::from_seconds(seconds.parse().unwrap());
    let mut record = Record::new(backend, host.trim_end_matches(')'), job.parse().unwrap(), at);
    for line in lines.lines() {
        let (name, shown) = line.trim().split_once(" : ").unwrap();
        let column = &backend.columns[backend.position(name).unwrap()];
        record.set(name, value(column, shown));
    }
    record
}

/// The output of a real collector: records of which the rounded values are the printed ones have the same text.
#[test]
fn the_example_is_printed_byte_for_byte() {
    let expected = String::from_utf8(recorded("colmet_py_stdout_example.txt")).unwrap();
    // The last record is cut off.
    let (whole, _) = expected.rsplit_once("\n}\n").unwrap();
    let blocks = whole.split("\n}\n");
    let records: Vec<_> = blocks.map(record).collect();
    assert_eq!(records.len(), 16);
    same_lines(&text(&records), &format!("{whole}\n}}\n"));
}

#[test]
fn dates_are_local() {
    let mut record =
        Record::new(&colmet::backends::TASKSTATS, "node-1", 7, Timestamp::from_seconds(7));
    record.set("ac_btime", Value::Unsigned(1_795_211_403));
    let mut text = String::new();
    colmet::text::write(&record, &|_| 3600, &mut text);
    assert!(text.contains("ac_btime : 20/11/2026 - 22:50:03\n"), "{text}");
}
