//! The connection of maintenance: statements of one thread, and exclusive locks for moments.

use crate::connection::{DatabaseError, LOCK_LIMIT, connect};
use crate::shared::Shared;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// Tries to lock a table, and the time between two of them.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(500);
/// A lock that is not free within this time is tried later: others that want the table wait meanwhile.
pub(crate) const LOCK_BRIEFLY: &str = "SET LOCAL lock_timeout = '100ms'";

/// Longest time of a statement for which the writer pauses.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A connection of one thread.
pub(crate) struct MaintenanceConnection<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) client: Client,
    /// Whether the writer pauses.
    is_pausing: Cell<bool>,
    /// A statement did not end in time.
    is_lost: Cell<bool>,
}

impl<'a> MaintenanceConnection<'a> {
    pub(crate) fn open(shared: &'a Arc<Shared>) -> Result<Self, DatabaseError> {
        let client = shared.runtime.block_on(connect(&*shared.connector))?;
        let opened =
            Self { shared, client, is_pausing: Cell::new(false), is_lost: Cell::new(false) };
        // The role may have a limit that suits queries. A lock of another session must not hold maintenance, which may hold
        // the writer.
        let limits = format!("SET statement_timeout = 0; SET lock_timeout = '{LOCK_LIMIT}'");
        opened.execute(&limits)?;
        Ok(opened)
    }

    /// Executes statements without values.
    pub(crate) fn execute(&self, statements: &str) -> Result<(), DatabaseError> {
        self.wait(self.client.batch_execute(statements))
    }

    /// Does some work while the writer pauses. Its statements have a limit of time.
    pub(crate) fn pausing<T>(&self, work: impl FnOnce() -> T) -> T {
        let _committing = self.shared.committing.lock();
        self.is_pausing.set(true);
        let done = work();
        self.is_pausing.set(false);
        done
    }

    /// Waits for the end of a statement.
    pub(crate) fn wait<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, DatabaseError>
    where
        DatabaseError: From<E>,
    {
        let silent = || DatabaseError::Unreachable(format!("no answer within {PAUSE_MAX:?}"));
        if self.is_lost.get() {
            return Err(silent());
        }
        if !self.is_pausing.get() {
            return Ok(self.shared.runtime.block_on(work)?);
        }
        let limited = async { tokio::time::timeout(PAUSE_MAX, work).await };
        match self.shared.runtime.block_on(limited) {
            Ok(done) => Ok(done?),
            Err(_) => {
                self.is_lost.set(true);
                Err(silent())
            }
        }
    }

    /// The rows of a statement.
    pub(crate) fn query(
        &self,
        statement: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DatabaseError> {
        self.wait(self.client.query(statement, values))
    }

    /// The number in the only row of a statement.
    pub(crate) fn number(
        &self,
        statement: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<i64, DatabaseError> {
        Ok(self.wait(self.client.query_one(statement, values))?.try_get(0)?)
    }

    /// One transaction: all that `work` does, or nothing.
    pub(crate) fn transaction<T, E: From<DatabaseError>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.execute("BEGIN")?;
        let result = work().and_then(|done| Ok(self.execute("COMMIT").map(|()| done)?));
        if result.is_err() {
            // A lost connection has ended the transaction, too.
            self.execute("ROLLBACK").unwrap_or_default();
        }
        result
    }

    /// One transaction: what takes long in `prepare`, then the step that needs an exclusive lock. The step never waits long
    /// for its lock; it is tried several times. Returns whether it succeeded; otherwise nothing has changed.
    pub(crate) fn change<T>(
        &self,
        prepare: impl FnOnce() -> Result<T, DatabaseError>,
        step: impl Fn(&T) -> Result<(), DatabaseError>,
    ) -> Result<bool, DatabaseError> {
        self.execute("BEGIN")?;
        let result = prepare().and_then(|prepared| self.finish(|| step(&prepared)));
        if !matches!(result, Ok(true)) {
            self.execute("ROLLBACK").unwrap_or_default();
        }
        match result {
            Err(DatabaseError::Busy(_)) => Ok(false),
            other => other,
        }
    }

    /// Whether an exclusive lock on a table is free now. It is tried before work that is useless without it.
    pub(crate) fn is_free(&self, table: &str) -> Result<bool, DatabaseError> {
        let lock = format!("{LOCK_BRIEFLY}; LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE");
        match self.pausing(|| self.transaction(|| self.execute(&lock))) {
            Err(DatabaseError::Busy(_)) => Ok(false),
            other => other.map(|()| true),
        }
    }

    fn finish(&self, step: impl Fn() -> Result<(), DatabaseError>) -> Result<bool, DatabaseError> {
        for _ in 0..LOCK_TRIES {
            // The writer's transactions hold locks on all tables of samples.
            let done = self.pausing(|| {
                self.execute(&format!("SAVEPOINT step; {LOCK_BRIEFLY}"))?;
                match step() {
                    Ok(()) => self.execute("COMMIT").map(|()| true),
                    Err(DatabaseError::Busy(_)) => self.execute("ROLLBACK TO step").map(|()| false),
                    Err(error) => Err(error),
                }
            })?;
            if done {
                return Ok(true);
            }
            if self.shared.closing.wait(LOCK_PAUSE) {
                break;
            }
        }
        Ok(false)
    }
}
