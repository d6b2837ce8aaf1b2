//! Tests of the limits of statements: errors, and release of all resources.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use jobs::Reader;
use lab::{Lab, TestSeries, at, key};
use query::{Format, QueryContext};
use run_sql::{engine, rejected, run_sql, run_sql_as};
use sql::{Limits, Sql};
use std::time::Duration;
use storage::Storage as _;

/// 204 000 rows.
fn large() -> Lab {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..6000).map(|s| (f64::from(s), f64::from(s % 97))).collect();
    for node in 0..34 {
        let name = format!("n{node}");
        lab.put(&[TestSeries { device: &name, samples: &samples, ..TestSeries::default() }]);
    }
    lab.store.flush().unwrap();
    lab
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_end_what_is_too_much() {
    let lab = large();
    let limits = Limits {
        rows_max: 10_000,
        time_max: Duration::from_secs(2),
        memory_bytes_max: 8 << 20,
        statements_max: 2,
        ..Limits::default()
    };
    let sql = engine(&lab, limits);
    let rows = rejected(&sql, "SELECT * FROM metrics").await;
    assert_eq!((rows.0, rows.1.contains("more than 10000 rows")), (413, true));
    assert_eq!(run_sql(&sql, "SELECT value FROM metrics LIMIT 10000").await.len(), 10_000);
    let memory = rejected(&sql, "SELECT * FROM metrics ORDER BY value, timestamp DESC").await;
    assert_eq!(memory.0, 413, "{}", memory.1);
    let cross = rejected(&sql, "SELECT count(*) FROM metrics a, metrics b, metrics c").await;
    assert_eq!(cross.0, 413, "{cross:?}");
    let long = format!("SELECT 1 -- {}", "x".repeat(70_000));
    assert_eq!(rejected(&sql, &long).await.0, 413);
    let many = (0..20).map(|i| format!("metrics m{i}")).collect::<Vec<_>>().join(", ");
    assert_eq!(rejected(&sql, &format!("SELECT 1 FROM {many}")).await.0, 400);
    let result: Vec<&str> = ended(&sql).into_iter().map(|(limit, _)| limit).collect();
    assert!(["length", "memory", "rows"].iter().all(|limit| result.contains(limit)), "{result:?}");
    // All resources are released: the next statement runs.
    assert_eq!(run_sql(&sql, "SELECT count(*) FROM metrics").await, ["204000"]);
    given_back(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_statement_is_ended_and_its_place_given_back() {
    let lab = large();
    let limits = Limits {
        time_max: Duration::from_millis(1500),
        memory_bytes_max: 1 << 30,
        statements_max: 1,
        threads: 1,
        ..Limits::default()
    };
    let sql = engine(&lab, limits);
    for text in [
        "SELECT count(*) FROM metrics a CROSS JOIN metrics b",
        "SELECT sum(a.value * b.value) FROM metrics a JOIN metrics b ON a.value < b.value",
        "SELECT count(*) FROM metrics a JOIN metrics b ON a.metric_id = b.metric_id AND a.value > b.value + 1000",
        "SELECT count(*) FROM metrics a JOIN metrics b ON a.value > b.value + 1000",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    ] {
        let began = tokio::time::Instant::now();
        let slow = rejected(&sql, text).await;
        assert_eq!(slow.0, 413, "{text}: {}", slow.1);
        assert!(slow.1.contains("more than 2 s"), "{text}: {}", slow.1);
        assert!(began.elapsed() < Duration::from_secs(3), "{text}: {:?}", began.elapsed());
        // The thread of the statement soon becomes free.
        let mut free = false;
        for _ in 0..50 {
            free = run_sql_as(&sql, Reader::Everything, "SELECT 1").await.is_ok();
            if free {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(free, "{text}: still at work");
    }
    assert_eq!(ended(&sql), [("time", 5)]);
    given_back(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_statements_than_may_run_wait_and_more_than_may_wait_are_rejected() {
    let lab = large();
    let limits = Limits { statements_max: 1, waiting_max: 1, ..Limits::default() };
    let sql = engine(&lab, limits);
    let text = "SELECT * FROM metrics";
    let first = sql
        .query(text, None, QueryContext::new(Reader::Everything, at(7200.0)), Format::Json.into())
        .await
        .unwrap();
    let last = async {
        while sql.load().waiting == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (status, message) = rejected(&sql, "SELECT 1").await;
        assert_eq!(
            (status, message.contains("too many statements: 1 are running")),
            (429, true),
            "{message}"
        );
        assert_eq!((sql.load().running, sql.load().waiting), (1, 1));
        // Dropping the rows stops the statement, and the waiting one gets its turn.
        drop(first);
    };
    let (second, ()) = tokio::join!(run_sql(&sql, "SELECT 2"), last);
    assert_eq!(second, ["2"]);
    assert_eq!(ended(&sql), [("statements", 1)]);
}

/// Waits until no statement runs, waits or holds memory. Their threads end a moment after the result.
async fn given_back(sql: &Sql) {
    for _ in 0..250 {
        let load = sql.load();
        if (load.running, load.waiting, load.memory_bytes) == (0, 0, 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("still held: {:?}", sql.load());
}

/// Limits at which statements ended, with counts.
fn ended(sql: &Sql) -> Vec<(&'static str, u64)> {
    let counts = sql.load().ended.into_iter();
    counts.filter(|(_, count)| *count > 0).map(|(limit, count)| (limit.word(), count)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_grow_are_bounded_and_others_are_what_they_were() {
    let lab = large();
    let limits = Limits { memory_bytes_max: 64 << 20, ..Limits::default() };
    let sql = engine(&lab, limits);
    let doubled = "WITH RECURSIVE t AS (SELECT 'x' AS s UNION ALL SELECT s || s FROM t WHERE length(s) < 50000000)";
    let many = ["s"; 31].join(", ");
    for text in [
        format!("{doubled} SELECT max(length(s)) FROM t"),
        format!("{} SELECT max(length(s)) FROM t", doubled.replace("s || s", "concat(s, s)")),
        format!(
            "{} SELECT max(length(s)) FROM t",
            doubled.replace("s || s", "concat_ws(s, s, '')")
        ),
        format!("{} SELECT length(concat({many})) FROM t", doubled.replace("50000000", "500000")),
        format!("{} SELECT length(upper(s)) FROM t", doubled.replace("50000000", "5000000")),
    ] {
        let (status, message) = rejected(&sql, &text).await;
        assert_eq!((status, message.contains("MiB of memory")), (413, true), "{text}: {message}");
    }
    for (text, want) in [
        ("SELECT 'a' || 'b', 'a' || NULL, 'a' || 1, concat('a', NULL, 2)", "ab - a1 a2"),
        ("SELECT concat_ws(', ', 'a', 'b'), upper('x') || lower('Y')", "a, b Xy"),
        ("SELECT max(device_id || '-' || metric_id) FROM metrics", "n9-load_1m"),
        ("SELECT array_to_string(array_agg(DISTINCT metric_id), '-') FROM metrics", "load_1m"),
    ] {
        assert_eq!(run_sql(&sql, text).await, [want], "{text}");
    }
    for text in [
        "SELECT string_agg(device_id, ',') OVER (ORDER BY timestamp) FROM metrics",
        "SELECT array_agg(device_id) OVER (ORDER BY timestamp) FROM metrics",
        "SELECT array_append(ARRAY[1], 2)",
        "SELECT ARRAY[1] || ARRAY[2]",
    ] {
        assert_eq!(rejected(&sql, text).await.0, 400, "{text}");
    }
    given_back(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_their_allocations_are_found_among_more_than_the_limit() {
    let mut lab = Lab::new();
    lab.registry = lab.registry_of_rows(20);
    for id in 1..=30 {
        let start = f64::from(id) * 10.0;
        lab.job(&key("slurm", i64::from(id)), "n1", 1000, start, Some(start + 5.0));
    }
    lab.job(&key("slurm", 99), "n2", 1000, 1000.0, None);
    let sql = engine(&lab, Limits::default());
    for (text, want) in [
        ("SELECT count(*) FROM jobs WHERE job_id = 5 AND cluster = 'slurm'", "1"),
        ("SELECT count(*) FROM jobs WHERE job_id IN (5, 7) AND cluster = 'oar'", "0"),
        ("SELECT count(*) FROM jobs WHERE start_time <= '2026-01-06T00:00:22'", "2"),
        (
            "SELECT count(*) FROM jobs WHERE stop_time >= '2026-01-06T00:04:50' AND start_time <= '2026-01-06T00:04:52'",
            "1",
        ),
        ("SELECT count(*) FROM allocations WHERE job_id = 5", "1"),
        ("SELECT count(*) FROM allocations WHERE device_id = 'n2'", "1"),
        ("SELECT count(*) FROM nodetime_by_job WHERE node = 'n2' AND stop_time IS NULL", "1"),
        ("SELECT count(*) FROM nodetime_by_job WHERE start_time >= '2026-01-06T00:10:00'", "1"),
    ] {
        assert_eq!(run_sql(&sql, text).await, [want], "{text}");
    }
    assert_eq!(rejected(&sql, "SELECT * FROM jobs").await.0, 413);
    // A user who sees a node during their jobs sees its samples of that time, for any number of jobs.
    let tick = |id: i32| (f64::from(id) * 10.0 + 2.0, 1.0);
    let samples: Vec<(f64, f64)> = (1..=30).map(tick).chain([(900.0, 1.0)]).collect();
    lab.put(&[TestSeries { samples: &samples, ..TestSeries::default() }]);
    let seen = run_sql_as(&sql, Reader::Tenant(1000), "SELECT count(*) FROM metrics").await;
    assert_eq!(seen.unwrap(), ["30"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_reads_what_it_needs() {
    let lab = large();
    let sql = engine(&lab, Limits::default());
    let read = || lab.store.stats().read;
    let whole = {
        let before = read();
        assert_eq!(run_sql(&sql, "SELECT count(value) FROM metrics").await, ["204000"]);
        let after = read();
        (after.rows - before.rows, after.bytes - before.bytes)
    };
    assert_eq!(whole.0, 204_000);
    for text in [
        "SELECT count(value) FROM metrics WHERE device_id = 'n5' AND timestamp >= '2026-01-06T00:10:00' AND timestamp < '2026-01-06T00:20:00'",
        "SELECT count(value) FROM metrics_by_device WHERE device_id = 'n5' AND timestamp >= '2026-01-06T00:10:00' AND timestamp < '2026-01-06T00:20:00'",
    ] {
        let before = read();
        assert_eq!(run_sql(&sql, text).await, ["600"], "{text}");
        let after = read();
        let (rows, bytes) = (after.rows - before.rows, after.bytes - before.bytes);
        assert!((600..=17_000).contains(&rows), "{text}: {rows} rows decoded");
        assert!(bytes * 2 < whole.1, "{text}: {bytes} of {} bytes", whole.1);
    }
    let before = read();
    assert_eq!(
        run_sql(
            &sql,
            "SELECT count(*) FROM metrics WHERE metric_id = 'none' OR metric_id = 'other'"
        )
        .await,
        ["0"]
    );
    assert_eq!(read().rows, before.rows);
}
