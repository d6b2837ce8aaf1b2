//! Totals from rollups equal those of the samples, for any range.

#![expect(clippy::unwrap_used, reason = "a test")]

mod lab;

use jobs::{JobName, Reader};
use lab::{Lab, TestSeries, at, key};
use model::{Kind, Point, Timestamp, increase};
use proptest::prelude::*;
use query::{QueryContext, QueryEngine, RangeQuery, Rate, Settings};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::Selector;

/// Second of the day at which every series begins.
const FIRST: f64 = -60_000.0;
const LINE_MAX: i64 = 600 * Timestamp::SECOND;

fn context(reader: Reader) -> QueryContext {
    QueryContext::new(reader, at(7200.0))
}

fn totals(engine: &QueryEngine, step_us: i64, from: Timestamp, to: Timestamp) -> api::SeriesTotals {
    let select = Selector::default();
    let query = RangeQuery { select, from, to, step_us, rate: Rate::Counters };
    let answer = engine.range_with(&query, true, &context(Reader::Everything)).unwrap();
    answer.series.first().and_then(|one| one.totals.clone()).unwrap()
}

fn near(ours: Option<f64>, theirs: f64) -> bool {
    ours.is_some_and(|ours| (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn gauges(
        readings in prop::collection::vec((1_u32..900, -50_i32..500), 2..60),
        cut in (0.0..1.0_f64, 0.0..1.0_f64), flush in any::<bool>(), step in prop::sample::select(&[0_i64, 300, 86_400][..]),
    ) {
        let lab = Lab::new();
        let mut second = FIRST;
        let samples: Vec<(f64, f64)> = readings.iter().map(|(distance, value)| {
            second += f64::from(*distance);
            (second, f64::from(*value))
        }).collect();
        lab.put(&[TestSeries { samples: &samples, ..TestSeries::default() }]);
        if flush {
            lab.store.flush().unwrap();
        }
        let bound = |part: f64| at((FIRST + part * (second - FIRST)).floor());
        let (from, to) = (bound(cut.0.min(cut.1)), bound(cut.0.max(cut.1)));
        let within: Vec<(Timestamp, f64)> = samples.iter().map(|(second, value)| (at(*second), *value))
            .filter(|(time, _)| (from..=to).contains(time)).collect();
        prop_assume!(!within.is_empty());
        let (mut integral, mut seconds) = (0.0, 0.0);
        for pair in within.windows(2) {
            let distance = pair[1].0.since(pair[0].0);
            if distance <= LINE_MAX {
                seconds += distance as f64 / 1e6;
                integral += (pair[0].1 + pair[1].1) / 2.0 * distance as f64 / 1e6;
            }
        }
        let found = totals(&lab.engine(Settings::default()), step * Timestamp::SECOND, from, to);
        let least = within.iter().map(|one| one.1).reduce(f64::min);
        let most = within.iter().map(|one| one.1).reduce(f64::max);
        prop_assert_eq!((found.samples, found.min, found.max), (within.len() as u64, least, most));
        prop_assert!((found.seconds - seconds).abs() < 1e-6, "{found:?} {seconds}");
        if seconds > 0.0 {
            prop_assert!(near(found.integral, integral), "{found:?} {integral}");
            prop_assert!(near(found.mean, integral / seconds), "{found:?}");
        } else {
            prop_assert!(found.integral.is_none() && found.mean.is_some(), "{found:?}");
        }
        prop_assert_eq!(found.increase, None);
    }

    #[test]
    fn counters(
        readings in prop::collection::vec((1_u32..900, 0_u32..500, prop::bool::weighted(0.1)), 3..60),
        cut in 0.0..1.0_f64, flush in any::<bool>(),
    ) {
        let lab = Lab::new();
        let (mut second, mut value, mut start) = (FIRST, 100.0, FIRST - 5.0);
        let mut points = Vec::new();
        for (distance, growth, restarts) in &readings {
            if *restarts {
                (value, start) = (0.0, second + 0.5);
            }
            second += f64::from(*distance);
            value += f64::from(*growth);
            let one = TestSeries { metric: "c_total", kind: Kind::Counter, start: Some(start), ..TestSeries::default() };
            lab.put(&[TestSeries { samples: &[(second, value)], ..one }]);
            points.push(Point { at: at(second), value, start: Some(at(start)) });
        }
        if flush {
            lab.store.flush().unwrap();
        }
        let from = at((FIRST + cut * (second - FIRST)).floor());
        let (mut grown, mut seconds) = (0.0, 0.0);
        for pair in points.windows(2).filter(|pair| pair[1].at >= from) {
            grown += increase(pair[0], pair[1]).amount;
            seconds += pair[1].at.since(pair[0].at) as f64 / 1e6;
        }
        if points[0].at >= from && let Some(zero) = points[0].zero() {
            grown += increase(zero, points[0]).amount;
            seconds += points[0].at.since(zero.at) as f64 / 1e6;
        }
        let found = totals(&lab.engine(Settings::default()), 0, from, at(7200.0));
        prop_assert!(near(found.increase, grown), "{found:?} {grown}");
        prop_assert!((found.seconds - seconds).abs() < 1e-6, "{found:?} {seconds}");
        prop_assert_eq!((found.integral, found.min, found.max), (None, None, None));
    }
}

/// Node n1 with its own power meter, and n2 with two ports of a PDU. Job 7 of user 1000 has n1 twice and n2 once.
fn power() -> Lab {
    let lab = Lab::new();
    let watts: Vec<(f64, f64)> =
        (0..200_u32).map(|n| (f64::from(n) * 10.0, 100.0 + f64::from(n % 2))).collect();
    let of = |device: &'static str, labels: &'static [(&'static str, &'static str)]| TestSeries {
        device,
        labels,
        metric: "power_watts",
        ..TestSeries::default()
    };
    lab.put(&[
        TestSeries { samples: &watts, ..of("n1", &[]) },
        TestSeries { samples: &watts, ..of("pdu-1", &[("_device_alias", "n2")]) },
        TestSeries { samples: &watts, ..of("pdu-2", &[("_device_alias", "n2")]) },
        TestSeries { samples: &watts, ..of("n3", &[]) },
    ]);
    lab.store.flush().unwrap();
    lab.job(&key("local", 7), "n1", 1000, 95.0, Some(1105.0));
    lab.job(&key("local", 7), "n2", 1000, 95.0, Some(505.0));
    lab
}

#[test]
fn a_job_has_the_energy_of_its_nodes() {
    let lab = power();
    let engine = lab.engine(Settings::default());
    let name: JobName = "7".parse().unwrap();
    let metrics = BTreeSet::from([Arc::from("power_watts")]);
    let of = |reader| engine.job_report_with(&name, None, Some(&metrics), &context(reader));
    for reader in [Reader::Everything, Reader::User(1000)] {
        let report = of(reader).unwrap();
        let found: Vec<(&str, &str, f64, Option<f64>)> = report
            .node_metrics
            .iter()
            .map(|one| (&*one.node, &*one.series.device, one.totals.seconds, one.totals.integral))
            .collect();
        // From 100 s to 1100 s, and from 100 s to 500 s.
        let want = [
            ("n1", "n1", 1000.0, Some(100_500.0)),
            ("n2", "pdu-1", 400.0, Some(40_200.0)),
            ("n2", "pdu-2", 400.0, Some(40_200.0)),
        ];
        assert_eq!(found, want);
        let first = &report.node_metrics[0].totals;
        assert_eq!((first.min, first.max, first.mean), (Some(100.0), Some(101.0), Some(100.5)));
    }
    assert_eq!(of(Reader::User(77)).unwrap_err().status(), 404);
    let report = engine.job_report(&name, None, &context(Reader::Everything)).unwrap();
    assert_eq!(report.node_metrics, []);
}
