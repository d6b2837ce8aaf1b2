//! Checks of retention: time is settled from its beginning on, and only settled samples may be deleted (decision 0012).

use crate::rollups::{assert_windows, wanted};
use crate::sender::{S, Sender, Spec, T0, in_order, spec};
use crate::stages::{all, at_every_stage, put, put_at, store_all};
use crate::subject::{Clock, Outcome, Query, Rules, Sample, Subject};
use model::{Cause, Timestamp};

const MINUTE: i64 = 60 * S;
const HOUR: i64 = 60 * MINUTE;
/// End of the settled time after six hours.
const SETTLED: Timestamp = Timestamp(T0 + 4 * HOUR);

/// Late samples are accepted for two hours; an hour is settled at once.
fn rules() -> Rules {
    Rules { late_max_us: 2 * HOUR, settle_step_us: HOUR, ..Rules::default() }
}

/// A counter and a gauge, a sample a minute.
fn minutes(minutes: std::ops::Range<i64>) -> Vec<(Spec, i64, f64)> {
    let both = |minute: i64| {
        let at = T0 + minute * MINUTE;
        let counter = Spec { start: Some(T0), ..spec("n1", "a_total") };
        [(counter, at, minute as f64), (spec("n2", "b"), at, (minute % 7) as f64 + 0.25)]
    };
    minutes.flat_map(both).collect()
}

/// Six hours in real order, except the minutes from 261 to 264, with maintenance each hour. The clock is at their end.
fn fill<T: Subject>(rules: &Rules, clock: &Clock) -> (T, Sender, Vec<(Spec, i64, f64)>) {
    let store = T::open(rules, clock);
    let (mut sender, mut sent) = (Sender::new("n1", 1), Vec::new());
    for ten in 0..36 {
        let samples = minutes(ten * 10..if ten == 26 { 261 } else { ten * 10 + 10 });
        clock.set(T0 + (ten + 1) * 10 * MINUTE);
        assert_eq!(put(&store, sender.batch(&samples)), Outcome::STORED);
        sent.extend(samples);
        if ten % 6 == 5 {
            store.maintain();
        }
    }
    (store, sender, sent)
}

fn assert_all_windows<T: Subject>(store: &T, samples: &[Sample], what: &str) {
    for window_us in T::WINDOWS_US {
        let have = store.windows(&Query::default(), window_us);
        assert_windows(&have, &wanted(samples, window_us), what);
    }
}

/// Samples before the settled time are rejected by themselves, counted, and a gap with the reason; so windows
/// and samples never disagree.
/// Later samples of the same batch are stored.
pub fn settled_time_rejects_late_samples<T: Subject>() {
    let clock = Clock::at(T0);
    let (store, mut sender, mut sent) = fill::<T>(&rules(), &clock);
    assert_eq!(store.settled(), Some(SETTLED));
    assert_all_windows(&store, &in_order(&sent), "settled");
    let late = sender.batch(&minutes(235..245));
    let outcome = put_at(&store, late.clone(), clock.now().0);
    let Outcome::Stored { samples_rejected: 10, reason } = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("too late"), "{reason}");
    sent.extend(minutes(240..245));
    at_every_stage(store, |store, stage| {
        let (from, to) = (Timestamp(T0 + 235 * MINUTE), Timestamp(T0 + 239 * MINUTE));
        let gaps = store.gaps(from, to, None);
        let found: Vec<_> = gaps.iter().map(|gap| (gap.device.as_str(), gap.cause)).collect();
        assert_eq!(
            found,
            [("n1", Cause::SeriesRejected), ("n2", Cause::SeriesRejected)],
            "{stage}"
        );
        assert_eq!(all(store), in_order(&sent), "{stage}");
        assert_all_windows(store, &in_order(&sent), stage);
        assert_eq!(store.settled(), Some(SETTLED), "{stage}");
        assert_eq!(put_at(store, late.clone(), clock.now().0), Outcome::Duplicate, "{stage}");
    });
}

/// A sample at the settled time itself, or after it, is late and counts.
pub fn samples_at_the_settled_time_are_accepted<T: Subject>() {
    let clock = Clock::at(T0);
    let (store, mut sender, mut sent) = fill::<T>(&rules(), &clock);
    let late = [minutes(240..241), minutes(261..264)].concat();
    assert_eq!(put_at(&store, sender.batch(&late), clock.now().0), Outcome::STORED);
    sent.extend(late);
    at_every_stage(store, |store, stage| {
        assert_eq!(all(store), in_order(&sent), "{stage}");
        assert_all_windows(store, &in_order(&sent), stage);
    });
}

/// A day later, with a sample.
fn a_day_later<T: Subject>(store: &T, clock: &Clock, sender: &mut Sender) -> Vec<(Spec, i64, f64)> {
    let new = minutes(30 * 60..30 * 60 + 1);
    clock.set(T0 + 30 * HOUR);
    store_all(store, [sender.batch(&new)]);
    store.maintain();
    new
}

/// Samples are deleted when they are too old, never before; answers about windows stay the same.
pub fn old_samples_are_deleted_and_their_windows_remain<T: Subject>() {
    let clock = Clock::at(T0);
    let rules = Rules { keep_samples_us: 3 * HOUR, ..rules() };
    let (store, mut sender, mut sent) = fill::<T>(&rules, &clock);
    let young = Query { from: Timestamp(T0 + 3 * HOUR), ..Query::default() };
    let (want, all_of_it) = (in_order(&sent), sent.len());
    let is_young = |sample: &&Sample| sample.at >= young.from;
    let want: Vec<Sample> = want.iter().filter(is_young).cloned().collect();
    assert_eq!(store.scan(&young), want);
    assert_eq!(store.samples_removed(), (all_of_it - all(&store).len()) as u64);
    let new = a_day_later(&store, &clock, &mut sender);
    sent.extend(new.clone());
    at_every_stage(store, |store, stage| {
        assert_eq!(all(store), in_order(&new), "{stage}");
        assert_eq!(store.samples_removed(), all_of_it as u64, "{stage}");
        assert_all_windows(store, &in_order(&sent), stage);
    });
}

/// Each length of windows has its own age limit: hourly windows cover years for which the five-minute windows
/// are deleted.
pub fn old_windows_are_deleted_and_longer_ones_remain<T: Subject>() {
    let clock = Clock::at(T0);
    let rules = Rules { keep_windows_us: [3 * HOUR, i64::MAX], ..rules() };
    let (store, mut sender, mut sent) = fill::<T>(&rules, &clock);
    let [short, long] = T::WINDOWS_US;
    let young = Query { from: Timestamp(T0 + 3 * HOUR), ..Query::default() };
    let mut want = wanted(&in_order(&sent), short);
    want.retain(|window| window.start >= young.from);
    assert_windows(&store.windows(&young, short), &want, "the young ones");
    let new = a_day_later(&store, &clock, &mut sender);
    sent.extend(new.clone());
    at_every_stage(store, |store, stage| {
        let have = store.windows(&Query::default(), short);
        assert_windows(&have, &wanted(&in_order(&new), short), stage);
        let have = store.windows(&Query::default(), long);
        assert_windows(&have, &wanted(&in_order(&sent), long), stage);
    });
}

/// Age counts from an hour after the newest sample at most, so that a clock years ahead deletes nothing.
pub fn a_clock_that_is_ahead_deletes_nothing<T: Subject>() {
    let clock = Clock::at(T0);
    let rules = Rules { keep_samples_us: 3 * HOUR, ..rules() };
    let (store, _, sent) = fill::<T>(&rules, &clock);
    clock.set(T0 + 10_000 * HOUR);
    at_every_stage(store, |store, stage| {
        assert_eq!(store.settled(), Some(SETTLED), "{stage}");
        let young = Query { from: SETTLED, ..Query::default() };
        let mut want = in_order(&sent);
        want.retain(|sample| sample.at >= SETTLED);
        assert_eq!(store.scan(&young), want, "{stage}");
        assert_all_windows(store, &in_order(&sent), stage);
    });
}
