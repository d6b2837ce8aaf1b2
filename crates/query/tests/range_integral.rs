//! Tests that the integral of a range answer is the counter's increase, for any step and any division of the
//! range. Also tests that the gaps of an answer are those of its series.

#![expect(clippy::unwrap_used, reason = "a test")]

mod lab;

use jobs::Reader;
use lab::{Lab, TestSeries, at, device, key};
use model::{Cause, Gap, Kind, Origin, Point, Timestamp};
use proptest::prelude::*;
use query::{Format, GetMetrics, QueryContext, QueryEngine, RangeQuery, Rate, Settings};
use storage::{JobSelector, Selector};

const METRIC: &str = "c_seconds_total";
/// Second of the day at which every series begins.
const FIRST: f64 = -70_000.0;
const DAY: i64 = 86_400 * Timestamp::SECOND;

fn range(
    engine: &QueryEngine,
    select: Selector,
    step: i64,
    span: (Timestamp, Timestamp),
) -> api::Range {
    let (from, to) = span;
    let step_us = step * Timestamp::SECOND;
    let query = RangeQuery { select, from, to, step_us, rate: Rate::Counters };
    engine.range(&query, &QueryContext::new(Reader::Everything, at(7200.0))).unwrap()
}

/// The sum of rate × seconds.
fn integral(engine: &QueryEngine, step: i64, span: (Timestamp, Timestamp)) -> f64 {
    let answer = range(engine, Selector::default(), step, span);
    let points = answer.series.iter().flat_map(|one| {
        assert_eq!(one.values.len(), one.seconds.len());
        one.values.iter().zip(&one.seconds)
    });
    points.map(|(value, seconds)| value.unwrap_or(0.0) * seconds).sum()
}

/// Seconds to the next reading, growth, and whether the counter restarts before that reading.
fn readings() -> impl Strategy<Value = Vec<(u32, u32, bool)>> {
    let distance = prop_oneof![8 => 1_u32..30, 1 => 100_u32..400, 1 => 400_u32..3000];
    let reading = (distance, 0_u32..500, prop::bool::weighted(0.1));
    prop::collection::vec(reading, 1..40)
}

/// Stores the readings, one batch each, with the counter start that is valid at the reading. The counter began some
/// seconds before the series.
fn fill(lab: &Lab, readings: &[(u32, u32, bool)], older: f64, flush: bool) -> Vec<Point> {
    let (mut second, mut value, mut start) = (FIRST, older * 3.0, FIRST - older);
    let mut points = Vec::new();
    for (distance, growth, restarts) in readings {
        if *restarts {
            (value, start) = (0.0, second + 0.5);
        }
        second += f64::from(*distance);
        value += f64::from(*growth);
        let job = Some(key("local", 7));
        let found = TestSeries {
            metric: METRIC,
            kind: Kind::Counter,
            job,
            start: Some(start),
            ..TestSeries::default()
        };
        lab.put(&[TestSeries { samples: &[(second, value)], ..found }]);
        points.push(Point { at: at(second), value, start: Some(at(start)) });
    }
    if flush {
        lab.store.flush().unwrap();
    }
    points
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_integral_of_a_range_is_the_increase(
        readings in readings(), cut in 0_i64..60_000, flush in any::<bool>(),
    ) {
        let lab = Lab::new();
        let points = fill(&lab, &readings, 0.0, flush);
        let windows = conformance::window_growth(&points, Timestamp::SECOND);
        let increase = windows.values().map(|(amount, _)| amount).sum::<f64>();
        let engine = lab.engine(Settings::default());
        for step in [0, 7, 60, 300, 900, 3600] {
            let whole_steps = |at: Timestamp| {
                let step = step.max(1) * Timestamp::SECOND;
                Timestamp(at.0.div_euclid(step) * step)
            };
            let first = whole_steps(at(FIRST));
            let cut = whole_steps(first.plus(cut * Timestamp::SECOND).max(at(FIRST)));
            let near = |sum: f64| (sum - increase).abs() <= 1e-6 * increase.max(1.0);
            let whole = integral(&engine, step, (first, at(7200.0)));
            prop_assert!(near(whole), "step {step}: {whole} for {increase}");
            let before = integral(&engine, step, (first, cut.plus(-1)));
            let after = integral(&engine, step, (cut, at(7200.0)));
            prop_assert!(near(before + after), "step {step}, cut at {cut}: {before} + {after} for {increase}");
        }
    }
}

/// Rate and seconds of each window of a range answer.
fn rates_of_range(engine: &QueryEngine) -> Vec<(f64, f64)> {
    let answer = range(engine, Selector::default(), 300, (at(FIRST).plus(-DAY), at(7200.0)));
    let one = answer.series.first();
    let points = one.iter().flat_map(|one| one.times.iter().zip(&one.values));
    points.filter_map(|(time, value)| Some((*time, (*value)?))).collect()
}

/// Rate of each window of `get_metrics` with `summary`.
fn rates_of_summary(engine: &QueryEngine) -> Vec<(f64, f64)> {
    let pairs = [
        ("devices", "n1"),
        ("summary", "true"),
        ("as_rate", "auto"),
        ("start_time", "2026-01-03"),
        ("end_time", "2026-01-06T02:00"),
    ];
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let query = GetMetrics::from_pairs(pairs).unwrap();
    let answer = engine.get_metrics(&query, Format::Json, &context).unwrap();
    let text = answer.map(Result::unwrap).collect::<Vec<_>>().concat();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
    let rate = |row: &serde_json::Value| {
        let start = Timestamp::parse(row["timestamp"].as_str().unwrap()).unwrap();
        Some((start.seconds(), row["value"].as_f64()?))
    };
    rows.iter().filter_map(rate).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Windows of ranges and of summaries have the growth of the rule, also of a counter that is older than its
    /// observation, such as one of a node since its boot.
    #[test]
    fn ranges_and_summaries_count_by_one_rule(
        readings in readings(), older in prop_oneof![Just(0.0), 1.0..2000.0, 2000.0..80_000.0],
        flush in any::<bool>(),
    ) {
        let lab = Lab::new();
        let points = fill(&lab, &readings, older, flush);
        let engine = lab.engine(Settings::default());
        let rule = conformance::window_growth(&points, 300 * Timestamp::SECOND);
        let rule: Vec<_> = rule.iter()
            .map(|(start, (amount, seconds))| (Timestamp(*start).seconds(), amount / seconds))
            .collect();
        for rates in [rates_of_range(&engine), rates_of_summary(&engine)] {
            prop_assert_eq!(rates.len(), rule.len(), "{:?} for {:?}", rates, rule);
            for (have, want) in rates.iter().zip(&rule) {
                prop_assert_eq!(have.0, want.0);
                prop_assert!((have.1 - want.1).abs() <= 1e-9 * want.1.max(1.0), "{:?} for {:?}", have, want);
            }
        }
    }
}

#[test]
fn gaps_of_a_range_are_those_of_its_series() {
    let lab = Lab::new();
    for (number, node) in [(7, "n1"), (8, "n2")] {
        let job = Some(key("local", number));
        let samples = [(10.0, 1.0), (20.0, 2.0)];
        lab.put(&[TestSeries {
            device: node,
            metric: METRIC,
            kind: Kind::Counter,
            job,
            samples: &samples,
            ..TestSeries::default()
        }]);
        lab.job(&key("local", number), node, 1000, 5.0, Some(30.0));
    }
    lab.job(&key("local", 7), "n3", 1000, 5.0, Some(30.0));
    let gap = |origin: &str, node: &str| Gap {
        origin: Origin::new(origin).unwrap(),
        device: device(node),
        source: "".into(),
        from: at(12.0),
        to: at(14.0),
        cause: Cause::AgentDown,
        detail: "".into(),
    };
    for (origin, node) in [("n1", "n1"), ("n2", "n2"), ("n3", "n3"), ("n4", "n4")] {
        lab.put_gap(gap(origin, node));
    }
    let engine = lab.engine(Settings::default());
    let job = JobSelector::Is(key("local", 7));
    let select = Selector { job, ..Selector::default() };
    let answer = range(&engine, select, 5, (at(0.0), at(60.0)));
    let devices: Vec<&str> = answer.gaps.iter().map(|gap| &*gap.device).collect();
    assert_eq!(devices, ["n1", "n3"], "the node of its series, and its silent node");
    let every = range(&engine, Selector::default(), 5, (at(0.0), at(60.0)));
    assert_eq!(every.gaps.len(), 2, "{:?}", every.gaps);
    assert_eq!(every.series.len(), 2);
}

#[test]
fn an_explanation_has_the_gaps_of_the_run_and_the_distance_of_the_latest_samples() {
    let lab = Lab::new();
    let slow = (0..20).map(|n| 20.0 + f64::from(n));
    let seconds = slow.chain((0..11).map(|n| 40.0 + 5.0 * f64::from(n)));
    let samples: Vec<(f64, f64)> = seconds.map(|second| (second, second)).collect();
    let job = Some(key("local", 7));
    let of_job = TestSeries { metric: METRIC, job, samples: &samples, ..TestSeries::default() };
    lab.put(&[of_job, TestSeries { samples: &samples, ..TestSeries::default() }]);
    lab.job(&key("local", 7), "n1", 1000, 18.0, Some(92.0));
    for (from, to) in [(5.0, 10.0), (90.0, 95.0), (100.0, 120.0)] {
        lab.put_gap(Gap {
            origin: Origin::new("n1").unwrap(),
            device: device("n1"),
            source: "".into(),
            from: at(from),
            to: at(to),
            cause: Cause::AgentDown,
            detail: "".into(),
        });
    }
    let engine = lab.engine(Settings::default());
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let all = engine.explain(&Selector::default(), (at(0.0), at(200.0)), &context).unwrap();
    let of = |one: &api::Explanation| (one.series.job, one.gaps_count, one.period_seconds);
    let mut found: Vec<_> = all.iter().map(of).collect();
    found.sort_by_key(|one| one.0);
    assert_eq!(found, [(None, 3, Some(5.0)), (Some(7), 1, Some(5.0))]);
}

#[test]
fn a_gap_in_which_a_series_misses_no_sample_is_none_of_it() {
    let lab = Lab::new();
    let slow: Vec<(f64, f64)> = (0..12).map(|n| (60.0 * f64::from(n), 1.0)).collect();
    let fast = (0..132).map(|n| (5.0 * f64::from(n), 1.0));
    let fast: Vec<(f64, f64)> = fast.filter(|(at, _)| !(372.0..398.0).contains(at)).collect();
    let series =
        |metric, samples| TestSeries { device: "pdu-1", metric, samples, ..TestSeries::default() };
    let origin = "poller-one/group-0";
    lab.put_from(origin, 7200.0, &[series("slow", &slow[..]), series("fast", &fast)]);
    lab.put_gap_from(Gap {
        origin: Origin::new(origin).unwrap(),
        device: device("pdu-1"),
        source: "snmp".into(),
        from: at(370.0),
        to: at(400.0),
        cause: Cause::SourceTimeout,
        detail: "".into(),
    });
    let engine = lab.engine(Settings::default());
    let context = QueryContext::new(Reader::Everything, at(7200.0));
    let gaps = |metrics: &[&str]| {
        let metrics = Some(metrics.iter().map(|metric| (*metric).into()).collect());
        let select = Selector { metrics, ..Selector::default() };
        let span = (at(0.0), at(720.0));
        let explained = engine.explain(&select, span, &context).unwrap();
        let steps = [0, 10].map(|step| range(&engine, select.clone(), step, span).gaps.len());
        (explained.iter().map(|one| one.gaps_count).collect::<Vec<_>>(), steps)
    };
    assert_eq!(gaps(&["slow"]), (vec![0], [0; 2]));
    assert_eq!(gaps(&["fast"]), (vec![1], [1; 2]));
    assert_eq!(gaps(&["fast", "slow"]), (vec![1, 0], [1; 2]));
}
