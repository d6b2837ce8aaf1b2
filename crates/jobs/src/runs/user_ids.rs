//! Adds user IDs to jobs that name a user without one.

use crate::common::registry::LoadUsers;
use crate::common::sql_parts::key;
use crate::people::names::{NameSource, UnresolvedUser, learn};
use crate::runs::store_runs::relate;
use crate::{Registry, RegistryError};
use model::{ClusterId, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};
use std::collections::BTreeSet;

/// Maximum number of runs of one user that one call updates.
const NUMBERED_MAX: i64 = 10_000;

impl Registry {
    /// Stores a user's ID from the name service and adds it to jobs of every cluster that name the user
    /// without an ID. One call updates at most 10 000 runs and returns their number. On disk when this
    /// returns.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then.
    pub fn number_user(
        &self,
        name: &str,
        uid: u32,
        received: Timestamp,
    ) -> Result<u64, RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let source = (NameSource::NameService, &ClusterId::local());
        learn(&change, &self.users, source, (name, uid), received)?;
        let numbered = number(&change, &self.users, (name, None), uid)?;
        change.commit()?;
        Ok(numbered)
    }

    /// Adds a user ID that is known in a cluster to the jobs there that name the user without an ID. One
    /// call updates at most 10 000 runs and returns their number. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then.
    pub fn number_user_of(&self, user: &UnresolvedUser, uid: u32) -> Result<u64, RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let numbered =
            number(&change, &self.users, (&user.name, Some(user.cluster.as_str())), uid)?;
        change.commit()?;
        Ok(numbered)
    }
}

/// Adds a user ID to the runs of a login name without one, in one cluster or in all.
fn number(
    db: &Connection,
    users: &LoadUsers,
    (name, cluster): (&str, Option<&str>),
    uid: u32,
) -> Result<u64, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT run, record, cluster, id FROM runs
         WHERE user = ?1 AND uid IS NULL AND (?3 IS NULL OR cluster = ?3) LIMIT ?2",
    )?;
    let found = find.query_map(params![name, NUMBERED_MAX, cluster], |row| {
        let place: (String, i64) = (row.get(2)?, row.get(3)?);
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?, place))
    })?;
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
    let mut recorded = BTreeSet::new();
    for (run, record, (cluster, id)) in found {
        db.prepare_cached(
            "UPDATE records SET uid = ?2 WHERE record = ?1 AND user = ?3 AND uid IS NULL",
        )?
        .execute(params![record, uid, name])?;
        db.prepare_cached(
            "UPDATE runs SET uid = ?2,
                 record_uid = (SELECT o.uid FROM records o WHERE o.record = runs.record),
                 node_uid = CASE WHEN node_user = ?3 THEN coalesce(node_uid, ?2) ELSE node_uid END
             WHERE run = ?1",
        )?
        .execute(params![run, uid, name])?;
        if record.is_some() {
            recorded.insert(key(cluster, id)?);
        }
    }
    // A visit that names another user than the record leaves the record's run.
    for key in recorded {
        relate(db, &key, users)?;
    }
    Ok(count)
}
