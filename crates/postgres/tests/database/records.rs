//! Records of senders and series: what is deleted of them, and what remains after a failure.

use crate::rows::query;
use crate::server::{Direct, database, execute};
use conformance::{Clock, Outcome, S, Sender, Spec, T0, of_storage, spec};
use model::{Cause, DeviceId, Gap, Origin, Timestamp};
use postgres::{PostgresStore, Settings};
use senders::Limits;
use std::sync::Arc;
use storage::{Selector, Storage};
use tokio_postgres::Config;

const HOUR: i64 = 3600 * S;
const DAY: i64 = 24 * HOUR;
const ALL: (Timestamp, Timestamp) = (Timestamp(i64::MIN), Timestamp(i64::MAX));

fn open(database: &Config, settings: &Settings, clock: &Clock) -> PostgresStore {
    let clock = clock.clone();
    let now = Arc::new(move || clock.now());
    PostgresStore::open(Arc::new(Direct(database.clone())), settings.clone(), now).unwrap()
}

fn settings() -> Settings {
    Settings { background_maintenance: false, ..Settings::default() }
}

fn put(store: &PostgresStore, sender: &mut Sender, samples: &[(Spec, i64, f64)]) {
    let received = Timestamp(samples.iter().map(|(_, at, _)| *at).max().unwrap());
    let outcomes = of_storage::append(store, vec![(sender.batch(samples), received)]);
    assert_eq!(outcomes, [Outcome::STORED]);
}

#[test]
fn evicted_gaps_leave_the_database() {
    let (database, clock) = (database(), Clock::at(T0));
    let senders = Limits { gaps_max: 100, gaps_per_origin_max: 50, ..Limits::default() };
    let settings = Settings { senders, ..settings() };
    let store = open(&database, &settings, &clock);
    let mut sender = Sender::new("n1", 1);
    let gap = |number: i64| Gap {
        origin: Origin::new("n1").unwrap(),
        device: DeviceId::new("n1").unwrap(),
        source: "cpu".into(),
        from: Timestamp(T0 + number * 10 * S),
        to: Timestamp(T0 + number * 10 * S + S),
        cause: Cause::SourceTimeout,
        detail: "".into(),
    };
    for ten in 0..130 {
        let gaps = (0..10).map(|number| gap(ten * 10 + number)).collect();
        let batch = sender.batch_with(&[(spec("n1", "load_1m"), T0 + ten * S, 1.0)], gaps);
        of_storage::append(&store, vec![(batch, Timestamp(T0 + HOUR))]);
    }
    let count = || query(&database, "SELECT count(*) FROM jobmeter.gaps");
    assert_eq!((count(), store.stats().gaps), (vec!["1300".to_owned()], 50));
    let gaps = store.gaps(ALL.0, ALL.1, None);
    clock.set(T0 + 2 * 60 * S);
    store.flush().unwrap();
    assert_eq!((count(), store.gaps(ALL.0, ALL.1, None)), (vec!["50".to_owned()], gaps.clone()));
    drop(store);
    let store = open(&database, &settings, &clock);
    assert_eq!(store.gaps(ALL.0, ALL.1, None), gaps);
    // New ones have later numbers.
    let batch = sender.batch_with(&[(spec("n1", "load_1m"), T0 + 200 * S, 1.0)], vec![gap(5000)]);
    of_storage::append(&store, vec![(batch, Timestamp(T0 + HOUR))]);
    assert_eq!(query(&database, "SELECT max(id) FROM jobmeter.gaps"), ["1350"]);
}

#[test]
fn ended_runs_leave_the_database() {
    let (database, clock) = (database(), Clock::at(T0));
    let store = open(&database, &settings(), &clock);
    put(&store, &mut Sender::new("n1/run-7", 1), &[(spec("n1", "app_rate"), T0, 1.0)]);
    put(&store, &mut Sender::new("n1", 1), &[(spec("n1", "load_1m"), T0, 1.0)]);
    let names = || query(&database, "SELECT name FROM jobmeter.origins ORDER BY name");
    assert_eq!(names(), ["n1", "n1/run-7"]);
    clock.set(T0 + 3 * HOUR);
    store.flush().unwrap();
    assert_eq!(names(), ["n1"]);
    assert_eq!(store.origins().len(), 1);
    // An agent is forgotten at a start.
    drop(store);
    clock.set(T0 + 91 * DAY);
    let store = open(&database, &settings(), &clock);
    clock.set(T0 + 92 * DAY);
    store.flush().unwrap();
    assert!(names().is_empty());
}

#[test]
fn acknowledged_batches_are_in_the_file_of_a_backup_after_seconds() {
    let (database, clock) = (database(), Clock::at(T0));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acknowledged.json");
    let settings = Settings { acknowledged: Some(path.clone()), ..settings() };
    let store = open(&database, &settings, &clock);
    // The file follows the checkpoint that `flush` waits for.
    let is_recorded = || std::fs::read_to_string(&path).is_ok_and(|text| text.contains("n1"));
    let within = |seconds: u64, is_so: &dyn Fn() -> bool| {
        (0..seconds * 50).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            is_so()
        })
    };
    put(&store, &mut Sender::new("n1", 1), &[(spec("n1", "load_1m"), T0, 1.0)]);
    clock.set(T0 + 5 * S);
    store.flush().unwrap();
    assert!(within(20, &is_recorded));
    // Without new batches it is not written again.
    std::fs::write(&path, "unchanged").unwrap();
    clock.set(T0 + 20 * S);
    store.flush().unwrap();
    assert!(!within(3, &is_recorded));
}

#[test]
fn series_without_samples_and_rollups_are_forgotten_and_may_come_back() {
    let (database, clock) = (database(), Clock::at(T0));
    let settings = Settings {
        settle_after_us: HOUR,
        settle_step_us: HOUR,
        keep_samples_us: DAY,
        keep_rollups_us: [2 * DAY, 3 * DAY],
        ..settings()
    };
    let store = open(&database, &settings, &clock);
    execute(&database, "UPDATE jobmeter.state SET chunk_interval_hour = 1");
    let mut sender = Sender::new("n1", 1);
    let old = Spec { start: Some(T0), ..spec("n1", "a_total") };
    let other = spec("n1", "load_1m");
    put(&store, &mut sender, &[(old.clone(), T0, 5.0), (other.clone(), T0, 1.0)]);
    let ids = || query(&database, "SELECT metric_id || ' ' || id FROM jobmeter.series ORDER BY id");
    let listed = |store: &PostgresStore| {
        store.snapshot().series(&Selector::default(), ALL.0, ALL.1).unwrap().len()
    };
    for day in 1..=5 {
        clock.set(T0 + day * DAY);
        put(&store, &mut sender, &[(other.clone(), T0 + day * DAY, 1.0)]);
        store.maintain().unwrap();
        // Its rollups of an hour are kept for three days, and their partition has two days.
        assert_eq!(listed(&store), if day > 4 { 1 } else { 2 }, "day {day}");
    }
    assert_eq!(ids(), ["load_1m 1"]);
    assert_eq!(query(&database, "SELECT count(*) FROM jobmeter.starts"), ["0"]);
    put(&store, &mut sender, &[(old, T0 + 5 * DAY, 7.0)]);
    assert_eq!(ids(), ["load_1m 1", "a_total 2"]);
    let at = T0 + 5 * DAY;
    let check = |store: &PostgresStore| {
        let windows = of_storage::windows(store, &conformance::Query::default(), HOUR);
        let found: Vec<_> = windows.iter().filter(|one| &*one.series.metric == "a_total").collect();
        assert_eq!((found.len(), found[0].start.0, found[0].rollup.last.value), (1, at, 7.0));
        assert_eq!(store.snapshot().last(&Selector::default()).len(), 2);
    };
    check(&store);
    drop(store);
    check(&open(&database, &settings, &clock));
}

#[test]
fn live_series_are_counted_after_the_connection_was_lost() {
    let (database, clock) = (database(), Clock::at(T0));
    let store = open(&database, &settings(), &clock);
    let (mut first, mut second) = (Sender::new("n1", 1), Sender::new("n2", 1));
    put(&store, &mut first, &[(spec("n1", "load_1m"), T0, 1.0), (spec("n1", "up"), T0, 1.0)]);
    put(&store, &mut second, &[(spec("n2", "load_1m"), T0, 1.0)]);
    assert_eq!(store.stats().series, 3);
    execute(
        &database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    let batch = second.batch(&[(spec("n2", "load_1m"), T0 + S, 1.0)]);
    let mut outcome = Vec::new();
    for second in 1..20 {
        clock.set(T0 + second * 2 * S);
        outcome = of_storage::append(&store, vec![(batch.clone(), Timestamp(T0 + S))]);
        if outcome == [Outcome::STORED] {
            break;
        }
    }
    assert_eq!((outcome, store.stats().series), (vec![Outcome::STORED], 3));
    assert_eq!(store.origins().iter().map(|origin| origin.samples).collect::<Vec<_>>(), [2, 2]);
    put(&store, &mut first, &[(spec("n1", "load_1m"), T0 + 2 * S, 1.0)]);
}

#[test]
fn stored_batch_numbers_are_rows_that_change_with_their_samples() {
    let (database, clock) = (database(), Clock::at(T0));
    let mut store = open(&database, &settings(), &clock);
    let rows = || {
        let text = "SELECT first_seq || '-' || last_seq FROM jobmeter.spans WHERE origin = 'n1' ORDER BY first_seq";
        query(&database, text)
    };
    let mut sender = Sender::new("n1", 1);
    let mut batch = |seq: u64| {
        sender.seq = seq;
        sender.batch(&[(spec("n1", "load_1m"), T0 + i64::try_from(seq % 100).unwrap() * S, 1.0)])
    };
    let top = u64::MAX - 1;
    let steps: [(&[u64], &[&str]); 4] = [
        (&[0, 1, 4], &["0-1", "4-4"]),
        (&[6, top - 1], &["0-1", "4-4", "6-6", "18446744073709551613-18446744073709551613"]),
        (&[3, 2], &["0-4", "6-6", "18446744073709551613-18446744073709551613"]),
        (&[5, top], &["0-6", "18446744073709551613-18446744073709551614"]),
    ];
    let mut stored = Vec::new();
    for (seqs, want) in steps {
        for seq in seqs {
            let sent = vec![(batch(*seq), Timestamp(T0 + 200 * S))];
            stored.extend(sent.clone());
            assert_eq!(of_storage::append(&store, sent), [Outcome::STORED]);
        }
        assert_eq!(rows(), want);
        let infos = store.origins();
        drop(store);
        store = open(&database, &settings(), &clock);
        assert_eq!(store.origins(), infos);
        let again = of_storage::append(&store, stored.clone());
        assert!(again.iter().all(|outcome| *outcome == Outcome::Duplicate), "{again:?}");
    }
    // The boot leaves the window.
    put(&store, &mut Sender::new("n2", 2), &[(spec("n2", "load_1m"), T0, 1.0)]);
    clock.set(T0 + 9 * DAY);
    store.flush().unwrap();
    assert!(rows().is_empty());
    let late = of_storage::append(&store, vec![stored[0].clone()]);
    assert!(matches!(&late[..], [Outcome::RejectedPermanently(_)]), "{late:?}");
}

/// The time of each gap, in seconds after `T0`, with its detail.
fn gaps(store: &PostgresStore) -> Vec<(f64, f64, String)> {
    let seconds = |at: Timestamp| (at.0 - T0) as f64 / S as f64;
    let gaps = store.gaps(ALL.0, ALL.1, None);
    gaps.iter().map(|gap| (seconds(gap.from), seconds(gap.to), gap.detail.to_string())).collect()
}

#[test]
fn acknowledged_rows_of_earlier_times_are_gaps_at_their_time_after_a_restoration() {
    let (database, clock) = (database(), Clock::at(T0));
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = Some(dir.path().join("acknowledged.json"));
    let settings = Settings { acknowledged, ..settings() };
    let mut sender = Sender::new("push/rows", 1);
    let row = |at: i64| (spec("hist", "load_1m"), at, 1.0);
    let append = |store: &PostgresStore, sender: &mut Sender, rows: &[(Spec, i64, f64)]| {
        let outcomes = of_storage::append(store, vec![(sender.batch(rows), clock.now())]);
        assert_eq!(outcomes, [Outcome::STORED]);
    };
    let store = open(&database, &settings, &clock);
    append(&store, &mut sender, &[row(T0 - 10 * S), row(T0)]);
    drop(store);
    // As a dump and its restoration.
    let (from, to) =
        (database.get_dbname().unwrap(), format!("{}_dump", database.get_dbname().unwrap()));
    let mut dump = database.clone();
    dump.dbname("postgres");
    execute(&dump, &format!("CREATE DATABASE {to} TEMPLATE {from}"));
    dump.dbname(&to);
    clock.set(T0 + 10 * S);
    let store = open(&database, &settings, &clock);
    append(&store, &mut sender, &[row(T0 - DAY), row(T0 - DAY + 9 * S)]);
    append(&store, &mut sender, &[row(T0 - 6 * S), row(T0 + 3 * S)]);
    append(&store, &mut sender, &[row(T0 - 2 * DAY)]);
    assert_eq!(gaps(&store), []);
    drop(store);
    let (day, around) = (86_400.0, 1e-6);
    let one = |from: f64, to: f64| (from - around, to + around, "1 batches".to_owned());
    let lost = [one(-2.0 * day, -2.0 * day), one(-day, -day + 9.0), one(-6.0, 3.0)];
    let sorted = |store: &PostgresStore| {
        let mut gaps = gaps(store);
        gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
        gaps
    };
    let store = open(&dump, &settings, &clock);
    assert_eq!(sorted(&store), lost);
    // Rows that follow change nothing, and a restart finds the gaps in the database.
    clock.set(T0 + DAY);
    append(&store, &mut sender, &[row(T0 + DAY)]);
    store.flush().unwrap();
    drop(store);
    let store = open(&dump, &Settings { acknowledged: None, ..settings }, &clock);
    assert_eq!(sorted(&store), lost);
}
