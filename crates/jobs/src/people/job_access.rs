//! A reader's access to jobs: their own, those of their accounts, or all. As one decision, and as conditions of
//! queries.

use crate::common::sql_parts::Clauses;
use crate::{AccessLevel, Reader, RegistryError};
use model::ClusterId;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

/// Returns a reader's access to a run of this user on this account.
pub(crate) fn sees(
    db: &Connection,
    reader: Reader,
    cluster: &ClusterId,
    (uid, account): (Option<u32>, Option<&str>),
) -> Result<AccessLevel, RegistryError> {
    if reader.sees_every_job() {
        return Ok(AccessLevel::All);
    }
    let Some(own) = reader.uid() else { return Ok(AccessLevel::Nothing) };
    if uid == Some(own) {
        return Ok(AccessLevel::All);
    }
    let Some(account) = account else { return Ok(AccessLevel::Nothing) };
    let mut find = db.prepare_cached(
        "SELECT sees FROM account_sight WHERE uid = ?1 AND cluster = ?2 AND account = ?3",
    )?;
    let word: Option<String> =
        find.query_row(params![own, cluster.as_str(), account], |row| row.get(0)).optional()?;
    Ok(word.map_or(AccessLevel::Nothing, |word| AccessLevel::of_word(&word)))
}

/// Limits a query of runs `r` to those with at least the access level `least`. It tests each row.
pub(crate) fn narrow(clauses: &mut Clauses, reader: Reader, least: AccessLevel) {
    if reader.sees_every_job() {
        return;
    }
    let clause = format!(
        "(r.uid = ? OR EXISTS (SELECT 1 FROM account_sight s
          WHERE s.uid = ? AND s.cluster = r.cluster AND s.account = r.account{}))",
        enough(least)
    );
    let uid = number(reader);
    clauses.and_all(&clause, [uid.clone(), uid]);
}

/// Starts a query of runs `r` from the runs to which the reader has full access. It selects runs that
/// may overlap a time range, by scheduler times and node times together.
pub(crate) fn begin(clauses: &mut Clauses, reader: Reader, (from, to): (i64, i64)) {
    let own = own(number(reader), (from, to));
    let accounts = format!(
        "SELECT x.run FROM account_sight s CROSS JOIN spans c
         CROSS JOIN runs x INDEXED BY runs_account_time
         ON x.account = s.account AND x.class = c.class
         AND x.start BETWEEN ? - c.reach AND ? + c.reach
         WHERE s.uid = ? AND x.cluster = s.cluster{}",
        enough(AccessLevel::All)
    );
    let clause = format!("r.run IN ({OF_USER} UNION ALL {accounts})");
    clauses.and_all(&clause, own.into_iter().chain([from.into(), to.into(), number(reader)]));
}

/// Starts a query from the runs of a user, in the same way.
pub(crate) fn begin_with_own(clauses: &mut Clauses, uid: u32, between: (i64, i64)) {
    clauses.and_all(&format!("r.run IN ({OF_USER})"), own(Value::Integer(uid.into()), between));
}

const OF_USER: &str = "SELECT x.run FROM spans c CROSS JOIN runs x INDEXED BY runs_uid_time
    ON x.uid = ? AND x.class = c.class AND x.start BETWEEN ? - c.reach AND ? + c.reach";

fn own(uid: Value, (from, to): (i64, i64)) -> [Value; 3] {
    [uid, from.into(), to.into()]
}

/// Returns the accounts whose jobs a user may access with at least `least`, up to the given number.
pub(crate) fn shown(
    db: &Connection,
    uid: u32,
    least: AccessLevel,
    most: usize,
) -> rusqlite::Result<Vec<(String, String)>> {
    let mut find = db.prepare_cached(&format!(
        "SELECT s.cluster, s.account FROM account_sight s WHERE s.uid = ?{} LIMIT {most}",
        enough(least)
    ))?;
    let shown = find.query_map([uid], |row| Ok((row.get(0)?, row.get(1)?)))?;
    shown.collect()
}

const fn enough(least: AccessLevel) -> &'static str {
    if matches!(least, AccessLevel::All) { " AND s.sees = 'all'" } else { "" }
}

/// Returns the reader's user ID, or NULL for readers without one. NULL equals nothing, so they match no
/// job.
fn number(reader: Reader) -> Value {
    reader.uid().map_or(Value::Null, |uid| Value::Integer(uid.into()))
}
