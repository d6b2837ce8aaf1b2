//! The store while its connections and its process end.

use crate::rows::query;
use crate::server::{Direct, database, execute};
use ::database::{
    Executed, Reader, SetupOptions, execute as execute_step, prepare_server, release, remaining,
    setup,
};
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
use tokio_postgres::error::SqlState;
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
fn of_servers_that_start_at_once_in_an_empty_database_one_uses_it() {
    let database = database();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| open(&database))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let is_locked = |one: &&Result<_, _>| matches!(one, Err(DatabaseError::Locked(_)));
    assert_eq!(opened.iter().filter(|one| one.is_ok()).count(), 1, "{opened:?}");
    assert_eq!(opened.iter().filter(is_locked).count(), 2, "{opened:?}");
}

#[test]
fn sessions_of_other_roles_keep_no_server_from_the_database() {
    let database = database();
    drop(open(&database).unwrap());
    execute(
        &database,
        "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA jobmeter TO reader; \
         GRANT SELECT ON ALL TABLES IN SCHEMA jobmeter TO reader",
    );
    let mut as_reader = database.clone();
    as_reader.user("reader");
    let sessions = |role: &str, column: &str| {
        format!(
            "SELECT {column} FROM pg_stat_activity WHERE usename = '{role}' AND application_name = '{}' \
             AND datname = current_database()",
            database::SERVER
        )
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| pretend_to_be_a_server(&as_reader));
        }
        let are_three = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            query(&database, &sessions("reader", "count(*)::text")) == ["3"]
        });
        let store = open(&database);
        execute(&database, &sessions("postgres", "pg_terminate_backend(pid)"));
        let mut sender = Sender::new("n1", 1);
        let is_stored = |tick| {
            let batch = sender.batch(&[(spec("n1", "load_1m"), T0 + tick * S, 1.0)]);
            store.as_ref().is_ok_and(|one| matches!(append(one, &batch), Outcome::Stored { .. }))
        };
        let is_stored = (0..100).any(is_stored);
        let is_locked = matches!(open(&database), Err(DatabaseError::Locked(_)));
        execute(&database, &sessions("reader", "pg_terminate_backend(pid)"));
        assert!(are_three, "other roles have such sessions");
        assert!(is_stored, "{:?}", store.map(|one| one.stats().last_failure));
        assert!(is_locked, "the server connected again");
    });
}

/// Does all that a role which may only read can do against a server, until the session is ended.
fn pretend_to_be_a_server(config: &Config) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, io) = config.connect(NoTls).await.unwrap();
        let io = tokio::spawn(io);
        let lock = "BEGIN; LOCK TABLE jobmeter.state IN SHARE UPDATE EXCLUSIVE MODE";
        let denied = client.simple_query(lock).await.unwrap_err();
        assert_eq!(denied.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
        let pretend = format!(
            "ROLLBACK; SET application_name = '{}'; BEGIN; LOCK TABLE jobmeter.state IN ACCESS SHARE MODE",
            database::SERVER
        );
        client.batch_execute(&pretend).await.unwrap();
        client.simple_query("SELECT pg_sleep(60)").await.unwrap_err();
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
    // So are the statements about the tables: of a superuser, of the role itself, and of another role.
    let repaired = |found: &[String]| {
        let statements = found[0].split_once("; execute: ").unwrap().1.to_owned();
        execute(&superuser, &statements);
        statements
    };
    assert!(repaired(&tables).contains("ALTER TABLE jobmeter.jobs OWNER TO without_rights; "));
    assert!(found().is_empty());
    execute(&superuser, "REVOKE ALL ON jobmeter.jobs, metrics FROM without_rights");
    assert_eq!(repaired(&found()), "GRANT ALL ON jobmeter.jobs, metrics TO without_rights");
    assert!(found().is_empty());
    let set = "CREATE ROLE other_role LOGIN; GRANT ALL ON SCHEMA jobmeter TO other_role";
    execute(&superuser, set);
    let mut other = superuser.clone();
    other.user("other_role");
    let found = || {
        let found = postgres::check(&Direct(other.clone()));
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(repaired(&found()), "GRANT without_rights TO other_role");
    assert!(found().is_empty());
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

/// An administrator's options for the role `interrupted`.
fn setup_options(database: &Config) -> SetupOptions {
    SetupOptions {
        database: database.get_dbname().unwrap().to_owned(),
        user: "interrupted".to_owned(),
        password: Some("secret".to_owned()),
        reader_password: None,
        new_reader_password: "secret".to_owned(),
        chunk_hours: None,
        compress_hours: None,
        request_timeout_min: 60,
        archive_path: None,
        job_requests: None,
        reader: Reader::Nodes,
        distrust_plpython: false,
    }
}

/// What the database has of the schema api and of rights on schemas.
const RIGHTS: &str = "SELECT nspname || ' ' || privilege_type || ' ' || pg_get_userbyid(grantee) FROM pg_namespace, \
    aclexplode(coalesce(nspacl, acldefault('n', nspowner))) WHERE nspname IN ('api', 'public') ORDER BY 1";

#[test]
fn an_interrupted_setup_is_repeated_and_given_back_without_a_rest() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for before in ["", "CREATE SCHEMA api"] {
        let database = database();
        execute(&database, before);
        // Setup withdraws it in an empty database before PostgreSQL 15, and leaves it so.
        execute(&database, "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
        let rights = query(&database, RIGHTS);
        let options = setup_options(&database);
        let connector = Direct(database.clone());
        let mut owner = database.clone();
        owner.user("interrupted");
        runtime.block_on(async {
            let client = connector.connect().await.unwrap();
            let mut executed = Executed::default();
            for step in prepare_server(&client, &options, false).await.unwrap() {
                execute_step(&client, &step, &mut executed).await.unwrap();
            }
            // The second one is interrupted, too: after the first step, or after the one that commits.
            for last in [1, 2, usize::MAX] {
                let (_, steps) = setup(Some(&client), &client, &options).await.unwrap();
                for step in steps.iter().take(last) {
                    execute_step(&client, step, &mut executed).await.unwrap();
                }
            }
            let owner = Direct(owner.clone()).connect().await.unwrap();
            let left = remaining(&owner).await.unwrap().here;
            for step in release(&owner, false).await.unwrap() {
                execute_step(&owner, &step, &mut executed).await.unwrap();
            }
            // Rights on schemas of others are named for a superuser.
            client.batch_execute(&left.join("; ")).await.unwrap();
        });
        assert_eq!(query(&database, RIGHTS), rights, "{before}");
    }
}
