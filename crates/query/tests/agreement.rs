//! Tests that SQL rows and `get_metrics` agree, from memory and from blocks, with slices of any size.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at, device, key};
use model::Kind;
use proptest::prelude::*;
use query::{Format, GetMetrics, QueryContext, QueryEngine, RowQuery, Settings, View};
use serde_json::Value;
use std::collections::BTreeSet;
use storage::JobSelector;

/// Indexes of device, metric, job and alias, and the seconds of the samples.
type Fact = (usize, usize, usize, usize, Vec<u8>);

const DEVICES: [&str; 3] = ["a", "b", "c"];
const METRICS: [&str; 2] = ["m", "n_total"];
const ALIASES: [&str; 3] = ["", "a", "z"];

fn fill(facts: &[Fact]) -> Lab {
    let lab = Lab::new();
    for (i, (place, metric, job, alias, seconds)) in facts.iter().enumerate() {
        let alias = ALIASES[*alias];
        let labels = [("_device_alias", alias)];
        let samples: Vec<(f64, f64)> =
            seconds.iter().map(|second| (f64::from(*second), (i + 1) as f64)).collect();
        let counter = *metric == 1;
        lab.put(&[TestSeries {
            device: DEVICES[*place],
            metric: METRICS[*metric],
            kind: if counter { Kind::Counter } else { Kind::Gauge },
            job: (*job > 0).then(|| key("local", i64::try_from(*job).unwrap())),
            labels: if alias.is_empty() { &[] } else { &labels },
            samples: &samples,
            ..TestSeries::default()
        }]);
        if i == facts.len() / 2 {
            lab.store.flush().unwrap();
        }
    }
    lab
}

/// Device, time, metric, labels and value of each row, sorted.
fn by_rows(engine: &QueryEngine, name: &str) -> Vec<String> {
    let query = RowQuery {
        view: View::ByDevice,
        devices: Some(BTreeSet::from([device(name)])),
        metrics: None,
        job: JobSelector::Any,
        from: at(0.0),
        to: at(300.0),
        summary: false,
    };
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let mut rows = Vec::new();
    for batch in engine.rows(&query, &context).unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.len() {
            let line = batch.line(row).unwrap();
            let at = model::Timestamp(batch.times[row]);
            let value = batch.values[row];
            rows.push(format!("{at} {} {} {value} {}", line.device, line.metric, line.labels));
        }
    }
    rows.sort();
    rows
}

fn by_get_metrics(engine: &QueryEngine, name: &str) -> Vec<String> {
    let pairs = [("devices", name), ("start_time", "2026-01-06"), ("end_time", "2026-01-06T00:05")];
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let query = GetMetrics::from_pairs(pairs).unwrap();
    let answer = engine.get_metrics(&query, Format::Json, &context).unwrap();
    let text = answer.map(Result::unwrap).collect::<Vec<_>>().concat();
    let rows: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let times: Vec<&str> = rows.iter().filter_map(|row| row["timestamp"].as_str()).collect();
    assert!(times.is_sorted(), "ascending by time");
    // The original text of the labels, which a parser would reorder.
    let text = String::from_utf8_lossy(&text).into_owned();
    let labels = text.split("\"labels\":").skip(1).map(|rest| {
        let end = rest.find("}, \n").or_else(|| rest.find("}]")).unwrap_or(0);
        rest.split_at(end).0.to_owned()
    });
    let word = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut lines: Vec<String> = rows
        .iter()
        .zip(labels)
        .map(|(row, labels)| {
            let (time, name, metric) =
                (word(row, "timestamp"), word(row, "device_id"), word(row, "metric_id"));
            format!("{time} {name} {metric} {} {labels}", row["value"])
        })
        .collect();
    lines.sort();
    lines
}

/// Start in seconds of the day, metric and value of each window in `metrics_by_job_summary`.
fn windows_by_rows(engine: &QueryEngine, job: &model::JobKey) -> Vec<String> {
    let query = RowQuery {
        view: View::ByJob,
        devices: None,
        metrics: None,
        job: JobSelector::Is(job.clone()),
        from: model::Timestamp(i64::MIN),
        to: model::Timestamp(i64::MAX),
        summary: true,
    };
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let mut rows = Vec::new();
    for batch in engine.rows(&query, &context).unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.len() {
            let (line, start) = (batch.line(row).unwrap(), model::Timestamp(batch.times[row]));
            rows.push(format!("{start} {} {:.9}", line.metric, batch.values[row]));
        }
    }
    rows.sort();
    rows
}

fn windows_by_get_metrics(engine: &QueryEngine, job: &model::JobKey) -> Vec<String> {
    let (job, context) = (job.id.to_string(), QueryContext::new(Reader::Everything, at(7200.0)));
    let query = GetMetrics::from_pairs([("job_id", &*job), ("summary", "true")]).unwrap();
    let answer = engine.get_metrics(&query, Format::Json, &context).unwrap();
    let text = answer.map(Result::unwrap).collect::<Vec<_>>().concat();
    let rows: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let row = |row: &Value| {
        let start = model::Timestamp::parse(row["timestamp"].as_str().unwrap()).unwrap();
        let value = row["value"].as_f64().unwrap();
        format!("{start} {} {value:.9}", row["metric_id"].as_str().unwrap())
    };
    let mut rows: Vec<String> = rows.iter().map(row).collect();
    rows.sort();
    rows
}

/// The same windows computed by the rule of `conformance`.
fn windows_by_rule(
    of_job: &[(f64, f64)],
    of_node: &[(f64, f64)],
    job: &model::JobKey,
    (start, stop): (f64, f64),
) -> Vec<String> {
    let sample = |metric: &str, job: Option<&model::JobKey>, (second, value): &(f64, f64)| {
        let labels = model::Labels::default();
        let (device, metric, job) = (device("n1"), metric.into(), job.cloned());
        let series = model::Series { device, metric, job, labels };
        conformance::Sample { series, at: at(*second), value: *value, start: None }
    };
    let of_node = of_node.iter().map(|row| sample("load_1m", None, row));
    let of_job = of_job.iter().map(|row| sample("m", Some(job), row));
    let samples: Vec<_> = of_node.chain(of_job).collect();
    let allocation =
        conformance::JobAllocation { device: device("n1"), start: at(start), stop: Some(at(stop)) };
    let windows = conformance::job_windows(&samples, job, &[allocation]);
    let row = |window: &conformance::Window| {
        let (series, rollup) = (&window.series, &window.rollup);
        format!("{} {} {:.9}", window.start, series.metric, rollup.sum / rollup.count as f64)
    };
    let mut rows: Vec<String> = windows.iter().map(row).collect();
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Includes short jobs that begin anywhere in a window.
    #[test]
    fn a_jobs_summary_has_the_windows_of_sql(
        start in 0_u16..900, long in 1_u16..900, every in 1_usize..40, ended in any::<bool>(),
    ) {
        let (start, stop) = (f64::from(start), f64::from(start + long));
        let lab = Lab::new();
        let job = key("local", 7);
        let within = |second: &f64| *second >= start && *second <= stop;
        let of_node: Vec<(f64, f64)> = (0..200).map(|n| (f64::from(n) * 10.0, f64::from(n % 4))).collect();
        let seconds = (0..2000).map(f64::from).filter(within).step_by(every);
        let of_job: Vec<(f64, f64)> = seconds.map(|second| (second, 2.0)).collect();
        lab.put(&[
            TestSeries { samples: &of_node, ..TestSeries::default() },
            TestSeries { metric: "m", job: Some(job.clone()), samples: &of_job, ..TestSeries::default() },
            TestSeries { metric: "m", job: Some(key("local", 8)), samples: &of_node, ..TestSeries::default() },
        ]);
        lab.job(&job, "n1", 1000, start, Some(stop));
        lab.job(&key("local", 8), "n1", 1001, 0.0, ended.then_some(2000.0));
        lab.store.flush().unwrap();
        let engine = lab.engine(Settings::default());
        let windows = windows_by_get_metrics(&engine, &job);
        prop_assert_eq!(&windows, &windows_by_rule(&of_job, &of_node, &job, (start, stop)));
        prop_assert_eq!(&windows, &windows_by_rows(&engine, &job));
        prop_assert!(!windows.is_empty());
    }

    #[test]
    fn both_ways_give_the_same(
        facts in proptest::collection::vec(
            (0_usize..3, 0_usize..2, 0_usize..3, 0_usize..3,
             proptest::collection::btree_set(0_u8..40, 0..12).prop_map(|set| set.into_iter().collect())),
            1..9,
        ),
        slice_rows in 1_usize..50,
    ) {
        let lab = fill(&facts);
        let engine = lab.engine(Settings { slice_rows, ..Settings::default() });
        for name in ["a", "z"] {
            prop_assert_eq!(by_rows(&engine, name), by_get_metrics(&engine, name));
        }
    }
}
