//! Checks of sample queries: all samples, once, as they were sent.

use crate::sender::{S, Sender, Spec, T0, device, in_order, job, of_device, spec};
use crate::stages::{all, at_every_stage, open, put, store_all};
use crate::subject::{Clock, JobFilter, Outcome, Query, Rules, Subject};
use model::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Two nodes with a gauge, a counter of a job, and a gauge of each of two processors.
fn nodes(ticks: std::ops::Range<i64>) -> Vec<(Spec, i64, f64)> {
    let mut samples = Vec::new();
    for tick in ticks {
        let at = T0 + tick * S;
        for device in ["n1", "n2"] {
            samples.push((spec(device, "load_1m"), at, tick as f64 / 10.0));
            let start = Some(T0 - 5 * S);
            let busy = Spec { job: Some(7), start, ..spec(device, "cpu_seconds_total") };
            samples.push((busy, at, tick as f64 * 0.123));
            for cpu in 0..2 {
                samples.push((Spec { cpu: Some(cpu), ..spec(device, "mhz") }, at, 0.1 + 0.2));
            }
        }
    }
    samples
}

/// Series are ordered by device, metric, job and labels; the samples of each by time, in whatever order they were sent.
pub fn samples_come_by_series_and_time<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    for ticks in [20..30, 0..20, 35..50, 30..35] {
        store_all(&store, [sender.batch(&nodes(ticks.clone()))]);
        if ticks.start == 0 {
            store.maintain();
        }
    }
    let want = in_order(&nodes(0..50));
    at_every_stage(store, |store, stage| assert_eq!(all(store), want, "{stage}"));
}

/// A value is returned as it was sent, to the last bit, whether or not it is a whole number of the metric's steps:
/// the largest, the smallest, minus zero, and NaN.
pub fn values_come_back_bit_for_bit<T: Subject>() {
    let odd = [0.1 + 0.2, -0.0, 1e300, 5e-324, f64::NAN, f64::INFINITY, -273.15, 9e15, 0.3];
    let of = |metric| (0..).zip(odd).map(move |(n, value)| (spec("n1", metric), T0 + n * S, value));
    let samples: Vec<_> = of("gauge").chain(of("counter_total")).collect();
    let store: T = open();
    assert_eq!(put(&store, Sender::new("n1", 1).batch(&samples)), Outcome::STORED);
    at_every_stage(store, |store, stage| assert_eq!(all(store), in_order(&samples), "{stage}"));
}

/// A sample at either bound of a query belongs to the answer.
pub fn bounds_of_a_query_are_inclusive<T: Subject>() {
    let store: T = open();
    assert_eq!(put(&store, Sender::new("n1", 1).batch(&nodes(0..20))), Outcome::STORED);
    at_every_stage(store, |store, stage| {
        for (from, to, ticks) in [(1, 3, 3), (0, 0, 1), (19, 30, 1), (20, 30, 0), (3, 1, 0)] {
            let (from, to) = (Timestamp(T0 + from * S), Timestamp(T0 + to * S));
            let query = Query { from, to, ..of_device("n2") };
            assert_eq!(store.scan(&query).len(), ticks * 4, "{stage}: {query:?}");
        }
    });
}

/// A query for a job never returns another job's samples of the same device.
pub fn queries_select_devices_metrics_jobs_and_labels<T: Subject>() {
    let store: T = open();
    let other = Spec { job: Some(8), ..spec("n1", "cpu_seconds_total") };
    let samples = [nodes(0..1), vec![(other, T0, 1.0)]].concat();
    assert_eq!(put(&store, Sender::new("n1", 1).batch(&samples)), Outcome::STORED);
    let all = Query::default;
    let metrics = Some(BTreeSet::from([Arc::from("mhz"), Arc::from("load_1m")]));
    let questions = [
        (of_device("n1"), 5),
        (of_device("n3"), 0),
        (Query { metrics, ..all() }, 6),
        (Query { job: JobFilter::Is(job(7)), ..all() }, 2),
        (Query { job: JobFilter::None, ..all() }, 6),
        (Query { job: JobFilter::NoneOrIs(job(8)), ..of_device("n1") }, 4),
        (Query { job: JobFilter::NoneOrIs(job(9)), ..all() }, 6),
        (Query { label: Some(("cpu".into(), "1".into())), ..all() }, 2),
        (Query { label: Some(("cpu".into(), "1".into())), ..of_device("n2") }, 1),
        (Query { label: Some(("core".into(), "1".into())), ..all() }, 0),
    ];
    at_every_stage(store, |store, stage| {
        for (query, count) in &questions {
            assert_eq!(store.scan(query).len(), *count, "{stage}: {query:?}");
        }
    });
}

/// A restarted counter is the same series; each of its samples carries its start. A query for starts returns
/// the first sample of each run.
pub fn starts_belong_to_samples_and_not_to_series<T: Subject>() {
    let samples = [(0, 1), (1, 1), (2, 2), (3, 2)].map(|(tick, start)| {
        (Spec { start: Some(start), ..spec("n1", "a_total") }, T0 + tick * S, tick as f64)
    });
    let store: T = open();
    assert_eq!(put(&store, Sender::new("n1", 1).batch(&samples)), Outcome::STORED);
    at_every_stage(store, |store, stage| {
        assert_eq!(all(store), in_order(&samples), "{stage}");
        for (from, to, want) in
            [(0, 9, &[(0, 1), (2, 2)][..]), (2, 9, &[(2, 2)]), (0, 1, &[(0, 1)])]
        {
            let (from, to) = (Timestamp(T0 + from * S), Timestamp(T0 + to * S));
            let starts = store.counter_starts(&Query { from, to, ..Query::default() });
            let found: Vec<(i64, i64)> =
                starts.iter().map(|(_, at, start)| ((at.0 - T0) / S, start.0)).collect();
            assert_eq!(found, want, "{stage}");
        }
    });
}

/// An older value that arrives late is not the last one; at one instant, the value that arrived last is.
pub fn the_last_value_is_the_newest_in_time<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    store_all(&store, [5..10, 0..5].map(|ticks| sender.batch(&nodes(ticks))));
    let again = (spec("n2", "load_1m"), T0 + 9 * S, 7.0);
    assert_eq!(put(&store, sender.batch(std::slice::from_ref(&again))), Outcome::STORED);
    let mut want = in_order(&nodes(9..10));
    want.retain(|sample| sample.series.device == device("n2"));
    want[1] = again.0.sample(again.1, again.2);
    at_every_stage(store, |store, stage| {
        assert_eq!(store.last(&of_device("n2")), want, "{stage}");
    });
}

/// Only live series have last values: a node that was removed an hour ago has none, one with a later sample has.
pub fn an_idle_series_has_no_last_value<T: Subject>() {
    let clock = Clock::at(T0);
    let store = T::open(&Rules::default(), &clock);
    let mut sender = Sender::new("n1", 1);
    let at = |device, at: i64| (spec(device, "load_1m"), T0 + at * S, 1.0);
    store_all(&store, [sender.batch(&[at("gone", 0), at("here", 0)])]);
    store.maintain();
    clock.set(T0 + 2 * 3600 * S);
    store_all(&store, [sender.batch(&[at("here", 2 * 3600)])]);
    store.maintain();
    let check = |store: &T| {
        let last = store.last(&Query::default());
        let names: Vec<&str> = last.iter().map(|one| one.series.device.as_str()).collect();
        assert_eq!(names, ["here"]);
    };
    check(&store);
    check(&store.reopen());
}

/// A metric has the unit, kind, divisor and help of the first sender.
pub fn a_metric_has_the_meaning_of_its_first_sender<T: Subject>() {
    let store: T = open();
    assert_eq!(put(&store, Sender::new("n1", 1).batch(&nodes(0..1))), Outcome::STORED);
    at_every_stage(store, |store, stage| {
        let found = store.metrics();
        let want = ["cpu_seconds_total", "load_1m", "mhz"].map(|name| spec("n1", name).entry());
        let want = want.map(|entry| (*entry.metric).clone());
        assert_eq!(found, want, "{stage}");
    });
}

/// However samples are written, merged and moved meanwhile, an answer has each of them once, and all that
/// were acknowledged before the query.
pub fn queries_see_each_sample_once_during_maintenance<T: Subject>() {
    const TICKS: i64 = 300;
    let store: T = open();
    let (acknowledged, done) = (AtomicI64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = Sender::new("n1", 1);
            for tick in 0..TICKS {
                let sample = (spec("n1", "load_1m"), T0 + tick * S, 0.5);
                assert_eq!(put(&store, sender.batch(&[sample])), Outcome::STORED);
                acknowledged.store(tick + 1, Ordering::SeqCst);
            }
            done.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                store.maintain();
            }
        });
        while !done.load(Ordering::SeqCst) {
            let before = acknowledged.load(Ordering::SeqCst);
            let found: Vec<i64> = all(&store).iter().map(|sample| sample.at.0).collect();
            let want: Vec<i64> = (0..).map(|tick| T0 + tick * S).take(found.len()).collect();
            assert_eq!(found, want);
            assert!((before..=TICKS).contains(&i64::try_from(found.len()).unwrap()), "{before}");
        }
    });
    assert_eq!(i64::try_from(all(&store).len()).unwrap(), TICKS);
}
