//! Who is who: login names and numbers of users, where the machine's own file does not have them.
//!
//! A site keeps its users in a directory service. Some schedulers tell name and number, some only the name, and
//! the same scheduler the one while a job runs and the other afterwards. A pair that a scheduler told, or that
//! the name service did, is kept, so that a name alone means the same user also after a restart. What a node
//! tells is of its own jobs, and is not kept here: it must not say whose the jobs of other nodes are.

use crate::common::registry::{AskUsers, lock};
use crate::{Registry, RegistryError};
use model::Timestamp;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// Most names that are kept; the one that was told longest ago goes first.
const NAMES_MAX: i64 = 200_000;
/// Most runs of one user that are given his number at a time.
const NUMBERED_MAX: i64 = 10_000;

/// The tables.
pub(crate) const TABLES: &str = "
CREATE TABLE names (
    name TEXT PRIMARY KEY,
    uid INTEGER NOT NULL,
    told INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX names_uid ON names (uid, told);
CREATE INDEX names_told ON names (told);
CREATE INDEX runs_unnumbered ON runs (user) WHERE uid IS NULL AND user IS NOT NULL;
";

/// The number of a login name: as the machine has it, else as it was told.
pub(crate) fn uid_of(
    db: &Connection,
    users: &AskUsers,
    name: &str,
) -> rusqlite::Result<Option<u32>> {
    if let Some(uid) = users().uid(name) {
        return Ok(Some(uid));
    }
    let mut find = db.prepare_cached("SELECT uid FROM names WHERE name = ?1")?;
    find.query_row([name], |row| row.get(0)).optional()
}

/// The login name of a number: as the machine has it, else as it was told last.
pub(crate) fn name_of(
    db: &Connection,
    users: &AskUsers,
    uid: u32,
) -> rusqlite::Result<Option<String>> {
    if let Some(name) = users().name(uid) {
        return Ok(Some(name.to_owned()));
    }
    let mut find =
        db.prepare_cached("SELECT name FROM names WHERE uid = ?1 ORDER BY told DESC LIMIT 1")?;
    find.query_row([uid], |row| row.get(0)).optional()
}

/// Keeps what a scheduler or the name service told, where the machine does not have it.
pub(crate) fn learn(
    db: &Connection,
    users: &AskUsers,
    (name, uid): (&str, u32),
    received: Timestamp,
) -> rusqlite::Result<()> {
    let mut find = db.prepare_cached("SELECT uid FROM names WHERE name = ?1")?;
    let known: Option<u32> = find.query_row([name], |row| row.get(0)).optional()?;
    if known == Some(uid) || users().uid(name).is_some() {
        return Ok(());
    }
    db.prepare_cached("INSERT OR REPLACE INTO names (name, uid, told) VALUES (?1, ?2, ?3)")?
        .execute(params![name, uid, received.0])?;
    let kept: i64 =
        db.prepare_cached("SELECT count(*) FROM names")?.query_row([], |row| row.get(0))?;
    if kept > NAMES_MAX {
        db.prepare_cached(
            "DELETE FROM names WHERE name = (SELECT name FROM names ORDER BY told, name LIMIT 1)",
        )?
        .execute([])?;
    }
    Ok(())
}

impl Registry {
    /// Login names of users of jobs whose number nobody told, in order: who they are cannot be told, so that
    /// they see no job of theirs. At most so many.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn users_without_number(&self, limit: usize) -> Result<Vec<Box<str>>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT DISTINCT user FROM runs WHERE uid IS NULL AND user IS NOT NULL
             ORDER BY user LIMIT ?1",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = find.query_map([limit], |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// How many jobs name a user whose number nobody told.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn jobs_without_number(&self) -> Result<u64, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader
            .prepare_cached("SELECT count(*) FROM runs WHERE uid IS NULL AND user IS NOT NULL")?;
        let count: i64 = find.query_row([], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// The number of a login name, as the machine has it or as it was told.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn user_number(&self, name: &str) -> Result<Option<u32>, RegistryError> {
        Ok(uid_of(&lock(&self.reader), &self.users, name)?)
    }

    /// Keeps a user's number, and gives it to the jobs that name him and have none: to at most 10 000 at a
    /// time. Says to how many. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails: then nothing of it is kept.
    pub fn number_user(
        &self,
        name: &str,
        uid: u32,
        received: Timestamp,
    ) -> Result<u64, RegistryError> {
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        learn(&change, &self.users, (name, uid), received)?;
        let mut find = change.prepare_cached(
            "SELECT run, record FROM runs WHERE user = ?1 AND uid IS NULL LIMIT ?2",
        )?;
        let found = find.query_map(params![name, NUMBERED_MAX], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
        })?;
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        drop(find);
        for (run, record) in &found {
            change
                .prepare_cached(
                    "UPDATE records SET uid = ?2 WHERE record = ?1 AND user = ?3 AND uid IS NULL",
                )?
                .execute(params![record, uid, name])?;
            change
                .prepare_cached(
                    "UPDATE runs SET uid = ?2, node_uid =
                         CASE WHEN node_user = ?3 THEN coalesce(node_uid, ?2) ELSE node_uid END
                     WHERE run = ?1",
                )?
                .execute(params![run, uid, name])?;
        }
        change.commit()?;
        Ok(u64::try_from(found.len()).unwrap_or(u64::MAX))
    }
}
