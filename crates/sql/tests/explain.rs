//! Tests of EXPLAIN: conditions that reach the store, the cost, and its visibility.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use jobs::Reader;
use lab::{Lab, TestSeries, key};
use run_sql::engine;
use sql::{Limits, Sql, SqlError};
use std::time::Duration;
use storage::Storage as _;

/// 20 nodes with 100 samples each in a block. Job 7 of user 1000 on n1 has 100 samples.
fn filled() -> Lab {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..100_u8).map(|i| (f64::from(i) * 10.0, 1.0)).collect();
    let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
    let mut result: Vec<TestSeries<'_>> = names
        .iter()
        .map(|name| TestSeries { device: name, samples: &samples, ..TestSeries::default() })
        .collect();
    let job = Some(key("local", 7));
    result.push(TestSeries {
        metric: "rss_bytes",
        job,
        samples: &samples,
        ..TestSeries::default()
    });
    lab.put(&result);
    lab.job(&key("local", 7), "n1", 1000, 5.0, Some(995.0));
    lab.store.flush().unwrap();
    lab
}

/// Runs a statement, and splits each line into kind and text.
async fn run_sql(sql: &Sql, reader: Reader, text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let lines = run_sql::run_sql_as(sql, reader, text).await?;
    let pair = |line: &String| {
        let (kind, text) = line.split_once(' ').unwrap();
        (kind.to_owned(), text.to_owned())
    };
    Ok(lines.iter().map(pair).collect())
}

/// Returns the line of a table in a plan.
fn table(lines: &[(String, String)]) -> &str {
    let found: Vec<_> =
        lines.iter().filter(|line| line.1.trim_start().starts_with("TableExec: ")).collect();
    let [(kind, line)] = &found[..] else { panic!("{lines:?}") };
    assert_eq!(kind, "plan");
    line.trim_start()
}

/// Returns the text of the only line of a kind.
fn only<'a>(lines: &'a [(String, String)], kind: &str) -> Option<&'a str> {
    let mut found = lines.iter().filter(|line| line.0 == kind).map(|line| line.1.as_str());
    let first = found.next();
    assert_eq!(found.next(), None, "{lines:?}");
    first
}

#[tokio::test]
async fn a_plan_shows_what_reaches_the_store_and_reads_nothing() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let before = lab.store.stats().read;
    for (text, want) in [
        (
            "SELECT avg(value) FROM metrics WHERE device_id = 'n1' AND metric_id IN ('b', 'a')
             AND timestamp >= '2026-01-06T00:01:00' AND timestamp < '2026-01-06T00:02:00'",
            "TableExec: metrics, device_id in [n1], metric_id in [a, b], from 2026-01-06T00:01:00+00:00, \
             to 2026-01-06T00:01:59.999999+00:00",
        ),
        (
            "SELECT value FROM metrics_by_job WHERE job_id = 7 AND cluster = 'local'",
            "TableExec: metrics_by_job, job_id in [7], cluster in [local]",
        ),
        ("SELECT count(*) FROM metrics WHERE job_id IS NULL", "TableExec: metrics, of no job"),
        ("SELECT value FROM metrics LIMIT 5", "TableExec: metrics, 5 rows at most"),
        (
            "SELECT value FROM metrics WHERE job_id = -1",
            "TableExec: metrics, nothing: no row can match the conditions",
        ),
        // As the server writes the conditions of `/rest/metrics?device_id=eq.n1&…`.
        (
            "SELECT * FROM \"metrics\" WHERE (\"device_id\" = 'n1') AND (\"metric_id\" IN ('a', 'b')) \
             AND (\"job_id\" = 7) AND (\"timestamp\" >= '2026-01-06T00:01:00+00:00') \
             AND (\"value\" > CAST('2.0' AS DOUBLE PRECISION))",
            "TableExec: metrics, device_id in [n1], metric_id in [a, b], job_id in [7], from 2026-01-06T00:01:00+00:00",
        ),
        // The engine checks the conditions that the store does not support.
        ("SELECT value FROM metrics WHERE value > 2", "TableExec: metrics"),
        ("SELECT name FROM jobs WHERE name LIKE 'a%'", "TableExec: jobs"),
        ("SELECT name FROM jobs WHERE job_id = 7", "TableExec: jobs, job_id in [7]"),
        ("SELECT name FROM jobs WHERE account = 'a'", "TableExec: jobs, by the registry's indexes"),
    ] {
        let lines = run_sql(&sql, Reader::Everything, &format!("EXPLAIN {text}")).await.unwrap();
        assert_eq!(table(&lines), want, "{text}: {lines:?}");
        assert!(lines.iter().all(|(kind, _)| kind == "plan"), "{lines:?}");
    }
    let odd = "EXPLAIN SELECT value FROM metrics WHERE metric_id = 'a\nb'";
    let lines = run_sql(&sql, Reader::Everything, odd).await.unwrap();
    assert_eq!(table(&lines), "TableExec: metrics, metric_id in [a\\nb]");
    let join = "EXPLAIN SELECT 1 FROM metrics a, jobs b";
    let lines = run_sql(&sql, Reader::Everything, join).await.unwrap();
    assert!(lines.iter().any(|line| line.1.contains("Guarded")), "by the same guard: {lines:?}");
    assert_eq!(lab.store.stats().read, before);
}

#[tokio::test]
async fn an_analysis_shows_what_was_read() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let before = lab.store.stats().read;
    let text = "EXPLAIN ANALYZE SELECT * FROM metrics WHERE device_id = 'n5'";
    let lines = run_sql(&sql, Reader::Everything, text).await.unwrap();
    let after = lab.store.stats().read;
    let (bytes, rows) = (after.bytes - before.bytes, after.rows - before.rows);
    let groups = after.row_groups - before.row_groups;
    assert!(rows >= 100 && bytes > 100 && groups > 0, "{after:?}");
    let read = format!("{bytes} bytes, {rows} rows, {groups} row groups of blocks");
    assert_eq!(only(&lines, "read"), Some(&*read));
    assert_eq!(only(&lines, "rows"), Some("100"));
    let want = "TableExec: metrics, device_id in [n5], metrics=[output_rows=100]";
    assert_eq!(table(&lines), want);
    let seconds = only(&lines, "time").unwrap().strip_suffix(" s").unwrap();
    assert!((0.0..60.0).contains(&seconds.parse::<f64>().unwrap()), "{seconds}");
}

#[tokio::test]
async fn nobody_learns_of_what_is_somebody_elses() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let text = "EXPLAIN ANALYZE SELECT value FROM metrics WHERE job_id = 7 AND cluster = 'local'";
    let of = async |uid| run_sql(&sql, Reader::User(uid), text).await.unwrap();
    let (own, other) = (of(1000).await, of(1001).await);
    assert_eq!(only(&own, "rows"), Some("100"));
    assert_eq!(only(&other, "rows"), Some("0"));
    assert!(table(&other).ends_with("metrics=[output_rows=0]"), "{other:?}");
    // The data read includes rows of other users. The amount is therefore hidden.
    assert_eq!((only(&own, "read"), only(&other, "read")), (None, None));
}

#[tokio::test]
async fn an_explained_statement_has_the_limits_of_an_executed_one() {
    let lab = filled();
    let limits = Limits { rows_max: 1000, time_max: Duration::from_secs(2), ..Limits::default() };
    let sql = engine(&lab, limits);
    let of = async |text: &str| run_sql(&sql, Reader::Everything, text).await;
    assert!(of("EXPLAIN SELECT * FROM metrics").await.is_ok());
    let rejected = of("EXPLAIN ANALYZE SELECT * FROM metrics").await.unwrap_err();
    assert!(matches!(rejected, SqlError::TooManyRows(1000)), "{rejected:?}");
    let many: Vec<String> = (0..17).map(|n| format!("metrics m{n}")).collect();
    let rejected = of(&format!("EXPLAIN SELECT 1 FROM {}", many.join(", "))).await.unwrap_err();
    assert!(rejected.to_string().contains("17 tables"), "{rejected}");
    let slow = "EXPLAIN ANALYZE SELECT count(*) FROM metrics a, metrics b, metrics c, metrics d";
    let rejected = of(slow).await.unwrap_err();
    assert!(matches!(rejected, SqlError::TooSlow(2)), "{rejected:?}");
}

#[tokio::test]
async fn only_a_select_is_explained() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for (text, status, want) in [
        ("EXPLAIN DELETE FROM metrics", 403, "this is EXPLAIN of DELETE FROM"),
        ("EXPLAIN ANALYZE UPDATE metrics SET value = 0", 403, "EXPLAIN of UPDATE metrics"),
        ("EXPLAIN CREATE TABLE x AS SELECT 1", 403, "EXPLAIN of CREATE TABLE"),
        ("EXPLAIN ANALYZE SELECT 1 INTO x", 403, "changes something"),
        ("EXPLAIN EXPLAIN SELECT 1", 403, "EXPLAIN of EXPLAIN SELECT"),
        ("EXPLAIN VERBOSE SELECT 1", 400, "the only supported option"),
        ("EXPLAIN (ANALYZE, COSTS FALSE) SELECT 1", 400, ""),
        ("EXPLAIN FORMAT TREE SELECT 1", 400, "the only supported option"),
        ("EXPLAIN metrics", 400, ""),
        ("EXPLAIN SELECT 1; SELECT 2", 400, ""),
    ] {
        let error = run_sql(&sql, Reader::Everything, text).await.unwrap_err();
        assert_eq!(error.status(), status, "{text}: {error}");
        assert!(error.to_string().contains(want), "{text}: {error}");
    }
}
