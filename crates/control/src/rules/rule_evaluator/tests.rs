//! Tests of when value rules fire.

use super::*;
use crate::rules::value_rule::Threshold;
use model::{Batch, Boot, Labels, Metric, SeriesEntry, SeriesTable, Tick, Unit};
use wire::{Decoder, Encoder, Frames};

const NOW: Timestamp = Timestamp::from_seconds(1_767_706_500);

fn hot() -> ValueRule {
    ValueRule {
        name: "hot".into(),
        metric: "hwmon_temperature_celsius".into(),
        labels: vec![("chip".into(), "core".into())],
        nodes: None,
        jobs: false,
        beyond: Threshold::Above(90.0),
        back: 80.0,
        lasts_us: 20 * Timestamp::SECOND,
        flush: Some("cpu".into()),
        promote: None,
        promote_us: 0,
        again_us: 60 * Timestamp::SECOND,
    }
}

/// A node's batch with one series; readings are pairs of second and value.
struct TestBatch<'a> {
    origin: &'a str,
    device: &'a str,
    kind: Kind,
    chip: &'a str,
    readings: &'a [(i64, f64)],
}

fn temperatures(readings: &[(i64, f64)]) -> TestBatch<'_> {
    TestBatch { origin: "n1", device: "n1", kind: Kind::Gauge, chip: "core", readings }
}

fn decoded(fired_count: &TestBatch<'_>) -> Decoded {
    let TestBatch { origin, device, kind, chip, readings } = fired_count;
    decoded_table(origin, vec![entry(device, *kind, &[("chip", chip)])], readings)
}

fn entry(device: &str, kind: Kind, labels: &[(&str, &str)]) -> SeriesEntry {
    let metric = Metric {
        name: "hwmon_temperature_celsius".into(),
        unit: Unit::Count,
        kind,
        help: "How warm it is.".into(),
        divisor: 1000,
        assumed: false,
    };
    SeriesEntry {
        metric: Arc::new(metric),
        device: DeviceId::new(device).unwrap(),
        job: None,
        labels: Labels::new(labels.iter().copied()).unwrap(),
        start: None,
    }
}

/// A batch with readings of the first entry.
fn decoded_table(origin: &str, entries: Vec<SeriesEntry>, readings: &[(i64, f64)]) -> Decoded {
    let at = |second: i64| NOW.plus(second * Timestamp::SECOND);
    let batch = Batch {
        origin: Origin::new(origin).unwrap(),
        boot: Boot([1; 16]),
        seq: 0,
        table: Arc::new(SeriesTable { entries }),
        ticks: readings.iter().map(|one| Tick { at: at(one.0), samples: 1 }).collect(),
        index: vec![0; readings.len()],
        values: readings.iter().map(|one| one.1).collect(),
        gaps: Vec::new(),
        jobs: Vec::new(),
    };
    let mut bytes = Vec::new();
    Encoder::default().encode(&batch, &mut bytes).unwrap();
    let frame = Frames::of(&bytes).next().unwrap().unwrap();
    Decoder::default().decode(&frame).unwrap()
}

#[test]
fn a_rule_about_a_polled_value_acts_on_the_nodes_that_the_device_feeds() {
    let fired = |nodes: Option<&str>, origin: &str, entries: Vec<SeriesEntry>| {
        let nodes = nodes.map(|list| NodeList::new(list).unwrap());
        let rules: Arc<[ValueRule]> = vec![ValueRule { nodes, lasts_us: 0, ..hot() }].into();
        let evaluator = RuleEvaluator::default();
        let batch = decoded_table(origin, entries, &[(0, 95.0)]);
        let readings = evaluator.readings(&rules, &batch, NOW);
        evaluator.evaluate(&rules, &readings, NOW);
        let fired = evaluator.take().into_iter().flat_map(|one| one.devices);
        fired.map(|node| node.to_string()).collect::<Vec<_>>()
    };
    let one = |device: &str, alias: Option<&str>| {
        let alias = alias.map(|node| ("_device_alias", node));
        let labels: Vec<_> = [("chip", "core")].into_iter().chain(alias).collect();
        entry(device, Kind::Gauge, &labels)
    };
    let pdu = || {
        let port = |node| entry("pdu-1", Kind::Gauge, &[("_device_alias", node)]);
        let other = entry("pdu-2", Kind::Gauge, &[("_device_alias", "n9")]);
        vec![one("pdu-1", None), port("n1"), port("n2"), other]
    };
    let group = "poller-one/group-0";
    assert_eq!(fired(None, group, pdu()), ["n1", "n2"]);
    assert_eq!(fired(Some("pdu-*"), group, pdu()), ["n1", "n2"]);
    assert_eq!(fired(Some("n2"), group, pdu()), ["n2"]);
    assert_eq!(fired(Some("n9"), group, pdu()), [""; 0]);
    // A series of one port, and a node that a poller reads itself.
    assert_eq!(fired(None, group, vec![one("pdu-1", Some("n3"))]), ["n3"]);
    assert_eq!(fired(None, group, vec![one("n4", None)]), ["n4"]);
    // An agent acts on its own node only, whatever its labels are.
    assert_eq!(fired(None, "n4", vec![one("n4", Some("n3"))]), ["n4"]);
    assert_eq!(fired(None, "n4", vec![one("n5", Some("n3"))]), [""; 0]);
}

/// Running rules that evaluate each batch at once.
struct Bench {
    rules: Arc<[ValueRule]>,
    rule_evaluator: RuleEvaluator,
}

impl Bench {
    fn of(rules: Vec<ValueRule>) -> Self {
        Self { rules: rules.into(), rule_evaluator: RuleEvaluator::default() }
    }

    fn fired_count(&self, fired_count: &TestBatch<'_>) -> Evaluation {
        let last = fired_count.readings.last().unwrap().0;
        let now = NOW.plus(last * Timestamp::SECOND);
        let readings = self.rule_evaluator.readings(&self.rules, &decoded(fired_count), now);
        self.rule_evaluator.evaluate(&self.rules, &readings, now)
    }

    /// Returns how often the rule fired, and how often its pause suppressed it.
    fn fires(&self, readings: &[(i64, f64)]) -> (usize, usize) {
        let judged = self.fired_count(&temperatures(readings));
        (judged.fired, judged.too_soon)
    }
}

#[test]
fn a_rule_fires_once_until_the_value_was_back_and_its_time_is_over() {
    let bench = Bench::of(vec![hot()]);
    assert_eq!(bench.fires(&[(0, 91.0), (10, 89.0), (20, 91.0), (30, 95.0)]), (0, 0));
    assert_eq!(bench.fires(&[(39, 95.0)]), (0, 0), "not for long enough");
    assert_eq!(bench.fires(&[(40, 95.0)]), (1, 0));
    let fired = bench.rule_evaluator.take();
    assert_eq!((fired.len(), fired[0].devices.first().unwrap().as_str()), (1, "n1"));
    assert_eq!(fired[0].when, hot());
    assert_eq!(bench.rule_evaluator.take(), [], "it is told once");
    // The value stays beyond, and moves between `back` and the bound.
    assert_eq!(bench.fires(&[(50, 95.0), (60, 85.0), (70, 95.0), (90, 95.0), (100, 95.0)]), (0, 0));
    // The value was back and is beyond again, but not for 20 s.
    assert_eq!(bench.fires(&[(101, 80.0), (102, 95.0), (110, 95.0)]), (0, 0));
    let bench = Bench::of(vec![ValueRule { again_us: 600 * Timestamp::SECOND, ..hot() }]);
    assert_eq!(bench.fires(&[(0, 95.0), (20, 95.0)]), (1, 0));
    assert_eq!(bench.fires(&[(30, 70.0), (40, 95.0), (60, 95.0)]), (0, 1));
    assert_eq!(bench.fires(&[(70, 95.0), (80, 95.0)]), (0, 0));
    assert_eq!(bench.fires(&[(600, 70.0), (610, 95.0), (630, 95.0)]), (1, 0));
}

#[test]
fn late_duplicate_invalid_or_distant_readings_are_ignored() {
    let at_once = ValueRule { lasts_us: 0, ..hot() };
    let bench = Bench::of(vec![at_once.clone()]);
    // A reading of the past, as from a spool.
    assert_eq!(bench.fires(&[(-500, 95.0), (0, 50.0)]), (0, 0));
    assert_eq!(bench.fires(&[(5, f64::NAN), (6, 50.0)]), (0, 0));
    let before =
        bench.rule_evaluator.readings(&bench.rules, &decoded(&temperatures(&[(3, 95.0)])), NOW);
    assert_eq!(
        (before.len(), bench.rule_evaluator.evaluate(&bench.rules, &before, NOW).fired),
        (1, 0)
    );
    assert_eq!(bench.fires(&[(7, 95.0)]), (1, 0));
    let bench = Bench::of(vec![hot()]);
    assert_eq!(bench.fires(&[(0, 95.0)]), (0, 0));
    assert_eq!(bench.fires(&[(601, 95.0)]), (0, 0), "nobody knows what was between");
    assert_eq!(bench.fires(&[(621, 95.0)]), (1, 0));
}

#[test]
fn of_a_counter_its_growth_is_looked_at() {
    let rule = ValueRule { beyond: Threshold::Below(10.0), back: 10.0, lasts_us: 0, ..hot() };
    let bench = Bench::of(vec![rule]);
    let fired_count = |readings: &[(i64, f64)]| {
        bench.fired_count(&TestBatch { kind: Kind::Counter, ..temperatures(readings) }).fired
    };
    assert_eq!(fired_count(&[(0, 1.0)]), 0, "one reading is no rate");
    assert_eq!(fired_count(&[(10, 101.0), (20, 201.0)]), 0);
    // After a counter reset, the value since then is the increase.
    assert_eq!(fired_count(&[(30, 150.0)]), 0);
    assert_eq!(fired_count(&[(40, 249.0)]), 1);
}

#[test]
fn a_rule_looks_at_what_it_names_of_what_a_node_sends_of_itself() {
    let rule = || ValueRule { lasts_us: 0, ..hot() };
    let fires = |when: ValueRule, fired_count: TestBatch<'_>| {
        Bench::of(vec![when]).fired_count(&fired_count).fired
    };
    let hot = &[(0, 95.0)];
    assert_eq!(fires(rule(), temperatures(hot)), 1);
    assert_eq!(fires(rule(), TestBatch { chip: "disk", ..temperatures(hot) }), 0);
    assert_eq!(
        fires(
            ValueRule { labels: Vec::new(), ..rule() },
            TestBatch { chip: "disk", ..temperatures(hot) }
        ),
        1
    );
    assert_eq!(fires(rule(), TestBatch { device: "n2", ..temperatures(hot) }), 0, "of another");
    assert_eq!(fires(rule(), TestBatch { origin: "n1/run-7", ..temperatures(hot) }), 0);
    let on = |list: &str| NodeList::new(list).ok();
    assert_eq!(fires(ValueRule { nodes: on("n[1-3]"), ..rule() }, temperatures(hot)), 1);
    assert_eq!(fires(ValueRule { nodes: on("gpu-*"), ..rule() }, temperatures(hot)), 0);
    assert_eq!(fires(ValueRule { metric: "load_1m".into(), ..rule() }, temperatures(hot)), 0);
    assert_eq!(fires(ValueRule { jobs: true, ..rule() }, temperatures(hot)), 0);
}

#[test]
fn other_rules_begin_again_and_remember_when_they_fired() {
    let mut bench = Bench::of(vec![ValueRule { lasts_us: 0, ..hot() }]);
    assert_eq!(bench.fires(&[(0, 95.0)]), (1, 0));
    bench.rules = vec![ValueRule { lasts_us: 0, back: 85.0, ..hot() }].into();
    assert_eq!(bench.fires(&[(10, 95.0)]), (0, 1));
    // As after a restart of the server.
    let bench = Bench::of(vec![ValueRule { lasts_us: 0, ..hot() }]);
    bench.rule_evaluator.fired_before("hot", &NodeList::new("n0,n1").unwrap(), NOW);
    assert_eq!(bench.fires(&[(10, 95.0), (59, 70.0)]), (0, 1));
    assert_eq!(bench.fires(&[(61, 95.0)]), (1, 0));
}

/// Restarts the server with the persisted latches.
fn again(written: &mut HashMap<Latch, bool>, bench: &Bench) -> Bench {
    written.extend(bench.rule_evaluator.news());
    let latches = written.iter().filter(|(_, is)| **is).map(|(latch, _)| latch.clone()).collect();
    Bench {
        rules: Arc::clone(&bench.rules),
        rule_evaluator: RuleEvaluator::latched_before(latches),
    }
}

#[test]
fn what_lasts_is_nothing_new_to_a_server_that_starts_again() {
    let rule = || ValueRule { lasts_us: 0, again_us: 1, ..hot() };
    let (mut written, first) = (HashMap::new(), Bench::of(vec![rule()]));
    assert_eq!(first.fires(&[(0, 95.0)]), (1, 0));
    let second = again(&mut written, &first);
    assert_eq!(second.fires(&[(10, 95.0), (20, 85.0), (30, 95.0)]), (0, 0));
    assert_eq!(second.rule_evaluator.news(), [], "nothing to write down");
    let third = again(&mut written, &second);
    assert_eq!(third.fires(&[(40, 70.0)]), (0, 0));
    let fourth = again(&mut written, &third);
    assert_eq!(fourth.fires(&[(50, 95.0)]), (1, 0), "it was back before");
    assert_eq!(
        fourth.fired_count(&TestBatch { chip: "disk", ..temperatures(&[(50, 95.0)]) }).fired,
        0
    );
    // Another node has its own latch.
    let on_n2 = TestBatch { origin: "n2", device: "n2", ..temperatures(&[(60, 95.0)]) };
    assert_eq!(again(&mut written, &fourth).fired_count(&on_n2).fired, 1);
}

#[test]
fn a_rule_that_is_as_it_was_has_still_fired_when_others_change() {
    let rule = || ValueRule { lasts_us: 0, again_us: 1, ..hot() };
    let other = || ValueRule { name: "other".into(), beyond: Threshold::Above(200.0), ..rule() };
    let mut bench = Bench::of(vec![rule()]);
    assert_eq!(bench.fires(&[(0, 95.0)]), (1, 0));
    // The rule has another index and another action.
    bench.rules = vec![other(), ValueRule { flush: Some("load".into()), ..rule() }].into();
    assert_eq!(bench.fires(&[(10, 95.0)]), (0, 0));
    bench.rules = vec![ValueRule { back: 85.0, ..rule() }].into();
    assert_eq!(bench.fires(&[(20, 95.0)]), (1, 0), "another rule of that name");
    let mut news: Vec<bool> = bench.rule_evaluator.news().into_iter().map(|one| one.1).collect();
    news.sort_unstable();
    assert_eq!(news, [false, true], "of the rule as it was, and as it is");
}

#[test]
fn what_is_remembered_is_bounded() {
    let bench = Bench::of(vec![ValueRule { lasts_us: 0, again_us: 1, ..hot() }]);
    let first = decoded(&temperatures(&[(0, 50.0)])).table().unwrap().entries[0].series();
    let series = |n: usize| {
        Arc::new(Series { device: DeviceId::new(&format!("n{n}")).unwrap(), ..first.clone() })
    };
    bench.fires(&[(0, 50.0)]);
    let reading = |n: usize, second: i64| Reading {
        rule: 0,
        series: series(n),
        kind: Kind::Gauge,
        point: Point { at: NOW.plus(second * Timestamp::SECOND), value: 95.0, start: None },
        nodes: [series(n).device.clone()].into(),
    };
    let many: Vec<Reading> = (0..WATCHED_MAX + 5).map(|n| reading(n, 0)).collect();
    let judged = bench.rule_evaluator.evaluate(&bench.rules, &many, NOW);
    // `n1` exists already, with a reading at the same time.
    assert_eq!((judged.fired, judged.unwatched), (WATCHED_MAX - 1, 5));
    // Eviction of idle series makes room.
    let later = NOW.plus(2 * APART_US);
    let one = [reading(WATCHED_MAX + 1, 1200)];
    assert_eq!(bench.rule_evaluator.evaluate(&bench.rules, &one, later).fired, 1);
    // The evicted series keeps its latch.
    let again = [reading(WATCHED_MAX - 1, 1201)];
    assert_eq!(bench.rule_evaluator.evaluate(&bench.rules, &again, later).fired, 0);
    assert!(bench.rule_evaluator.lock().latched.len() <= LATCHES_MAX);
}
