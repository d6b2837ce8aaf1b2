//! Rows that other programs write into `metrics`.

use crate::server::{Direct, database, execute};
use conformance::{S, Sender, T0, spec};
use model::{Batch, DeviceId, Timestamp};
use postgres::{PostgresStore, Settings};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use storage::{Chunk, Incoming, JobSelector, Outcome, Selector, Snapshot, Storage};
use tokio_postgres::{Config, NoTls};

const HOUR: i64 = 3600 * S;
const DAY: i64 = 24 * HOUR;
const ALL: (Timestamp, Timestamp) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
/// The table as Kwollect creates it, before TimescaleDB changes it.
const KWOLLECT: &str = "CREATE TABLE metrics (timestamp timestamptz DEFAULT now(), device_id text NOT NULL, \
    metric_id text NOT NULL, value double precision DEFAULT 'NaN', labels jsonb DEFAULT '{}'); \
    CREATE INDEX metrics_device_idx ON metrics (device_id, timestamp DESC)";

fn open_at(database: &Config, now: i64, settings: Settings) -> PostgresStore {
    let settings = Settings { background_maintenance: false, ..settings };
    let clock = Arc::new(move || Timestamp(now));
    PostgresStore::open(Arc::new(Direct(database.clone())), settings, clock).unwrap()
}

fn open(database: &Config) -> PostgresStore {
    open_at(database, T0 + HOUR, Settings::default())
}

/// The number that a query returns.
fn number(config: &Config, query: &str) -> i64 {
    let held = Held::new(config, "SELECT");
    let row = held.runtime.block_on(held.client.query_one(query, &[]));
    row.unwrap().get(0)
}

/// A transaction that is open until it is dropped.
struct Held {
    client: tokio_postgres::Client,
    runtime: tokio::runtime::Runtime,
}

impl Held {
    /// Begins it with statements.
    fn new(config: &Config, statements: &str) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, io) = config.connect(NoTls).await.unwrap();
            tokio::spawn(async move { io.await.unwrap_or_default() });
            client.batch_execute(&format!("BEGIN; {statements}")).await.unwrap();
            client
        });
        Self { client, runtime }
    }

    fn commit(self) {
        self.runtime.block_on(self.client.batch_execute("COMMIT")).unwrap();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.runtime.block_on(self.client.batch_execute("ROLLBACK")).unwrap();
    }
}

/// Inserts rows: seconds after `T0`, device, metric, value, labels.
fn insert(database: &Config, rows: &[(i64, &str, &str, &str, &str)]) {
    let row = |(second, device, metric, value, labels): &(i64, &str, &str, &str, &str)| {
        let at = T0 / S + second;
        format!("(to_timestamp({at}), $a${device}$a$, $a${metric}$a$, {value}, {labels})")
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    execute(database, &format!("INSERT INTO metrics VALUES {}", rows.join(", ")));
}

fn append(store: &PostgresStore, batch: &Batch, received: i64) -> Outcome {
    let mut frame = Vec::new();
    wire::Encoder::default().encode(batch, &mut frame).unwrap();
    let one = wire::Frames::of(&frame).next().unwrap().unwrap();
    let decoded = wire::Decoder::default().decode(&one).unwrap();
    let incoming = Incoming { frame, decoded, received: Timestamp(received) };
    let (done, outcomes) = sync_channel(1);
    store.append(vec![incoming], Box::new(move |all| done.send(all).unwrap()));
    outcomes.recv().unwrap().remove(0)
}

/// Device, metric, labels, seconds after `T0`, value of each sample.
type Row = (String, String, String, i64, Option<f64>);

fn rows_of(view: &dyn Snapshot, selector: &Selector, from: Timestamp, to: Timestamp) -> Vec<Row> {
    let mut rows = Vec::new();
    for chunk in view.scan(selector, from, to) {
        let chunk: Chunk = chunk.unwrap();
        let series = &chunk.series.series;
        for (at, value, _) in chunk.rows() {
            rows.push((
                series.device.to_string(),
                series.metric.to_string(),
                series.labels.to_string(),
                (at.0 - T0).div_euclid(S),
                Chunk::has_value(value).then_some(value),
            ));
        }
    }
    rows
}

fn rows(store: &PostgresStore) -> Vec<Row> {
    rows_of(&*store.snapshot(), &Selector::default(), ALL.0, ALL.1)
}

fn row(device: &str, metric: &str, labels: &str, second: i64, value: f64) -> Row {
    (device.to_owned(), metric.to_owned(), labels.to_owned(), second, Some(value))
}

fn of_device(device: &str) -> Selector {
    let devices = Some(BTreeSet::from([DeviceId::foreign(device).unwrap()]));
    Selector { devices, ..Selector::default() }
}

/// The number of samples in the windows of an hour, by device.
fn windows(store: &PostgresStore, selector: &Selector) -> Vec<(String, i64, u64)> {
    let all = store.snapshot().windows(selector, ALL.0, ALL.1, HOUR);
    let of_one = |found: storage::Windows| {
        let device = found.series.series.device.to_string();
        let hour = |start: Timestamp| (start.0 - T0).div_euclid(HOUR);
        let one = move |(start, rollup): (Timestamp, model::Rollup)| {
            (device.clone(), hour(start), rollup.count)
        };
        found.windows.into_iter().map(one).collect::<Vec<_>>()
    };
    all.flat_map(|found| of_one(found.unwrap())).collect()
}

#[test]
fn a_row_of_another_program_is_in_the_next_answer() {
    let database = database();
    let store = open(&database);
    let mut sender = Sender::new("n1", 1);
    append(&store, &sender.batch(&[(spec("n1", "load_1m"), T0, 1.0)]), T0);
    assert_eq!(rows(&store), [row("n1", "load_1m", "{}", 0, 1.0)]);
    let before = store.snapshot();
    assert_eq!(rows_of(&*before, &Selector::default(), ALL.0, ALL.1).len(), 1);
    insert(
        &database,
        &[
            (60, "n1", "load_1m", "2", "'{}'"),
            (-HOUR / S, "n1", "load_1m", "0", "'{}'"),
            (7, "n2", "x", "3", "'{\"a\": \"b\"}'"),
        ],
    );
    let want = [
        row("n1", "load_1m", "{}", -HOUR / S, 0.0),
        row("n1", "load_1m", "{}", 0, 1.0),
        row("n1", "load_1m", "{}", 60, 2.0),
        row("n2", "x", r#"{"a": "b"}"#, 7, 3.0),
    ];
    assert_eq!(rows(&store), want);
    assert_eq!(rows_of(&*before, &Selector::default(), ALL.0, ALL.1).len(), 1, "one state");
    drop(before);
    let view = store.snapshot();
    assert_eq!(view.extent(), Some((Timestamp(T0 - HOUR), Timestamp(T0 + 60 * S))));
    assert_eq!(view.series(&of_device("n2"), ALL.0, ALL.1).unwrap().len(), 1);
    assert!(view.estimate_rows(&of_device("n2"), ALL.0, ALL.1).unwrap() > 0);
    let at = Timestamp(T0 + 7 * S);
    assert_eq!(rows_of(&*view, &of_device("n2"), at, at).len(), 1);
    let newest: Vec<_> =
        view.last(&Selector::default()).into_iter().map(|one| (one.at.0, one.value)).collect();
    assert_eq!(newest, [(T0 + 60 * S, 2.0), (T0 + 7 * S, 3.0)]);
    // The newest sample of a sender counts again.
    append(&store, &sender.batch(&[(spec("n1", "load_1m"), T0 + 90 * S, 9.0)]), T0);
    assert_eq!(store.snapshot().last(&of_device("n1"))[0].value, 9.0);
    store.flush().unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM jobmeter.other_rows"), 0);
    insert(
        &database,
        &[(61, "n1", "load_1m", "4", "'{}'"), (8, "n2", "x", "5", "'{\"a\": \"b\"}'")],
    );
    assert_eq!(number(&database, "SELECT count(*) FROM jobmeter.other_rows"), 0, "known bounds");
    let all = rows(&store);
    assert_eq!(all.len(), 7);
    drop(store);
    assert_eq!(rows(&open(&database)), all);
}

#[test]
fn every_row_that_kwollect_accepts_is_shown_or_counted() {
    let database = database();
    execute(&database, KWOLLECT);
    let long = "x".repeat(20_000);
    let odd = [
        (0, "a/b,c", "x\ny", "1", "'{}'"),
        (1, "", "", "NULL", "NULL"),
        (2, "-n", "x", "'NaN'", "'[1, \"_device_alias\"]'"),
        (3, "n1", "x", "'-Infinity'", "'7'"),
        (4, "n1", "x", "'Infinity'", "'{\"_metric_scrape_time\": \"1.5\", \"a\": {\"\": [null]}}'"),
        (5, "n1", "x", "5", "'{\"a\": 1.0}'"),
        (6, "n1", "x", "6", "'{\"a\": 1}'"),
        (7, "n1", "x", "7", "'null'"),
        (8, "n1", &*long, "8", "'{}'"),
    ];
    let untimed = "INSERT INTO metrics VALUES ('infinity', 'n1', 'x', 1, '{}'), ('-infinity', 'n1', 'x', 1, '{}'), \
                   ('0044-03-15 BC', 'n1', 'x', 1, '{}'), (NULL, 'n1', 'x', 1, '{}')";
    insert(&database, &odd);
    execute(&database, untimed);
    execute(&database, database::TABLES);
    let store = open(&database);
    let check = |times: usize| {
        let all = rows(&store);
        let want = [
            ("", "", "null", 1, None),
            ("-n", "x", "[1, \"_device_alias\"]", 2, Some("NaN")),
            ("a/b,c", "x\ny", "{}", 0, Some("1.0")),
            ("n1", "x", "7", 3, Some("-inf")),
            ("n1", "x", "null", 7, Some("7.0")),
            ("n1", "x", r#"{"a": 1.0}"#, 5, Some("5.0")),
            ("n1", "x", r#"{"a": 1}"#, 6, Some("6.0")),
            ("n1", "x", r#"{"a": {"": [null]}, "_metric_scrape_time": "1.5"}"#, 4, Some("inf")),
        ];
        let want = want.iter().flat_map(|(device, metric, labels, second, value)| {
            std::iter::repeat_n(format!("{device} {metric} {labels} {second} {value:?}"), times)
        });
        let text = |(device, metric, labels, second, value): &Row| {
            let value = value.map(|value| format!("{value:?}"));
            format!("{device} {metric} {labels} {second} {value:?}")
        };
        assert_eq!(all.iter().map(text).collect::<Vec<_>>(), want.collect::<Vec<_>>());
        store.flush().unwrap();
        store.maintain().unwrap();
        let stored = number(&database, "SELECT count(*) FROM metrics");
        let hidden = store.stats().rows_hidden;
        let shown = u64::try_from(all.len()).unwrap();
        assert_eq!(i64::try_from(shown + hidden).unwrap(), stored);
        assert_eq!(hidden, 5 * times as u64);
    };
    // Before and after the rows that no trigger recorded are looked at, and with recorded rows.
    check(1);
    check(1);
    insert(&database, &odd);
    execute(&database, untimed);
    check(2);
    let view = store.snapshot();
    assert_eq!(view.extent(), Some((Timestamp(T0), Timestamp(T0 + 8 * S))));
    assert_eq!(view.last(&of_device("n1")).len(), 5);
    drop(view);
    drop(store);
    assert_eq!(rows(&open(&database)).len(), 16);
}

#[test]
fn old_rows_are_shown_before_they_are_looked_at() {
    let database = database();
    execute(&database, KWOLLECT);
    insert(
        &database,
        &[
            (0, "n1", "x", "1", "'{}'"),
            (-DAY / S, "n1", "x", "2", "'{}'"),
            (5, "n2", "x", "3", "'{}'"),
        ],
    );
    execute(&database, database::TABLES);
    // Another transaction has a lock that the trigger needs.
    let holder = Held::new(&database, "LOCK TABLE metrics IN ROW EXCLUSIVE MODE");
    let store = open(&database);
    assert_eq!(
        number(&database, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'jobmeter%'"),
        0
    );
    let only = rows_of(&*store.snapshot(), &of_device("n2"), ALL.0, ALL.1);
    assert_eq!(only, [row("n2", "x", "{}", 5, 3.0)]);
    insert(&database, &[(6, "n3", "x", "4", "'{}'")]);
    assert_eq!(rows(&store).len(), 4);
    drop(holder);
    store.maintain().unwrap();
    assert_eq!(
        number(&database, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'jobmeter%'"),
        1
    );
    assert_eq!(number(&database, "SELECT looked_us FROM jobmeter.state"), i64::MIN);
    assert_eq!(number(&database, "SELECT count(*) FROM jobmeter.series"), 3);
    assert_eq!(rows(&store).len(), 4);
    drop(store);
    assert_eq!(rows(&open(&database)).len(), 4);
}

#[test]
fn partitions_and_triggers_for_each_row_record_rows_as_well() {
    for change in [
        "DROP TABLE metrics CASCADE; CREATE TABLE metrics (timestamp timestamptz NOT NULL DEFAULT now(), device_id text NOT NULL, \
         metric_id text NOT NULL, value double precision DEFAULT 'NaN', labels jsonb DEFAULT '{}') \
         PARTITION BY RANGE (timestamp); CREATE TABLE metrics_all PARTITION OF metrics DEFAULT; \
         CREATE INDEX ON metrics (device_id, timestamp DESC)",
        "DROP TRIGGER jobmeter_record_rows ON metrics; CREATE TRIGGER jobmeter_record_row AFTER INSERT ON metrics \
         FOR EACH ROW WHEN (current_setting('jobmeter.is_server', true) IS DISTINCT FROM 'on') \
         EXECUTE FUNCTION jobmeter.record_row()",
    ] {
        let database = database();
        drop(open(&database));
        execute(&database, change);
        let store = open(&database);
        store.maintain().unwrap();
        append(&store, &Sender::new("n1", 1).batch(&[(spec("n1", "load_1m"), T0, 1.0)]), T0);
        assert_eq!(number(&database, "SELECT count(*) FROM jobmeter.other_rows"), 0);
        insert(&database, &[(1, "n1", "load_1m", "2", "'{}'"), (2, "n2", "x", "3", "NULL")]);
        assert_eq!(number(&database, "SELECT count(*) FROM jobmeter.other_rows"), 2);
        assert_eq!(rows(&store).len(), 3);
    }
}

#[test]
fn rows_into_settled_time_are_in_samples_at_once_and_in_rollups_after_maintenance() {
    let database = database();
    let store = open_at(&database, T0 + 4 * DAY, Settings::default());
    let mut sender = Sender::new("n1", 1);
    let mut put = |at: i64| {
        let batch = sender.batch(&[(spec("n1", "load_1m"), at, 1.0)]);
        let outcome = append(&store, &batch, T0 + 4 * DAY);
        assert!(matches!(outcome, Outcome::Stored { samples_rejected: 0, .. }), "{outcome:?}");
    };
    put(T0);
    put(T0 + 4 * DAY);
    insert(&database, &[(60, "n2", "x", "1", "'{}'"), (90, "n1", "load_1m", "1", "'{}'")]);
    // Samples alone, then rollups: the same windows.
    let before = windows(&store, &Selector::default());
    assert_eq!(before[0], ("n1".to_owned(), 0, 2));
    assert_eq!(before.last(), Some(&("n2".to_owned(), 0, 1)));
    store.flush().unwrap();
    store.maintain().unwrap();
    assert!(number(&database, "SELECT settled_us FROM jobmeter.state") >= T0 + DAY);
    assert_eq!(
        number(&database, "SELECT count(*) FROM jobmeter.rollups WHERE window_us = 3600000000"),
        2
    );
    assert_eq!(windows(&store, &Selector::default()), before);
    // A sender and another program are late; the sender is not rejected.
    put(T0 + 70 * S);
    insert(
        &database,
        &[
            (61, "n2", "x", "1", "'{}'"),
            (62, "n3", "y", "NULL", "NULL"),
            (63, "n3", "y", "4", "NULL"),
        ],
    );
    assert_eq!(rows(&store).len(), 8);
    store.flush().unwrap();
    store.maintain().unwrap();
    let after = windows(&store, &Selector::default());
    let want = [("n1", 0, 3), ("n1", 96, 1), ("n2", 0, 2), ("n3", 0, 1)];
    let want: Vec<_> = want.map(|(device, hour, count)| (device.to_owned(), hour, count)).into();
    assert_eq!(after, want);
    let kept = number(
        &database,
        "SELECT sum(samples)::bigint FROM jobmeter.rollups WHERE window_us = 3600000000",
    );
    assert_eq!((kept, number(&database, "SELECT count(*) FROM jobmeter.late")), (6, 0));
}

#[test]
fn a_transaction_that_is_open_while_time_is_settled_is_in_the_rollups() {
    let database = database();
    let store = open_at(&database, T0 + 4 * DAY, Settings::default());
    append(
        &store,
        &Sender::new("n1", 1)
            .batch(&[(spec("n1", "load_1m"), T0, 1.0), (spec("n1", "load_1m"), T0 + 4 * DAY, 1.0)]),
        T0 + 4 * DAY,
    );
    let insert =
        format!("INSERT INTO metrics VALUES (to_timestamp({}), 'n2', 'x', 1, '{{}}')", T0 / S);
    let open = Held::new(&database, &insert);
    std::thread::scope(|scope| {
        let maintained = scope.spawn(|| store.maintain().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(500));
        open.commit();
        maintained.join().unwrap();
    });
    store.flush().unwrap();
    store.maintain().unwrap();
    assert_eq!(windows(&store, &of_device("n2")), [("n2".to_owned(), 0, 1)]);
}

#[test]
fn a_command_computes_the_rollups_of_rows_that_nothing_recorded() {
    let database = database();
    let store = open_at(&database, T0 + 4 * DAY, Settings::default());
    append(
        &store,
        &Sender::new("n1", 1)
            .batch(&[(spec("n1", "load_1m"), T0, 1.0), (spec("n1", "load_1m"), T0 + 4 * DAY, 1.0)]),
        T0 + 4 * DAY,
    );
    store.maintain().unwrap();
    let unrecorded = format!(
        "SET session_replication_role = replica; INSERT INTO metrics VALUES (to_timestamp({}), 'n2', 'x', 1, '{{}}')",
        T0 / S
    );
    execute(&database, &unrecorded);
    assert_eq!(windows(&store, &of_device("n2")), []);
    let rollup = || {
        let connector = Direct(database.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = postgres::Connector::connect(&connector).await.unwrap();
            database::rollup(&client, (T0, T0 + HOUR)).await.unwrap()
        })
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(rollup);
        while !waiting.is_finished() {
            store.maintain().unwrap();
        }
        assert!(waiting.join().unwrap());
    });
    assert_eq!(windows(&store, &of_device("n2")), [("n2".to_owned(), 0, 1)]);
    assert_eq!(rows_of(&*store.snapshot(), &of_device("n2"), ALL.0, ALL.1).len(), 1);
    drop(store);
    assert!(!rollup(), "no server");
}

#[test]
fn writers_and_readers_at_once_lose_and_duplicate_nothing() {
    const ROUNDS: i64 = 60;
    let database = database();
    let store = open(&database);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (store, database) = (&store, &database);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        // Two programs begin the same series, and one is theirs alone.
                        let own = format!("w{writer}-{}", round % 7);
                        let second = round * 60;
                        insert(
                            database,
                            &[
                                (second, "both", &format!("m{}", round % 5), "1", "'{}'"),
                                (second, &own, "x", "1", "NULL"),
                            ],
                        );
                        let own = DeviceId::foreign(&own).unwrap();
                        let only = Selector {
                            devices: Some(BTreeSet::from([own])),
                            job: JobSelector::None,
                            ..Selector::default()
                        };
                        let at = Timestamp(T0 + second * S);
                        assert_eq!(
                            rows_of(&*store.snapshot(), &only, at, at).len(),
                            1,
                            "round {round}"
                        );
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut sender = Sender::new("n1", 1);
            let mut at = T0;
            while !ended.load(Ordering::Relaxed) {
                append(&store, &sender.batch(&[(spec("n1", "load_1m"), at, 1.0)]), T0);
                at += S;
                store.flush().unwrap();
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        ended.store(true, Ordering::Relaxed);
    });
    let stored = number(&database, "SELECT count(*) FROM metrics");
    assert_eq!(i64::try_from(rows(&store).len()).unwrap(), stored);
    store.flush().unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM jobmeter.other_rows"), 0);
    let ids = number(
        &database,
        "SELECT count(*) - count(DISTINCT (device_id, metric_id, labels)) FROM jobmeter.series",
    );
    assert_eq!(ids, 0, "a series has two IDs");
    drop(store);
    assert_eq!(i64::try_from(rows(&open(&database)).len()).unwrap(), stored);
}
