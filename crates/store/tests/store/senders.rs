//! Senders over years: returning out of order, coming and going by the thousand, and losses of the log.

use crate::kit::*;
use model::{Cause, Gap, Timestamp};
use std::path::Path;
use storage::{Incoming, Outcome, Storage as _};
use store::Store;

const DAY: i64 = 86_400 * S;

fn one(at: i64) -> Vec<(Spec, i64, f64)> {
    vec![(spec("n1", "load_1m"), at, 1.0)]
}

/// Waits until the store has checked for idle senders, once per minute of its clock.
fn maintained(store: &Store, done: impl Fn(&Store) -> bool) {
    for _ in 0..1000 {
        if done(store) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no check in 20 s");
}

#[test]
fn the_spool_of_an_earlier_boot_does_not_turn_the_clock_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let (mut earlier, mut now) = (Sender::new("n1", 1), Sender::new("n1", 2));
    let spooled = earlier.batch(&one(T0 + 100 * S));
    append(&store, vec![now.batch(&one(T0 + 5000 * S))]);
    append(&store, vec![Incoming { received: Timestamp(T0 + 5001 * S), ..spooled }]);
    assert_eq!(store.origins()[0].sealed.0, T0 + 5000 * S);
    append(&store, vec![now.batch(&one(T0 + 5002 * S))]);
    assert_eq!(store.origins()[0].sealed.0, T0 + 5002 * S);
    // A node with its clock set back to an earlier year counts once the previous boot is silent.
    let mut reset = Sender::new("n1", 3);
    for (seq, received) in [(0, 5003), (1, 9000), (2, 9001)] {
        let batch = reset.batch(&one(T0 + seq * S));
        append(&store, vec![Incoming { received: Timestamp(T0 + received * S), ..batch }]);
        let sealed = if seq == 0 { T0 + 5002 * S } else { T0 + seq * S };
        assert_eq!(store.origins()[0].sealed.0, sealed, "{seq}");
    }
}

/// A batch with one sample, and the gap of an agent that does not know since when it was down.
fn first_of_start(sender: &mut Sender, at: i64) -> Incoming {
    let down = Gap {
        origin: sender.origin.clone(),
        device: device("n1"),
        source: "".into(),
        from: Timestamp(S),
        to: Timestamp(at),
        cause: Cause::AgentDown,
        detail: "".into(),
    };
    sender.batch_with(&one(at), vec![down])
}

fn gaps(store: &Store) -> Vec<(i64, i64, Cause)> {
    let gaps = store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), Some(&device("n1")));
    gaps.iter().map(|gap| ((gap.from.0 - T0) / S, (gap.to.0 - T0) / S, gap.cause)).collect()
}

#[test]
fn a_gap_of_downtime_starts_at_the_last_sample_though_newer_ones_came_first() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    clock.set(T0 + 1000 * S);
    let (store, _) = Store::open(dir.path(), small(), clock.clock()).unwrap();
    let (mut before, mut now) = (Sender::new("n1", 1), Sender::new("n1", 2));
    append(&store, vec![before.batch(&one(T0))]);
    let (first, second) = (first_of_start(&mut now, T0 + 50 * S), now.batch(&one(T0 + 51 * S)));
    append(&store, vec![second]);
    append(&store, vec![first]);
    assert_eq!(gaps(&store), [(0, 50, Cause::AgentDown)]);
    // A third boot: its first batch has no sample, and arrives after a batch of gaps alone.
    let mut again = Sender::new("n1", 3);
    let (first, mut alone) = (first_of_start(&mut again, T0 + 90 * S), Sender::new("n1", 4));
    append(&store, vec![Incoming { received: Timestamp(T0 + 80 * S), ..alone.batch(&[]) }]);
    append(&store, vec![first]);
    assert_eq!(gaps(&store), [(0, 50, Cause::AgentDown), (51, 90, Cause::AgentDown)]);
}

/// An agent that was killed had written the watermark of its spool some ticks before.
#[test]
fn a_gap_of_downtime_has_no_sample_that_arrived() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    clock.set(T0 + 1000 * S);
    let (store, _) = Store::open(dir.path(), small(), clock.clock()).unwrap();
    let (mut before, mut now) = (Sender::new("n1", 1), Sender::new("n1", 2));
    for second in 0..5 {
        append(&store, vec![before.batch(&one(T0 + second * S))]);
    }
    let down = Gap {
        origin: now.origin.clone(),
        device: device("n1"),
        source: "".into(),
        from: Timestamp(T0 + 2 * S),
        to: Timestamp(T0 + 9 * S),
        cause: Cause::AgentDown,
        detail: "".into(),
    };
    append(&store, vec![now.batch_with(&one(T0 + 9 * S), vec![down])]);
    assert_eq!(gaps(&store), [(4, 9, Cause::AgentDown)]);
}

/// One device of a poller has instants of last month, another one those of tomorrow.
#[test]
fn a_gap_of_a_pollers_downtime_depends_on_its_polls_alone() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    clock.set(T0 + 1000 * S);
    let (store, _) = Store::open(dir.path(), small(), clock.clock()).unwrap();
    let group = "poller-a/group-0";
    let (mut before, mut now) = (Sender::new(group, 1), Sender::new(group, 2));
    let polled = |at| {
        let of = |device, metric, at| (spec(device, metric), at, 1.0);
        vec![
            of("old", "power", at - 30 * DAY),
            of("n1", "poll_success", at),
            of("ahead", "power", at + DAY / 2),
        ]
    };
    let at =
        |incoming: Incoming, second| Incoming { received: Timestamp(T0 + second * S), ..incoming };
    for second in 0..5 {
        append(&store, vec![at(before.batch(&polled(T0 + second * S)), second)]);
    }
    assert_eq!(store.origins()[0].sealed.0, T0 + 4 * S);
    let down = Gap {
        origin: now.origin.clone(),
        device: device("n1"),
        source: "".into(),
        from: Timestamp(T0 + 2 * S),
        to: Timestamp(T0 + 9 * S),
        cause: Cause::PollerDown,
        detail: "".into(),
    };
    append(&store, vec![at(now.batch_with(&polled(T0 + 9 * S), vec![down]), 9)]);
    assert_eq!(gaps(&store), [(4, 9, Cause::PollerDown)]);
}

#[test]
fn the_first_batches_of_a_boot_are_missing_since_the_previous_boot() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    clock.set(T0 + 1000 * S);
    let (store, _) = Store::open(dir.path(), small(), clock.clock()).unwrap();
    let (mut before, mut now) = (Sender::new("n1", 1), Sender::new("n1", 2));
    let (lost, second) = (first_of_start(&mut now, T0 + 50 * S), now.batch(&one(T0 + 51 * S)));
    // An agent reaches a new server in the middle of its numbers, and nothing is missing.
    append(&store, vec![second]);
    assert_eq!(gaps(&store), []);
    append(&store, vec![before.batch(&one(T0))]);
    assert_eq!(gaps(&store), [(0, 51, Cause::BatchesLost)]);
    append(&store, vec![lost]);
    assert_eq!(gaps(&store), [(0, 50, Cause::AgentDown)]);
}

#[test]
fn ended_runs_free_their_quota() {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let settings = limited(|limits| limits.origins_max = 50);
    let (store, _) = Store::open(dir.path(), settings, clock.clock()).unwrap();
    let mut agent = Sender::new("n1", 1);
    assert_eq!(append(&store, vec![agent.batch(&one(T0))]), [STORED]);
    // Runs have a quarter of the origins.
    for id in 1..=13 {
        let mut run = Sender::new(&format!("n1/run-{id}"), 1);
        assert_eq!(append(&store, vec![run.batch(&one(T0))]), [STORED]);
    }
    let mut new = Sender::new("n1/run-14", 9);
    let batch = new.batch(&[(spec("n2", "load_1m"), T0 + DAY, 1.0)]);
    let full = append(&store, vec![batch.clone()]);
    assert!(matches!(&full[..], [Outcome::RejectedTemporarily(_)]), "{full:?}");
    let of_agent = Sender::new("n3", 1).batch(&[(spec("n3", "load_1m"), T0, 1.0)]);
    assert_eq!(append(&store, vec![of_agent]), [STORED], "agents have the rest");
    clock.set(T0 + DAY);
    maintained(&store, |store| store.origins().len() == 2);
    assert_eq!(append(&store, vec![batch]), [STORED]);
    // Another origin has the number of a run, and its series are its own.
    assert_eq!(store.claims(), []);
    assert_eq!(append(&store, vec![agent.batch(&one(T0 + DAY))]), [STORED]);
    assert_eq!(all(&store).len(), 17);
    assert_eq!(store.claims(), []);
}

/// Flips a bit of a record's payload; returns the gaps reported after the next start.
fn damaged(hit: usize, boots: &[u8]) -> (usize, Vec<Gap>) {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let path = |dir: &Path| dir.join("log/0000000000000001.log");
    let mut ends = vec![16];
    {
        let (store, _) = Store::open(dir.path(), small(), clock.clock()).unwrap();
        let mut senders: Vec<Sender> = boots.iter().map(|boot| Sender::new("n1", *boot)).collect();
        for (at, place) in (0..boots.len()).enumerate() {
            let same = boots.iter().position(|boot| *boot == boots[place]).unwrap();
            let batch = senders[same].batch(&one(T0 + at as i64 * S));
            assert_eq!(append(&store, vec![batch]), [STORED]);
            ends.push(std::fs::metadata(path(dir.path())).unwrap().len());
        }
    }
    let mut bytes = std::fs::read(path(dir.path())).unwrap();
    bytes[usize::try_from(ends[hit]).unwrap() + 40] ^= 1;
    std::fs::write(path(dir.path()), bytes).unwrap();
    clock.set(T0 + 600 * S);
    let (store, recovery) = Store::open(dir.path(), small(), clock.clock()).unwrap();
    assert_eq!((recovery.damaged.len(), &*recovery.cut), (1, &[][..]));
    let all_time = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let of_device = store.gaps(all_time.0, all_time.1, Some(&device("n1")));
    let gaps = store.gaps(all_time.0, all_time.1, None);
    assert_eq!(of_device.len(), gaps.len());
    assert!(gaps.iter().all(|gap| gap.cause == Cause::LogDamaged), "{gaps:?}");
    (all(&store).len(), gaps)
}

#[test]
fn a_damaged_record_is_a_gap_at_any_position() {
    // In the middle of a boot, and its first record: the origin is known.
    for hit in [1, 0] {
        let (rows, gaps) = damaged(hit, &[1, 1, 1]);
        assert_eq!((rows, gaps.len()), (2, 1), "{hit}");
        assert_eq!((gaps[0].origin.as_str(), &*gaps[0].detail), ("n1", "1 batches"), "{hit}");
    }
    // The last record, and the only one of its boot: the origin is unknown.
    for (hit, boots) in [(2, [1, 1, 1]), (1, [1, 2, 1]), (0, [2, 1, 1])] {
        let (rows, gaps) = damaged(hit, &boots);
        assert_eq!((rows, gaps.len()), (2, 1), "{hit}");
        assert_eq!(gaps[0].origin.as_str(), "log", "{hit}: {gaps:?}");
        assert!(gaps[0].to.0 >= T0 + hit as i64 * S, "{hit}: {gaps:?}");
    }
}
