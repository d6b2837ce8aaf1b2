//! Checks that a batch is stored once, however often it is sent (decisions 0006 and 0011).

use crate::sender::{S, Sender, Spec, T0, device, in_order, spec};
use crate::stages::{all, at_every_stage, open, put, put_at, store_all};
use crate::subject::{Clock, Outcome, Rules, Subject};
use model::{Cause, Timestamp};

const DAY: i64 = 86_400 * S;

fn load(at: i64) -> Vec<(Spec, i64, f64)> {
    vec![(spec("n1", "load_1m"), at, at as f64 / S as f64)]
}

/// (origin, boot, seq) identifies a batch for ever: a duplicate is acknowledged and changes nothing, within
/// one call, in another, and after a restart.
pub fn a_batch_is_stored_once<T: Subject>() {
    let store: T = open();
    let batch = Sender::new("n1", 1).batch(&load(T0));
    let twice = vec![(batch.clone(), Timestamp(T0)), (batch.clone(), Timestamp(T0))];
    assert_eq!(store.append(twice), [Outcome::STORED, Outcome::Duplicate]);
    at_every_stage(store, |store, stage| {
        assert_eq!(put(store, batch.clone()), Outcome::Duplicate, "{stage}");
        assert_eq!(all(store), in_order(&load(T0)), "{stage}");
    });
}

/// Batches of a spool arrive late, beside live ones: only the number counts, not the order.
pub fn batches_arrive_in_any_order<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let batches: Vec<_> = (0..40).map(|tick| sender.batch(&load(T0 + tick * S))).collect();
    for place in (0..40).map(|n| n * 27 % 40) {
        assert_eq!(put(&store, batches[place].clone()), Outcome::STORED);
        if place % 10 == 0 {
            store.maintain();
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

/// The same number of another boot, or of another sender, is another batch.
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

/// A batch is identified by its number, not by its time: samples of a node with its clock set back an hour
/// are accepted, as are repeated instants.
pub fn a_wrong_clock_makes_no_duplicate<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let instants = [T0, T0 - 3600 * S, T0];
    store_all(&store, instants.map(|at| sender.batch(&load(at))));
    at_every_stage(store, |store, stage| assert_eq!(all(store).len(), 3, "{stage}"));
}

/// Two batches with a value of one series and instant are both kept; the one that arrived last is the last one.
pub fn two_values_of_one_instant_are_both_kept<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let two = [1.5, 0.5].map(|value| (spec("n1", "load_1m"), T0, value));
    store_all(&store, [sender.batch(&two[..1]), sender.batch(&two[1..])]);
    at_every_stage(store, |store, stage| assert_eq!(all(store), in_order(&two), "{stage}"));
}

/// A boot that was idle for longer than any sender keeps batches leaves the window: it is then unknown which
/// of its numbers were stored.
/// Batches up to its highest number are rejected permanently and become a gap, never a second copy; later
/// ones cannot be duplicates, and are stored.
pub fn old_batches_of_an_idle_boot_are_rejected_and_new_ones_stored<T: Subject>() {
    let clock = Clock::at(T0);
    let mut store = T::open(&Rules::default(), &clock);
    let mut sender = Sender::new("n1", 1);
    let known = sender.batch(&load(T0));
    let never_sent = sender.batch(&load(T0 + S));
    store_all(&store, [known.clone(), sender.batch(&load(T0 + 2 * S))]);
    let now = T0 + 9 * DAY;
    clock.set(now);
    store.maintain();
    assert_eq!(put_at(&store, sender.batch(&load(now)), now), Outcome::STORED);
    for _ in 0..2 {
        for old in [&known, &never_sent] {
            let outcome = put_at(&store, old.clone(), now);
            assert!(matches!(outcome, Outcome::RejectedPermanently(_)), "{outcome:?}");
        }
        store = store.reopen();
    }
    let gaps = store.gaps(Timestamp(T0), Timestamp(T0), Some(&device("n1")));
    assert!(gaps.iter().any(|gap| gap.cause == Cause::TooLate), "{gaps:?}");
    assert_eq!(put_at(&store, sender.batch(&load(now + S)), now + S), Outcome::STORED);
    at_every_stage(store, |store, stage| assert_eq!(all(store).len(), 4, "{stage}"));
}
