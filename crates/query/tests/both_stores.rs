//! Tests that the embedded store and PostgreSQL give the same answers, byte for byte.

#![expect(clippy::unwrap_used, reason = "a test")]

mod lab;
#[path = "../../postgres/tests/database/server.rs"]
mod server;

use jobs::{JobName, Reader};
use lab::{Lab, TestSeries, at, device, key};
use model::{Cause, Gap, Kind, Origin, Timestamp, Unit};
use postgres::PostgresStore;
use query::{
    Format, GetMetrics, QueryContext, QueryEngine, QueryError, RangeQuery, Rate, RowQuery,
    Settings, View,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{JobSelector, Selector, Storage};

/// A lab with a store on PostgreSQL beside its own.
fn lab() -> Lab {
    let load = model::Metric::gauge("load_1m", Unit::Count, "Load.");
    let declared = storage::DeclaredMetrics::new([load]);
    let senders = senders::Limits { declared, ..senders::Limits::default() };
    let settings = postgres::Settings { senders, ..postgres::Settings::default() };
    let other = PostgresStore::open(
        Arc::new(server::Direct(server::database())),
        settings,
        Arc::new(|| at(7200.0)),
    );
    let mut lab = Lab::new();
    lab.other = Some(Arc::new(other.unwrap()));
    lab
}

/// A gauge, an aliased power, a counter with a reset, samples of two jobs, odd labels, late and repeated instants, a gap.
fn fill(lab: &Lab) {
    let load: Vec<(f64, f64)> = (0..900).map(|s| (f64::from(s), f64::from(s % 7) / 3.0)).collect();
    let power: Vec<(f64, f64)> = (0..300).map(|s| (f64::from(s) * 2.5, 100.25)).collect();
    let total = |from: i32, to: i32| -> Vec<(f64, f64)> {
        (from..to).map(|s| (f64::from(s), f64::from(s - from) * 1.5)).collect()
    };
    let (first, second) = (total(0, 400), total(400, 900));
    let counter = || TestSeries {
        metric: "cpu_seconds_total",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        start: Some(-5.0),
        samples: &first,
        ..TestSeries::default()
    };
    let alias = [("_device_alias", "n1"), ("outlet", "3")];
    let series = [
        TestSeries { samples: &load, ..TestSeries::default() },
        TestSeries { device: "n2", samples: &load, ..TestSeries::default() },
        TestSeries {
            device: "pdu",
            metric: "power_watts",
            unit: Unit::Watts,
            labels: &alias,
            samples: &power,
            ..TestSeries::default()
        },
        TestSeries { job: Some(key("local", 1)), ..counter() },
        TestSeries { job: Some(key("local", 2)), samples: &second, ..counter() },
        TestSeries { ..counter() },
        TestSeries { samples: &second, start: Some(399.5), ..counter() },
        TestSeries {
            metric: "odd",
            json_labels: Some(r#"{"a": [1, {"b": null}], "ü \"": "x\ny", "n": 1.50}"#),
            samples: &[(3.0, f64::NAN), (4.0, f64::INFINITY), (5.0, -0.0), (6.0, 1e300)],
            ..TestSeries::default()
        },
    ];
    for one in &series {
        lab.put(std::slice::from_ref(one));
    }
    lab.put(&[TestSeries { samples: &[(10.0, 5.0), (-600.0, 1.0)], ..TestSeries::default() }]);
    lab.put_gap(Gap {
        origin: Origin::new("lab").unwrap(),
        device: device("n1"),
        source: "".into(),
        from: at(100.5),
        to: at(110.5),
        cause: Cause::SpoolFull,
        detail: "full".into(),
    });
    lab.job(&key("local", 1), "n1", 1000, 20.0, Some(500.0));
    lab.job(&key("local", 2), "n1", 1001, 300.0, None);
}

fn as_text<T: serde::Serialize>(answer: Result<T, QueryError>) -> String {
    match answer {
        Ok(answer) => serde_json::to_string(&answer).unwrap(),
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// The answers of a store to everything that reads samples.
fn answers(engine: &QueryEngine, context: &QueryContext) -> Vec<String> {
    let mut answers = Vec::new();
    let day = "2026-01-06";
    for more in [
        vec![("nodes", "n1")],
        vec![("nodes", "n1,n2"), ("metrics", "load_1m")],
        vec![("nodes", "n1"), ("as_rate", "true")],
        vec![("nodes", "n1,pdu"), ("summary", "true")],
        vec![("nodes", "n1"), ("summary", "true"), ("as_rate", "auto")],
        vec![("job_id", "1")],
        vec![("job_id", "2"), ("as_rate", "auto")],
        vec![("nodes", "nobody")],
    ] {
        for format in [Format::Json, Format::Csv] {
            let times = [("start_time", day), ("end_time", "2026-01-06T00:16")];
            let query = GetMetrics::from_pairs(more.iter().copied().chain(times)).unwrap();
            let text = engine.get_metrics(&query, format, context);
            let text = text.and_then(|pieces| pieces.collect::<Result<Vec<_>, _>>());
            answers.push(as_text(text.map(|pieces| String::from_utf8(pieces.concat()).unwrap())));
        }
    }
    let select = |metric: Option<&str>| Selector {
        metrics: metric.map(|metric| BTreeSet::from([metric.into()])),
        ..Selector::default()
    };
    let selects =
        [None, Some("load_1m"), Some("cpu_seconds_total"), Some("power_watts")].map(select);
    let (from, to) = (at(-700.0), at(1000.0));
    for select in selects {
        for (step, rate) in [
            (0, Rate::Raw),
            (1, Rate::Counters),
            (7, Rate::Counters),
            (300, Rate::Counters),
            (3600, Rate::Raw),
        ] {
            let step_us = step * Timestamp::SECOND;
            let query = RangeQuery { select: select.clone(), from, to, step_us, rate };
            answers.push(as_text(engine.range_with(&query, true, context)));
        }
        answers.push(as_text(engine.series(&select, from, to, context)));
        answers.push(as_text(engine.last(&select, context)));
        answers.push(as_text(engine.explain(&select, (from, to), context)));
    }
    for view in [View::Metrics, View::ByDevice, View::ByJob] {
        for summary in [false, true] {
            let (devices, metrics, job) = (None, None, JobSelector::Any);
            let query = RowQuery { view, devices, metrics, job, from, to, summary };
            answers.extend(rows(engine, &query, context));
            answers.push(format!("{:?}", engine.counter_starts(&query, context)));
        }
    }
    for job in ["local:1", "local:2"] {
        answers.push(as_text(engine.job_report(&job.parse::<JobName>().unwrap(), None, context)));
    }
    answers.push(serde_json::to_string(&engine.catalogue()).unwrap());
    answers.push(format!("{:?}", engine.store().gaps(from, to, None)));
    answers
}

/// The rows of a table, in an order of their own.
fn rows(engine: &QueryEngine, query: &RowQuery, context: &QueryContext) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in engine.rows(query, context).unwrap() {
        let batch = batch.unwrap();
        for (row, (at, value)) in batch.times.iter().zip(&batch.values).enumerate() {
            let line = batch.line(row).unwrap();
            rows.push(format!("{at} {line:?} {} {}", value.to_bits(), batch.is_valid(row)));
        }
    }
    rows.sort();
    rows
}

fn assert_equal(lab: &Lab) {
    let other = Arc::clone(lab.other.as_ref().unwrap());
    let (ours, theirs) =
        (lab.engine(Settings::default()), lab.engine_of(other, Settings::default()));
    for reader in [Reader::Everything, Reader::User(1000), Reader::User(1001)] {
        let context = QueryContext::new(reader, at(7200.0));
        let (ours, theirs) = (answers(&ours, &context), answers(&theirs, &context));
        assert!(ours.len() > 1000, "{} answers", ours.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours.len(), theirs.len());
    }
}

#[test]
fn both_stores_give_the_same_answers() {
    let lab = lab();
    fill(&lab);
    assert_equal(&lab);
    // Once more from blocks, with rollups.
    lab.store.flush().unwrap();
    lab.store.maintain().unwrap();
    let other: &dyn Storage = &**lab.other.as_ref().unwrap();
    other.flush().unwrap();
    assert_equal(&lab);
}

#[test]
#[should_panic(expected = "left == right")]
fn a_store_that_lacks_one_sample_is_found() {
    let mut lab = lab();
    fill(&lab);
    let other = lab.other.take();
    lab.put(&[TestSeries { device: "n2", samples: &[(901.5, 1.0)], ..TestSeries::default() }]);
    lab.other = other;
    assert_equal(&lab);
}

#[test]
fn rows_of_other_programs_come_back_as_kwollect_returns_them() {
    let database = server::database();
    let connector = Arc::new(server::Direct(database.clone()));
    let settings = postgres::Settings::default();
    let store = PostgresStore::open(connector, settings, Arc::new(|| at(7200.0))).unwrap();
    let engine = Lab::new().engine_of(Arc::new(store), Settings::default());
    server::execute(
        &database,
        r#"INSERT INTO metrics VALUES
            ('2026-01-06 00:00:01+00', 'a/b', 'x y', NULL, NULL),
            ('2026-01-06 00:00:02+00', 'a/b', 'n', 'NaN', '[1, {"k": null}]'),
            ('2026-01-06 00:00:03+00', 'a/b', 'p', 1e16, '{"_metric_scrape_time": 1.50, "_device_alias": "n/1"}'),
            ('2026-01-06 00:00:03+00', 'c', 'p', NULL, '{"_metric_scrape_time": 1.50, "_device_alias": "n/1"}'),
            ('2026-01-06 00:00:04+00', 'c', 'p', NULL, '{"_device_alias": "n/1"}')"#,
    );
    let get = |nodes: &str, format| {
        let pairs =
            [("nodes", nodes), ("start_time", "2026-01-06"), ("end_time", "2026-01-06T01:00")];
        let query = GetMetrics::from_pairs(pairs).unwrap();
        let context = QueryContext::new(Reader::Everything, at(7200.0));
        let pieces = engine.get_metrics(&query, format, &context).unwrap();
        String::from_utf8(pieces.collect::<Result<Vec<_>, _>>().unwrap().concat()).unwrap()
    };
    let row = |second: u32, device: &str, metric: &str, value: &str, labels: &str| {
        format!(
            r#"{{"timestamp":"2026-01-06T00:00:0{second}+00:00","device_id":"{device}","metric_id":"{metric}","value":{value},"labels":{labels}}}"#
        )
    };
    let of = |rows: &[String]| format!("[{}]", rows.join(", \n "));
    let scrape = r#"{"_metric_scrape_time": 1.50}"#;
    let want = [
        row(1, "a/b", "x y", "null", "null"),
        row(2, "a/b", "n", "\"NaN\"", r#"[1, {"k": null}]"#),
        row(3, "a/b", "p", "1e+16", scrape),
    ];
    assert_eq!(get("a/b", Format::Json), of(&want));
    let both = r#"{"_device_orig": ["a/b", "c"], "_metric_scrape_time": 1.50}"#;
    let want = [
        row(3, "n/1", "p", "1e+16", both),
        row(4, "n/1", "p", "null", r#"{"_device_orig": ["c"]}"#),
    ];
    assert_eq!(get("n/1", Format::Json), of(&want));
    let csv = get("a/b", Format::Csv);
    assert!(csv.contains("a/b,\"x y\",,\n"), "{csv}");
}
