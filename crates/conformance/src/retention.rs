//! Time is settled from its beginning on; only what is settled may go (decision 0012).

use crate::rollups::{assert_windows, wanted};
use crate::sender::{S, Sender, Spec, T0, in_order, spec};
use crate::stages::{all, at_every_stage, put, put_at, store_all};
use crate::subject::{Clock, Outcome, Question, Rules, Sample, Subject};
use model::{Cause, Timestamp};

const MINUTE: i64 = 60 * S;
const HOUR: i64 = 60 * MINUTE;
/// The last of six hours whose late samples are no longer taken.
const SETTLED: Timestamp = Timestamp(T0 + 4 * HOUR);

/// Late samples are taken for two hours; an hour is settled at once.
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

/// Six hours as they pass, all but the minutes from 261 to 264; house is kept each hour. The clock ends at
/// the end of them.
fn fill<T: Subject>(rules: &Rules, clock: &Clock) -> (T, Sender, Vec<(Spec, i64, f64)>) {
    let store = T::open(rules, clock);
    let (mut sender, mut sent) = (Sender::new("n1", 1), Vec::new());
    for ten in 0..36 {
        let samples = minutes(ten * 10..if ten == 26 { 261 } else { ten * 10 + 10 });
        clock.set(T0 + (ten + 1) * 10 * MINUTE);
        assert_eq!(put(&store, sender.batch(&samples)), Outcome::STORED);
        sent.extend(samples);
        if ten % 6 == 5 {
            store.keep_house();
        }
    }
    (store, sender, sent)
}

fn assert_all_windows<T: Subject>(store: &T, samples: &[Sample], what: &str) {
    for window_us in T::WINDOWS_US {
        let have = store.windows(&Question::default(), window_us);
        assert_windows(&have, &wanted(samples, window_us), what);
    }
}

/// What lies before the settled time is refused by itself, counted, and a gap with the reason; so windows
/// and samples never tell two stories. What lies after it in the same batch is stored.
pub fn what_is_settled_takes_no_late_sample_and_stays<T: Subject>() {
    let clock = Clock::at(T0);
    let (store, mut sender, mut sent) = fill::<T>(&rules(), &clock);
    assert_eq!(store.settled(), Some(SETTLED));
    assert_all_windows(&store, &in_order(&sent), "settled");
    let late = sender.batch(&minutes(235..245));
    let outcome = put_at(&store, late.clone(), clock.now().0);
    let Outcome::Stored { samples_refused: 10, reason } = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("too late"), "{reason}");
    sent.extend(minutes(240..245));
    at_every_stage(store, |store, stage| {
        let (from, to) = (Timestamp(T0 + 235 * MINUTE), Timestamp(T0 + 239 * MINUTE));
        let gaps = store.gaps(from, to, None);
        let told: Vec<_> = gaps.iter().map(|gap| (gap.device.as_str(), gap.cause)).collect();
        assert_eq!(told, [("n1", Cause::SeriesRefused), ("n2", Cause::SeriesRefused)], "{stage}");
        assert_eq!(all(store), in_order(&sent), "{stage}");
        assert_all_windows(store, &in_order(&sent), stage);
        assert_eq!(store.settled(), Some(SETTLED), "{stage}");
        assert_eq!(put_at(store, late.clone(), clock.now().0), Outcome::Duplicate, "{stage}");
    });
}

/// A sample at the settled time itself, or after it, is late and counts.
pub fn what_is_just_in_time_is_taken<T: Subject>() {
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

/// A day later, heard of with a sample.
fn a_day_later<T: Subject>(store: &T, clock: &Clock, sender: &mut Sender) -> Vec<(Spec, i64, f64)> {
    let new = minutes(30 * 60..30 * 60 + 1);
    clock.set(T0 + 30 * HOUR);
    store_all(store, [sender.batch(&new)]);
    store.keep_house();
    new
}

/// Samples go when they are too old, never before; what was asked of windows is answered as before.
pub fn old_samples_go_and_their_windows_stay<T: Subject>() {
    let clock = Clock::at(T0);
    let rules = Rules { keep_samples_us: 3 * HOUR, ..rules() };
    let (store, mut sender, mut sent) = fill::<T>(&rules, &clock);
    let young = Question { from: Timestamp(T0 + 3 * HOUR), ..Question::default() };
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

/// Each length of windows has an age of its own: those of an hour tell of years of which those of five
/// minutes are gone.
pub fn old_windows_go_and_longer_ones_stay<T: Subject>() {
    let clock = Clock::at(T0);
    let rules = Rules { keep_windows_us: [3 * HOUR, i64::MAX], ..rules() };
    let (store, mut sender, mut sent) = fill::<T>(&rules, &clock);
    let [short, long] = T::WINDOWS_US;
    let young = Question { from: Timestamp(T0 + 3 * HOUR), ..Question::default() };
    let mut want = wanted(&in_order(&sent), short);
    want.retain(|window| window.start >= young.from);
    assert_windows(&store.windows(&young, short), &want, "the young ones");
    let new = a_day_later(&store, &clock, &mut sender);
    sent.extend(new.clone());
    at_every_stage(store, |store, stage| {
        let have = store.windows(&Question::default(), short);
        assert_windows(&have, &wanted(&in_order(&new), short), stage);
        let have = store.windows(&Question::default(), long);
        assert_windows(&have, &wanted(&in_order(&sent), long), stage);
    });
}

/// Age is reckoned from an hour after the newest sample at most, so that a server whose clock is years
/// ahead forgets nothing by it.
pub fn a_clock_that_is_ahead_lets_nothing_go<T: Subject>() {
    let clock = Clock::at(T0);
    let rules = Rules { keep_samples_us: 3 * HOUR, ..rules() };
    let (store, _, sent) = fill::<T>(&rules, &clock);
    clock.set(T0 + 10_000 * HOUR);
    at_every_stage(store, |store, stage| {
        assert_eq!(store.settled(), Some(SETTLED), "{stage}");
        let young = Question { from: SETTLED, ..Question::default() };
        let mut want = in_order(&sent);
        want.retain(|sample| sample.at >= SETTLED);
        assert_eq!(store.scan(&young), want, "{stage}");
        assert_all_windows(store, &in_order(&sent), stage);
    });
}
