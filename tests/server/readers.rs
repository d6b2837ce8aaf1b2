//! DuckDB and pandas read the blocks in place, with the same values as the server.

use crate::common::programs::{Running, Server, output, program, until};
use crate::common::up::jobmeter;
use crate::repository::layers::repository;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

#[test]
fn duckdb_and_pandas_read_the_values_that_the_server_gives() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &["--block-every", "5s"]);
    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", &server.url, "--device", "n1", "--period", "1s", "--spool", "none"]);
    let mut agent = Running::start(&mut command);
    let blocks = dir.path().join("samples/blocks");
    until("two blocks", Duration::from_secs(40), || {
        let files = std::fs::read_dir(&blocks).ok()?.filter_map(|file| file.ok());
        let written =
            files.filter(|file| file.path().extension().is_some_and(|it| it == "parquet"));
        (written.count() >= 2).then_some(())
    });
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
    // At shutdown, samples in memory remain in the log. The other programs read a copy of the blocks.
    let mut reader = Command::new(repository().join("target/python/bin/python"));
    reader.arg(repository().join("tests/server/python_readers/readers.py")).arg(&blocks);
    let (code, out, errors) = output(&mut reader);
    assert_eq!(code, 0, "{errors}");
    let rows: Vec<Vec<Value>> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Jobs of other tests may be in the blocks too, so compare only the device's own series.
    let of_device = rows.iter().filter(|row| row[3].is_null());
    let read: BTreeMap<(String, String, i64), f64> = of_device
        .map(|row| {
            let text = |place: usize| row[place].as_str().unwrap().to_owned();
            ((text(0), text(4), row[5].as_i64().unwrap()), row[6].as_f64().unwrap())
        })
        .collect();
    assert!(read.len() > 1000, "{}", read.len());

    server.again(dir.path(), &[]);
    let query = "SELECT metric_id, labels, to_unixtime(timestamp) AS s, date_part('microsecond', timestamp) AS us, \
                 value FROM metrics WHERE device_id = 'n1' AND job_id IS NULL";
    let (code, out, errors) = jobmeter(&server.url, &["sql", "--format", "json", query]);
    assert_eq!(code, 0, "{errors}");
    let mut compared = 0;
    for row in serde_json::from_str::<Vec<Value>>(&out).unwrap() {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let micros =
            row["s"].as_i64().unwrap() * 1_000_000 + row["us"].as_i64().unwrap() % 1_000_000;
        let Some(value) = read.get(&(text("metric_id"), text("labels"), micros)) else { continue };
        assert_eq!(row["value"].as_f64(), Some(*value), "{row}");
        compared += 1;
    }
    assert_eq!(compared, read.len(), "each sample of the blocks is the server's");

    // Verify while the server runs, and again after a byte of a block is flipped.
    let verify = || {
        let data = ["verify", "--json", "--data", dir.path().to_str().unwrap()];
        let (code, out, errors) = output(Command::new(program("jobmeter")).args(data));
        (code, serde_json::from_str::<Value>(&out).unwrap_or_else(|_| panic!("{out}{errors}")))
    };
    let (code, whole) = verify();
    assert_eq!((code, &whole["good"]), (0, &Value::Bool(true)), "{whole}");
    assert_eq!(whole["samples"].as_u64(), Some(rows.len() as u64));
    let block = std::fs::read_dir(&blocks).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&block).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&block, bytes).unwrap();
    let (code, damaged) = verify();
    // A page that only other programs read costs no sample.
    let harmless = damaged["findings"][0]["harmless"] == true;
    assert_eq!((code, &damaged["good"]), (i32::from(!harmless), &harmless.into()), "{damaged}");
    assert!(damaged["findings"][0]["cost"].as_str().is_some_and(|it| !it.is_empty()), "{damaged}");
}

#[test]
fn duckdb_and_pandas_read_the_rollups_that_the_server_answers_from() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &["--block-every", "1s"]);
    let mut command = Command::new(program("jobmeter-agent"));
    command.args(["--server", &server.url, "--device", "n1", "--period", "1s", "--spool", "none"]);
    let mut agent = Running::start(&mut command);
    let store = dir.path().join("samples");
    until("a file of rollups", Duration::from_secs(60), || {
        let mut files = std::fs::read_dir(store.join("rollups")).ok()?;
        let minutes = |name: std::ffi::OsString| name.to_string_lossy().ends_with("-300s.parquet");
        files.any(|file| file.is_ok_and(|it| minutes(it.file_name()))).then_some(())
    });
    assert_eq!(agent.end(), 0, "{}", agent.errors());
    assert_eq!(server.running.end(), 0, "{}", server.running.errors());
    let mut reader = Command::new(repository().join("target/python/bin/python"));
    reader.arg(repository().join("tests/server/python_readers/rollup_readers.py")).arg(&store);
    let (code, out, errors) = output(reader.arg(repository().join("docs/format.md")));
    assert_eq!(code, 0, "{errors}");

    server.again(dir.path(), &[]);
    let query = "SELECT metric_id, labels, to_unixtime(timestamp) AS s, value FROM metrics_summary \
                 WHERE device_id = 'n1' AND job_id IS NULL";
    let (code, answer, errors) = jobmeter(&server.url, &["sql", "--format", "json", query]);
    assert_eq!(code, 0, "{errors}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let reported: BTreeMap<(String, String, i64), f64> =
        serde_json::from_str::<Vec<Value>>(&answer)
            .unwrap()
            .iter()
            .map(|row| {
                let key =
                    (text(&row["metric_id"]), text(&row["labels"]), row["s"].as_i64().unwrap());
                (key, row["value"].as_f64().unwrap())
            })
            .collect();
    let mut compared = 0;
    for row in out.lines().map(|line| serde_json::from_str::<Vec<Value>>(line).unwrap()) {
        if row[3] != Value::Null || row[1] != "n1" {
            continue;
        }
        // The maximum of a `_total` metric, the mean of any other.
        let metric = text(&row[0]);
        let value = row[if metric.ends_with("_total") { 7 } else { 6 }].as_f64().unwrap();
        let served = reported[&(metric, text(&row[4]), row[5].as_i64().unwrap())];
        assert!((served - value).abs() <= 1e-9 * value.abs(), "{row:?}: the server has {served}");
        compared += 1;
    }
    assert!(compared > 50 && compared == reported.len(), "{compared} of {}", reported.len());
}
