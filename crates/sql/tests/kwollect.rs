//! Runs each line of `docs/reference/sql-kwollect.md`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use jobs::Reader;
use lab::{Lab, TestSeries, key};
use query::Settings;
use run_sql::{engine_with, run_sql, run_sql_as};
use sql::Limits;

fn filled() -> Lab {
    let lab = Lab::new();
    let samples = [(5.0, 1.0), (10.0, 2.0), (20.0, 4.0)];
    lab.put(&[
        TestSeries { labels: &[("mode", "idle")], samples: &samples, ..TestSeries::default() },
        TestSeries { device: "n1-2", samples: &samples, ..TestSeries::default() },
    ]);
    lab.job(&key("local", 7), "n1", 1000, 1.0, Some(30.0));
    lab
}

/// The statements of the page, and whether they run.
fn lines(page: &str) -> Vec<(&str, bool)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| {
        let (statement, rest) = row.split_once("` | ")?;
        match rest.split(' ').next()? {
            "yes" => Some((statement, true)),
            "no" => Some((statement, false)),
            other => panic!("{other}: {row}"),
        }
    })
    .collect()
}

#[tokio::test]
async fn each_line_of_the_page_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/sql-kwollect.md");
    let page = std::fs::read_to_string(path).unwrap();
    let lab = filled();
    let zone = query::parse_zone("Europe/Paris").unwrap();
    let sql = engine_with(&lab, Settings { zone, ..Settings::default() }, Limits::default());
    let lines = lines(&page);
    assert!(lines.len() > 25, "{}", lines.len());
    let mut wrong = Vec::new();
    for (statement, runs) in lines {
        let ran = run_sql_as(&sql, Reader::Everything, statement).await;
        if ran.is_ok() != runs {
            wrong.push(format!("{statement}\n  {ran:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The panels have the rows of the job.
    for panel in page.lines().filter(|line| line.contains("the panel")) {
        let statement = panel.trim_start_matches("| `").split_once("` | ").unwrap().0;
        let rows = run_sql(&sql, statement).await;
        assert_eq!(rows.len(), 3, "{statement}: {rows:?}");
        assert!(
            rows[0].starts_with("2026-01-06T01:00:05+01:00 n1 {\"mode\": \"idle\"} 1"),
            "{rows:?}"
        );
    }
}

#[tokio::test]
async fn seconds_are_instants_in_every_time_zone() {
    let lab = filled();
    let zone = query::parse_zone("Europe/Paris").unwrap();
    let sql = engine_with(&lab, Settings { zone, ..Settings::default() }, Limits::default());
    for (text, want) in [
        ("SELECT to_timestamp(1767657600)", "2026-01-06T01:00:00+01:00"),
        ("SELECT to_timestamp(1767657600.25)::text", "2026-01-06 01:00:00.25+01"),
        ("SELECT count(*) FROM metrics WHERE timestamp <= to_timestamp(1767657610)", "4"),
        ("SELECT to_timestamp(NULL::float8), to_timestamp(1e300)", "- -"),
        ("SELECT EXTRACT(EPOCH FROM to_timestamp(1767657600))", "1767657600.0"),
    ] {
        assert_eq!(run_sql(&sql, text).await.join(" "), want, "{text}");
    }
}
