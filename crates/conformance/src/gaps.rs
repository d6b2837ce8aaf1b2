//! Checks of gaps: those that senders report, and those that a store finds.

use crate::sender::{S, Sender, Spec, T0, device, spec};
use crate::stages::{at_every_stage, open, put, store_all};
use crate::subject::{Clock, Outcome, Rules, Subject};
use model::{Cause, DeviceId, Gap, Timestamp};

fn gap(sender: &Sender, cause: Cause, from: i64, to: i64) -> Gap {
    Gap {
        origin: sender.origin.clone(),
        device: device("n1"),
        source: "".into(),
        from: Timestamp(from),
        to: Timestamp(to),
        cause,
        detail: "why".into(),
    }
}

fn load(tick: i64) -> [(Spec, i64, f64); 1] {
    [(spec("n1", "load_1m"), T0 + tick * S, 1.0)]
}

fn every_gap<T: Subject>(store: &T, device: Option<&DeviceId>) -> Vec<(i64, i64, Cause)> {
    let gaps = store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), device);
    gaps.iter().map(|gap| ((gap.from.0 - T0) / S, (gap.to.0 - T0) / S, gap.cause)).collect()
}

/// A gap is returned for every interval that touches it, for its device and for all, with all its fields.
pub fn reported_gaps_are_stored<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let found =
        Gap { source: "disk".into(), ..gap(&sender, Cause::SourceTimeout, T0 - 9 * S, T0 - S) };
    assert_eq!(put(&store, sender.batch_with(&load(0), vec![found.clone()])), Outcome::STORED);
    at_every_stage(store, |store, stage| {
        for (from, to, touched) in [(-20, -10, 0), (-20, -9, 1), (-5, -4, 1), (-1, 7, 1), (0, 7, 0)]
        {
            let (from, to) = (Timestamp(T0 + from * S), Timestamp(T0 + to * S));
            assert_eq!(store.gaps(from, to, None).len(), touched, "{stage}: {from} {to}");
            assert_eq!(store.gaps(from, to, Some(&found.device)).len(), touched, "{stage}");
            assert_eq!(store.gaps(from, to, Some(&device("n2"))), [], "{stage}");
        }
        let all = store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), None);
        assert_eq!(all, std::slice::from_ref(&found), "{stage}");
    });
}

/// A growing gap is reported repeatedly, and is one. Two gaps are separate if one ends and the next begins at a sample.
pub fn overlapping_gaps_of_one_kind_are_merged<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let found = [(0, 10), (5, 20), (20, 30)]
        .map(|(from, to)| gap(&sender, Cause::SpoolFull, T0 + from * S, T0 + to * S));
    let other = gap(&sender, Cause::MissedTicks, T0 + 8 * S, T0 + 9 * S);
    let gaps = found.into_iter().chain([other]).collect();
    assert_eq!(put(&store, sender.batch_with(&load(40), gaps)), Outcome::STORED);
    let full = Cause::SpoolFull;
    let want = [(0, 20, full), (8, 9, Cause::MissedTicks), (20, 30, full)];
    at_every_stage(store, |store, stage| assert_eq!(every_gap(store, None), want, "{stage}"));
}

/// A starting agent does not know when it ended; it reports its period instead of an instant.
/// It was down since its last sample in the store: not at all if this was its first start, or within a period.
pub fn a_gap_of_downtime_starts_at_the_last_sample<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    for tick in [0, 1, 30] {
        let down = gap(&sender, Cause::AgentDown, 5 * S, T0 + tick * S);
        assert_eq!(put(&store, sender.batch_with(&load(tick), vec![down])), Outcome::STORED);
    }
    let want = [(1, 30, Cause::AgentDown)];
    at_every_stage(store, |store, stage| assert_eq!(every_gap(store, None), want, "{stage}"));
}

/// Missing batch numbers of a boot are a gap, from the last sample before them to the first after, for every
/// device of the sender.
/// The gap appears once it is older than late batches can be, and disappears when the batches arrive.
pub fn missing_batches_are_a_gap_until_they_arrive<T: Subject>() {
    let clock = Clock::at(T0);
    let rules = Rules { missing_grace_us: 60 * S, ..Rules::default() };
    let store = T::open(&rules, &clock);
    let mut sender = Sender::new("n1", 1);
    let two = |tick| [load(tick), [(spec("pdu", "watts"), T0 + tick * S, 2.0)]].concat();
    let batches: Vec<_> = (0..4).map(|tick| sender.batch(&two(tick))).collect();
    store_all(&store, [batches[0].clone(), batches[3].clone()]);
    clock.set(T0 + 60 * S);
    assert_eq!(every_gap(&store, None), [], "batches may be in transit");
    clock.set(T0 + 100 * S);
    let store = at_every_stage(store, |store, stage| {
        for name in ["n1", "pdu"] {
            let found = every_gap(store, Some(&device(name)));
            assert_eq!(found, [(0, 3, Cause::BatchesLost)], "{stage}: {name}");
        }
        assert_eq!(every_gap(store, None).len(), 2, "{stage}");
    });
    store_all(&store, [batches[1].clone(), batches[2].clone()]);
    at_every_stage(store, |store, stage| assert_eq!(every_gap(store, None), [], "{stage}"));
}

/// A sender that knows the cause of missing batches reports it; the report replaces the gap found by numbers.
pub fn a_reported_gap_explains_missing_batches<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let batches: Vec<_> = (0..3).map(|tick| sender.batch(&load(tick))).collect();
    store_all(&store, [batches[0].clone(), batches[2].clone()]);
    let found = gap(&sender, Cause::SpoolFull, T0, T0 + 2 * S);
    assert_eq!(put(&store, sender.batch_with(&load(3), vec![found])), Outcome::STORED);
    let want = [(0, 2, Cause::SpoolFull)];
    at_every_stage(store, |store, stage| assert_eq!(every_gap(store, None), want, "{stage}"));
}
