//! Temporary requests to agents beyond their own files: setting overrides, optional metrics, and the
//! rest of a burst.
//!
//! They are stored in a separate SQLite file beside the registry. They survive a restart of the server.
//! The file also records what was changed, when and by whom.

mod changes;
mod job_promotions;
mod marks;
mod promoted_rows;
mod promotions;
mod schema;

pub use changes::{Change, Flush, NewChange};
pub use job_promotions::{Rule, Wanted, wanted};
pub use marks::{Decision, Mark, MarkKind};
pub(crate) use promoted_rows::is_of_row;
pub use promoted_rows::{FromRows, PROMOTED_METRICS, PromotedKey};
pub use promotions::{
    FromJobs, NewPromotion, PROMOTIONS_ON_NODE_MAX, Promotion, PromotionOrigin, Quota,
};
pub use schema::check as check_demand;

use jobs::RegistryError;
use model::Timestamp;
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use std::path::Path;

/// How long the server sends a flush to agents: 10 min. Agents that do not connect in that time are
/// down and have no buffered data.
pub const FLUSH_LISTED_US: i64 = 10 * 60 * Timestamp::SECOND;

/// Maximum number of active promotions by one value rule, and of its flushes within 10 min. Each covers
/// up to 60 nodes. The limit reserves capacity for people.
const BY_RULE_MAX: u64 = 200;

/// Limits of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandLimits {
    /// Maximum number of active setting overrides.
    pub changes_max: u64,
    /// Maximum number of active promotions.
    pub promotions_max: u64,
    /// Maximum number of active promotions by own requests of one user's jobs (submission words and
    /// environment). All users together get half of `promotions_max`.
    pub words_per_user_max: u64,
    /// Maximum number of active flushes.
    pub flushes_max: u64,
    /// Maximum number of ended rows of each kind. The latest ones stay.
    pub past_max: u64,
    /// Retention of ended rows in microseconds; `None`: no limit.
    pub past_age_us: Option<i64>,
}

impl Default for DemandLimits {
    fn default() -> Self {
        Self {
            changes_max: 1000,
            promotions_max: 100_000,
            words_per_user_max: 1000,
            flushes_max: 1000,
            past_max: 200_000,
            past_age_us: None,
        }
    }
}

/// An error of requests to agents.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// An error from opening or reading the file.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// SQLite fails to read or write.
    #[error("the file of requests to agents failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A limit is reached.
    #[error("{what}: the limit of {most} is reached; end some of them, or wait until they end")]
    Full {
        /// The kind of request.
        what: &'static str,
        /// The limit.
        most: u64,
    },
}

/// The requests to agents. Threads share it by reference. Every call may wait for the disk.
#[derive(Debug)]
pub struct DemandStore {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    /// A separate connection, so that a scan of the history blocks no other query.
    marks_reader: Mutex<Connection>,
    limits: DemandLimits,
}

/// All requests that are active at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveRequests {
    /// Setting overrides, oldest first. Of two overrides of one setting, the later one counts.
    pub changes: Vec<Change>,
    /// Promotions, oldest first.
    pub promotions: Vec<Promotion>,
    /// Flushes of the last 10 min, oldest first.
    pub flushes: Vec<Flush>,
}

impl DemandStore {
    /// Opens the file and creates it if it is missing. Only one server process may write. People may add
    /// rows to `promotions` meanwhile.
    ///
    /// # Errors
    /// The file cannot be created or read, belongs to another application, or was written by a newer
    /// program.
    pub fn open(path: &Path, limits: DemandLimits) -> Result<Self, DemandError> {
        let writer = Mutex::new(schema::open(path)?);
        let reader = Mutex::new(jobs::open_to_read(path)?);
        let marks_reader = Mutex::new(jobs::open_to_read(path)?);
        Ok(Self { writer, reader, marks_reader, limits })
    }

    /// Returns a number that differs after each change of the file by any writer.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn version(&self) -> Result<i64, DemandError> {
        let reader = self.reader.lock();
        Ok(reader.pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    /// Returns the requests that are active at an instant. It skips invalid rows that a person wrote, such
    /// as rows without a node list. The second part of the result has a log message for each of them.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn held(&self, now: Timestamp) -> Result<(ActiveRequests, Vec<String>), DemandError> {
        let reader = self.reader.lock();
        let mut passed_over = Vec::new();
        let changes = changes::held(&reader, now)?;
        let flushes = changes::flushes(&reader, now.plus(-FLUSH_LISTED_US))?;
        let promotions = promotions::held(&reader, now, &mut passed_over)?;
        Ok((ActiveRequests { changes, promotions, flushes }, passed_over))
    }

    /// Marks expired rows as ended, deletes ended rows beyond the limit, and returns the number of newly
    /// ended rows.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn expire(&self, now: Timestamp) -> Result<u64, DemandError> {
        self.write(|change| {
            let mut ended = 0;
            for table in ["changes", "promotions"] {
                ended += change.execute(
                    &format!(
                        "UPDATE {table} SET ended = until WHERE ended IS NULL AND until <= ?1"
                    ),
                    [now.0],
                )?;
            }
            if ended > 0 {
                self.forget(change)?;
            }
            Ok(u64::try_from(ended).unwrap_or(u64::MAX))
        })
    }

    /// Deletes rows that ended before the retention time, and returns their number.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn forget_old(&self, now: Timestamp) -> Result<u64, DemandError> {
        let Some(age) = self.limits.past_age_us else { return Ok(0) };
        let before = now.plus(age.saturating_neg()).0;
        self.write(|change| {
            let mut gone = 0;
            for (table, ended) in
                [("changes", "ended"), ("promotions", "ended"), ("flushes", "made")]
            {
                let old = format!("DELETE FROM {table} WHERE {ended} < ?1");
                gone += change.execute(&old, [before])?;
            }
            Ok(u64::try_from(gone).unwrap_or(u64::MAX))
        })
    }

    /// Deletes ended rows beyond the limit: the oldest of the user with the most. One user's promotions thus displace
    /// no other history.
    fn forget(&self, change: &Transaction<'_>) -> rusqlite::Result<()> {
        let most = i64::try_from(self.limits.past_max).unwrap_or(i64::MAX);
        // Changes are made by administrators alone.
        for (table, user) in [("changes", "NULL"), ("promotions", "uid")] {
            let past = format!("FROM {table} WHERE ended IS NOT NULL");
            let count = format!("SELECT count(*) {past}");
            let all: i64 = change.prepare_cached(&count)?.query_row([], |row| row.get(0))?;
            if all > most {
                let old = format!(
                    "DELETE FROM {table} WHERE number IN (SELECT number {past} AND {user} IS
                         (SELECT {user} {past} GROUP BY {user} ORDER BY count(*) DESC LIMIT 1)
                     ORDER BY number LIMIT ?1)"
                );
                change.execute(&old, [all.saturating_sub(most)])?;
            }
        }
        Ok(())
    }

    /// Ends a row at a person's request. Returns whether it existed and was active.
    fn end(
        &self,
        table: &'static str,
        number: i64,
        by: &str,
        now: Timestamp,
    ) -> Result<bool, DemandError> {
        let end = format!(
            "UPDATE {table} SET ended = ?2, ended_by = ?3
             WHERE number = ?1 AND ended IS NULL AND (until IS NULL OR until > ?2)"
        );
        self.write(|change| Ok(change.execute(&end, params![number, now.0, by])? > 0))
    }

    /// Runs `work` in one transaction. Its changes are on disk when this returns.
    fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, DemandError>,
    ) -> Result<T, DemandError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&change)?;
        change.commit()?;
        Ok(done)
    }
}

/// Returns the number of active rows of a table at an instant.
fn count(change: &Transaction<'_>, table: &str, now: Timestamp) -> rusqlite::Result<u64> {
    let count = format!(
        "SELECT count(*) FROM {table} WHERE ended IS NULL AND (until IS NULL OR until > ?1)"
    );
    let held: i64 = change.query_row(&count, [now.0], |row| row.get(0))?;
    Ok(u64::try_from(held).unwrap_or(0))
}

#[cfg(test)]
mod tests;
