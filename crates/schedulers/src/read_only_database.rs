//! A database of a scheduler, which is only read. Each call has a time limit.

use crate::SchedulerError;
use crate::database_address::{ConnectError, DatabaseAddress, error_text};
use std::time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// A database and the limit of its calls.
#[derive(Debug)]
pub(crate) struct ReadOnlyDatabase {
    address: DatabaseAddress,
    /// Its name in messages.
    target: String,
    call_time_max: Duration,
}

impl ReadOnlyDatabase {
    /// A database; `name` is what it is to the scheduler. Opens no connection yet.
    pub(crate) fn new(name: &str, address: DatabaseAddress, call_time_max: Duration) -> Self {
        let target = format!("{name} ({address})");
        Self { address, target, call_time_max }
    }

    /// Its name in messages.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// A connection that cannot write.
    pub(crate) async fn connect(&self) -> Result<Client, SchedulerError> {
        let connect = tokio::time::timeout(self.call_time_max, self.address.connect()).await;
        let client = connect.map_err(|_| self.timeout_error())?.map_err(|error| match error {
            ConnectError::Unreachable(what) => {
                SchedulerError::Unreachable { target: self.target.clone(), what }
            }
            ConnectError::Rejected(what) => {
                SchedulerError::Rejected { target: self.target.clone(), what }
            }
        })?;
        let limit = self.call_time_max.as_millis();
        let setup = format!(
            "SET default_transaction_read_only = on; SET statement_timeout = {limit}; \
             SET lock_timeout = {limit}"
        );
        let set = tokio::time::timeout(self.call_time_max, client.batch_execute(&setup)).await;
        set.map_err(|_| self.timeout_error())?.map_err(|error| self.query_error(&error))?;
        Ok(client)
    }

    /// The rows of a statement.
    pub(crate) async fn rows(
        &self,
        client: &Client,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, SchedulerError> {
        let query = client.query_typed(sql, parameters);
        let answer = tokio::time::timeout(self.call_time_max, query).await;
        answer.map_err(|_| self.timeout_error())?.map_err(|error| self.query_error(&error))
    }

    /// The error of a row in an unknown format.
    pub(crate) fn answer_error(&self, what: String) -> SchedulerError {
        SchedulerError::Answer { target: self.target.clone(), what }
    }

    fn timeout_error(&self) -> SchedulerError {
        SchedulerError::Silent { target: self.target.clone(), time: self.call_time_max }
    }

    fn query_error(&self, error: &tokio_postgres::Error) -> SchedulerError {
        let (target, what) = (self.target.clone(), error_text(error));
        match error.as_db_error() {
            Some(_) => SchedulerError::Rejected { target, what },
            None => SchedulerError::Unreachable { target, what },
        }
    }
}
