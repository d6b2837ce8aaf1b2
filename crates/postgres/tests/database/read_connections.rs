//! The connections of queries: they are kept, bounded, and replaced after the database closed them.

use crate::faults::{append, open, stored};
use crate::rows::query;
use crate::server::{database, execute};
use conformance::{S, Sender, T0, spec};
use model::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::{Outcome, Selector, Storage, StorageError};
use tokio_postgres::Config;

/// The sessions of queries in a state.
fn of_queries(state: &str) -> String {
    format!(
        "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND state = '{state}' \
         AND application_name <> '{}'",
        database::SERVER
    )
}

#[test]
fn queries_share_connections_and_read_again_after_the_database_closed_them() {
    let database = database();
    let store = open(&database).unwrap();
    let batch = Sender::new("n1", 1).batch(&[(spec("n1", "load_1m"), T0, 1.0)]);
    assert!(matches!(append(&store, &batch), Outcome::Stored { .. }));
    for _ in 0..20 {
        assert_eq!(stored(&store), [T0]);
        std::thread::sleep(Duration::from_millis(10));
    }
    let stats = store.stats();
    // On a busy machine, a query may still end its transaction when the next one begins.
    assert!((1..10).contains(&stats.read_connections_opened), "{stats:?}");
    assert_eq!(stats.read_waits, 0);
    for round in 0..5 {
        let kill = of_queries("idle").replace("pid::text", "pg_terminate_backend(pid)");
        execute(&database, &kill);
        assert_eq!(stored(&store), [T0], "round {round}");
    }
    assert!(store.stats().read_connections_opened > stats.read_connections_opened);
    // A reader that has seen rows gets the error: another state of the database would follow.
    let snapshot = store.snapshot();
    let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    assert_eq!(snapshot.scan(&Selector::default(), all.0, all.1).count(), 1);
    let kill = of_queries("idle in transaction").replace("pid::text", "pg_terminate_backend(pid)");
    execute(&database, &kill);
    let again = snapshot.scan(&Selector::default(), all.0, all.1).next().unwrap();
    assert!(matches!(again, Err(StorageError::Unavailable(_))), "{again:?}");
}

#[test]
fn more_queries_than_connections_wait_and_unused_connections_are_few() {
    let database = database();
    let store = open(&database).unwrap();
    let batch = Sender::new("n1", 1).batch(&[(spec("n1", "load_1m"), T0, 1.0)]);
    assert!(matches!(append(&store, &batch), Outcome::Stored { .. }));
    let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let most = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let snapshot = store.snapshot();
                let rows = snapshot.scan(&Selector::default(), all.0, all.1).count();
                std::thread::sleep(Duration::from_millis(200));
                let open = query(&database, &of_queries("idle in transaction"));
                most.fetch_and(open.len() <= 24, Ordering::Relaxed);
                assert_eq!(rows, 1);
            });
        }
    });
    assert!(most.load(Ordering::Relaxed));
    let stats = store.stats();
    assert!(stats.read_waits >= 16, "{stats:?}");
    let few = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        query(&database, &of_queries("idle")).len() <= 8
    });
    assert!(few, "most connections are closed after their query");
    let ended = T0 + 3600 * S;
    assert!(store.snapshot().extent().unwrap().1 < Timestamp(ended));
}

/// Holds a lock for 8 s.
fn held<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    database: &'s Config,
    lock: &'s str,
) -> std::thread::ScopedJoinHandle<'s, ()> {
    let holder = scope.spawn(move || {
        execute(database, &format!("BEGIN; {lock}; SELECT pg_sleep(8); COMMIT"));
    });
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    while query(database, waits).is_empty() {
        std::thread::yield_now();
    }
    holder
}

#[test]
fn maintenance_that_waits_for_a_lock_does_not_hold_the_writer() {
    let database = database();
    let store = open(&database).unwrap();
    let mut sender = Sender::new("n1", 1);
    let mut batch = |tick: i64| sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, 1.0)]);
    assert!(matches!(append(&store, &batch(0)), Outcome::Stored { .. }));
    for (lock, stores) in [
        ("LOCK TABLE jobmeter.state IN EXCLUSIVE MODE", true),
        ("LOCK TABLE metrics IN ACCESS EXCLUSIVE MODE", false),
    ] {
        std::thread::scope(|scope| {
            let holder = held(scope, &database, lock);
            let maintenance = scope.spawn(|| store.maintain());
            std::thread::sleep(Duration::from_millis(200));
            let outcome = append(&store, &batch(1));
            let is_stored = matches!(outcome, Outcome::Stored { .. });
            assert!(is_stored || !stores, "{lock}: {outcome:?}");
            assert!(!holder.is_finished() || !stores, "{lock}: it waits for the lock");
            // Some part may have met the lock; it is done again.
            drop(maintenance.join().unwrap());
            holder.join().unwrap();
        });
        store.maintain().unwrap();
        assert!(matches!(append(&store, &batch(2)), Outcome::Stored { .. }));
    }
}

#[test]
fn a_lock_of_another_session_defers_batches_and_fails_queries_in_time() {
    let database = database();
    let store = open(&database).unwrap();
    let mut sender = Sender::new("n1", 1);
    let mut batch = |tick: i64| sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, 1.0)]);
    assert!(matches!(append(&store, &batch(0)), Outcome::Stored { .. }));
    let writer = format!(
        "SELECT pid::text FROM pg_stat_activity WHERE application_name = '{}' AND datname = current_database()",
        database::SERVER
    );
    let before = query(&database, &writer);
    assert_eq!(before.len(), 1);
    for mode in ["ACCESS EXCLUSIVE", "SHARE ROW EXCLUSIVE"] {
        let lock = format!("LOCK TABLE metrics IN {mode} MODE");
        std::thread::scope(|scope| {
            let holder = held(scope, &database, &lock);
            let reader = scope.spawn(|| {
                let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
                let mut rows = store.snapshot().scan(&Selector::default(), all.0, all.1);
                rows.next().unwrap().map(|chunk| chunk.times)
            });
            let outcome = append(&store, &batch(1));
            assert!(matches!(outcome, Outcome::RejectedTemporarily(_)), "{mode}: {outcome:?}");
            let rows = reader.join().unwrap();
            match mode {
                "ACCESS EXCLUSIVE" => assert!(matches!(rows, Err(StorageError::Unavailable(_)))),
                _ => assert_eq!(rows.unwrap(), [T0]),
            }
            assert!(!holder.is_finished(), "they wait for 5 s");
            holder.join().unwrap();
        });
        let failure = store.stats().last_failure.unwrap();
        assert!(failure.contains("lock timeout"), "{mode}: {failure}");
        assert_eq!(query(&database, &writer), before, "{mode}: a lock costs no new connection");
    }
    assert!(matches!(append(&store, &batch(2)), Outcome::Stored { .. }));
    assert_eq!(query(&database, &writer), before);
}

/// Rows that queries fetched from partitions of samples. A session reports its counts at the latest when it ends.
fn fetched(database: &Config) -> u64 {
    execute(database, &of_queries("idle").replace("pid::text", "pg_terminate_backend(pid)"));
    std::thread::sleep(Duration::from_secs(1));
    let fetched = "SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::text FROM pg_stat_user_tables WHERE relname LIKE 'metrics_%'";
    query(database, fetched).concat().parse().unwrap()
}

#[test]
fn a_query_reads_the_samples_of_a_device_once_whatever_the_number_of_its_series() {
    const METRICS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    const INSTANTS: i64 = 3000;
    let database = database();
    let store = open(&database).unwrap();
    let samples: Vec<_> = (0..INSTANTS)
        .flat_map(|second| {
            METRICS.iter().map(move |metric| (spec("n1", metric), T0 + second * S, 1.0))
        })
        .collect();
    let batch = Sender::new("n1", 1).batch(&samples);
    assert!(matches!(append(&store, &batch), Outcome::Stored { .. }));
    execute(&database, "ANALYZE metrics");
    let before = fetched(&database);
    let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let snapshot = store.snapshot();
    let slices = snapshot.scan(&Selector::default(), all.0, all.1);
    let rows: usize = slices.map(|slice| slice.unwrap().values.len()).sum();
    assert_eq!(rows, samples.len());
    drop(snapshot);
    let rows = u64::try_from(rows).unwrap();
    let read = (0..20).map(|_| fetched(&database) - before).find(|read| *read >= rows);
    let read = read.unwrap_or_default();
    assert!((rows..2 * rows).contains(&read), "{read} rows read for {rows}");
}
