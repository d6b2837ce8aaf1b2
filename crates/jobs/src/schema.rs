//! The registry's file: tables, schema version, and SQLite settings for safe writes.

use crate::common::paths;
use crate::nodes::{forgotten_nodes, rule_latches, stopped};
use crate::people::{accounts, names, user_tokens};
use crate::presence::verified_presence;
use crate::runs::{env_requests, oom_kills, strays, visit_shares};
use crate::{Limits, Registry, RegistryError, Users};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::Mutex;

/// The schema version, stored in `PRAGMA user_version`.
const VERSION: i64 = 7;

/// Size of a connection's cache of prepared statements. It holds all statements of this crate.
/// Preparing a statement takes longer than executing it.
const STATEMENTS: usize = 128;

/// Application ID "jbmt": `file` and SQLite recognize the file by it.
const APPLICATION: i64 = 0x6a62_6d74;

/// Migrations from each version to the next, starting with an empty file.
const STEPS: [&[&str]; 7] = [
    &[VISITS],
    &[RECORDS],
    &[accounts::TABLES, user_tokens::TABLES],
    &[
        paths::INDEXES,
        accounts::LEAVING,
        stopped::TABLES,
        WHO,
        names::TABLES,
        verified_presence::TABLES,
    ],
    &[env_requests::COLUMN],
    &[forgotten_nodes::TABLES],
    &[accounts::BY_RECORD, names::BY_CLUSTER],
];

/// Version 1: the visits that nodes report, and the runs computed from them.
const VISITS: &str = "
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER,
    last_start INTEGER NOT NULL,
    visits INTEGER NOT NULL DEFAULT 0,
    spelling TEXT NOT NULL,
    user TEXT,
    uid INTEGER,
    account TEXT,
    name TEXT,
    exit_code INTEGER,
    registered INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX runs_key ON runs (cluster, id, start);
CREATE INDEX runs_id ON runs (id);
CREATE INDEX runs_spelling ON runs (spelling);
CREATE INDEX runs_start ON runs (start);
CREATE INDEX runs_open ON runs (start) WHERE stop IS NULL;
CREATE INDEX runs_uid ON runs (uid, start);
CREATE TABLE visits (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    device TEXT NOT NULL,
    start INTEGER NOT NULL,
    told INTEGER,
    stop INTEGER,
    PRIMARY KEY (run, device, start)
) STRICT, WITHOUT ROWID;
CREATE INDEX visits_device ON visits (device, start);
CREATE INDEX visits_open ON visits (device) WHERE stop IS NULL;
CREATE INDEX visits_open_of_run ON visits (run) WHERE stop IS NULL;
CREATE TABLE counts (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counts VALUES ('visits', 0), ('local', 0);
CREATE TRIGGER visit_in AFTER INSERT ON visits BEGIN
    UPDATE counts SET value = value + 1 WHERE name = 'visits';
    UPDATE runs SET visits = visits + 1 WHERE run = NEW.run;
END;
CREATE TRIGGER visit_out AFTER DELETE ON visits BEGIN
    UPDATE counts SET value = value - 1 WHERE name = 'visits';
    UPDATE runs SET visits = visits - 1 WHERE run = OLD.run;
END;
";

/// Version 2: the records that schedulers report.
///
/// - A run without visits stands for a record without visits. For such a run without `started`, `start`
///   is the time of submission.
/// - `told` is the record's state.
/// - `merged`: the visits form one run only because of a record.
/// - `user` and `uid`: the record's value has precedence over the nodes' value.
/// - `followed` holds the read position in a file of records.
const RECORDS: &str = "
CREATE TABLE records (
    record INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    submit INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    received INTEGER NOT NULL,
    spelling TEXT NOT NULL,
    part_of INTEGER,
    array_index INTEGER,
    user TEXT,
    uid INTEGER,
    account TEXT,
    project TEXT,
    name TEXT,
    queue TEXT,
    state TEXT NOT NULL,
    state_word TEXT NOT NULL,
    start INTEGER,
    stop INTEGER,
    exit_code INTEGER,
    types TEXT NOT NULL,
    requested_nodes INTEGER,
    requested_cpus INTEGER,
    requested_gpus INTEGER,
    requested_memory_bytes INTEGER,
    requested_wall_seconds REAL,
    requested_cpu_seconds REAL,
    used_nodes INTEGER,
    used_cpus INTEGER,
    used_gpus INTEGER,
    used_memory_bytes INTEGER,
    used_wall_seconds REAL,
    used_cpu_seconds REAL
) STRICT;
CREATE UNIQUE INDEX records_key ON records (cluster, id, submit);
CREATE INDEX records_running ON records (cluster) WHERE state = 'running';
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
    PRIMARY KEY (record, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_device ON shares (device, start);
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
INSERT INTO counts VALUES ('records', 0);
CREATE TRIGGER record_in AFTER INSERT ON records BEGIN
    UPDATE counts SET value = value + 1 WHERE name = 'records';
END;
CREATE TRIGGER record_out AFTER DELETE ON records BEGIN
    UPDATE counts SET value = value - 1 WHERE name = 'records';
END;
ALTER TABLE runs ADD COLUMN started INTEGER NOT NULL DEFAULT 1;
ALTER TABLE runs ADD COLUMN told TEXT;
ALTER TABLE runs ADD COLUMN merged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN node_user TEXT;
ALTER TABLE runs ADD COLUMN node_uid INTEGER;
ALTER TABLE runs ADD COLUMN record INTEGER REFERENCES records (record) ON DELETE SET NULL;
UPDATE runs SET node_user = user, node_uid = uid WHERE registered = 0;
CREATE INDEX runs_record ON runs (record) WHERE record IS NOT NULL;
DROP INDEX runs_start;
CREATE INDEX runs_newest ON runs (start DESC, cluster, id);
CREATE INDEX runs_account ON runs (account, start) WHERE account IS NOT NULL;
";

/// Version 4: each visit stores the identity that its node reported, since job IDs are reused.
/// `spelling` is set if it differs from the ID. `clock_us` is the offset of the node's clock. A
/// record's submission time is `guessed` until it is reported. The migration copies the identity of
/// earlier visits from all runs of the ID.
const WHO: &str = "
ALTER TABLE visits ADD COLUMN spelling TEXT;
ALTER TABLE visits ADD COLUMN user TEXT;
ALTER TABLE visits ADD COLUMN uid INTEGER;
ALTER TABLE visits ADD COLUMN clock_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN clock_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE records ADD COLUMN guessed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX records_part_of ON records (part_of, cluster) WHERE part_of IS NOT NULL;
UPDATE visits SET (spelling, user, uid) =
    (SELECT nullif(r.spelling, CAST(r.id AS TEXT)), r.node_user, r.node_uid
     FROM runs r WHERE r.run = visits.run);
";

impl Registry {
    /// Opens the file and creates it if it is missing. `users` returns the machine's current users. The
    /// registry looks up the missing user ID or login name of a new job, and stores both. Only one process
    /// may write.
    ///
    /// # Errors
    /// The file cannot be created or read, is not a registry, or was written by a newer program.
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
        Ok(Self { writer, reader, quick_reader, limits, users: Box::new(users), identity })
    }
}

/// Opens the file for writing and creates it if it is missing.
pub(crate) fn open(path: &Path) -> Result<Connection, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let mut db = Connection::open(path).map_err(failed)?;
    settle(&db).map_err(failed)?;
    // 32 MiB: one poll of a scheduler touches a page of each index for each user and device. With less,
    // SQLite writes pages to the disk and rereads them many times before the commit.
    db.pragma_update(None, "cache_size", -32_768).map_err(failed)?;
    let found = check_version(&db, path)?;
    upgrade(&mut db, found).map_err(failed)?;
    let tables =
        [rule_latches::TABLES, oom_kills::TABLE, strays::TABLE, visit_shares::TABLE].concat();
    db.execute_batch(&format!("BEGIN; {tables} COMMIT;")).map_err(failed)?;
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
/// The file cannot be read, or a newer program wrote it.
pub fn check(path: &Path) -> Result<(), RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    check_version(&db, path).map(|_| ())
}

fn check_version(db: &Connection, path: &Path) -> Result<i64, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let found = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    if found > VERSION {
        return Err(RegistryError::Newer { path: path.to_owned(), found, known: VERSION });
    }
    Ok(found)
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
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let db = db.map_err(failed(path))?;
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

/// Migrates an earlier or new file to the current version in one transaction.
fn upgrade(db: &mut Connection, found: i64) -> rusqlite::Result<()> {
    let done = usize::try_from(found).unwrap_or(0);
    let change = db.transaction()?;
    for tables in STEPS.iter().skip(done).copied().flatten() {
        change.execute_batch(tables)?;
    }
    if done < STEPS.len() {
        change.pragma_update(None, "application_id", APPLICATION)?;
        change.pragma_update(None, "user_version", VERSION)?;
    }
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
    fn a_newer_file_and_one_that_is_none_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
        let rejected = open(&path);
        assert!(
            matches!(rejected, Err(RegistryError::Newer { known: VERSION, .. })),
            "{rejected:?}"
        );
        let text = dir.path().join("notes");
        std::fs::write(&text, "no database, but a text that is longer than a header".repeat(20))
            .unwrap();
        assert!(matches!(open(&text), Err(RegistryError::Open { .. })));
    }
}
