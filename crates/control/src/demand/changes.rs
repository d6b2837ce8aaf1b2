//! Overrides of agents' settings, and flushes of burst buffers.

use super::{BY_RULE_MAX, Demand, DemandError, count};
use model::{NodeList, Timestamp};
use rusqlite::{Connection, Transaction, params};

/// A setting of an agent in TOML notation: `[section]`, `key = value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The section, such as `sources.perf` or `burst.cpu`.
    pub section: Box<str>,
    /// The key, such as `period`.
    pub key: Box<str>,
    /// The value in TOML notation with quotes, such as `"1s"`.
    pub value: Box<str>,
}

/// Formats the setting as `sources.perf.period = "1s"`.
impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{} = {}", self.section, self.key, self.value)
    }
}

/// A new setting override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChange {
    /// The nodes.
    pub nodes: NodeList,
    /// Time of expiry.
    pub until: Timestamp,
    /// The requester.
    pub by: Box<str>,
    /// The settings, each at most once.
    pub entries: Vec<Entry>,
}

/// An active setting override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The ID. Later overrides have larger IDs.
    pub number: i64,
    /// The nodes.
    pub nodes: NodeList,
    /// Time of expiry.
    pub until: Timestamp,
    /// Time of creation.
    pub made: Timestamp,
    /// The requester.
    pub by: Box<str>,
    /// The settings, sorted by section and key.
    pub entries: Vec<Entry>,
}

/// A request to nodes to send their burst buffer now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The ID, never reused.
    pub number: i64,
    /// The nodes.
    pub nodes: NodeList,
    /// The source.
    pub source: Box<str>,
    /// Time of the request.
    pub made: Timestamp,
    /// The requester.
    pub by: Box<str>,
}

impl Demand {
    /// Overrides settings of nodes until a time and returns the override's ID.
    ///
    /// # Errors
    /// SQLite fails, or the limit of active overrides is reached.
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

    /// Ends a setting override early. Returns whether it was active.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn undo(&self, number: i64, by: &str, now: Timestamp) -> Result<bool, DemandError> {
        self.end("changes", number, by, now)
    }

    /// Requests the burst buffer of a source from nodes, and returns the flush's ID.
    ///
    /// # Errors
    /// SQLite fails, or the limit of flushes within 10 min is reached.
    pub fn flush(
        &self,
        nodes: &NodeList,
        source: &str,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, DemandError> {
        self.write(|change| self.add_flush(change, (nodes, source, by), now))
    }

    /// Requests the burst buffer of a source from nodes on behalf of a rule.
    ///
    /// # Errors
    /// SQLite fails, or the limit of flushes within 10 min is reached, for this rule or in total.
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
                params![now.plus(-super::FLUSH_LISTED_US).0, by],
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
        let count_made: i64 = change.query_row(
            "SELECT count(*) FROM flushes WHERE made > ?1",
            [now.plus(-super::FLUSH_LISTED_US).0],
            |row| row.get(0),
        )?;
        if u64::try_from(count_made).unwrap_or(0) >= most {
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

/// Returns the setting overrides that are active at an instant.
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

/// Returns the settings of an override.
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

/// Returns the flushes requested after an instant.
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
    let damaged = |_| jobs::RegistryError::Damaged(text.to_owned());
    Ok(NodeList::new(text).map_err(damaged)?)
}
