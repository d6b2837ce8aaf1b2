//! The store while its connections and its process end.

use crate::rows::query;
use crate::server::{Direct, database, execute};
use conformance::{S, Sender, T0, spec};
use model::Timestamp;
use postgres::{Connecting, Connector, DatabaseError, PostgresStore, Settings};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use storage::{Clock, Incoming, Outcome, Selector, Storage};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls};

const KILL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// A clock that moves by a tenth of a second whenever it is read.
fn clock() -> Clock {
    let now = AtomicI64::new(T0);
    Arc::new(move || Timestamp(now.fetch_add(S / 10, Ordering::Relaxed)))
}

pub(crate) fn open(database: &Config) -> Result<PostgresStore, DatabaseError> {
    let settings = Settings { background_maintenance: false, ..Settings::default() };
    PostgresStore::open(Arc::new(Direct(database.clone())), settings, clock())
}

pub(crate) fn append(store: &PostgresStore, batch: &model::Batch) -> Outcome {
    let mut frame = Vec::new();
    wire::Encoder::default().encode(batch, &mut frame).unwrap();
    let one = wire::Frames::of(&frame).next().unwrap().unwrap();
    let decoded = wire::Decoder::default().decode(&one).unwrap();
    let incoming = Incoming { frame, decoded, received: Timestamp(T0 + 3600 * S) };
    let (done, outcomes) = sync_channel(1);
    store.append(vec![incoming], Box::new(move |all| done.send(all).unwrap()));
    outcomes.recv().unwrap().remove(0)
}

/// The instants of all samples.
pub(crate) fn stored(store: &PostgresStore) -> Vec<i64> {
    let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let chunks = store.snapshot().scan(&Selector::default(), all.0, all.1);
    chunks.flat_map(|chunk| chunk.unwrap().times).collect()
}

#[test]
fn killed_connections_lose_and_duplicate_no_acknowledged_sample() {
    const BATCHES: i64 = 300;
    let database = database();
    let store = open(&database).unwrap();
    let (ended, rejected) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(30));
                execute(&database, KILL);
            }
        });
        let mut sender = Sender::new("n1", 1);
        for tick in 0..BATCHES {
            let batch = sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, 1.0)]);
            loop {
                match append(&store, &batch) {
                    Outcome::Stored { samples_rejected: 0, .. } | Outcome::Duplicate => break,
                    Outcome::RejectedTemporarily(_) => rejected.fetch_add(1, Ordering::Relaxed),
                    other => unreachable!("{other:?}"),
                };
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(rejected.load(Ordering::Relaxed) > 0, "no connection was killed in time");
    let want: Vec<i64> = (0..BATCHES).map(|tick| T0 + tick * S).collect();
    assert_eq!(stored(&store), want);
    drop(store);
    let store = open(&database).unwrap();
    assert_eq!(stored(&store), want);
    let origin = &store.origins()[0];
    assert_eq!((origin.samples, origin.boots[0].missing), (300, 0));
}

#[test]
fn a_killed_server_knows_the_newest_samples_and_all_batches_again() {
    let database = database();
    let store = open(&database).unwrap();
    let mut sender = Sender::new("n1", 1);
    let batches: Vec<_> = (0..5)
        .map(|tick| sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, tick as f64)]))
        .collect();
    for batch in &batches {
        assert!(matches!(append(&store, batch), Outcome::Stored { .. }));
    }
    // It writes nothing more.
    std::mem::forget(store);
    execute(&database, KILL);
    let store = open(&database).unwrap();
    let last = store.snapshot().last(&Selector::default());
    assert_eq!((last.len(), last[0].at, last[0].value), (1, Timestamp(T0 + 4 * S), 4.0));
    for batch in &batches {
        assert_eq!(append(&store, batch), Outcome::Duplicate);
    }
    let instants: BTreeSet<i64> = stored(&store).into_iter().collect();
    assert_eq!(instants.len(), 5);
}

/// Connections that can be lost without notice to the database, as by a network.
struct Losable {
    database: Config,
    sockets: Mutex<Vec<UnixStream>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Connector for Losable {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let Some(Host::Unix(folder)) = self.database.get_hosts().first() else {
                unreachable!()
            };
            let socket = UnixStream::connect(folder.join(".s.PGSQL.5432")).unwrap();
            socket.set_nonblocking(true).unwrap();
            self.sockets.lock().unwrap().push(socket.try_clone().unwrap());
            let socket = tokio::net::UnixStream::from_std(socket).unwrap();
            let (client, io) = self.database.connect_raw(socket, NoTls).await.unwrap();
            let task = tokio::spawn(async move { io.await.unwrap_or_default() });
            self.tasks.lock().unwrap().push(task);
            Ok(client)
        })
    }
}

#[test]
fn a_connection_that_is_lost_without_notice_holds_the_lock_of_servers_no_longer() {
    let database = database();
    let connector = Arc::new(Losable {
        database: database.clone(),
        sockets: Mutex::default(),
        tasks: Mutex::default(),
    });
    let settings = Settings { background_maintenance: false, ..Settings::default() };
    let store = PostgresStore::open(Arc::clone(&connector) as _, settings, clock()).unwrap();
    let mut sender = Sender::new("n1", 1);
    let mut put =
        |tick: i64| append(&store, &sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, 1.0)]));
    assert!(matches!(put(0), Outcome::Stored { .. }));
    connector.tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
    let stored = (1..100).find(|tick| matches!(put(*tick), Outcome::Stored { .. }));
    assert!(stored.is_some(), "{:?}", store.stats().last_failure);
    // The database has not noticed by itself.
    assert!(connector.sockets.lock().unwrap().len() > 1);
}

#[test]
fn one_server_uses_a_database_at_a_time() {
    let database = database();
    let store = open(&database).unwrap();
    assert!(matches!(open(&database), Err(DatabaseError::Locked(_))));
    drop(store);
    open(&database).unwrap();
}

#[test]
fn sessions_of_other_roles_cannot_keep_the_lock_of_servers() {
    let database = database();
    execute(&database, "CREATE ROLE lock_taker LOGIN");
    let mut as_other = database.clone();
    as_other.user("lock_taker");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    hold_the_lock(&as_other);
                }
            });
        }
        let holders = "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        while query(&database, holders) != ["3"] {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let opened = open(&database);
        ended.store(true, Ordering::Relaxed);
        drop(opened.unwrap());
        let end =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'lock_taker'";
        execute(&database, end);
    });
}

/// Holds the lock of servers, or waits for it, until the session is ended.
fn hold_the_lock(config: &Config) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, io) = config.connect(NoTls).await.unwrap();
        let io = tokio::spawn(io);
        let lock = format!("SELECT pg_advisory_lock({}); SELECT pg_sleep(60)", database::LOCK);
        client.simple_query(&lock).await.unwrap_err();
        drop(client);
        io.await.unwrap().unwrap_err();
    });
}

#[test]
fn a_table_of_another_program_is_rejected_and_unchanged() {
    let database = database();
    execute(&database, "CREATE TABLE metrics (timestamp timestamptz, value text)");
    assert!(matches!(open(&database), Err(DatabaseError::Foreign)));
    execute(&database, "INSERT INTO metrics VALUES (now(), 'mine'); DROP TABLE metrics");
    open(&database).unwrap();
}

#[test]
fn rows_of_other_programs_do_not_stop_the_store() {
    let database = database();
    let store = open(&database).unwrap();
    let mut sender = Sender::new("n1", 1);
    let mut put = |store: &PostgresStore, tick: i64| {
        append(store, &sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, tick as f64)]))
    };
    assert!(matches!(put(&store, 0), Outcome::Stored { .. }));
    drop(store);
    execute(
        &database,
        "INSERT INTO metrics VALUES (now(), 'a/b', 'x', 1, '{}'), (now(), 'n1', 'x', NULL, '[1]'), \
         (now(), 'n1', 'load_1m', NULL, NULL), ('infinity', 'n1', 'load_1m', 7, '{}')",
    );
    let store = open(&database).unwrap();
    let last = store.snapshot().last(&Selector::default());
    assert_eq!((last.len(), &*last[0].series.series.metric, last[0].value), (2, "x", 1.0));
    assert_eq!((last[1].at, last[1].value), (Timestamp(T0), 0.0));
    execute(&database, KILL);
    let mut tick = 1;
    while !matches!(put(&store, tick), Outcome::Stored { .. }) {
        tick += 1;
    }
}

#[test]
fn a_batch_that_is_not_stored_shows_nothing() {
    let database = database();
    let store = open(&database).unwrap();
    let reject = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' \
                  USING ERRCODE = '53100'; END $$; \
                  CREATE TRIGGER no BEFORE INSERT ON metrics FOR EACH ROW EXECUTE FUNCTION no()";
    execute(&database, reject);
    let batch = Sender::new("n1", 1).batch(&[(spec("n1", "load_1m"), T0, 1.0)]);
    assert!(matches!(append(&store, &batch), Outcome::RejectedTemporarily(_)));
    let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let snapshot = store.snapshot();
    assert_eq!(snapshot.last(&Selector::default()), []);
    assert_eq!(snapshot.series(&Selector::default(), all.0, all.1).unwrap(), []);
    assert!(store.stats().last_failure.is_some());
}

#[test]
fn a_database_in_another_encoding_is_rejected() {
    let mut latin = database();
    execute(
        &latin,
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    latin.dbname("latin");
    assert!(matches!(open(&latin), Err(DatabaseError::Encoding)));
}

#[test]
fn a_read_only_database_is_found_by_a_check_and_named_to_senders() {
    let database = database();
    let name = database.get_dbname().unwrap();
    let store = open(&database).unwrap();
    assert!(postgres::check(&Direct(database.clone())).is_empty());
    let set = format!("ALTER DATABASE {name} SET default_transaction_read_only TO on");
    execute(&database, &format!("{set}; {KILL}"));
    let found = postgres::check(&Direct(database.clone()));
    let text = format!(
        "the database is read-only for this role: execute in another database: \
         ALTER DATABASE {name} RESET default_transaction_read_only"
    );
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    let mut sender = Sender::new("n1", 1);
    let mut reasons = Vec::new();
    for tick in 0..100 {
        let batch = sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, 1.0)]);
        match append(&store, &batch) {
            Outcome::RejectedTemporarily(reason) => reasons.push(format!("{reason:?}")),
            other => unreachable!("{other:?}"),
        }
    }
    // The first one may notice that its connection was killed.
    let first = reasons.iter().position(|one| one.contains("read-only transaction"));
    let unnamed = reasons.iter().skip(first.unwrap_or(0));
    let unnamed: Vec<_> = unnamed.filter(|one| !one.contains("read-only transaction")).collect();
    assert!(first.is_some_and(|first| first < 20) && unnamed.is_empty(), "{reasons:?}");
}

#[test]
fn a_check_names_the_statement_for_a_role_without_rights_or_with_read_only_transactions() {
    let mut database = database();
    drop(open(&database).unwrap());
    let name = database.get_dbname().unwrap().to_owned();
    execute(&database, "CREATE ROLE without_rights LOGIN");
    let superuser = database.clone();
    database.user("without_rights");
    let found = || {
        let found = postgres::check(&Direct(database.clone()));
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let grant = "GRANT ALL ON SCHEMA jobmeter TO without_rights";
    assert!(matches!(found().as_slice(), [one] if one.ends_with(&format!("execute: {grant}"))));
    // The statement is right: what is missing then are the tables.
    execute(&superuser, grant);
    let tables = found();
    assert!(tables.len() == 1 && tables[0].contains("jobmeter.jobs"), "{tables:?}");
    for place in ["", &format!(" IN DATABASE {name}")] {
        let role = format!("ALTER ROLE without_rights{place}");
        execute(&superuser, &format!("{role} SET default_transaction_read_only TO on"));
        let undo = format!("{role} RESET default_transaction_read_only");
        let first = found().remove(0);
        assert!(first.ends_with(&format!("execute as a superuser: {undo}")), "{first}");
        execute(&superuser, &undo);
    }
    assert_eq!(found(), tables);
}

#[test]
fn the_statement_of_a_reader_that_leaves_ends() {
    let database = database();
    let store = open(&database).unwrap();
    execute(
        &database,
        "ALTER TABLE jobmeter.state RENAME TO state_of_store; CREATE VIEW jobmeter.state AS \
         SELECT settled_us, samples_removed, pg_sleep(60)::text FROM jobmeter.state_of_store",
    );
    let has_left = Arc::new(AtomicBool::new(false));
    let snapshot = store.snapshot_until(Arc::clone(&has_left));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let hour = 3600 * S;
            let mut windows =
                snapshot.windows(&Selector::default(), Timestamp(0), Timestamp(T0), hour);
            windows.next().unwrap().is_err()
        });
        let running = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'PgSleep' \
                       AND datname = current_database()";
        while query(&database, running).is_empty() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(600));
        assert!(!reader.is_finished());
        has_left.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap());
        assert!(query(&database, running).is_empty());
    });
}
