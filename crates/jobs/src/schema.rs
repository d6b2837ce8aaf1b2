//! The registry's file: tables, schema version, and SQLite settings for safe writes.

use crate::common::indexes;
use crate::common::write_budget::WriteBudgets;
use crate::nodes::{forgotten_nodes, forgotten_pollers, rule_latches, stopped};
use crate::people::{accounts, names, push_keys, user_tokens};
use crate::presence::{reports_of_inputs, verified_presence};
use crate::queries::copied_jobs;
use crate::runs::{oom_kills, strays, visit_shares};
use crate::{Limits, Registry, RegistryError, Users};
use model::{FactColumn, FactKind, JobFacts};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// The schema version, stored in `PRAGMA user_version`. A file of another version is rejected.
const VERSION: i64 = 8;

/// The version of an empty file.
const NEW: i64 = 0;

/// Size of a connection's cache of prepared statements. It holds all statements of this crate.
/// Preparing a statement takes longer than executing it.
const STATEMENTS: usize = 128;

/// Application ID "jbmt": `file` and SQLite recognize the file by it.
const APPLICATION: i64 = 0x6a62_6d74;

/// The tables.
fn tables() -> String {
    let facts: String = JobFacts::columns().iter().map(column).collect();
    let run_class = indexes::class(
        "stop IS NULL OR (record_start IS NOT NULL AND record_stop IS NULL)",
        "(max(stop, coalesce(record_stop, stop)) - min(start, coalesce(record_start, start)))",
    );
    let visit_class = indexes::class("stop IS NULL", "(stop - start)");
    let share_class = indexes::class("start IS NULL OR stop IS NULL", "(stop - start)");
    [
        RUNS.replace("CLASS", &run_class),
        VISITS.replace("CLASS", &visit_class),
        RECORDS.replace("FACTS", &facts).replace("CLASS", &share_class),
        indexes::tables(),
        COUNTS.to_owned(),
        accounts::TABLES.to_owned(),
        names::TABLES.to_owned(),
        user_tokens::TABLES.to_owned(),
        stopped::TABLES.to_owned(),
        forgotten_nodes::TABLES.to_owned(),
        rule_latches::TABLES.to_owned(),
        verified_presence::TABLES.to_owned(),
        oom_kills::TABLES.to_owned(),
        strays::TABLES.to_owned(),
        visit_shares::TABLES.to_owned(),
    ]
    .concat()
}

/// The definition of a fact's column.
fn column(fact: &FactColumn) -> String {
    let kind = match fact.kind {
        FactKind::Text => "TEXT",
        FactKind::Integer => "INTEGER",
        FactKind::Real => "REAL",
    };
    format!("    {} {kind},\n", fact.name)
}

/// The runs, computed from visits and records.
///
/// - A run without visits stands for a record without visits. For such a run without `started`, `start`
///   is the time of submission.
/// - `record_state` is the record's state, `record_start` and `record_stop` its times. The class of a run covers the
///   first to the last time that nodes or the scheduler report. A device without an agent counts for the
///   run during the scheduler's times.
/// - `merged`: the visits form one run only because of a record.
/// - `user` and `uid`: the record's value has precedence over the nodes' value. `record_uid` is the record's.
/// - `clock_us` is the offset of the nodes' clocks.
const RUNS: &str = "
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER,
    last_start INTEGER NOT NULL,
    visits INTEGER NOT NULL DEFAULT 0,
    display_id TEXT NOT NULL,
    user TEXT,
    uid INTEGER,
    account TEXT,
    name TEXT,
    project TEXT,
    queue TEXT,
    exit_code INTEGER,
    registered INTEGER NOT NULL DEFAULT 0,
    started INTEGER NOT NULL DEFAULT 1,
    merged INTEGER NOT NULL DEFAULT 0,
    node_user TEXT,
    node_uid INTEGER,
    clock_us INTEGER NOT NULL DEFAULT 0,
    record INTEGER REFERENCES records (record) ON DELETE SET NULL,
    record_uid INTEGER,
    record_state TEXT,
    record_start INTEGER,
    record_stop INTEGER,
    CLASS
) STRICT;
CREATE INDEX runs_key ON runs (cluster, id, start);
CREATE INDEX runs_id ON runs (id);
CREATE INDEX runs_display_id ON runs (display_id);
CREATE INDEX runs_record ON runs (record) WHERE record IS NOT NULL;
";

/// The visits that nodes report. Each stores the identity that its node reported, since job IDs are
/// reused. `display_id` is set if it differs from the ID. `clock_us` is the offset of the node's clock.
/// `monitor` is the request of the job on the device; `NULL`: none was read.
const VISITS: &str = "
CREATE TABLE visits (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    device TEXT NOT NULL,
    start INTEGER NOT NULL,
    reported_stop INTEGER,
    stop INTEGER,
    display_id TEXT,
    user TEXT,
    uid INTEGER,
    clock_us INTEGER NOT NULL DEFAULT 0,
    monitor TEXT,
    CLASS,
    PRIMARY KEY (run, device, start)
) STRICT, WITHOUT ROWID;
CREATE INDEX visits_open ON visits (device) WHERE stop IS NULL;
CREATE INDEX visits_open_of_run ON visits (run) WHERE stop IS NULL;
CREATE INDEX visits_monitor ON visits (run, monitor) WHERE monitor IS NOT NULL;
";

/// The records that schedulers report, with their shares of devices and their steps. A record's
/// submission time is `guessed` until it is reported. `followed` holds the read position in a file of
/// records.
const RECORDS: &str = "
CREATE TABLE records (
    record INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    submit INTEGER NOT NULL,
    guessed INTEGER NOT NULL DEFAULT 0,
    digest INTEGER NOT NULL,
    received INTEGER NOT NULL,
    display_id TEXT NOT NULL,
    state TEXT NOT NULL,
    start INTEGER,
FACTS    stop INTEGER
) STRICT;
CREATE UNIQUE INDEX records_key ON records (cluster, id, submit);
CREATE INDEX records_running ON records (cluster) WHERE state = 'running';
CREATE INDEX records_part_of ON records (part_of, cluster) WHERE part_of IS NOT NULL;
CREATE TABLE shares (
    record INTEGER NOT NULL REFERENCES records (record) ON DELETE CASCADE,
    device TEXT NOT NULL,
    start INTEGER,
    stop INTEGER,
    cpus INTEGER,
    cpu_list TEXT NOT NULL,
    gpus INTEGER,
    gpu_list TEXT NOT NULL,
    memory_bytes INTEGER,
    CLASS,
    PRIMARY KEY (record, device)
) STRICT, WITHOUT ROWID;
CREATE TABLE steps (
    record INTEGER NOT NULL REFERENCES records (record) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    step TEXT NOT NULL,
    name TEXT NOT NULL,
    state_word TEXT NOT NULL,
    start INTEGER,
    stop INTEGER,
    exit_code INTEGER,
    PRIMARY KEY (record, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE followed (
    path TEXT PRIMARY KEY,
    disk INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    head INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    lines INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// The numbers of rows.
const COUNTS: &str = "
CREATE TABLE counts (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counts VALUES ('visits', 0), ('local', 0), ('records', 0);
CREATE TRIGGER visit_in AFTER INSERT ON visits BEGIN
    UPDATE counts SET value = value + 1 WHERE name = 'visits';
    UPDATE runs SET visits = visits + 1 WHERE run = NEW.run;
END;
CREATE TRIGGER visit_out AFTER DELETE ON visits BEGIN
    UPDATE counts SET value = value - 1 WHERE name = 'visits';
    UPDATE runs SET visits = visits - 1 WHERE run = OLD.run;
END;
CREATE TRIGGER record_in AFTER INSERT ON records BEGIN
    UPDATE counts SET value = value + 1 WHERE name = 'records';
END;
CREATE TRIGGER record_out AFTER DELETE ON records BEGIN
    UPDATE counts SET value = value - 1 WHERE name = 'records';
END;
";

impl Registry {
    /// Opens the file and creates it if it is missing. `users` returns the machine's current users. The
    /// registry looks up the missing user ID or login name of a new job, and stores both. Only one process
    /// may write.
    ///
    /// # Errors
    /// The file cannot be created or read, is not a registry, or has another version.
    pub fn open(
        path: &Path,
        limits: Limits,
        users: impl Fn() -> Users + Send + Sync + 'static,
    ) -> Result<Self, RegistryError> {
        let writer = Mutex::new(open(path)?);
        let reader = Mutex::new(open_to_read(path)?);
        let quick_reader = Mutex::new(open_to_read(path)?);
        // Without a server ID, agents distinguish jobs by their IDs alone.
        let identity = crate::common::identity::of(path).unwrap_or_default();
        Ok(Self {
            writer,
            reader,
            quick_reader,
            limits,
            users: Box::new(users),
            write_budgets: WriteBudgets::default(),
            identity,
        })
    }
}

/// Opens the file for writing and creates it if it is missing.
pub(crate) fn open(path: &Path) -> Result<Connection, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let mut db = Connection::open(path).map_err(failed)?;
    // Checked first: a rejected file stays as it is.
    let found = check_version(&db, path)?;
    settle(&db).map_err(failed)?;
    // 32 MiB: one poll of a scheduler touches a page of each index for each user and device. With less,
    // SQLite writes pages to the disk and rereads them many times before the commit.
    db.pragma_update(None, "cache_size", -32_768).map_err(failed)?;
    if found == NEW {
        create(&mut db).map_err(failed)?;
    }
    // Files of this version from before these tables get them now.
    let later = [
        push_keys::TABLES,
        forgotten_pollers::TABLES,
        copied_jobs::TABLES,
        reports_of_inputs::TABLES,
    ];
    for tables in later {
        db.execute_batch(tables).map_err(failed)?;
    }
    Ok(db)
}

/// Opens a second, read-only connection that reads while another connection writes.
///
/// # Errors
/// The file cannot be opened.
pub fn open_to_read(path: &Path) -> Result<Connection, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let db = Connection::open(path).map_err(failed)?;
    settle(&db).map_err(failed)?;
    db.pragma_update(None, "query_only", true).map_err(failed)?;
    Ok(db)
}

/// Opens a registry read-only and checks its version. It changes nothing.
///
/// # Errors
/// The file cannot be read, or has another version.
pub fn check(path: &Path) -> Result<(), RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    check_version(&db, path).map(|_| ())
}

fn check_version(db: &Connection, path: &Path) -> Result<i64, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let found = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let (path, known) = (path.to_owned(), VERSION);
    match found {
        NEW | VERSION => Ok(found),
        _ if found > VERSION => Err(RegistryError::Newer { path, found, known }),
        _ => Err(RegistryError::Older { path, found, known }),
    }
}

/// Returns the defects that SQLite finds in a registry, at most 100 lines. It changes nothing.
///
/// # Errors
/// The file cannot be opened, or is too damaged for the check.
pub fn verify(path: &Path) -> Result<Vec<String>, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    db.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed)?;
    let mut check = db.prepare("PRAGMA integrity_check(100)").map_err(failed)?;
    let reported = check.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
    let reported: Vec<String> = reported.collect::<Result<_, _>>().map_err(failed)?;
    Ok(if reported == ["ok"] { Vec::new() } else { reported })
}

/// Copies a consistent snapshot of a registry. Another program may write to it meanwhile.
///
/// # Errors
/// The registry cannot be read, or the copy cannot be written. The target must not exist.
pub fn backup(path: &Path, to: &Path) -> Result<(), RegistryError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| RegistryError::Open { path, cause }
    };
    // Root may copy the file of another user, who could replace it by a link, or store code in its schema.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(path, flags).map_err(failed(path))?;
    db.pragma_update(None, "trusted_schema", false).map_err(failed(path))?;
    db.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed(path))?;
    db.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map_err(failed(to))?;
    Ok(())
}

/// Sets the options of a connection that the server's SQLite files share: write-ahead log, safe commits, and
/// bounded caches.
///
/// # Errors
/// SQLite fails.
pub fn settle(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(std::time::Duration::from_secs(10))?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    // WAL: readers do not wait for the writer. FULL: a commit survives a power failure.
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "foreign_keys", true)?;
    // 8 MiB of pages. SQLite truncates the WAL file to 16 MiB after a checkpoint.
    db.pragma_update(None, "cache_size", -8192)?;
    db.pragma_update(None, "journal_size_limit", 16 << 20)
}

fn create(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction()?;
    change.execute_batch(&tables())?;
    change.pragma_update(None, "application_id", APPLICATION)?;
    change.pragma_update(None, "user_version", VERSION)?;
    change.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_made_and_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        for _ in 0..2 {
            let db = open(&path).unwrap();
            let mode: String =
                db.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            let sync: i64 = db.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
            assert_eq!((mode.as_str(), sync), ("wal", 2));
        }
        assert!(open_to_read(&path).unwrap().execute("DELETE FROM runs", []).is_err());
    }

    #[test]
    fn a_registry_is_verified_without_being_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        assert!(verify(&path).is_err() && !path.try_exists().unwrap());
        drop(open(&path).unwrap());
        assert_eq!(verify(&path).unwrap(), [""; 0]);
        let mut bytes = std::fs::read(&path).unwrap();
        // Skip the header and the page of the schema.
        for page in bytes.chunks_mut(4096).skip(1) {
            page.fill(0x55);
        }
        std::fs::write(&path, bytes).unwrap();
        assert!(verify(&path).map_or(true, |reported| !reported.is_empty()));
    }

    #[test]
    fn a_file_of_another_version_and_one_that_is_none_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        let db = open(&path).unwrap();
        for (found, reason) in [(VERSION + 1, "newer than 8"), (VERSION - 1, "older than 8")] {
            db.pragma_update(None, "user_version", found).unwrap();
            let rejected = open(&path).unwrap_err().to_string();
            assert!(rejected.contains(&format!("version {found} is {reason}")), "{rejected}");
            assert!(rejected.starts_with(&path.display().to_string()), "{rejected}");
            assert_eq!(check(&path).unwrap_err().to_string(), rejected);
        }
        let text = dir.path().join("notes");
        std::fs::write(&text, "no database, but a text that is longer than a header".repeat(20))
            .unwrap();
        assert!(matches!(open(&text), Err(RegistryError::Open { .. })));
    }
}
