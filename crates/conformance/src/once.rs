//! A batch is kept once, however often it is sent (decisions 0006 and 0011).

use crate::sender::{S, Sender, Spec, T0, device, in_order, spec};
use crate::stages::{all, at_every_stage, open, put, put_at, store_all};
use crate::subject::{Clock, Outcome, Rules, Subject};
use model::{Cause, Timestamp};

const DAY: i64 = 86_400 * S;

fn load(at: i64) -> Vec<(Spec, i64, f64)> {
    vec![(spec("n1", "load_1m"), at, at as f64 / S as f64)]
}

/// (origin, boot, seq) names a batch for ever: sent again it is acknowledged and changes nothing, within
/// one call, in another, and after a restart.
pub fn a_batch_is_kept_once<T: Subject>() {
    let store: T = open();
    let batch = Sender::new("n1", 1).batch(&load(T0));
    let twice = vec![(batch.clone(), Timestamp(T0)), (batch.clone(), Timestamp(T0))];
    assert_eq!(store.append(twice), [Outcome::STORED, Outcome::Duplicate]);
    at_every_stage(store, |store, stage| {
        assert_eq!(put(store, batch.clone()), Outcome::Duplicate, "{stage}");
        assert_eq!(all(store), in_order(&load(T0)), "{stage}");
    });
}

/// Batches of a spool come late, beside live ones: only the number counts, not what came before it.
pub fn batches_come_in_any_order<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let batches: Vec<_> = (0..40).map(|tick| sender.batch(&load(T0 + tick * S))).collect();
    for place in (0..40).map(|n| n * 27 % 40) {
        assert_eq!(put(&store, batches[place].clone()), Outcome::STORED);
        if place % 10 == 0 {
            store.keep_house();
        }
    }
    let want: Vec<_> = (0..40).flat_map(|tick| load(T0 + tick * S)).collect();
    at_every_stage(store, |store, stage| {
        for batch in &batches {
            assert_eq!(put(store, batch.clone()), Outcome::Duplicate, "{stage}");
        }
        assert_eq!(all(store), in_order(&want), "{stage}");
    });
}

/// The same number of another start, or of another sender, is another batch.
pub fn boots_and_origins_number_their_batches_apart<T: Subject>() {
    let store: T = open();
    let senders = [("n1", 1), ("n1", 2), ("n2", 1)];
    let batches = senders.iter().zip(0..).map(|((origin, boot), tick)| {
        let batch = Sender::new(origin, *boot).batch(&load(T0 + tick * S));
        assert_eq!(batch.seq, 0);
        batch
    });
    store_all(&store, batches);
    at_every_stage(store, |store, stage| assert_eq!(all(store).len(), 3, "{stage}"));
}

/// A batch is known by its name, not by its time: a node whose clock goes back an hour is heard, and so is
/// one that tells the same instants again.
pub fn a_clock_that_is_wrong_makes_no_duplicate<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let instants = [T0, T0 - 3600 * S, T0];
    store_all(&store, instants.map(|at| sender.batch(&load(at))));
    at_every_stage(store, |store, stage| assert_eq!(all(store).len(), 3, "{stage}"));
}

/// Two batches that tell a value of one series and instant are both facts; the one that came last is the
/// last one.
pub fn two_values_of_one_instant_are_both_kept<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let two = [1.5, 0.5].map(|value| (spec("n1", "load_1m"), T0, value));
    store_all(&store, [sender.batch(&two[..1]), sender.batch(&two[1..])]);
    at_every_stage(store, |store, stage| assert_eq!(all(store), in_order(&two), "{stage}"));
}

/// A boot that was silent for longer than any sender keeps batches leaves the window: nobody knows any
/// more which of its numbers were stored. Up to the highest of them everything is refused for good and
/// becomes a gap, never a second copy; above it nothing can be a duplicate, and is stored.
pub fn what_a_boot_sent_before_it_was_silent_for_long_is_too_late_and_what_is_new_is_taken<
    T: Subject,
>() {
    let clock = Clock::at(T0);
    let mut store = T::open(&Rules::default(), &clock);
    let mut sender = Sender::new("n1", 1);
    let known = sender.batch(&load(T0));
    let never_sent = sender.batch(&load(T0 + S));
    store_all(&store, [known.clone(), sender.batch(&load(T0 + 2 * S))]);
    let now = T0 + 9 * DAY;
    clock.set(now);
    store.keep_house();
    assert_eq!(put_at(&store, sender.batch(&load(now)), now), Outcome::STORED);
    for _ in 0..2 {
        for old in [&known, &never_sent] {
            let outcome = put_at(&store, old.clone(), now);
            assert!(matches!(outcome, Outcome::RefusedForGood(_)), "{outcome:?}");
        }
        store = store.reopen();
    }
    let gaps = store.gaps(Timestamp(T0), Timestamp(T0), Some(&device("n1")));
    assert!(gaps.iter().any(|gap| gap.cause == Cause::TooLate), "{gaps:?}");
    assert_eq!(put_at(&store, sender.batch(&load(now + S)), now + S), Outcome::STORED);
    at_every_stage(store, |store, stage| assert_eq!(all(store).len(), 4, "{stage}"));
}
