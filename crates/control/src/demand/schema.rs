//! Tables of the file. `changes.settings` is the message `Settings` of `proto/batch.proto`. A person may add rows to `promotions` with `sqlite3`. The defaults mark such a
//! row as written by hand now, without expiry.

use jobs::RegistryError;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// The version written to `PRAGMA user_version`.
const VERSION: i64 = 2;

/// Application ID "jbmd": `file` and SQLite recognize the file by it.
const APPLICATION: i64 = 0x6a62_6d64;

const TABLES: &str = "
CREATE TABLE changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    nodes TEXT NOT NULL,
    settings BLOB NOT NULL,
    until INTEGER NOT NULL,
    made INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    ended INTEGER,
    ended_by TEXT
) STRICT;
CREATE INDEX changes_held ON changes (until) WHERE ended IS NULL;
CREATE INDEX changes_made ON changes (made);
CREATE INDEX changes_ended ON changes (ended);
CREATE TABLE flushes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    nodes TEXT NOT NULL,
    source TEXT NOT NULL,
    made INTEGER NOT NULL,
    made_by TEXT NOT NULL
) STRICT;
CREATE INDEX flushes_made ON flushes (made);
CREATE TABLE promotions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    device TEXT NOT NULL,
    metric TEXT NOT NULL DEFAULT '.*',
    until INTEGER,
    made INTEGER NOT NULL DEFAULT (unixepoch() * 1000000),
    made_by TEXT NOT NULL DEFAULT 'hand',
    origin TEXT NOT NULL DEFAULT 'hand' CHECK (origin IN ('api', 'job', 'rule', 'hand')),
    job TEXT,
    uid INTEGER,
    ended INTEGER,
    ended_by TEXT
) STRICT;
CREATE INDEX promotions_held ON promotions (until) WHERE ended IS NULL;
CREATE INDEX promotions_made ON promotions (made);
CREATE INDEX promotions_ended ON promotions (ended);
";

/// Index of promotions by jobs that a person ended. The server creates it in any file that lacks it,
/// including those that an earlier program still uses.
const UNDONE: &str = "
CREATE INDEX IF NOT EXISTS promotions_undone ON promotions (job, metric, origin, ended)
    WHERE ended_by IS NOT NULL AND job IS NOT NULL;
";

/// Opens the file for writing and creates it if it is missing.
pub(super) fn open(path: &Path) -> Result<Connection, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let mut db = Connection::open(path).map_err(failed)?;
    jobs::settle(&db).map_err(failed)?;
    if check_version(&db, path)? == 0 {
        create(&mut db).map_err(failed)?;
    }
    db.execute_batch(UNDONE).map_err(failed)?;
    Ok(db)
}

/// Opens the file of requests read-only and checks its version. It changes nothing.
///
/// # Errors
/// The file cannot be read, or has another version.
pub fn check(path: &Path) -> Result<(), RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    check_version(&db, path).map(|_| ())
}

/// The version of the file; 0 if it is new.
fn check_version(db: &Connection, path: &Path) -> Result<i64, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let found = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let (path, known) = (path.to_owned(), VERSION);
    match found {
        0 | VERSION => Ok(found),
        _ if found > VERSION => Err(RegistryError::Newer { path, found, known }),
        _ => Err(RegistryError::Older { path, found, known }),
    }
}

fn create(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction()?;
    change.execute_batch(TABLES)?;
    change.pragma_update(None, "application_id", APPLICATION)?;
    change.pragma_update(None, "user_version", VERSION)?;
    change.commit()
}
