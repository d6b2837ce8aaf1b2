//! The file's tables. A person may write rows of `promotions` with `sqlite3`: what he leaves out is as if he
//! had written it by hand now, until he deletes it.

use crate::RegistryError;
use rusqlite::Connection;
use std::path::Path;

/// The version written to `PRAGMA user_version`.
const VERSION: i64 = 1;

/// "jbmd", so that `file` and SQLite tell whose file it is.
const APPLICATION: i64 = 0x6a62_6d64;

const TABLES: &str = "
CREATE TABLE changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    nodes TEXT NOT NULL,
    until INTEGER NOT NULL,
    made INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    ended INTEGER,
    ended_by TEXT
) STRICT;
CREATE INDEX changes_held ON changes (until) WHERE ended IS NULL;
CREATE INDEX changes_made ON changes (made);
CREATE INDEX changes_ended ON changes (ended);
CREATE TABLE entries (
    change INTEGER NOT NULL REFERENCES changes (number) ON DELETE CASCADE,
    section TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (change, section, key)
) STRICT, WITHOUT ROWID;
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

/// What finds the rows that people ended of those that follow from jobs. Made where it is missing, as also in a
/// file that an earlier program made and goes on using.
const UNDONE: &str = "
CREATE INDEX IF NOT EXISTS promotions_undone ON promotions (job, metric, origin, ended)
    WHERE ended_by IS NOT NULL AND job IS NOT NULL;
";

/// Opens the file for writing, making it if need be.
pub(super) fn open(path: &Path) -> Result<Connection, RegistryError> {
    let failed = |cause| RegistryError::Open { path: path.to_owned(), cause };
    let mut db = Connection::open(path).map_err(failed)?;
    crate::schema::settle(&db).map_err(failed)?;
    let found: i64 =
        db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    if found > VERSION {
        return Err(RegistryError::Newer { path: path.to_owned(), found, known: VERSION });
    }
    if found == 0 {
        create(&mut db).map_err(failed)?;
    }
    db.execute_batch(UNDONE).map_err(failed)?;
    Ok(db)
}

fn create(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction()?;
    change.execute_batch(TABLES)?;
    change.pragma_update(None, "application_id", APPLICATION)?;
    change.pragma_update(None, "user_version", VERSION)?;
    change.commit()
}
