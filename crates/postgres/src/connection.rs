//! Connections to the database, and their errors.

use std::error::Error;
use storage::StorageError;
use tokio_postgres::{Client, Config, NoTls};

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It does not answer.
    #[error("the database is unreachable: {0}")]
    Unreachable(String),
    /// It rejected a statement.
    #[error("the database rejected a statement: {0}")]
    Rejected(String),
    /// Another server uses it.
    #[error("another server uses this database; stop it first")]
    Locked,
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
        match error.as_db_error() {
            // Class 57: the administrator or a crash ended the session, or the server starts or stops.
            Some(found) if !found.code().code().starts_with("57") => Self::Rejected(text),
            _ => Self::Unreachable(text),
        }
    }
}

impl From<DatabaseError> for StorageError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Unreachable(why) => Self::Unavailable(why),
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

/// Connects. A task of its own moves the bytes; it ends with the client.
pub(crate) async fn connect(config: &Config) -> Result<Client, DatabaseError> {
    let (client, io) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = io.await {
            log::debug!("the database: {}", error_text(&error));
        }
    });
    Ok(client)
}
