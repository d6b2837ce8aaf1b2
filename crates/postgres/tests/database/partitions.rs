//! Partitions of the tables of samples, and retention by partition.

use crate::faults::{append, stored};
use crate::rows::query;
use crate::server::{Direct, database, execute};
use conformance::{Clock, Outcome as Expected, S, Sender, T0, of_storage, spec};
use model::Timestamp;
use postgres::{ArchiveSettings, PostgresStore, Settings};
use std::sync::Arc;
use storage::{Selector, Storage};
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls};

pub(crate) const HOUR: i64 = 3600 * S;
pub(crate) const DAY: i64 = 24 * HOUR;

/// Samples are deleted after a day, an hour after they are final.
pub(crate) fn settings() -> Settings {
    Settings {
        settle_after_us: HOUR,
        settle_step_us: HOUR,
        keep_samples_us: DAY,
        background_maintenance: false,
        ..Settings::default()
    }
}

pub(crate) fn open(database: &Config, settings: &Settings, clock: &Clock) -> PostgresStore {
    let clock = clock.clone();
    let now = Arc::new(move || clock.now());
    PostgresStore::open(Arc::new(Direct(database.clone())), settings.clone(), now).unwrap()
}

/// Stores a sample of each instant, received at the last.
pub(crate) fn put(
    store: &PostgresStore,
    sender: &mut Sender,
    instants: impl IntoIterator<Item = i64>,
) {
    let samples: Vec<_> =
        instants.into_iter().map(|at| (spec("n1", "load_1m"), at, at as f64)).collect();
    let received = Timestamp(samples.iter().map(|(_, at, _)| *at).max().unwrap());
    let outcomes = of_storage::append(store, vec![(sender.batch(&samples), received)]);
    assert_eq!(outcomes, [Expected::STORED]);
}

/// The partitions of a table, with the number of their rows.
fn partitions(database: &Config, table: &str) -> Vec<String> {
    query(
        database,
        &format!(
            "SELECT relname || ' ' || (xpath('/row/c/text()', query_to_xml('SELECT count(*) AS c \
             FROM ' || inhrelid::regclass, false, true, '')))[1]::text \
             FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid \
             WHERE inhparent = '{table}'::regclass ORDER BY relname"
        ),
    )
}

/// Those with rows.
fn used(database: &Config) -> Vec<String> {
    let mut used = partitions(database, "metrics");
    used.retain(|one| !one.ends_with(" 0"));
    used
}

#[test]
fn samples_of_the_present_are_in_partitions_that_exist_before_them() {
    let (database, clock) = (database(), Clock::at(T0));
    let store = open(&database, &settings(), &clock);
    // T0 is 2026-01-01.
    let names = |table: &str| -> Vec<String> {
        let all = partitions(&database, table).into_iter();
        all.map(|one| one.split(' ').next().unwrap().to_owned()).collect()
    };
    let want: Vec<String> =
        ["251231_18", "260101_00", "260101_06", "260101_12", "260101_18", "260102_00"]
            .iter()
            .map(|name| format!("metrics_20{name}"))
            .chain(["metrics_default".to_owned()])
            .collect();
    assert_eq!(names("metrics"), want);
    let of_jobs: Vec<String> = want.iter().map(|name| format!("job_{name}")).collect();
    assert_eq!(names("jobmeter.job_metrics"), of_jobs);
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, [T0, T0 + 23 * HOUR]);
    clock.set(T0 + 3 * HOUR);
    store.maintain().unwrap();
    assert_eq!(used(&database), ["metrics_20260101_00 1", "metrics_20260101_18 1"]);
    assert!(names("metrics").contains(&"metrics_20260102_06".to_owned()));
}

#[test]
fn samples_of_other_times_move_into_partitions_of_their_own_in_their_order() {
    let (database, clock) = (database(), Clock::at(T0));
    let unlimited = Settings { keep_samples_us: i64::MAX, ..settings() };
    let store = open(&database, &unlimited, &clock);
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, [T0]);
    // 20 000 rows of one interval, few rows of ten years, a much later row, and infinite ones.
    execute(
        &database,
        "INSERT INTO metrics SELECT timestamptz '2020-02-01 00:00Z' + g * interval '1 second', 'n1', 'load_1m', g \
             FROM generate_series(0, 19999) AS g; \
         INSERT INTO metrics SELECT timestamptz '2010-01-01 00:00Z' + g * interval '200 days', 'n1', 'load_1m', g \
             FROM generate_series(0, 9) AS g; \
         INSERT INTO metrics SELECT '2015-01-01 00:00Z', 'n1', 'load_1m', g FROM generate_series(0, 99) AS g; \
         INSERT INTO metrics VALUES ('2031-01-01 01:00Z', 'n1', 'load_1m', 1), ('infinity', 'n1', 'load_1m', 1), \
             ('-infinity', 'n1', 'load_1m', 1)",
    );
    let rows = "SELECT timestamp || ' ' || value FROM metrics ORDER BY timestamp, tableoid, ctid";
    let before = query(&database, rows);
    assert!(used(&database).contains(&"metrics_default 20113".to_owned()));
    store.maintain().unwrap();
    assert_eq!(query(&database, rows), before);
    let used = used(&database);
    // Few rows of one month at most are in one partition. Its name has its lower bound: the end of the one before.
    for expected in [
        "metrics_before_20100117_00 2",
        "metrics_20100117_00 1",
        "metrics_20141222_00 100",
        "metrics_20150117_00 20000",
        "metrics_20260101_00 1",
        "metrics_20310101_00 1",
        "metrics_default 1",
    ] {
        assert!(used.iter().any(|one| one == expected), "{expected} in {used:?}");
    }
    assert_eq!(used.len(), 15, "{used:?}");
}

#[test]
fn a_reader_sees_each_sample_once_while_samples_move() {
    let (database, clock) = (database(), Clock::at(T0));
    let unlimited = Settings { keep_samples_us: i64::MAX, ..settings() };
    let store = open(&database, &unlimited, &clock);
    let mut sender = Sender::new("n1", 1);
    // All arrived in time; the oldest are older than the first partition.
    put(&store, &mut sender, (0..40).map(|hour| T0 - (39 - hour) * HOUR));
    let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let view = store.snapshot();
    // The series are read, and the transaction has its snapshot.
    let first: usize = view
        .scan(&Selector::default(), Timestamp(T0), all.1)
        .map(|chunk| chunk.unwrap().times.len())
        .sum();
    assert_eq!(first, 1);
    std::thread::scope(|scope| {
        let maintained = scope.spawn(|| store.maintain().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(500));
        let chunks = view.scan(&Selector::default(), all.0, all.1);
        let seen: usize = chunks.map(|chunk| chunk.unwrap().times.len()).sum();
        assert_eq!(seen, 40);
        assert!(!maintained.is_finished(), "it waits for the reader");
        drop(view);
    });
    assert_eq!(stored(&store).len(), 40);
    assert!(used(&database).iter().all(|one| !one.starts_with("metrics_default")));
}

#[test]
fn another_interval_applies_to_later_partitions_alone() {
    let (database, clock) = (database(), Clock::at(T0));
    let store = open(&database, &settings(), &clock);
    execute(&database, "UPDATE jobmeter.state SET chunk_interval_hour = 4");
    clock.set(T0 + 8 * HOUR);
    store.maintain().unwrap();
    execute(&database, "UPDATE jobmeter.state SET chunk_interval_hour = 48");
    clock.set(T0 + 30 * HOUR);
    store.maintain().unwrap();
    let bounds = query(
        &database,
        "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relispartition AND relkind = 'r' \
         AND relname ~ '^metrics_2026' ORDER BY relname",
    );
    let last: Vec<&str> = bounds[4..].iter().map(String::as_str).collect();
    assert_eq!(
        last,
        [
            "FOR VALUES FROM ('2026-01-02 00:00:00+00') TO ('2026-01-02 06:00:00+00')",
            "FOR VALUES FROM ('2026-01-02 06:00:00+00') TO ('2026-01-02 08:00:00+00')",
            "FOR VALUES FROM ('2026-01-02 08:00:00+00') TO ('2026-01-02 12:00:00+00')",
            "FOR VALUES FROM ('2026-01-02 12:00:00+00') TO ('2026-01-03 00:00:00+00')",
            "FOR VALUES FROM ('2026-01-03 00:00:00+00') TO ('2026-01-05 00:00:00+00')",
            "FOR VALUES FROM ('2026-01-05 00:00:00+00') TO ('2026-01-07 00:00:00+00')",
        ]
    );
}

#[test]
fn partitions_of_any_name_are_dropped_by_their_bounds_and_their_samples_counted() {
    let (database, clock) = (database(), Clock::at(T0));
    let store = open(&database, &settings(), &clock);
    execute(
        &database,
        "CREATE TABLE \"Old rows\" (LIKE metrics INCLUDING ALL); \
         INSERT INTO \"Old rows\" SELECT '2019-01-01', 'n1', 'x', g FROM generate_series(1, 7) AS g; \
         ALTER TABLE metrics ATTACH PARTITION \"Old rows\" FOR VALUES FROM (MINVALUE) \
         TO ('2025-12-31 18:00:00Z')",
    );
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, (0..10).map(|minute| T0 + minute * 60 * S));
    clock.set(T0 + 14 * HOUR);
    put(&store, &mut sender, [T0 + 14 * HOUR]);
    store.maintain().unwrap();
    assert_eq!((store.stats().samples_removed, used(&database).len()), (0, 3));
    // All before 2026-01-01 15:00, as far as whole partitions are.
    clock.set(T0 + 39 * HOUR);
    put(&store, &mut sender, [T0 + 39 * HOUR]);
    store.maintain().unwrap();
    assert_eq!(used(&database), ["metrics_20260101_12 1", "metrics_20260102_12 1"]);
    assert_eq!(store.stats().samples_removed, 17);
    assert_eq!(query(&database, "SELECT samples_removed FROM jobmeter.state"), ["17"]);
    // Rows that another program adds have no partition.
    execute(&database, "INSERT INTO metrics VALUES ('2020-01-01', 'n1', 'x', 1)");
    store.maintain().unwrap();
    assert_eq!(store.stats().samples_removed, 18);
}

#[test]
fn retention_waits_for_a_long_reader_and_blocks_nobody() {
    let (database, clock) = (database(), Clock::at(T0));
    let store = open(&database, &settings(), &clock);
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, [T0]);
    clock.set(T0 + 48 * HOUR);
    put(&store, &mut sender, [T0 + 48 * HOUR]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let reader = runtime.block_on(async {
        let (client, io) = database.connect(NoTls).await.unwrap();
        tokio::spawn(io);
        client.batch_execute("BEGIN; SELECT count(*) FROM metrics").await.unwrap();
        client
    });
    std::thread::scope(|scope| {
        let maintained = scope.spawn(|| store.maintain().unwrap());
        let mut at = T0 + 48 * HOUR;
        while !maintained.is_finished() {
            at += S;
            let batch = sender.batch(&[(spec("n1", "load_1m"), at, 0.0)]);
            let start = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            let outcome = append(&store, &batch);
            let took = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap() - start;
            assert!(matches!(outcome, storage::Outcome::Stored { .. }), "{outcome:?}");
            assert!(took.as_millis() < 1500, "{took:?}");
        }
    });
    assert_eq!(store.stats().samples_removed, 0);
    runtime.block_on(reader.batch_execute("SELECT count(*) FROM metrics; COMMIT")).unwrap();
    store.maintain().unwrap();
    assert_eq!(store.stats().samples_removed, 1);
}

/// As a database of Kwollect without TimescaleDB.
pub(crate) const PLAIN: &str = "DROP TABLE metrics CASCADE; CREATE TABLE metrics (timestamp timestamptz NOT NULL, \
                     device_id text NOT NULL, metric_id text NOT NULL, value double precision, labels jsonb)";

#[test]
fn a_table_without_partitions_loses_rows_alone() {
    let (database, clock) = (database(), Clock::at(T0));
    drop(open(&database, &settings(), &clock));
    execute(&database, PLAIN);
    let store = open(&database, &settings(), &clock);
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, [T0, T0 + S]);
    clock.set(T0 + 48 * HOUR);
    put(&store, &mut sender, [T0 + 48 * HOUR]);
    store.maintain().unwrap();
    assert_eq!(store.stats().samples_removed, 2);
    assert_eq!(stored(&store), [T0 + 48 * HOUR]);
}

/// Creates a tablespace in a folder beside the database.
pub(crate) fn create_tablespace(database: &Config, name: &str) {
    let Some(Host::Unix(folder)) = database.get_hosts().first() else { unreachable!() };
    let folder = folder.join(name).display().to_string();
    execute(database, &format!("COPY (SELECT 1) TO PROGRAM 'mkdir {folder}; cat > /dev/null'"));
    execute(database, &format!("CREATE TABLESPACE {name} LOCATION '{folder}'"));
}

#[test]
fn old_partitions_move_into_the_tablespace_of_the_archive() {
    let (database, clock) = (database(), Clock::at(T0));
    let archive = ArchiveSettings { tablespace: "archive".to_owned(), keep_us: 4 * DAY };
    let settings = Settings { archive: Some(archive), ..settings() };
    let store = open(&database, &settings, &clock);
    let mut sender = Sender::new("n1", 1);
    put(&store, &mut sender, [T0, T0 + S]);
    clock.set(T0 + 2 * DAY);
    put(&store, &mut sender, [T0 + 2 * DAY]);
    assert!(store.maintain().is_err(), "there is no such tablespace");
    create_tablespace(&database, "archive");
    let moved = || {
        let text = "SELECT relname FROM pg_class JOIN pg_tablespace AS t ON t.oid = reltablespace \
                    WHERE spcname = 'archive' AND relname LIKE 'metrics%' ORDER BY relname";
        query(&database, text)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let reader = runtime.block_on(async {
        let (client, io) = database.connect(NoTls).await.unwrap();
        tokio::spawn(io);
        let read = "BEGIN; SELECT count(*) FROM jobmeter.metrics_20260101_00";
        client.batch_execute(read).await.unwrap();
        client
    });
    store.maintain().unwrap();
    assert!(!moved().contains(&"metrics_20260101_00".to_owned()), "a reader uses it");
    drop(reader);
    let mut rounds = 0;
    while !moved().contains(&"metrics_20260101_00".to_owned()) {
        store.maintain().unwrap();
        rounds += 1;
        assert!(rounds < 20);
    }
    let indexes = "SELECT c.relname FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid \
                   WHERE indrelid = 'jobmeter.metrics_20260101_00'::regclass ORDER BY c.relname";
    let indexes = query(&database, indexes);
    assert!(indexes.len() >= 2 && indexes.iter().all(|index| moved().contains(index)));
    assert_eq!(stored(&store), [T0, T0 + S, T0 + 2 * DAY]);
    assert_eq!(store.stats().samples_removed, 0);
    clock.set(T0 + 5 * DAY);
    put(&store, &mut sender, [T0 + 5 * DAY]);
    store.maintain().unwrap();
    assert_eq!(store.stats().samples_removed, 2);
}
