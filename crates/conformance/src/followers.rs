//! Checks of followers, for stores that have them (decision 0060): all slices of a follower together are what a scan
//! returns.

use crate::sender::{S, Sender, Spec, T0, device, in_order, spec};
use crate::stages::{all, open, put, put_at, store_all};
use crate::subject::{Clock, Outcome, Rules, Sample, Subject};
use model::{Cause, DeviceId, Gap, Origin, Timestamp};
use storage::{
    FOLLOWERS_MAX, FollowError, FollowFrom, FollowSlice, Followers, OutputGap, TimeSlice,
};

const MINUTE: i64 = 60 * S;
const DAY: i64 = 86_400 * S;
/// Rows of a slice: less than most batches of these checks.
const ROWS: usize = 5;
const NAME: &str = "graphite";

/// A store with followers.
pub trait Followed: Subject {
    /// Its followers.
    fn followers(&self) -> &dyn Followers;
}

/// What a follower received and confirmed.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The samples, in the order of their delivery.
    pub samples: Vec<Sample>,
    /// The gaps.
    pub gaps: Vec<Gap>,
    /// Samples that it will not receive.
    pub lost: Vec<OutputGap>,
}

impl Received {
    /// Adds a slice of at most `rows_max` rows, and checks its order.
    pub fn add(&mut self, slice: &FollowSlice, rows_max: usize) {
        let TimeSlice { series, places, times, values, starts } = &slice.samples;
        assert!(times.len() <= rows_max, "{} rows", times.len());
        assert!(!times.is_empty() || !slice.gaps.is_empty() || slice.lost.is_some());
        assert!([places.len(), values.len(), starts.len()].iter().all(|rows| *rows == times.len()));
        let order: Vec<(i64, u32)> = times.iter().copied().zip(places.iter().copied()).collect();
        assert!(order.is_sorted() && series.is_sorted(), "{order:?} {series:?}");
        for (row, at) in times.iter().enumerate() {
            let start = Some(starts[row]).filter(|start| *start != TimeSlice::NO_START);
            self.samples.push(Sample {
                series: series[places[row] as usize].series.clone(),
                at: Timestamp(*at),
                value: values[row],
                start: start.map(Timestamp),
            });
        }
        self.gaps.extend(slice.gaps.iter().cloned());
        self.lost.extend(slice.lost.iter().cloned());
    }

    /// Receives and confirms one slice; false if there is none.
    pub fn take(&mut self, of: &dyn Followers, name: &str, rows_max: usize) -> bool {
        let Some(slice) = of.next(name, rows_max).unwrap() else { return false };
        of.confirm(name, slice.number).unwrap();
        self.add(&slice, rows_max);
        true
    }

    /// Receives and confirms all that is there.
    pub fn take_all(&mut self, of: &dyn Followers, name: &str, rows_max: usize) {
        while self.take(of, name, rows_max) {}
    }

    /// The samples as a scan returns them. Several of one series and instant are in the order of delivery.
    pub fn in_order(&self) -> Vec<Sample> {
        let mut samples = self.samples.clone();
        samples.sort_by(|a, b| (&a.series, a.at).cmp(&(&b.series, b.at)));
        samples
    }
}

fn series(second: i64) -> Vec<(Spec, i64, f64)> {
    let at = T0 + second * S;
    let counter = Spec { start: Some(T0 + second / 20), ..spec("n1", "a_total") };
    let job = Spec { job: Some(3), ..spec("n2", "b") };
    vec![(counter, at, second as f64), (spec("n2", "b"), at, 0.25), (job, at, second as f64)]
}

fn take_all<T: Followed>(store: &T) -> Received {
    let mut received = Received::default();
    received.take_all(store.followers(), NAME, ROWS);
    received
}

/// Every second batch is sent twice, some arrive late. The follower reads as fast as they arrive, then not at all, then
/// again; with maintenance and restarts in between.
pub fn a_follower_receives_each_stored_sample_once<T: Followed>() {
    for reads in [1, 3, 7, 40] {
        let mut store: T = open();
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let (mut sender, mut received) = (Sender::new("n1", 1), Received::default());
        let batches: Vec<_> = (0..80)
            .map(|number| {
                let seconds = number * 3..number * 3 + 1 + number % 4;
                sender.batch(&seconds.flat_map(series).collect::<Vec<_>>())
            })
            .collect();
        for (step, place) in (0..80).map(|step| step * 27 % 80).enumerate() {
            assert_eq!(put(&store, batches[place].clone()), Outcome::STORED);
            if step % 2 == 0 {
                assert_eq!(put(&store, batches[place].clone()), Outcome::Duplicate);
            }
            if step % reads == 0 {
                received.take(store.followers(), NAME, ROWS);
            }
            match step % 23 {
                5 | 12 => store.maintain(),
                8 | 20 => store = store.reopen(),
                _ => {}
            }
        }
        for step in 0..60 {
            received.take(store.followers(), NAME, ROWS);
            match step % 7 {
                2 => store.maintain(),
                5 => store = store.reopen(),
                _ => {}
            }
        }
        received.take_all(store.followers(), NAME, ROWS);
        assert_eq!(received.in_order(), all(&store), "a read each {reads} batches");
        assert_eq!((received.gaps, received.lost), (vec![], vec![]));
    }
}

/// A slice comes again until it is confirmed, also after a restart. Only the last one can be confirmed, and once.
pub fn only_a_confirmation_moves_a_position<T: Followed>() {
    let mut store: T = open();
    store.followers().follow(NAME, FollowFrom::Now).unwrap();
    let mut sender = Sender::new("n1", 1);
    store_all(&store, (0..4).map(|second| sender.batch(&series(second))));
    let is_void = |done: Result<(), FollowError>| matches!(done, Err(FollowError::Void(_)));
    let mut before = None;
    for stage in ["in memory", "reopened", "in a block"] {
        let next = |store: &T| store.followers().next(NAME, ROWS).unwrap().unwrap();
        let (first, again) = (next(&store), next(&store));
        assert_eq!(first.samples, again.samples, "{stage}");
        assert!(is_void(store.followers().confirm(NAME, first.number)), "{stage}");
        assert_eq!(next(&store).samples, first.samples, "{stage}");
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        assert!(is_void(store.followers().confirm(NAME, again.number)), "{stage}");
        store = store.reopen();
        let last = next(&store);
        assert_eq!(last.samples, first.samples, "{stage}");
        // The mark tells slices apart that were confirmed between, over a restart, too.
        assert_eq!([again.at, last.at], [first.at; 2], "{stage}");
        assert!(before.replace(last.at).is_none_or(|before| before < last.at), "{stage}");
        store.followers().confirm(NAME, last.number).unwrap();
        assert!(is_void(store.followers().confirm(NAME, last.number)), "{stage}");
        match stage {
            "in memory" => store = store.reopen(),
            _ => store.maintain(),
        }
    }
    let rest = take_all(&store);
    assert_eq!(rest.in_order(), in_order(&series(3)));
}

/// A slice that was requested before maintenance is confirmed after it.
pub fn a_slice_is_confirmed_after_maintenance<T: Followed>() {
    let store: T = open();
    let (mut sender, mut received) = (Sender::new("n1", 1), Received::default());
    store.followers().follow(NAME, FollowFrom::Now).unwrap();
    for round in 0..30 {
        store_all(&store, (0..3).map(|second| sender.batch(&series(round * 3 + second))));
        let slice = store.followers().next(NAME, ROWS + 3).unwrap().unwrap();
        store.maintain();
        store.followers().confirm(NAME, slice.number).unwrap();
        received.add(&slice, ROWS + 3);
    }
    received.take_all(store.followers(), NAME, ROWS);
    assert_eq!(received.in_order(), all(&store));
}

/// A late sample is delivered after it is stored, not at its own time.
pub fn a_late_sample_is_delivered_when_it_is_stored<T: Followed>() {
    let store: T = open();
    store.followers().follow(NAME, FollowFrom::Now).unwrap();
    let mut sender = Sender::new("n1", 1);
    let late = sender.batch(&series(0));
    store_all(&store, [sender.batch(&series(100))]);
    assert_eq!(take_all(&store).in_order(), in_order(&series(100)));
    store.maintain();
    store_all(&store, [late]);
    assert_eq!(take_all(&store).in_order(), in_order(&series(0)));
}

/// Two values of one series and instant are both delivered, the later one later: from memory, and from a block.
pub fn two_values_of_one_instant_are_both_delivered<T: Followed>() {
    for (in_a_block, rows) in [(false, ROWS), (true, ROWS), (false, 1), (true, 1)] {
        let store: T = open();
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let mut sender = Sender::new("n1", 1);
        let two = [1.5, 0.5].map(|value| (spec("n1", "load_1m"), T0, value));
        store_all(&store, [sender.batch(&two[..1]), sender.batch(&two[1..])]);
        if in_a_block {
            store.maintain();
        }
        let mut received = Received::default();
        received.take_all(store.followers(), NAME, rows);
        assert_eq!(received.samples, in_order(&two), "{in_a_block} {rows}");
    }
}

/// A slice has no more rows than requested, even of one batch or one instant.
pub fn a_slice_is_bounded<T: Followed>() {
    for in_a_block in [false, true] {
        let mut store: T = open();
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let one = |cpu| (Spec { cpu: Some(cpu), ..spec("n1", "load_1m") }, T0, f64::from(cpu));
        let many: Vec<_> = (0..200).map(one).chain(series(1)).collect();
        store_all(
            &store,
            [Sender::new("n1", 1).batch(&many), Sender::new("n2", 1).batch(&series(0))],
        );
        if in_a_block {
            store.maintain();
        }
        let mut received = Received::default();
        for rows in (1..12).cycle() {
            if !received.take(store.followers(), NAME, rows) {
                break;
            }
            match rows {
                4 => store.maintain(),
                9 => store = store.reopen(),
                _ => {}
            }
        }
        assert_eq!(received.in_order(), all(&store), "{in_a_block}");
    }
}

/// A rejected sample is never delivered, whether a limit or its time rejected it, before and after a restart.
pub fn rejected_samples_are_not_delivered<T: Followed>() {
    let rules = Rules { series_per_origin_max: 4, series_max: 4, ..Rules::default() };
    for restart in [false, true] {
        let mut store = T::open(&rules, &Clock::at(T0));
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let one = |cpu| (Spec { cpu: Some(cpu), ..spec("n1", "load_1m") }, T0, f64::from(cpu));
        let mut sender = Sender::new("n1", 1);
        let batches: Vec<Vec<_>> = vec![
            (0..6).map(one).collect(),
            vec![one(0), (spec("n1", "load_1m"), T0 - 40 * 365 * DAY, 1.0)],
            vec![one(1), (one(1).0, T0 + 3 * DAY, 1.0)],
        ];
        for samples in batches {
            let outcome = put_at(&store, sender.batch(&samples), T0);
            let is_rejected =
                matches!(outcome, Outcome::Stored { samples_rejected, .. } if samples_rejected > 0);
            assert!(is_rejected, "{outcome:?}");
        }
        if restart {
            store = store.reopen();
        }
        let received = take_all(&store);
        assert_eq!(received.in_order(), all(&store));
        assert_eq!(received.samples.len(), 6);
        assert!(received.gaps.iter().all(|gap| gap.cause == Cause::SeriesRejected));
        assert!(!received.gaps.is_empty());
    }
}

fn gap(from: i64, to: i64) -> Gap {
    Gap {
        origin: Origin::new("n1").unwrap(),
        device: DeviceId::new("n1").unwrap(),
        source: "cpu".into(),
        from: Timestamp(T0 + from * S),
        to: Timestamp(T0 + to * S),
        cause: Cause::SourceTimeout,
        detail: "".into(),
    }
}

/// A reported gap is delivered once, and again when it grows, whatever happens in between.
pub fn reported_gaps_are_delivered_once<T: Followed>() {
    for order in ["read first", "maintain first", "reopen first"] {
        let mut store: T = open();
        let mut sender = Sender::new("n1", 1);
        store_all(&store, [sender.batch_with(&series(0), vec![gap(-60, -50)])]);
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let mut gaps = Vec::new();
        for (second, new) in
            [(1, gap(10, 20)), (2, gap(40, 50)), (3, gap(45, 55)), (4, gap(70, 80))]
        {
            store_all(&store, [sender.batch_with(&series(second), vec![new])]);
            if order == "read first" {
                gaps.extend(take_all(&store).gaps);
            }
            if order != "reopen first" && second % 2 == 0 {
                store.maintain();
            }
            store = store.reopen();
            gaps.extend(take_all(&store).gaps);
            store = store.reopen();
            store.maintain();
            assert!(take_all(&store).gaps.is_empty(), "{order}");
        }
        assert_eq!(gaps, [gap(10, 20), gap(40, 50), gap(40, 55), gap(70, 80)], "{order}");
        // A batch without samples has a gap alone.
        store_all(&store, [sender.batch_with(&[], vec![gap(90, 95)])]);
        assert_eq!(take_all(&store).gaps, [gap(90, 95)]);
    }
}

/// A new follower begins now, with all stored samples, or with those of a time.
pub fn a_new_follower_begins_at_the_requested_point<T: Followed>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    store_all(&store, (0..5).map(|second| sender.batch(&series(second))));
    store.maintain();
    store_all(&store, (5..10).map(|second| sender.batch(&series(second))));
    let since = Timestamp(T0 + 3 * S);
    let each =
        [("now", FollowFrom::Now), ("all", FollowFrom::All), ("time", FollowFrom::Time(since))];
    for (name, from) in each {
        store.followers().follow(name, from).unwrap();
    }
    store_all(&store, [sender.batch(&series(10)), sender.batch(&series(1))]);
    let received = each.map(|(name, _)| {
        let mut received = Received::default();
        received.take_all(store.followers(), name, ROWS);
        received.in_order()
    });
    let late: Vec<_> = series(10).into_iter().chain(series(1)).collect();
    assert_eq!(received[0], in_order(&late));
    assert_eq!(received[1], all(&store));
    let wanted: Vec<_> = (3..=10).flat_map(series).collect();
    assert_eq!(received[2], in_order(&wanted));
}

/// Retention does not wait. What it deletes before a follower reads it is an output gap with the number of its samples,
/// until it is confirmed.
pub fn deleted_samples_are_an_output_gap<T: Followed>() {
    const HOUR: i64 = 60 * MINUTE;
    for read in [0, 1, 4, 20, 1000] {
        let clock = Clock::at(T0);
        let rules = Rules {
            late_max_us: 2 * HOUR,
            settle_step_us: HOUR,
            keep_samples_us: 3 * HOUR,
            ..Rules::default()
        };
        let mut store = T::open(&rules, &clock);
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let (mut sender, mut received, mut sent) = (Sender::new("n1", 1), Received::default(), 0);
        for minute in 0..12 * 6 {
            clock.set(T0 + minute * 10 * MINUTE);
            let samples = series(minute * 600);
            sent += samples.len() as u64;
            assert_eq!(put(&store, sender.batch(&samples)), Outcome::STORED);
            if minute < read {
                received.take(store.followers(), NAME, ROWS - 3);
            }
            if minute % 6 == 5 {
                store.maintain();
            }
            if minute % 10 == 9 {
                store = store.reopen();
            }
        }
        assert!(store.samples_removed() > 0);
        let first = store.followers().next(NAME, ROWS).unwrap();
        store = store.reopen();
        let again = store.followers().next(NAME, ROWS).unwrap();
        let contents = |slice: Option<FollowSlice>| slice.map(|slice| (slice.samples, slice.lost));
        assert_eq!(contents(first), contents(again));
        received.take_all(store.followers(), NAME, ROWS);
        let lost: u64 = received.lost.iter().map(|gap| gap.samples).sum();
        assert_eq!(received.samples.len() as u64 + lost, sent, "{read}: {:?}", received.lost);
        assert!(received.lost.iter().all(|gap| gap.samples > 0 && gap.from <= gap.to));
        assert!(read > 20 || lost > 0, "{read}");
        let stored = all(&store);
        assert!(stored.iter().all(|sample| received.samples.contains(sample)), "{read}");
        assert_eq!(store.followers().next(NAME, ROWS).unwrap(), None);
    }
}

/// A removed follower continues at its position for 7 days, and then begins again.
pub fn a_removed_follower_keeps_its_position_for_seven_days<T: Followed>() {
    let clock = Clock::at(T0);
    let mut store = T::open(&Rules::default(), &clock);
    let mut sender = Sender::new("n1", 1);
    for (days, is_kept) in [(0, true), (6, true), (8, false)] {
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let open = store.followers().next(NAME, ROWS).unwrap();
        store.followers().remove(NAME).unwrap();
        let is_unknown = |error| matches!(error, FollowError::Unknown(_));
        assert!(is_unknown(store.followers().next(NAME, ROWS).unwrap_err()));
        assert!(is_unknown(
            store.followers().confirm(NAME, open.map_or(1, |it| it.number)).unwrap_err()
        ));
        store_all(&store, [sender.batch(&series(days))]);
        clock.set(clock.now().0 + days * DAY);
        store = store.reopen();
        store.maintain();
        assert_eq!(store.followers().list().unwrap().len(), usize::from(is_kept), "{days}");
        store.followers().follow(NAME, FollowFrom::Now).unwrap();
        let want = if is_kept { in_order(&series(days)) } else { Vec::new() };
        assert_eq!(take_all(&store).in_order(), want, "{days}");
    }
}

/// There is a limit of followers, and of their names. Each has its own position.
pub fn followers_are_bounded_and_independent<T: Followed>() {
    let store: T = open();
    for number in 0..FOLLOWERS_MAX {
        store.followers().follow(&format!("f{number}"), FollowFrom::Now).unwrap();
    }
    let more = store.followers().follow("more", FollowFrom::Now);
    assert!(matches!(more, Err(FollowError::TooMany)), "{more:?}");
    for name in ["", "a\nb", &"x".repeat(1000)] {
        let odd = store.followers().follow(name, FollowFrom::Now);
        assert!(matches!(odd, Err(FollowError::Name(_))), "{odd:?}");
    }
    let mut sender = Sender::new("n1", 1);
    let ticks = 0..i64::try_from(FOLLOWERS_MAX).unwrap();
    store_all(&store, ticks.map(|second| sender.batch(&series(second))));
    let mut each = vec![Received::default(); FOLLOWERS_MAX];
    for (number, received) in each.iter_mut().enumerate() {
        (0..number).for_each(|_| {
            received.take(store.followers(), &format!("f{number}"), ROWS);
        });
    }
    store.maintain();
    let info = store.followers().list().unwrap();
    for (number, received) in each.iter_mut().enumerate() {
        let name = format!("f{number}");
        let behind = info.iter().find(|info| *info.name == *name).unwrap().behind;
        assert_eq!(behind + received.samples.len() as u64, 3 * FOLLOWERS_MAX as u64, "{name}");
        received.take_all(store.followers(), &name, ROWS);
        assert_eq!(received.in_order(), all(&store), "{name}");
    }
    assert_eq!(store.gaps(Timestamp(T0), Timestamp(T0), Some(&device("n1"))), []);
}
