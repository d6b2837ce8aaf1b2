//! Why a database cannot be set up, or given back.

/// Nothing was changed in the step that failed; steps before it can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The database rejected a statement.
    #[error("{0}")]
    Rejected(String),
    /// The server is too old.
    #[error("PostgreSQL {0} is too old: jobmeter needs 13 or later")]
    Version(String),
    /// The encoding.
    #[error(
        "the encoding of the database is {0}; jobmeter needs UTF8: create the database with `createdb --encoding UTF8 --template template0`"
    )]
    Encoding(String),
    /// Rights are missing.
    #[error("{0}")]
    Rights(String),
    /// A part of the site has a name that jobmeter needs.
    #[error("in the way: {}", .0.join("; "))]
    InTheWay(Vec<String>),
    /// Rows do not fit.
    #[error("{0}")]
    Rows(String),
    /// A role is missing, and no password is given.
    #[error(
        "the role {0} does not exist; give its password with --kwollect_password or --kwollect_password_file"
    )]
    Password(String),
    /// A server uses the database.
    #[error("a server of jobmeter uses this database; stop it first")]
    InUse,
    /// It has no schema of jobmeter.
    #[error("jobmeter did not set up this database; `jobmeter db setup` does")]
    NotSetUp,
    /// A lock was not free.
    #[error(
        "a lock was not free within {0} s: {1}; end the transactions that hold it, and repeat the command"
    )]
    Locked(u64, String),
    /// A line of the file of statements is invalid.
    #[error("{0}")]
    Requests(String),
}

impl From<tokio_postgres::Error> for SetupError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(found) = error.as_db_error() else {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            return Self::Rejected(format!("{error}{}", cause.unwrap_or_default()));
        };
        let mut text = format!("{} ({})", found.message(), found.code().code());
        for more in [found.detail(), found.hint()].into_iter().flatten() {
            text.push_str(". ");
            text.push_str(more);
        }
        Self::Rejected(text)
    }
}
