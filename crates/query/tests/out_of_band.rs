//! Tests out-of-band measurements, such as power meters: samples without a job belong to the job whose record
//! lists the device, even if the record arrives later.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lab;

use jobs::{JobName, NodeShare, Reader, RecordUpdate};
use lab::{Lab, TestSeries, at, device, key};
use model::JobKey;
use query::{Format, GetMetrics, QueryContext, RowQuery, Settings, View};
use serde_json::Value;
use std::collections::BTreeMap;
use storage::JobSelector;

fn context() -> QueryContext {
    QueryContext::new(Reader::Everything, at(7200.0))
}

fn share(name: &str) -> NodeShare {
    NodeShare {
        device: device(name),
        cpus: None,
        cpu_list: Box::default(),
        gpus: None,
        gpu_list: Box::default(),
        memory_bytes: None,
    }
}

/// Amends the job's record: the job ran on these devices at these seconds of the day.
fn report_visits(lab: &Lab, job: &JobKey, from: f64, to: Option<f64>, devices: &[&str]) {
    let update = RecordUpdate {
        submit: Some(at(1.0)),
        start: Some(at(from)),
        stop: to.map(at),
        nodes: Some(devices.iter().map(|name| share(name)).collect()),
        ..RecordUpdate::new(job.clone())
    };
    let stats = lab.registry.ingest_updates(vec![update], at(7200.0)).unwrap();
    assert_eq!(stats.rejected, 0);
}

/// Number of rows per device in `get_metrics` of a job.
fn get(lab: &Lab, job: &str) -> BTreeMap<String, usize> {
    let query = GetMetrics::from_pairs([("job_id", job)]).unwrap();
    let engine = lab.engine(Settings::default());
    let answer = engine.get_metrics(&query, Format::Json, &context()).unwrap();
    let bytes: Vec<u8> = answer.flat_map(|piece| piece.unwrap()).collect();
    let rows: Vec<Value> = serde_json::from_slice(&bytes).unwrap();
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.get("device_id").unwrap().as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// Number of rows per device in `metrics_by_job` of a job.
fn by_job(lab: &Lab, job: &JobKey) -> BTreeMap<String, usize> {
    let query = RowQuery {
        view: View::ByJob,
        devices: None,
        metrics: None,
        job: JobSelector::Is(job.clone()),
        from: at(0.0),
        to: at(7200.0),
        summary: false,
    };
    let engine = lab.engine(Settings::default());
    let mut counts = BTreeMap::new();
    for batch in engine.rows(&query, &context()).unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.len() {
            *counts.entry(batch.line(row).unwrap().device.to_string()).or_default() += 1;
        }
    }
    counts
}

fn counts(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter().map(|(name, rows)| ((*name).to_owned(), *rows)).collect()
}

/// One sample per second for 2 min: of a node, of a meter, and of a BMC that measures for the node.
fn lab() -> Lab {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (0..120).map(|second| (f64::from(second), 1.0)).collect();
    let of =
        |device, metric| TestSeries { device, metric, samples: &samples, ..TestSeries::default() };
    lab.put(&[
        of("n1", "load_1m"),
        of("pdu-1-port-7", "outlet_power_watts"),
        TestSeries { labels: &[("_device_alias", "n1")], ..of("bmc-n1", "ipmi_power_watts") },
        of("n9", "load_1m"),
    ]);
    lab
}

#[test]
fn a_device_that_only_the_record_names_is_the_jobs() {
    let (lab, job) = (lab(), key("site", 7));
    report_visits(&lab, &job, 9.5, Some(30.5), &["n1", "pdu-1-port-7"]);
    // For the node: its load and the BMC's samples for it. For the meter: its own samples.
    let found = counts(&[("n1", 42), ("pdu-1-port-7", 21)]);
    assert_eq!((get(&lab, "site:7"), by_job(&lab, &job)), (found.clone(), found));

    // The node's agent has more precise times of the job.
    lab.job(&job, "n1", 1000, 14.5, Some(20.5));
    let found = counts(&[("n1", 12), ("pdu-1-port-7", 21)]);
    assert_eq!((get(&lab, "site:7"), by_job(&lab, &job)), (found.clone(), found));
}

#[test]
fn a_late_correction_moves_rows_that_were_stored_long_ago() {
    let (lab, job) = (lab(), key("site", 7));
    report_visits(&lab, &job, 9.5, None, &["pdu-1-port-7"]);
    assert_eq!(get(&lab, "site:7"), counts(&[("pdu-1-port-7", 110)]));
    report_visits(&lab, &job, 9.5, Some(19.5), &["pdu-1-port-7"]);
    assert_eq!(by_job(&lab, &job), counts(&[("pdu-1-port-7", 10)]));
    report_visits(&lab, &job, 4.5, Some(19.5), &["n9"]);
    let found = counts(&[("n9", 15)]);
    assert_eq!((get(&lab, "site:7"), by_job(&lab, &job)), (found.clone(), found));
}

#[test]
fn a_job_that_waits_has_a_report_and_no_rows() {
    let (lab, job) = (lab(), key("site", 7));
    let waits = RecordUpdate { submit: Some(at(1.0)), ..RecordUpdate::new(job.clone()) };
    lab.registry.ingest_updates(vec![waits], at(7200.0)).unwrap();
    assert_eq!((get(&lab, "7"), by_job(&lab, &job)), (counts(&[]), counts(&[])));
    let engine = lab.engine(Settings::default());
    let name: JobName = "7".parse().unwrap();
    let report = engine.job_report(&name, None, &context()).unwrap();
    assert_eq!((report.job.state.as_str(), report.job.start), ("waiting", None));
    assert_eq!((report.totals.wall_seconds, report.allocations.len()), (0.0, 0));
}
