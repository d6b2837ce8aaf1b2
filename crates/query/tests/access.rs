//! Tests a user who sees a node only during their own job. Two users share a node; no query reveals data of one
//! user's time to the other, and no mean, rate or rollup does.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod lab;

use jobs::{Filter, Reader};
use lab::{DAY, Lab, TestSeries, at, device, key};
use model::{Cause, Gap, Kind, Origin, Timestamp, Unit};
use query::{
    AvailableFilter, Format, GetMetrics, QueryContext, QueryEngine, RangeQuery, Rate, ReadObserver,
    RowQuery, Settings, View,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use storage::{JobSelector, Reads, Selector};

const ALICE: Reader = Reader::Tenant(1000);
const BOB: Reader = Reader::Tenant(2000);
/// The times of their jobs on n1, in seconds of the day.
const ALLOCATIONS: [(f64, f64); 2] = [(100.0, 400.0), (300.0, 905.0)];

/// A gauge whose value is its second of the day, and a counter. The counter grows by 1 per second during alice's
/// job, and by 1 million per second otherwise.
fn shared(lab: &Lab) {
    let seconds = || (1..120).map(|tick| f64::from(tick) * 10.0);
    let gauge: Vec<(f64, f64)> = seconds().map(|second| (second, second)).collect();
    let (mut grown, mut counter) = (0.0, Vec::new());
    for second in seconds() {
        grown += if second > 110.0 && second < 400.0 { 10.0 } else { 1e7 };
        counter.push((second, grown));
    }
    let count = TestSeries {
        metric: "c_seconds_total",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        start: Some(5.0),
        samples: &counter,
        ..TestSeries::default()
    };
    let gone = [(20.0, 1.0), (50.0, 1.0), (1000.0, 1.0)];
    lab.put(&[
        TestSeries { samples: &gauge, ..TestSeries::default() },
        count,
        TestSeries {
            metric: "secret",
            labels: &[("of", "carol")],
            samples: &gone,
            ..TestSeries::default()
        },
        TestSeries {
            device: "pdu",
            labels: &[("_device_alias", "n1")],
            samples: &gauge,
            ..TestSeries::default()
        },
        TestSeries { device: "n2", samples: &gauge, ..TestSeries::default() },
    ]);
    for (id, (from, to)) in [(1, ALLOCATIONS[0]), (2, ALLOCATIONS[1])] {
        let uid = if id == 1 { 1000 } else { 2000 };
        lab.job(&key("slurm", id), "n1", uid, from, Some(to));
        let samples: Vec<_> =
            gauge.iter().filter(|(at, _)| from < *at && *at < to).copied().collect();
        let job = Some(key("slurm", id));
        lab.put(&[TestSeries {
            metric: "of_job",
            job,
            samples: &samples,
            ..TestSeries::default()
        }]);
    }
    for (from, to) in [(0.0, 150.0), (350.0, 360.0), (950.0, 960.0)] {
        lab.put_gap(Gap {
            origin: Origin::new("lab").unwrap(),
            device: device("n1"),
            source: "cpu".into(),
            from: at(from),
            to: at(to),
            cause: Cause::AgentDown,
            detail: "".into(),
        });
    }
}

fn as_reader(reader: Reader) -> QueryContext {
    QueryContext::new(reader, at(7200.0))
}

fn second(at: f64) -> f64 {
    at - Timestamp::from_seconds(DAY).seconds()
}

fn rows(
    engine: &QueryEngine,
    reader: Reader,
    view: View,
    summary: bool,
) -> Vec<(String, String, f64, f64)> {
    let query = RowQuery {
        view,
        devices: None,
        metrics: None,
        job: JobSelector::Any,
        from: at(0.0),
        to: at(7200.0),
        summary,
    };
    let mut found = Vec::new();
    for batch in engine.rows(&query, &as_reader(reader)).unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.len() {
            let line = batch.line(row).unwrap();
            let at = second(Timestamp(batch.times[row]).seconds());
            found.push((line.device.to_string(), line.metric.to_string(), at, batch.values[row]));
        }
    }
    found
}

#[test]
fn rows_are_those_of_the_allocation_by_every_table() {
    let lab = Lab::new();
    shared(&lab);
    let engine = lab.engine(Settings::default());
    for (reader, (from, to)) in [(ALICE, ALLOCATIONS[0]), (BOB, ALLOCATIONS[1])] {
        for view in [View::Metrics, View::ByDevice, View::ByJob] {
            let found = rows(&engine, reader, view, false);
            let ticks =
                (1..120).filter(|tick| from < f64::from(tick * 10) && f64::from(tick * 10) < to);
            let ticks = ticks.count();
            // The gauge, the counter, the job's own series, and under the alias the PDU's samples.
            let series = if view == View::Metrics { 3 } else { 4 };
            assert_eq!(found.len(), series * ticks, "{reader:?} {view:?}");
            for (device, metric, at, _) in found {
                assert!(device == "n1" && metric != "secret", "{device} {metric}");
                assert!(from < at && at < to, "{at} {reader:?} {view:?}");
            }
        }
    }
    let everyone = rows(&engine, Reader::User(1000), View::Metrics, false);
    assert!(everyone.iter().any(|row| row.1 == "secret") && everyone.len() > 400);
}

#[test]
fn five_minutes_at_the_edge_are_made_of_what_is_seen() {
    let lab = Lab::new();
    shared(&lab);
    let engine = lab.engine(Settings::default());
    for view in [View::Metrics, View::ByDevice] {
        let mut found = rows(&engine, ALICE, view, true);
        found.retain(|row| row.1 == "load_1m" && row.0 == "n1");
        let mut means: Vec<(f64, f64)> = found.iter().map(|row| (row.2, row.3)).collect();
        // Under the alias, the PDU's samples are included.
        means.sort_by(|a, b| a.0.total_cmp(&b.0));
        means.dedup();
        // 110 s to 290 s, and 300 s to 390 s.
        assert_eq!(means, [(0.0, 200.0), (300.0, 345.0)], "{view:?}");
        let largest = rows(&engine, ALICE, view, true);
        let largest = largest.iter().filter(|row| row.1 == "c_seconds_total");
        let raw = rows(&engine, ALICE, View::Metrics, false);
        let values: Vec<f64> =
            raw.iter().filter(|r| r.1 == "c_seconds_total").map(|r| r.3).collect();
        assert!(largest.into_iter().all(|row| values.contains(&row.3)));
    }
}

#[test]
fn get_metrics_returns_no_value_and_no_rate_of_another_time() {
    let lab = Lab::new();
    shared(&lab);
    let engine = lab.engine(Settings::default());
    let run_query = |pairs: &[(&str, &str)]| {
        let always = [("nodes", "n1"), ("start_time", "2026-01-06"), ("end_time", "2026-01-07")];
        let query = GetMetrics::from_pairs(always.iter().chain(pairs).copied()).unwrap();
        let answer = engine.get_metrics(&query, Format::Json, &as_reader(ALICE)).unwrap();
        let text = answer.collect::<Result<Vec<_>, _>>().unwrap().concat();
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
        rows
    };
    let plain = run_query(&[("metrics", "load_1m")]);
    let values: Vec<f64> = plain.iter().map(|row| row["value"].as_f64().unwrap()).collect();
    assert_eq!((values.len(), values.iter().all(|v| *v > 100.0 && *v < 400.0)), (2 * 29, true));
    for rate in ["true", "auto"] {
        let rates = run_query(&[("metrics", "c_seconds_total"), ("as_rate", rate)]);
        let found: Vec<f64> = rates.iter().filter_map(|row| row["value"].as_f64()).collect();
        assert_eq!(found.len(), 28, "the first reading has nothing before it");
        assert!(found.iter().all(|rate| (*rate - 1.0).abs() < 1e-9), "{found:?}");
    }
    assert!(run_query(&[("metrics", "secret")]).is_empty());
    let buckets =
        run_query(&[("metrics", "c_seconds_total"), ("as_rate", "auto"), ("summary", "true")]);
    let found: Vec<f64> = buckets.iter().filter_map(|row| row["value"].as_f64()).collect();
    assert!(found.iter().all(|rate| *rate < 2.0), "{found:?}");
}

#[test]
fn points_of_a_plot_are_made_of_what_is_seen_at_every_step() {
    let lab = Lab::new();
    shared(&lab);
    let engine = lab.engine(Settings::default());
    for step in [0, 7, 60, 300, 3600] {
        for rate in [Rate::Raw, Rate::Counters] {
            let query = RangeQuery {
                select: Selector::default(),
                from: at(0.0),
                to: at(1500.0),
                step_us: step * Timestamp::SECOND,
                rate,
            };
            let range = engine.range(&query, &as_reader(ALICE)).unwrap();
            let names: BTreeSet<_> =
                range.series.iter().map(|one| (&*one.series.device, &*one.series.metric)).collect();
            let expected = [("n1", "c_seconds_total"), ("n1", "load_1m"), ("n1", "of_job")];
            assert_eq!(names, BTreeSet::from(expected), "{step}");
            for one in &range.series {
                for value in one.values.iter().flatten() {
                    let fine = match (&*one.series.metric, rate) {
                        ("c_seconds_total", Rate::Counters) => (*value - 1.0).abs() < 1e-6,
                        ("c_seconds_total", Rate::Raw) => true,
                        _ => *value > 100.0 && *value < 400.0,
                    };
                    assert!(fine, "{value} of {} by {step} s", one.series.metric);
                }
            }
            let gaps: Vec<(f64, f64)> =
                range.gaps.iter().map(|gap| (second(gap.from), second(gap.to))).collect();
            assert_eq!(gaps, [(100.0, 150.0), (350.0, 360.0)]);
        }
    }
}

#[test]
fn two_allocations_within_one_window_exclude_what_lies_between() {
    // Two runs of one user with a hidden minute between them, within one window of 5 min.
    let lab = Lab::new();
    let gauge: Vec<(f64, f64)> =
        (0..60).map(|t| (f64::from(t) * 10.0, f64::from(t) * 10.0)).collect();
    lab.put(&[TestSeries { samples: &gauge, ..TestSeries::default() }]);
    lab.job(&key("slurm", 1), "n1", 1000, 5.0, Some(100.0));
    lab.job(&key("slurm", 3), "n1", 1000, 200.0, Some(250.0));
    let engine = lab.engine(Settings::default());
    let query = RangeQuery {
        select: Selector::default(),
        from: at(0.0),
        to: at(600.0),
        step_us: 300 * Timestamp::SECOND,
        rate: Rate::Raw,
    };
    let range = engine.range(&query, &as_reader(ALICE)).unwrap();
    // 10 s to 90 s, and 210 s to 240 s.
    let mean = (450.0 + 900.0) / 13.0;
    assert_eq!(range.series[0].values, [Some(mean)]);
    let stopped = as_reader(ALICE);
    stopped.cancel.cancel();
    assert!(engine.range(&query, &stopped).is_err());
}

#[test]
fn lists_show_neither_names_nor_values_of_another_time() {
    let lab = Lab::new();
    shared(&lab);
    lab.put(&[TestSeries { metric: "now", samples: &[(7195.0, 7.0)], ..TestSeries::default() }]);
    let engine = lab.engine(Settings::default());
    let (alice, day) = (as_reader(ALICE), (at(0.0), at(7200.0)));
    let series = engine.series(&Selector::default(), day.0, day.1, &alice).unwrap();
    let names: Vec<_> = series.iter().map(|one| (&*one.device, &*one.metric)).collect();
    assert_eq!(names, [("n1", "c_seconds_total"), ("n1", "load_1m"), ("n1", "of_job")]);
    let last = engine.last(&Selector::default(), &alice).unwrap();
    let last: Vec<_> = last.iter().map(|one| &*one.series.metric).collect();
    assert_eq!(last, ["of_job"], "the newest of the node is not of her time");
    let available =
        |second| engine.available_metrics(at(second), &AvailableFilter::default(), &alice).unwrap();
    assert!(available(7200.0).is_empty() && available(99.0).is_empty());
    assert_eq!(available(105.0).len(), 0, "nothing was read in her time yet");
    assert_eq!(available(120.0).len(), 3, "{:?}", available(120.0));
    let gaps = engine.gaps(day, None, &alice).unwrap();
    assert_eq!(gaps.len(), 2);
    assert_eq!((gaps[0].from, gaps[0].to), (at(100.0), at(150.0)));
    assert!(engine.gaps((at(0.0), at(90.0)), None, &alice).unwrap().is_empty());
    let counted = RowQuery {
        view: View::Metrics,
        devices: None,
        metrics: None,
        job: JobSelector::Any,
        from: at(0.0),
        to: at(7200.0),
        summary: false,
    };
    assert!(engine.counter_starts(&counted, &alice).unwrap().is_empty());
    let all = as_reader(Reader::Everything);
    assert_eq!(engine.counter_starts(&counted, &all).unwrap().len(), 1);
    assert!(engine.nodes(&alice).unwrap().is_empty(), "her job has gone");
    lab.job(&key("slurm", 5), "n1", 1000, 7190.0, None);
    let nodes = engine.nodes(&alice).unwrap();
    let node = &nodes[0];
    assert_eq!((nodes.len(), &*node.device, node.jobs.len()), (1, "n1", 1));
    assert_eq!(node.series, 2, "her own of before, and what is read now");
    assert_eq!(engine.last(&Selector::default(), &alice).unwrap().len(), 2);
}

#[test]
fn no_job_of_somebody_else_by_any_reader() {
    let lab = Lab::new();
    shared(&lab);
    let engine = lab.engine(Settings::default());
    let jobs = |reader| engine.jobs(&Filter::default(), &as_reader(reader)).unwrap().len();
    let each = [Reader::Everything, Reader::User(1000), ALICE, Reader::Nodes].map(jobs);
    assert_eq!(each, [2, 1, 1, 0]);
    let nodes_only = rows(&engine, Reader::Nodes, View::Metrics, false);
    assert!(nodes_only.iter().all(|row| row.1 != "of_job") && !nodes_only.is_empty());
    assert!(rows(&engine, Reader::Nodes, View::ByJob, false).is_empty());
}

/// Records other users' jobs that a query reads.
#[derive(Debug, Default)]
struct Visibility(Mutex<Vec<String>>);

impl ReadObserver for Visibility {
    fn names(&self, job: &model::JobKey, owner: Option<u32>) {
        self.0.lock().unwrap().push(format!("names {job} of {owner:?}"));
    }

    fn meets(&self, job: Option<&model::JobKey>) {
        let job = job.map_or("any".to_owned(), ToString::to_string);
        self.0.lock().unwrap().push(format!("meets {job}"));
    }
}

#[test]
fn who_reads_everything_is_watched() {
    let lab = Lab::new();
    shared(&lab);
    let engine = lab.engine(Settings::default());
    let seen = Arc::new(Visibility::default());
    let watch: Arc<dyn ReadObserver> = Arc::<Visibility>::clone(&seen);
    let all = QueryContext { watch: Some(watch), ..as_reader(Reader::Everything) };
    let take_observed = || std::mem::take(&mut *seen.0.lock().unwrap());
    engine.job_report(&"slurm:2".parse().unwrap(), None, &all).unwrap();
    assert_eq!(take_observed(), ["names slurm:2 of Some(2000)"]);
    engine.jobs(&Filter::default(), &all).unwrap();
    assert_eq!(take_observed(), ["meets any"]);
    engine.last(&Selector::default(), &all).unwrap();
    assert_eq!(take_observed(), ["meets slurm:1", "meets slurm:2"]);
    let select = Selector { job: JobSelector::None, ..Selector::default() };
    engine.last(&select, &all).unwrap();
    assert_eq!(take_observed(), [""; 0]);
}

/// Runs every query that reads samples, of one metric that only bob may see.
fn read_hidden(engine: &QueryEngine, reader: Reader) {
    let context = as_reader(reader);
    let metrics = Some(BTreeSet::from([Arc::from("hidden_total")]));
    let (from, to) = (at(0.0), at(7200.0));
    for view in [View::Metrics, View::ByDevice, View::ByJob] {
        for summary in [false, true] {
            let (devices, metrics, job) = (None, metrics.clone(), JobSelector::Any);
            let query = RowQuery { view, devices, metrics, job, from, to, summary };
            engine.rows(&query, &context).unwrap().for_each(|batch| drop(batch.unwrap()));
            engine.counter_starts(&query, &context).unwrap();
        }
    }
    let select = Selector { metrics, ..Selector::default() };
    for step in [0, 10, 300] {
        let (select, step_us) = (select.clone(), step * Timestamp::SECOND);
        let query = RangeQuery { select, from, to, step_us, rate: Rate::Counters };
        engine.range(&query, &context).unwrap();
    }
    engine.explain(&select, (from, to), &context).unwrap();
    engine.series(&select, from, to, &context).unwrap();
    for summary in [false, true] {
        let query = GetMetrics {
            devices: vec!["n1".to_owned(), "n2".to_owned()],
            metrics: vec!["hidden_total".to_owned()],
            start_time: Some("2026-01-06T00:00:00Z".to_owned()),
            end_time: Some("2026-01-06T02:00:00Z".to_owned()),
            summary,
            ..GetMetrics::default()
        };
        let answer = engine.get_metrics(&query, Format::Json, &context).unwrap();
        answer.for_each(|piece| drop(piece.unwrap()));
    }
}

/// The duration of a query would show that there are such samples.
#[test]
fn hidden_samples_are_not_read() {
    let lab = Lab::new();
    let samples: Vec<(f64, f64)> = (1..500).map(|tick| (f64::from(tick) * 2.0, 1.0)).collect();
    let kind = Kind::Counter;
    let hidden = TestSeries {
        metric: "hidden_total",
        kind,
        start: Some(1.0),
        samples: &samples,
        ..TestSeries::default()
    };
    let alias: &[(&str, &str)] = &[("_device_alias", "n2")];
    lab.put(&[
        TestSeries { job: Some(key("slurm", 2)), ..hidden },
        TestSeries { device: "n2", job: Some(key("slurm", 2)), ..hidden },
        TestSeries { device: "pdu", job: Some(key("slurm", 2)), labels: alias, ..hidden },
    ]);
    lab.job(&key("slurm", 2), "n1", 2000, 1.0, Some(1000.0));
    lab.job(&key("slurm", 2), "n2", 2000, 1.0, Some(1000.0));
    lab.job(&key("slurm", 1), "n1", 1000, 1.0, Some(1000.0));
    lab.store.flush().unwrap();
    let engine = lab.engine(Settings::default());
    let read = |reader| {
        let reads = Reads::default();
        reads.during(|| read_hidden(&engine, reader));
        reads.counts().rows
    };
    for reader in [Reader::User(1000), ALICE, Reader::Nodes] {
        assert_eq!(read(reader), 0, "{reader:?}");
    }
    assert!(read(BOB) > 0 && read(Reader::Everything) > 0);
    // Node samples of a time without an own job there.
    lab.put(&[TestSeries { device: "n3", job: None, ..hidden }]);
    lab.store.flush().unwrap();
    assert_eq!(read(ALICE), 0);
    assert!(read(Reader::User(1000)) > 0);
}
