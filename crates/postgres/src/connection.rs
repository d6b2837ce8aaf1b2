//! Connections to the database, and their errors.
//!
//! `read_pool`: the connections of queries.

pub(crate) mod read_pool;

use std::error::Error;
use std::pin::Pin;
use storage::StorageError;
use tokio_postgres::Client;

/// Why the database cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It does not answer.
    #[error("the database is unreachable: {0}")]
    Unreachable(String),
    /// It rejected a statement.
    #[error("the database rejected a statement: {0}")]
    Rejected(String),
    /// It rejected a row: because of its content, a constraint or a trigger.
    #[error("the database rejected a row: {0}")]
    RejectedRow(String),
    /// A lock was not free in time.
    #[error("another transaction holds a lock in the database: {0}")]
    Busy(String),
    /// Another server uses it.
    #[error("another server uses this database: {0}")]
    Locked(String),
    /// It cannot store every text.
    #[error("the encoding of the database is not UTF8; create one with `createdb --encoding UTF8`")]
    Encoding,
    /// Another program made its table `metrics`.
    #[error(
        "the database has a table `metrics` that jobmeter did not make, such as that of Kwollect; `jobmeter db \
         setup` adopts it"
    )]
    Foreign,
    /// The user lacks a right.
    #[error("the role has not all rights that the server needs; execute: {0}")]
    Rights(String),
    /// It accepts no changes of the user.
    #[error("the database is read-only for this role: {0}")]
    ReadOnly(String),
    /// It lacked all tables when the server connected again.
    #[error(
        "the database is empty: restore it from a backup, or restart the server, which creates its tables"
    )]
    Empty,
    /// It lacks tables of this version.
    #[error("it lacks the tables {0}; run `jobmeter db setup`")]
    Missing(String),
    /// A table has a content that this program did not write.
    #[error("{table}: {why}; restore the schema jobmeter from a backup")]
    Damaged {
        /// The table.
        table: &'static str,
        /// What is wrong.
        why: String,
    },
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = error_text(&error);
        let Some(code) = error.code().map(tokio_postgres::error::SqlState::code) else {
            return Self::Unreachable(text);
        };
        match code.get(..2).unwrap_or_default() {
            // A limit of time, or the reader left.
            _ if code == "57014" => Self::Rejected(text),
            // The administrator or a crash ended the session, or the server starts or stops.
            "57" => Self::Unreachable(text),
            // Data, constraints, triggers in C, Python or PL/pgSQL, options of views.
            "22" | "23" | "38" | "39" | "44" | "P0" => Self::RejectedRow(text),
            // A text beyond the limits of jsonb, or a key beyond those of an index.
            _ if code == "54000" => Self::RejectedRow(text),
            _ if code == "55P03" || code == "40P01" => Self::Busy(text),
            _ => Self::Rejected(text),
        }
    }
}

impl From<DatabaseError> for StorageError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Unreachable(why)
            | DatabaseError::Rejected(why)
            | DatabaseError::RejectedRow(why)
            | DatabaseError::Busy(why) => Self::Unavailable(why),
            other => Self::Failed(Box::new(other)),
        }
    }
}

/// The message of the database, or that of the system with its causes.
fn error_text(error: &tokio_postgres::Error) -> String {
    if let Some(found) = error.as_db_error() {
        return format!("{} ({})", found.message(), found.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text.push_str(": ");
        text.push_str(&one.to_string());
        cause = one.source();
    }
    text
}

/// Opens connections to one database. Every connection of the store comes from it.
pub trait Connector: Send + Sync {
    /// A new connection; the error is text for the log.
    fn connect(&self) -> Connecting<'_>;
}

/// A connection that is being opened.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Client, String>> + Send + 'a>>;

/// A lock that is not free within this time is reported: then senders keep their batches, and queries fail.
pub(crate) const LOCK_LIMIT: &str = "5s";

/// Connects.
pub(crate) async fn connect(connector: &dyn Connector) -> Result<Client, DatabaseError> {
    connector.connect().await.map_err(DatabaseError::Unreachable)
}
