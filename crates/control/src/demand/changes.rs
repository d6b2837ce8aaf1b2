//! Overrides of agents' settings, and flushes of burst buffers.

use super::{BY_RULE_MAX, DemandError, DemandStore, count};
use model::setting::NodeSettings;
use model::{NodeList, Timestamp};
use rusqlite::{Connection, Transaction, params};

/// A new setting override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChange {
    /// The nodes.
    pub nodes: NodeList,
    /// Time of expiry.
    pub until: Timestamp,
    /// The requester.
    pub by: Box<str>,
    /// The settings of sources and of bursts.
    pub settings: NodeSettings,
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
    /// The settings of sources and of bursts.
    pub settings: NodeSettings,
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

impl DemandStore {
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
            let insert = "INSERT INTO changes (nodes, settings, until, made, made_by)
                          VALUES (?1, ?2, ?3, ?4, ?5)";
            let settings = wire::encode_settings(&new.settings);
            let values = params![new.nodes.as_str(), settings, new.until.0, now.0, new.by];
            let number = change.prepare_cached(insert)?.insert(values)?;
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
        "SELECT number, nodes, until, made, made_by, settings FROM changes
         WHERE ended IS NULL AND until > ?1 ORDER BY number",
    )?;
    let mut rows = find.query([now.0])?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        changes.push(Change {
            number: row.get(0)?,
            nodes: nodes(&row.get::<_, String>(1)?)?,
            until: Timestamp(row.get(2)?),
            made: Timestamp(row.get(3)?),
            by: row.get(4)?,
            settings: decode(&row.get::<_, Vec<u8>>(5)?)?,
        });
    }
    Ok(changes)
}

/// Returns the settings of an override.
pub(super) fn settings(db: &Connection, change: i64) -> Result<NodeSettings, DemandError> {
    let mut find = db.prepare_cached("SELECT settings FROM changes WHERE number = ?1")?;
    decode(&find.query_row([change], |row| row.get::<_, Vec<u8>>(0))?)
}

fn decode(settings: &[u8]) -> Result<NodeSettings, DemandError> {
    let damaged = |error: wire::DecodeError| jobs::RegistryError::Damaged(error.to_string());
    Ok(wire::decode_settings(settings).map_err(damaged)?)
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
