//! Changes of agents' settings, and flushes of what a burst kept.

use super::{BY_RULE_MAX, Demand, DemandError, count};
use model::{NodeList, Timestamp};
use rusqlite::{Connection, Transaction, params};

/// A setting of an agent, as it stands in TOML: `[section]`, `key = value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// `sources.perf`, `burst.cpu`.
    pub section: Box<str>,
    /// `period`.
    pub key: Box<str>,
    /// `"1s"`, quotes and all.
    pub value: Box<str>,
}

/// `sources.perf.period = "1s"`.
impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{} = {}", self.section, self.key, self.value)
    }
}

/// A change that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChange {
    /// Of which nodes.
    pub nodes: NodeList,
    /// Until when.
    pub until: Timestamp,
    /// Who wants it.
    pub by: Box<str>,
    /// What: each setting once.
    pub entries: Vec<Entry>,
}

/// A change that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number; a later one's is larger.
    pub number: i64,
    /// Of which nodes.
    pub nodes: NodeList,
    /// Until when.
    pub until: Timestamp,
    /// Since when.
    pub made: Timestamp,
    /// By whom.
    pub by: Box<str>,
    /// What, in order of section and key.
    pub entries: Vec<Entry>,
}

/// A wish that nodes send now what a burst kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Its number, which is never given again.
    pub number: i64,
    /// Which nodes.
    pub nodes: NodeList,
    /// Of which source.
    pub source: Box<str>,
    /// When.
    pub made: Timestamp,
    /// Who wants it.
    pub by: Box<str>,
}

impl Demand {
    /// Changes settings of nodes until a time; gives the change's number.
    ///
    /// # Errors
    /// SQLite fails, or too many changes hold.
    pub fn change(&self, new: &NewChange, now: Timestamp) -> Result<i64, DemandError> {
        self.write(|change| {
            let most = self.limits.changes_max;
            if count(change, "changes", now)? >= most {
                return Err(DemandError::Full { what: "changes of settings", most });
            }
            let number = change
                .prepare_cached(
                    "INSERT INTO changes (nodes, until, made, made_by) VALUES (?1, ?2, ?3, ?4)",
                )?
                .insert(params![new.nodes.as_str(), new.until.0, now.0, new.by])?;
            let mut insert = change.prepare_cached(
                "INSERT INTO entries (change, section, key, value) VALUES (?1, ?2, ?3, ?4)",
            )?;
            for Entry { section, key, value } in &new.entries {
                insert.execute(params![number, section, key, value])?;
            }
            Ok(number)
        })
    }

    /// Ends a change before its time. Whether it held.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn undo(&self, number: i64, by: &str, now: Timestamp) -> Result<bool, DemandError> {
        self.end("changes", number, by, now)
    }

    /// Asks nodes to send what a burst of a source kept; gives the wish's number.
    ///
    /// # Errors
    /// SQLite fails, or too many were asked for within ten minutes.
    pub fn flush(
        &self,
        nodes: &NodeList,
        source: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, DemandError> {
        self.write(|change| self.add_flush(change, (nodes, source, by), now))
    }

    /// The same, since a rule says so.
    ///
    /// # Errors
    /// SQLite fails, or too many were asked for within ten minutes, by this rule or altogether.
    pub fn flush_by_rule(
        &self,
        nodes: &NodeList,
        source: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, DemandError> {
        self.write(|change| {
            let most = BY_RULE_MAX;
            let own: i64 = change.query_row(
                "SELECT count(*) FROM flushes WHERE made > ?1 AND made_by = ?2",
                params![now.plus(-super::FLUSH_TOLD_US).0, by],
                |row| row.get(0),
            )?;
            if u64::try_from(own).unwrap_or(0) >= most {
                return Err(DemandError::Full {
                    what: "flushes by this rule in ten minutes",
                    most,
                });
            }
            self.add_flush(change, (nodes, source, by), now)
        })
    }

    fn add_flush(
        &self,
        change: &Transaction<'_>,
        (nodes, source, by): (&NodeList, &str, &str),
        now: Timestamp,
    ) -> Result<i64, DemandError> {
        let most = self.limits.flushes_max;
        let told: i64 = change.query_row(
            "SELECT count(*) FROM flushes WHERE made > ?1",
            [now.plus(-super::FLUSH_TOLD_US).0],
            |row| row.get(0),
        )?;
        if u64::try_from(told).unwrap_or(0) >= most {
            return Err(DemandError::Full { what: "flushes within ten minutes", most });
        }
        let number = change
            .prepare_cached(
                "INSERT INTO flushes (nodes, source, made, made_by) VALUES (?1, ?2, ?3, ?4)",
            )?
            .insert(params![nodes.as_str(), source, now.0, by])?;
        let past = i64::try_from(self.limits.past_max).unwrap_or(i64::MAX);
        change.execute("DELETE FROM flushes WHERE number <= ?1", [number.saturating_sub(past)])?;
        Ok(number)
    }
}

/// The changes that hold at an instant.
pub(super) fn held(db: &Connection, now: Timestamp) -> Result<Vec<Change>, DemandError> {
    let mut find = db.prepare_cached(
        "SELECT number, nodes, until, made, made_by FROM changes
         WHERE ended IS NULL AND until > ?1 ORDER BY number",
    )?;
    let mut rows = find.query([now.0])?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        let number = row.get(0)?;
        changes.push(Change {
            number,
            nodes: nodes(&row.get::<_, String>(1)?)?,
            until: Timestamp(row.get(2)?),
            made: Timestamp(row.get(3)?),
            by: row.get(4)?,
            entries: entries(db, number)?,
        });
    }
    Ok(changes)
}

/// What a change changes.
pub(super) fn entries(db: &Connection, change: i64) -> Result<Vec<Entry>, DemandError> {
    let mut find = db.prepare_cached(
        "SELECT section, key, value FROM entries WHERE change = ?1 ORDER BY section, key",
    )?;
    let entry = |row: &rusqlite::Row<'_>| {
        Ok(Entry { section: row.get(0)?, key: row.get(1)?, value: row.get(2)? })
    };
    let found = find.query_map([change], entry)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The flushes that were asked for after an instant.
pub(super) fn flushes(db: &Connection, after: Timestamp) -> Result<Vec<Flush>, DemandError> {
    let mut find = db.prepare_cached(
        "SELECT number, nodes, source, made, made_by FROM flushes WHERE made > ?1 ORDER BY number",
    )?;
    let mut rows = find.query([after.0])?;
    let mut flushes = Vec::new();
    while let Some(row) = rows.next()? {
        flushes.push(Flush {
            number: row.get(0)?,
            nodes: nodes(&row.get::<_, String>(1)?)?,
            source: row.get(2)?,
            made: Timestamp(row.get(3)?),
            by: row.get(4)?,
        });
    }
    Ok(flushes)
}

fn nodes(text: &str) -> Result<NodeList, DemandError> {
    let damaged = |_| crate::RegistryError::Damaged(text.to_owned());
    Ok(NodeList::new(text).map_err(damaged)?)
}
