//! Checks of rejected samples: they affect no others, are counted, and become a gap with the reason.

use crate::sender::{S, Sender, T0, device, spec};
use crate::stages::{all, at_every_stage, open, put, put_at};
use crate::subject::{Clock, Outcome, Rules, Subject};
use model::{Cause, Timestamp, Unit};

fn rejected(outcome: &Outcome) -> (u32, &str) {
    match outcome {
        Outcome::Stored { samples_rejected, reason } => (*samples_rejected, reason),
        other => panic!("{other:?}"),
    }
}

/// A sample from before 2000, or more than a day after its receipt, comes from a clock that is not set.
pub fn an_impossible_instant_rejects_its_samples_alone<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let load = |at| (spec("n1", "load_1m"), at, 1.0);
    let before = put(&store, sender.batch(&[load(5 * S), load(T0)]));
    let ahead = sender.batch(&[load(T0 + S), load(T0 + 2 * 86_400 * S)]);
    let ahead = put_at(&store, ahead, T0 + S);
    for (outcome, word) in [(before, "before 2000"), (ahead, "a day ahead")] {
        let (count, reason) = rejected(&outcome);
        assert!(count == 1 && reason.contains(word), "{outcome:?}");
    }
    at_every_stage(store, |store, stage| {
        assert_eq!(all(store).len(), 2, "{stage}");
        let gaps = store.gaps(Timestamp(T0 - S), Timestamp(T0 + S), Some(&device("n1")));
        assert_eq!(gaps.len(), 1, "{stage}: one gap, extended: {gaps:?}");
        assert_eq!((gaps[0].cause, &*gaps[0].source), (Cause::SeriesRejected, "load"));
    });
}

/// A sender with another meaning of a metric is rejected; the reason names the sender that defined it.
pub fn a_metric_keeps_its_meaning<T: Subject>() {
    let store: T = open();
    assert_eq!(
        put(&store, Sender::new("n1", 1).batch(&[(spec("n1", "a"), T0, 1.0)])),
        Outcome::STORED
    );
    let other = std::cell::Cell::new(0);
    at_every_stage(store, |store, stage| {
        let mut sender = Sender::new("n2", 2);
        sender.seq = other.replace(other.get() + 1);
        let sample = (spec("n2", "a"), T0, 1.0);
        let outcome = put(store, sender.batch_as(&[sample], |metric| metric.unit = Unit::Bytes));
        let (count, reason) = rejected(&outcome);
        assert_eq!(count, 1, "{stage}");
        for word in ["metric a is a gauge in count since n1", "in bytes as n2 names it"] {
            assert!(reason.contains(word), "{stage}: {reason}");
        }
        assert_eq!(all(store).len(), 1, "{stage}");
    });
}

/// One sender's flood of series does not affect others: it meets the sender's own limit, and all senders
/// share the common one.
/// Idle series free their quota.
pub fn series_beyond_a_limit_are_rejected_alone<T: Subject>() {
    let rules =
        Rules { series_per_origin_max: 2, series_max: 3, series_idle_us: S, ..Rules::default() };
    let clock = Clock::at(T0);
    let store = T::open(&rules, &clock);
    let load = |device, metric| (spec(device, metric), T0, 1.0);
    let (mut first, mut second) = (Sender::new("n1", 1), Sender::new("n2", 2));
    let outcome = put(&store, first.batch(&[load("n1", "a"), load("n1", "b"), load("n1", "c")]));
    let (count, reason) = rejected(&outcome);
    assert!(count == 1 && reason.contains("n1 has 2 series, its limit"), "{reason}");
    let outcome = put(&store, second.batch(&[load("n2", "a"), load("n2", "b")]));
    let (count, reason) = rejected(&outcome);
    assert!(count == 1 && reason.contains("3 series, its limit"), "{reason}");
    let gaps = store.gaps(Timestamp(T0 - S), Timestamp(T0 + S), None);
    let found: Vec<_> = gaps.iter().map(|gap| (gap.device.as_str(), gap.cause)).collect();
    assert_eq!(found, [("n1", Cause::SeriesRejected), ("n2", Cause::SeriesRejected)]);
    clock.set(T0 + 100 * S);
    store.maintain();
    let later = (spec("n2", "b"), T0 + 100 * S, 1.0);
    assert_eq!(put(&store, second.batch(&[later])), Outcome::STORED);
    at_every_stage(store, |store, stage| assert_eq!(all(store).len(), 4, "{stage}"));
}
