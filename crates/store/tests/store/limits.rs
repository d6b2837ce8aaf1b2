//! Every limit is reached and reported.

use crate::kit::*;
use model::{Cause, Timestamp};
use std::sync::mpsc::sync_channel;
use storage::{DeferReason, Outcome, Storage as _};
use store::{Settings, Store};

#[test]
fn a_server_with_lower_limits_keeps_acknowledged_samples() {
    let dir = tempfile::tempdir().unwrap();
    let settings = limited(|limits| limits.series_max = 3);
    let load = |metric| (spec("n1", metric), T0, 1.0);
    let batch = Sender::new("n1", 1).batch(&["a", "b", "c", "d"].map(load));
    let (store, _) = open(dir.path(), settings.clone());
    let outcome = append(&store, vec![batch]);
    assert!(matches!(outcome[..], [Outcome::Stored { samples_rejected: 1, .. }]), "{outcome:?}");
    assert_eq!((store.stats().samples_rejected, store.stats().series), (1, 3));
    store.flush().unwrap();
    let more = Sender::new("n1", 2).batch(&["a", "b", "c"].map(load));
    assert_eq!(append(&store, vec![more]), [STORED]);
    drop(store);
    let (store, _) = open(dir.path(), limited(|limits| limits.series_max = 1));
    assert_eq!(all(&store).len(), 6, "from a block and from the log");
}

#[test]
fn a_rejected_sample_does_not_return_at_replay() {
    let dir = tempfile::tempdir().unwrap();
    let settings = limited(|limits| limits.series_max = 2);
    let sample = |metric, tick: i64| (spec("n1", metric), T0 + tick * S, 1.0);
    let mut sender = Sender::new("n1", 1);
    let before = {
        let (store, _) = open(dir.path(), settings.clone());
        for tick in 0..3 {
            let batch = sender.batch(&["a", "b", "c", "d"].map(|metric| sample(metric, tick)));
            let outcome = append(&store, vec![batch]);
            assert!(matches!(outcome[..], [Outcome::Stored { samples_rejected: 2, .. }]));
        }
        (all(&store), store.gaps(Timestamp(T0 - S), Timestamp(T0 + 9 * S), None))
    };
    assert_eq!((before.0.len(), before.1.len()), (6, 2), "a gap for each source");
    // Replayed from the log, by a server with higher limits and by one with the same.
    for series_max in [100, 2] {
        let settings = limited(|limits| limits.series_max = series_max);
        let (store, _) = open(dir.path(), settings);
        let gaps = store.gaps(Timestamp(T0 - S), Timestamp(T0 + 9 * S), None);
        assert_eq!((all(&store), gaps), before, "{series_max}");
    }
    // Samples within the limits later are stored, and stay.
    let (store, _) = open(dir.path(), limited(|limits| limits.series_max = 100));
    assert_eq!(append(&store, vec![sender.batch(&[sample("d", 5)])]), [STORED]);
    drop(store);
    let (store, _) = open(dir.path(), settings);
    assert_eq!(all(&store).len(), 7);
}

#[test]
fn inserted_rows_are_stored_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let settings = limited(|limits| {
        limits.metrics_max = 3;
        limits.series_per_inserting_user_max = 1;
    });
    let mut push = Sender::new("push/rows", 1);
    let samples = |metrics: &[&'static str]| -> Vec<_> {
        metrics.iter().map(|metric| (spec("d", metric), T0 + S, 1.0)).collect()
    };
    let stored = {
        let (store, _) = open(dir.path(), settings.clone());
        let four = append(&store, vec![push.batch(&samples(&["a", "b", "c", "d"]))]);
        let is_limit = |why: &str| why.contains("3 metrics");
        assert!(
            matches!(&four[..], [Outcome::RejectedWhole { place: 3, why }] if is_limit(why)),
            "{four:?}"
        );
        assert_eq!((all(&store).len(), store.catalogue().len(), store.stats().series), (0, 0, 0));
        let ancient = [(spec("d", "a"), T0 + S, 1.0), (spec("d", "b"), 0, 1.0)];
        let ancient = append(&store, vec![push.batch(&ancient)]);
        assert!(matches!(ancient[..], [Outcome::RejectedWhole { place: 1, .. }]), "{ancient:?}");
        assert_eq!(append(&store, vec![push.batch(&samples(&["a", "b"]))]), [STORED]);
        // The series of one user are few, as they appear in the lists of a node.
        let two = [(spec("d", "u"), T0 + S, 1.0), (spec("e", "u"), T0 + S, 1.0)];
        let two = append(&store, vec![Sender::new("user-7/rows", 1).batch(&two)]);
        assert!(matches!(two[..], [Outcome::RejectedWhole { place: 1, .. }]), "{two:?}");
        all(&store)
    };
    assert_eq!(stored.len(), 2);
    let (store, _) = open(dir.path(), settings);
    assert!(all(&store) == stored, "the log has what is acknowledged");
}

#[test]
fn a_boot_outside_the_window_is_rejected_and_becomes_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let settings = limited(|limits| limits.boots_max = 2);
    let load = |tick: i64| [(spec("n1", "a"), T0 + tick * S, 1.0)];
    let mut boots: Vec<Sender> = (1..=3).map(|boot| Sender::new("n1", boot)).collect();
    {
        let (store, _) = open(dir.path(), settings.clone());
        let first = boots[0].batch(&load(9));
        assert_eq!(append(&store, vec![first.clone()]), [STORED]);
        for (tick, boot) in (1..).zip(&mut boots[1..]) {
            assert_eq!(append(&store, vec![boot.batch(&load(tick))]), [STORED]);
        }
        let outcome = append(&store, vec![first]);
        assert!(
            matches!(&outcome[..], [Outcome::RejectedPermanently(why)] if why.contains("deduplication window")),
            "{outcome:?}"
        );
    }
    for _ in 0..2 {
        let (store, _) = open(dir.path(), settings.clone());
        let gaps = store.gaps(Timestamp(T0 + 9 * S), Timestamp(T0 + 9 * S), Some(&device("n1")));
        assert_eq!(gaps.iter().map(|gap| gap.cause).collect::<Vec<_>>(), [Cause::TooLate]);
        assert_eq!(all(&store).len(), 3);
        store.flush().unwrap();
    }
}

#[test]
fn a_full_queue_rejects_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { queue_batches_max: 4, ..small() };
    let (store, _) = open(dir.path(), settings);
    let mut sender = Sender::new("n1", 1);
    let mut batch = |tick: i64| sender.batch(&[(spec("n1", "a"), T0 + tick * S, 1.0)]);
    // A `done` blocks the log's writer, so that the queue fills.
    let (go, wait) = sync_channel::<()>(0);
    store.append(vec![batch(0)], move |_| wait.recv().unwrap());
    let (to, outcomes) = sync_channel(64);
    for tick in 1..20 {
        let to = to.clone();
        store.append(vec![batch(tick)], move |outcome| to.send(outcome).unwrap());
    }
    let first = outcomes.recv().unwrap();
    assert_eq!(first, [Outcome::RejectedTemporarily(DeferReason::QueueFull)]);
    go.send(()).unwrap();
    drop(to);
    let rest: Vec<_> = outcomes.iter().flatten().collect();
    let stored = rest.iter().filter(|outcome| **outcome == STORED).count();
    // The first batch may still be in the queue of four when the others arrive.
    assert!((3..19).contains(&stored), "{stored}");
    assert_eq!(store.stats().batches_deferred, 19 - stored as u64);
    assert_eq!(all(&store).len(), stored + 1);
}

#[test]
fn too_many_origins_are_deferred() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), limited(|limits| limits.origins_max = 1));
    let sample = [(spec("n1", "a"), T0, 1.0)];
    assert_eq!(append(&store, vec![Sender::new("n1", 1).batch(&sample)]), [STORED]);
    let outcome = append(&store, vec![Sender::new("n2", 1).batch(&sample)]);
    assert_eq!(outcome, [Outcome::RejectedTemporarily(DeferReason::Origins(1))]);
}

#[test]
fn a_block_is_written_for_many_or_old_samples() {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let settings = Settings { head_samples_max: 10, head_age_us: 50 * S, ..small() };
    let (store, _) = Store::open(dir.path(), settings, clock.clock()).unwrap();
    let mut sender = Sender::new("n1", 1);
    let mut send = |ticks: std::ops::Range<i64>| {
        let samples: Vec<_> = ticks.map(|tick| (spec("n1", "a"), T0 + tick * S, 1.0)).collect();
        assert_eq!(append(&store, vec![sender.batch(&samples)]), [STORED]);
    };
    let blocks = |want: u64| {
        for _ in 0..400 {
            if store.stats().blocks == want {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{:?}", store.stats());
    };
    send(0..10);
    blocks(1);
    send(10..12);
    assert_eq!(store.stats().blocks, 1);
    clock.set(T0 + 100 * S);
    blocks(2);
    assert_eq!(all(&store).len(), 12);
}

#[test]
fn a_block_is_begun_for_samples_and_not_for_tables_that_remain_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (head_samples_max, head_age_us) = (u64::MAX, i64::MAX);
    let settings = Settings { head_bytes_max: 128 << 10, head_samples_max, head_age_us, ..small() };
    let (store, _) = open(dir.path(), settings);
    // The table of a thousand series has more bytes than a sample of each.
    let sample = |cpu| (Spec { cpu: Some(cpu), ..spec("n1", "mhz") }, T0, 1.0);
    let many = Sender::new("n1", 1).batch(&Vec::from_iter((0..1000).map(sample)));
    let one = Sender::new("n2", 1).batch(&[(spec("n2", "a"), T0, 1.0)]);
    for batch in [many, one] {
        assert_eq!(append(&store, vec![batch]), [STORED]);
    }
    store.flush().unwrap();
    assert_eq!((store.stats().blocks, store.stats().block_samples), (1, 1001));
}

#[test]
fn the_block_writer_yields_to_ingest() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let batch = Sender::new("n1", 1).batch(&[(spec("n1", "a"), T0, 1.0)]);
    assert_eq!(append(&store, vec![batch]), [STORED]);
    store.flush().unwrap();
    let nice = |stat: &str| -> i32 {
        stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()
    };
    let own = nice(&std::fs::read_to_string("/proc/thread-self/stat").unwrap());
    let of_threads = |name: &str| -> Vec<i32> {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let read = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
        let stats = threads.filter_map(|task| read(task.ok()?));
        stats.filter(|stat| stat.contains(&format!("({name})"))).map(|stat| nice(&stat)).collect()
    };
    let (block, log) = (of_threads("store-block"), of_threads("store-log"));
    assert!(block.contains(&(own + 5).min(19)), "{block:?}");
    assert!(log.iter().all(|nice| *nice == own), "{log:?}");
}
