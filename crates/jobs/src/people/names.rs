//! Login names and user IDs that the machine's own user file lacks.
//!
//! A site keeps its users in a directory service. Some schedulers report both login name and user ID,
//! some only the name. Some report one while a job runs and the other afterwards. The registry stores
//! each pair that a scheduler or the name service reports. A name alone thus means the same user also
//! after a restart. Pairs from nodes are not stored here: a node must not decide the owner of other
//! nodes' jobs.
//!
//! A scheduler's pair applies to its own cluster. A sender for one cluster thus cannot take over jobs
//! of another. The machine's file and the name service apply to all clusters and have precedence. A
//! pushed pair adds a name and never replaces one.

use crate::common::registry::LoadUsers;
use crate::{Registry, RegistryError};
use model::{ClusterId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;

/// Maximum number of stored names. When a cluster reports one more, the name that the same cluster
/// reported longest ago is evicted.
const NAMES_MAX: i64 = 200_000;
/// The `cluster` value of names from the name service.
const EVERY_CLUSTER: &str = "";

/// The table. `cluster` is empty for names from the name service.
pub(crate) const TABLES: &str = "
CREATE TABLE names (
    cluster TEXT NOT NULL,
    name TEXT NOT NULL,
    uid INTEGER NOT NULL,
    reported INTEGER NOT NULL,
    PRIMARY KEY (cluster, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX names_uid ON names (uid, cluster, reported);
CREATE INDEX names_reported ON names (cluster, reported);
CREATE INDEX runs_unnumbered ON runs (user, cluster, record IS NULL)
    WHERE uid IS NULL AND user IS NOT NULL;
";

/// The source of a name and user ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSource {
    /// The name service. Applies to every cluster.
    NameService,
    /// The scheduler of a cluster: the server polls it or reads its file.
    Polled,
    /// A push in place of the scheduler. It replaces nothing.
    Pushed,
}

/// Returns the user ID of a login name in a cluster. The machine and the name service have precedence
/// over the cluster's scheduler.
pub(crate) fn uid_of(
    db: &Connection,
    users: &LoadUsers,
    (cluster, name): (&ClusterId, &str),
) -> rusqlite::Result<Option<u32>> {
    if let Some(uid) = users().uid(name) {
        return Ok(Some(uid));
    }
    match reported_uid(db, EVERY_CLUSTER, name)? {
        Some(uid) => Ok(Some(uid)),
        None => reported_uid(db, cluster.as_str(), name),
    }
}

fn reported_uid(db: &Connection, cluster: &str, name: &str) -> rusqlite::Result<Option<u32>> {
    let mut find = db.prepare_cached("SELECT uid FROM names WHERE cluster = ?1 AND name = ?2")?;
    find.query_row([cluster, name], |row| row.get(0)).optional()
}

/// Returns the login name of a user ID. The machine and the name service have precedence over the
/// latest report of the cluster's scheduler.
pub(crate) fn name_of(
    db: &Connection,
    users: &LoadUsers,
    (cluster, uid): (Option<&ClusterId>, u32),
) -> rusqlite::Result<Option<String>> {
    if let Some(name) = users().name(uid) {
        return Ok(Some(name.to_owned()));
    }
    let cluster = cluster.map_or(EVERY_CLUSTER, ClusterId::as_str);
    // The empty cluster sorts first.
    let mut find = db.prepare_cached(
        "SELECT name FROM names WHERE uid = ?1 AND cluster IN ('', ?2)
         ORDER BY cluster, reported DESC LIMIT 1",
    )?;
    find.query_row(params![uid, cluster], |row| row.get(0)).optional()
}

/// Stores a pair from a scheduler or the name service, unless the machine knows it.
pub(crate) fn learn(
    db: &Connection,
    users: &LoadUsers,
    (source, cluster): (NameSource, &ClusterId),
    (name, uid): (&str, u32),
    received: Timestamp,
) -> rusqlite::Result<()> {
    let of_all = source == NameSource::NameService;
    let cluster = if of_all { EVERY_CLUSTER } else { cluster.as_str() };
    if users().uid(name).is_some() || !of_all && reported_uid(db, EVERY_CLUSTER, name)?.is_some() {
        return Ok(());
    }
    let known = reported_uid(db, cluster, name)?;
    if known == Some(uid) || known.is_some() && source == NameSource::Pushed {
        return Ok(());
    }
    if of_all {
        db.prepare_cached("DELETE FROM names WHERE name = ?1 AND cluster <> ''")?
            .execute([name])?;
    }
    db.prepare_cached(
        "INSERT OR REPLACE INTO names (cluster, name, uid, reported) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![cluster, name, uid, received.0])?;
    let kept: i64 =
        db.prepare_cached("SELECT count(*) FROM names")?.query_row([], |row| row.get(0))?;
    if kept > NAMES_MAX {
        db.prepare_cached(
            "DELETE FROM names WHERE cluster = ?1 AND name =
                 (SELECT name FROM names WHERE cluster = ?1 ORDER BY reported, name LIMIT 1)",
        )?
        .execute([cluster])?;
    }
    Ok(())
}

/// A login name in the jobs of a cluster without a user ID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnresolvedUser {
    /// The login name.
    pub name: Box<str>,
    /// The cluster of the jobs.
    pub cluster: ClusterId,
}

/// A page of names without a user ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnresolvedUserPage {
    /// Names in scheduler records come first. Names that only nodes report follow in turn: the first of
    /// each node, then the second of each, and so on.
    pub names: Vec<UnresolvedUser>,
    /// Start of the next page: the name before it. `None`: start from the beginning.
    pub last: Option<UnresolvedUser>,
}

impl Registry {
    /// Returns login names in jobs without a known user ID, after a given name and up to `limit`. Such
    /// users cannot be identified and have access to none of their jobs. A node with many names does not
    /// displace other nodes' names.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn users_without_id(
        &self,
        after: Option<&UnresolvedUser>,
        limit: usize,
    ) -> Result<UnresolvedUserPage, RegistryError> {
        let reader = self.reader.lock();
        let (mut of_records, mut of_nodes) =
            (Vec::new(), BTreeMap::<_, Vec<UnresolvedUser>>::new());
        // One look-up for each name: some names have many runs.
        let mut find = reader.prepare_cached(
            "SELECT r.user, r.cluster, r.record IS NULL,
                 (SELECT v.device FROM visits v WHERE v.run = r.run LIMIT 1)
             FROM runs r INDEXED BY runs_unnumbered
             WHERE r.uid IS NULL AND r.user IS NOT NULL AND (r.user, r.cluster) > (?1, ?2)
             ORDER BY r.user, r.cluster, r.record IS NULL LIMIT 1",
        )?;
        let mut last = after.cloned();
        let mut page = UnresolvedUserPage::default();
        for _ in 0..limit {
            let (name, cluster) =
                last.as_ref().map_or(("", ""), |last| (&*last.name, last.cluster.as_str()));
            let mut rows = find.query([name, cluster])?;
            let Some(row) = rows.next()? else { return Ok(page.fill(None, of_records, of_nodes)) };
            let cluster: String = row.get(1)?;
            let cluster = ClusterId::new(&cluster).map_err(|_| RegistryError::Damaged(cluster))?;
            let found = UnresolvedUser { name: row.get(0)?, cluster };
            last = Some(found.clone());
            if row.get(2)? {
                let device: Option<String> = row.get(3)?;
                of_nodes.entry(device).or_default().push(found);
            } else {
                of_records.push(found);
            }
        }
        page = page.fill(last, of_records, of_nodes);
        Ok(page)
    }

    /// Returns the number of jobs that name a user without a known user ID.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn jobs_without_id(&self) -> Result<u64, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader
            .prepare_cached("SELECT count(*) FROM runs WHERE uid IS NULL AND user IS NOT NULL")?;
        let count: i64 = find.query_row([], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// Returns the user ID of a login name in a cluster, from the machine or from stored reports.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn user_id_of(&self, user: &UnresolvedUser) -> Result<Option<u32>, RegistryError> {
        let name = (&user.cluster, &*user.name);
        Ok(uid_of(&self.reader.lock(), &self.users, name)?)
    }
}

impl UnresolvedUserPage {
    fn fill(
        mut self,
        last: Option<UnresolvedUser>,
        of_records: Vec<UnresolvedUser>,
        of_nodes: BTreeMap<Option<String>, Vec<UnresolvedUser>>,
    ) -> Self {
        (self.names, self.last) = (of_records, last);
        let mut queues: Vec<_> = of_nodes.into_values().map(Vec::into_iter).collect();
        while !queues.is_empty() {
            queues.retain_mut(|queue| queue.next().map(|name| self.names.push(name)).is_some());
        }
        self
    }
}
