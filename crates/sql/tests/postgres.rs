//! Tests of syntax that PostgreSQL accepts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use jobs::Reader;
use lab::{Lab, TestSeries};
use query::Settings;
use run_sql::{engine, engine_with, rejected, run_sql, run_sql_as};
use sql::Limits;

/// Two processor cores and a node.
fn filled() -> Lab {
    let lab = Lab::new();
    lab.put(&[
        TestSeries {
            labels: &[("cpu", "0")],
            samples: &[(10.0, 1.0), (20.0, 4.0)],
            ..TestSeries::default()
        },
        TestSeries { labels: &[("cpu", "1")], samples: &[(10.0, 2.0)], ..TestSeries::default() },
        TestSeries { metric: "load_5m", samples: &[(30.0, 8.0)], ..TestSeries::default() },
    ]);
    lab
}

#[tokio::test]
async fn window_functions_over_any_expression() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for (text, want) in [
        (
            "SELECT value - lag(value * 2, 1, 0.5) OVER (ORDER BY timestamp, value) FROM metrics ORDER BY timestamp, value",
            "0.5 0.0 0.0 0.0",
        ),
        (
            "SELECT lag(labels->>'cpu') OVER (ORDER BY timestamp, value) FROM metrics ORDER BY timestamp, value",
            "- 0 1 0",
        ),
        (
            "SELECT rank() OVER (PARTITION BY labels->>'cpu' ORDER BY value * -1) FROM metrics ORDER BY timestamp, value",
            "2 1 1 1",
        ),
        (
            "SELECT first_value(upper(metric_id || '!')) OVER (ORDER BY timestamp DESC) FROM metrics",
            "LOAD_5M! LOAD_5M! LOAD_5M! LOAD_5M!",
        ),
        (
            "SELECT sum(CASE WHEN value > 1 THEN 1 ELSE 0 END) OVER (PARTITION BY date_trunc('minute', timestamp)) FROM metrics",
            "3 3 3 3",
        ),
        ("SELECT sum(count(*)) OVER (ORDER BY max(value)) FROM metrics GROUP BY metric_id", "3 4"),
        ("SELECT max(to_char(timestamp, 'SS')) OVER () FROM metrics", "30 30 30 30"),
        (
            "SELECT string_agg(DISTINCT labels->>'cpu', ',' ORDER BY labels->>'cpu') FROM metrics",
            "0,1",
        ),
    ] {
        assert_eq!(run_sql(&sql, text).await.join(" "), want, "{text}");
    }
}

#[tokio::test]
async fn labels_that_contain_others() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for (object, rows) in [
        (r#"{"cpu":"0"}"#, "2"),
        (r#"{ "cpu" : "1" }"#, "1"),
        (r#"{"cpu":"0","core":"0"}"#, "0"),
        (r#"{"cpu":0}"#, "0"),
        ("{}", "4"),
    ] {
        let text = format!("SELECT count(*) FROM metrics WHERE labels @> '{object}'");
        assert_eq!(run_sql(&sql, &text).await, [rows], "{object}");
    }
    let (status, message) = rejected(&sql, "SELECT * FROM metrics WHERE labels @> '[1]'").await;
    assert_eq!((status, message.contains("a JSON object")), (400, true), "{message}");
}

#[tokio::test]
async fn labels_of_any_json_value() {
    let lab = Lab::new();
    let json = Some(r#"{"cpu": 0, "fan": [1.50, {"b": null}], "on": true, "x": null}"#);
    lab.put(&[
        TestSeries { json_labels: json, samples: &[(10.0, 1.0)], ..TestSeries::default() },
        TestSeries { labels: &[("cpu", "0")], samples: &[(10.0, 2.0)], ..TestSeries::default() },
    ]);
    let sql = engine(&lab, Limits::default());
    for (text, want) in [
        ("SELECT labels->>'cpu' FROM metrics ORDER BY value", "0 0"),
        ("SELECT labels->>'fan' FROM metrics WHERE value = 1", r#"[1.50, {"b": null}]"#),
        ("SELECT labels->>'on' FROM metrics WHERE labels->>'x' IS NULL ORDER BY value", "true -"),
        ("SELECT value FROM metrics WHERE labels @> '{\"cpu\": 0.0}'", "1.0"),
        ("SELECT value FROM metrics WHERE labels @> '{\"fan\": [{}]}'", "1.0"),
        ("SELECT value FROM metrics WHERE labels @> '{\"cpu\": \"0\"}'", "2.0"),
        (
            "SELECT labels FROM metrics WHERE value = 1",
            r#"{"x": null, "on": true, "cpu": 0, "fan": [1.50, {"b": null}]}"#,
        ),
    ] {
        assert_eq!(run_sql(&sql, text).await.join(" "), want, "{text}");
    }
}

#[tokio::test]
async fn times_as_people_write_them() {
    let lab = filled();
    let zone = query::parse_zone("Europe/Paris").unwrap();
    let sql = engine_with(&lab, Settings { zone, ..Settings::default() }, Limits::default());
    for (text, want) in [
        ("SELECT count(*) FROM metrics WHERE timestamp >= '2026-01-06 01:00'", "4"),
        ("SELECT count(*) FROM metrics WHERE timestamp > '2026-01-06 01:01'", "0"),
        (
            "SELECT count(*) FROM metrics WHERE timestamp BETWEEN '2026-01-06' AND '2026-01-06T02:00'",
            "4",
        ),
        // Times that daylight saving time skips or repeats. The expected values are PostgreSQL's.
        ("SELECT '2026-03-29 02:30'::timestamptz", "2026-03-29T03:30:00+02:00"),
        ("SELECT '2026-10-25 02:30'::timestamptz", "2026-10-25T02:30:00+01:00"),
        ("SELECT (TIMESTAMP '2026-10-25 02:30')::timestamptz", "2026-10-25T02:30:00+01:00"),
        ("SELECT count(*) FROM metrics WHERE timestamp < '2026-03-29 02:30'", "4"),
        (
            "SELECT to_char(timestamp, 'YYYY-MM-DD HH24:MI:SS OF') FROM metrics WHERE value = 8",
            "2026-01-06 01:00:30 +01",
        ),
    ] {
        assert_eq!(run_sql(&sql, text).await.join(" "), want, "{text}");
    }
    let long = "YYYY".repeat(100);
    for text in [
        format!("SELECT to_char(timestamp, '{long}') FROM metrics"),
        "SELECT to_char(value, '999') FROM metrics".to_owned(),
        "SELECT count(*) FROM metrics WHERE timestamp > '2026-13-01 00:00'".to_owned(),
        "SELECT (1 BETWEEN 0 AND 1) BETWEEN 0 AND 1".to_owned(),
    ] {
        let (status, message) = rejected(&sql, &text).await;
        assert_eq!((status, message.is_empty()), (400, false), "{text}: {message}");
    }
}

#[tokio::test]
async fn tables_and_columns_are_listed() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let tables: Vec<&str> = sql::tables().collect();
    assert_eq!(run_sql(&sql, "SHOW TABLES").await, tables);
    let described = run_sql(&sql, "DESCRIBE metrics").await;
    assert_eq!(described.first().unwrap(), "timestamp timestamp with time zone NO");
    assert_eq!(described.last().unwrap(), "cluster text YES");
    // The tables are the same for every user, and include only ours.
    let text = "SELECT count(DISTINCT table_name) FROM information_schema.columns";
    let count = tables.len().to_string();
    assert_eq!(run_sql_as(&sql, Reader::Nodes, text).await.unwrap(), [count]);
    for text in ["DESCRIBE nope", "SELECT * FROM information_schema.df_settings"] {
        let (status, message) = rejected(&sql, text).await;
        assert_eq!((status, message.contains("there is no table")), (400, true), "{message}");
    }
    assert_eq!(rejected(&sql, "SHOW ALL").await.0, 403);
}

#[tokio::test]
async fn ages_and_their_seconds() {
    let lab = filled();
    let zone = query::parse_zone("Europe/Paris").unwrap();
    let sql = engine_with(&lab, Settings { zone, ..Settings::default() }, Limits::default());
    for (text, want) in [
        ("SELECT EXTRACT(EPOCH FROM age(max(timestamp), min(timestamp))) FROM metrics", "20.0"),
        ("SELECT EXTRACT(EPOCH FROM age('2027-02-01', '2026-01-01'))", "34149600.0"),
        ("SELECT date_part('epoch', age('2026-01-01', '2026-02-02'))", "-2678400.0"),
        ("SELECT age('2026-03-01', '2026-01-31 12:00')", "1 mons 12 hours"),
        ("SELECT age('2026-01-06'::date, NULL)", "-"),
        // The statement's time is 03:00 in Paris: age counts to the midnight before it.
        ("SELECT EXTRACT(EPOCH FROM age('2026-01-05 22:00'::timestamptz))", "7200.0"),
        ("SELECT EXTRACT(EPOCH FROM max(timestamp) - min(timestamp)) FROM metrics", "20.0"),
        ("SELECT EXTRACT(EPOCH FROM interval '1 year 1 month 1.5 seconds')", "34149601.5"),
        (
            "SELECT EXTRACT(year FROM timestamp) FROM metrics WHERE EXTRACT(year FROM timestamp) = 2026 LIMIT 1",
            "2026",
        ),
    ] {
        assert_eq!(run_sql(&sql, text).await.join(" "), want, "{text}");
    }
    for text in ["SELECT age(1)", "SELECT age('x')", "SELECT age(value, value) FROM metrics"] {
        assert_eq!(rejected(&sql, text).await.0, 400, "{text}");
    }
}

#[tokio::test]
async fn operators_of_labels() {
    let lab = Lab::new();
    let json = Some(r#"{"cpu": 0, "mode": "idle", "_metric_scrape_time": 17.5}"#);
    lab.put(&[
        TestSeries { json_labels: json, samples: &[(10.0, 1.0)], ..TestSeries::default() },
        TestSeries { labels: &[("cpu", "1")], samples: &[(10.0, 2.0)], ..TestSeries::default() },
    ]);
    let sql = engine(&lab, Limits::default());
    for (text, want) in [
        (
            "SELECT labels - '_metric_scrape_time' FROM metrics ORDER BY value",
            r#"{"cpu": 0, "mode": "idle"} {"cpu": "1"}"#,
        ),
        (
            "SELECT labels - 'cpu' - 'mode' - '_metric_scrape_time' - 'x' FROM metrics WHERE value = 1",
            "{}",
        ),
        ("SELECT concat(device_id, ' ', labels - 'cpu') FROM metrics WHERE value = 2", "n1 {}"),
        ("SELECT value FROM metrics WHERE labels ? 'mode'", "1.0"),
        (
            "SELECT value FROM metrics WHERE NOT labels ? 'mode' AND (labels - 'cpu') ? 'cpu' = false",
            "2.0",
        ),
        ("SELECT (labels - 'mode')->>'cpu' FROM metrics WHERE value = 1", "0"),
        ("SELECT labels - NULL::text, labels ? NULL::text FROM metrics WHERE value = 1", "- -"),
        ("SELECT (labels->>'cpu')::int + 1 FROM metrics ORDER BY value", "1 2"),
        (
            "SELECT count(*) FROM metrics WHERE labels->>'mode' = 'idle' AND (labels->>'cpu')::float8 < 1",
            "1",
        ),
        (
            "SELECT substring('job 17' FROM '[0-9]+')::int, substring('job' FROM '^\\d+$')::int",
            "17 -",
        ),
        (
            "SELECT substring(metric_id FROM 'load_(.)m'), substring(metric_id FROM 1 FOR 4) FROM metrics WHERE value = 2",
            "1 load",
        ),
        (
            "SELECT timestamp - interval '10 seconds' = '2026-01-06T00:00:00Z', 3 - 1 FROM metrics WHERE value = 2",
            "true 2",
        ),
    ] {
        assert_eq!(run_sql(&sql, text).await.join(" "), want, "{text}");
    }
    let (status, message) = rejected(&sql, "SELECT labels - metric_id FROM metrics").await;
    assert_eq!((status, message.contains("the same for every row")), (400, true), "{message}");
}

#[tokio::test]
async fn rows_are_ordered_by_the_columns_of_the_result() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    for (text, want) in [
        (
            "SELECT value::text, timestamp::text FROM metrics WHERE value < 3 ORDER BY timestamp, value",
            "1 2026-01-06 00:00:10+00;2 2026-01-06 00:00:10+00",
        ),
        ("SELECT (-value)::text AS a, value::text AS a FROM metrics ORDER BY a LIMIT 1", "-1 1"),
        ("SELECT (10 - value)::int::text AS value FROM metrics ORDER BY value LIMIT 2", "2;6"),
        ("SELECT value::int::text FROM metrics m ORDER BY m.value DESC LIMIT 2", "8;4"),
        (
            "SELECT metric_id::text, count(*) FROM metrics GROUP BY metric_id ORDER BY metric_id",
            "load_1m 3;load_5m 1",
        ),
        ("TABLE catalogue ORDER BY name LIMIT 0", ""),
        ("table catalogue limit 0", ""),
    ] {
        assert_eq!(run_sql(&sql, text).await.join(";"), want, "{text}");
    }
    let deep = format!("SELECT {}1{}", "abs(".repeat(30), ")".repeat(30));
    assert_eq!(run_sql(&sql, &deep).await, ["1"]);
}
