//! What is asked of agents beyond their own files, for a time: other settings, optional metrics, the rest of a
//! burst. Kept in a SQLite file of its own beside the registry, so that a restart of the server ends none of it,
//! and so that it is known afterwards what was changed, when and by whom.

mod changes;
mod from_jobs;
mod marks;
mod promotions;
mod schema;

pub use changes::{Change, Entry, Flush, NewChange};
pub use from_jobs::{JobFacts, Rule, Wanted, wanted};
pub use marks::{Look, Mark, MarkKind};
pub use promotions::{FromJobs, NewPromotion, Origin, PROMOTIONS_ON_NODE_MAX, Promotion, Quota};

use crate::RegistryError;
use crate::common::registry::lock;
use model::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::path::Path;
use std::sync::Mutex;

/// For so long a flush is told to agents: those that do not come in that time are down, and have nothing.
pub const FLUSH_TOLD_US: i64 = 10 * 60 * Timestamp::SECOND;

/// Most promotions by one rule about values that hold, and most flushes by it within ten minutes: each is of
/// up to sixty nodes, and people keep room for theirs.
const BY_RULE_MAX: u64 = 200;

/// What bounds the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandLimits {
    /// Most changes of settings that hold at a time.
    pub changes_max: u64,
    /// Most promotions that hold at a time.
    pub promotions_max: u64,
    /// Most promotions that one user's jobs have at a time by the words they were submitted with; together they
    /// have half of all.
    pub words_per_user_max: u64,
    /// Most flushes that are told at a time.
    pub flushes_max: u64,
    /// Most rows of each kind that are kept after their end, the newest.
    pub past_max: u64,
    /// For how many microseconds they are kept after their end; `None`: for ever.
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

/// Why something cannot be asked of agents.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// SQLite, or the file.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// SQLite's word while reading or writing.
    #[error("the file of what is asked of agents failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// As many as there may be.
    #[error("{what}: {most} hold already; end some, or wait until they end")]
    Full {
        /// Of what.
        what: &'static str,
        /// So many.
        most: u64,
    },
}

/// What is asked of agents. Shared by reference between threads; every call may wait for the disk.
#[derive(Debug)]
pub struct Demand {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    /// Of its own, so that nobody waits for one who looks through all that is past.
    marks_reader: Mutex<Connection>,
    limits: DemandLimits,
}

/// All that holds at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Changes of settings, the oldest first: where two say something of one setting, the later counts.
    pub changes: Vec<Change>,
    /// Promotions, the oldest first.
    pub promotions: Vec<Promotion>,
    /// Flushes of the last ten minutes, the oldest first.
    pub flushes: Vec<Flush>,
}

impl Demand {
    /// Opens the file, making it if need be. Of several processes only one server may write; a person may
    /// write rows of `promotions` beside it.
    ///
    /// # Errors
    /// The file cannot be made or read, is another's, or was written by a newer program.
    pub fn open(path: &Path, limits: DemandLimits) -> Result<Self, DemandError> {
        let writer = Mutex::new(schema::open(path)?);
        let reader = Mutex::new(crate::schema::open_to_read(path)?);
        let marks_reader = Mutex::new(crate::schema::open_to_read(path)?);
        Ok(Self { writer, reader, marks_reader, limits })
    }

    /// A number that is another after each change of the file, by whomever.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn version(&self) -> Result<i64, DemandError> {
        let reader = lock(&self.reader);
        Ok(reader.pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    /// What holds at an instant. A row that a person wrote and that is none (no list of nodes, no number) is
    /// passed over and told in the log's words of the second part.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn held(&self, now: Timestamp) -> Result<(Held, Vec<String>), DemandError> {
        let reader = lock(&self.reader);
        let mut passed_over = Vec::new();
        let changes = changes::held(&reader, now)?;
        let flushes = changes::flushes(&reader, now.plus(-FLUSH_TOLD_US))?;
        let promotions = promotions::held(&reader, now, &mut passed_over)?;
        Ok((Held { changes, promotions, flushes }, passed_over))
    }

    /// Writes down the end of what has ended by its time, and forgets what is past and too much. How many
    /// ended.
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

    /// Lets go what ended longer ago than is kept. How many rows went.
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

    /// Lets the oldest go of what is past.
    fn forget(&self, change: &Transaction<'_>) -> rusqlite::Result<()> {
        let most = i64::try_from(self.limits.past_max).unwrap_or(i64::MAX);
        for table in ["changes", "promotions"] {
            let past = format!("SELECT number FROM {table} WHERE ended IS NOT NULL");
            let last: Option<i64> = change
                .prepare_cached(&format!("{past} ORDER BY number DESC LIMIT 1 OFFSET ?1"))?
                .query_row([most], |row| row.get(0))
                .optional()?;
            if let Some(last) = last {
                let old = format!("DELETE FROM {table} WHERE ended IS NOT NULL AND number <= ?1");
                change.execute(&old, [last])?;
            }
        }
        Ok(())
    }

    /// Ends a row by a person's word. Whether it was there and had not ended.
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

    /// Does something in one transaction: on disk when this returns.
    fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, DemandError>,
    ) -> Result<T, DemandError> {
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&change)?;
        change.commit()?;
        Ok(done)
    }
}

/// How many rows of a table hold at an instant.
fn count(change: &Transaction<'_>, table: &str, now: Timestamp) -> rusqlite::Result<u64> {
    let count = format!(
        "SELECT count(*) FROM {table} WHERE ended IS NULL AND (until IS NULL OR until > ?1)"
    );
    let held: i64 = change.query_row(&count, [now.0], |row| row.get(0))?;
    Ok(u64::try_from(held).unwrap_or(0))
}

#[cfg(test)]
mod tests;
