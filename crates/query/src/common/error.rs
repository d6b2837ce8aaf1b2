//! Errors of queries, with PostgREST's messages and codes.

use control::DemandError;
use jobs::RegistryError;
use model::JobKey;
use storage::StorageError;

/// Error of a query. The codes are those of PostgreSQL or PostgREST where Kwollect returns one.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The parameter `params` of `available_metrics`. The messages are Kwollect's where it has one.
    #[error("{0}")]
    Params(&'static str),
    /// Neither devices nor a job are given. The message is Kwollect's.
    #[error("Missing 'devices', 'nodes' or 'job_id' argument")]
    NoDevice,
    /// A text that is not valid for its type.
    #[error("invalid input syntax for type {type_name}: \"{text}\"")]
    Syntax {
        /// PostgreSQL's name of the type.
        type_name: &'static str,
        /// The text.
        text: String,
    },
    /// A time outside of the calendar.
    #[error("timestamp out of range: \"{0}\"")]
    TimeRange(String),
    /// A parameter that the function does not have.
    #[error(
        "Could not find the function api.{function} with the parameter `{parameter}`; its \
         parameters are {known}"
    )]
    Parameter {
        /// The function.
        function: &'static str,
        /// The given parameter.
        parameter: String,
        /// The known parameters.
        known: &'static str,
    },
    /// An invalid name of a device, metric, cluster or label.
    #[error("{0}")]
    Name(String),
    /// No job with that name, or none that is visible to this reader.
    #[error("there is no job {0}")]
    UnknownJob(String),
    /// Several clusters have a job with that ID, or the ID is that of a job array.
    #[error("{0}")]
    AmbiguousJob(String),
    /// Another user owns the job.
    #[error("permission denied: job {0} belongs to another user")]
    Denied(JobKey),
    /// A scheduler's job, which its owner cannot end here.
    #[error(
        "permission denied: only an administrator, or the token of its scheduler (`jobs`), ends \
         job {0}; cancel it with its scheduler's command"
    )]
    Scheduled(JobKey),
    /// Another user owns the job, and the managers of its account permit members to list it.
    #[error("permission denied: the account of job {0} permits its members only the list of jobs")]
    Listed(JobKey),
    /// The answer has more rows than the limit.
    #[error(
        "the result has more than {0} rows; choose a shorter time range, fewer devices or metrics, \
         or summary=true"
    )]
    TooManyRows(u64),
    /// The answer exceeds another limit.
    #[error("{0}")]
    TooMuch(String),
    /// The client disconnected, or the query timed out.
    #[error("the query was cancelled")]
    Cancelled,
    /// The job registry failed.
    #[error(transparent)]
    Registry(RegistryError),
    /// The file of promotions, setting overrides and on-demand requests failed.
    #[error(transparent)]
    Demand(DemandError),
    /// The store does not answer now; the cause is for the log.
    #[error("the store is unavailable now; try again later")]
    Unavailable(String),
    /// The store cannot answer.
    #[error(transparent)]
    Store(StorageError),
}

impl QueryError {
    /// The HTTP status.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoDevice
            | Self::Params(_)
            | Self::Syntax { .. }
            | Self::TimeRange(_)
            | Self::Name(_)
            | Self::AmbiguousJob(_) => 400,
            Self::Denied(_) | Self::Scheduled(_) | Self::Listed(_) => 403,
            Self::Parameter { .. } | Self::UnknownJob(_) => 404,
            Self::TooManyRows(_) | Self::TooMuch(_) | Self::Cancelled => 413,
            Self::Unavailable(_) => 503,
            Self::Registry(_) | Self::Demand(_) | Self::Store(_) => 500,
        }
    }

    /// A stable error code for scripts.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoDevice | Self::Params(_) => "P0001",
            Self::Syntax { type_name, .. } if is_time(type_name) => "22007",
            Self::Syntax { .. } | Self::Name(_) => "22P02",
            Self::TimeRange(_) => "22008",
            Self::Parameter { .. } => "PGRST202",
            Self::UnknownJob(_) => "P0002",
            Self::AmbiguousJob(_) => "P0003",
            Self::Denied(_) | Self::Scheduled(_) | Self::Listed(_) => "42501",
            Self::TooManyRows(_) | Self::TooMuch(_) => "54000",
            Self::Cancelled => "57014",
            Self::Unavailable(_) => "57P03",
            Self::Registry(_) | Self::Demand(_) | Self::Store(_) => "58000",
        }
    }

    /// The response body.
    pub fn problem(&self) -> api::Problem {
        let (code, message) = (self.code().to_owned(), self.to_string());
        api::Problem { code, message, details: None, hint: None }
    }

    /// Whether the error is internal, so that the server logs it.
    pub const fn is_internal(&self) -> bool {
        matches!(self, Self::Registry(_) | Self::Demand(_) | Self::Store(_))
    }
}

impl From<StorageError> for QueryError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Unavailable(why) => Self::Unavailable(why),
            failed @ StorageError::Failed(_) => Self::Store(failed),
        }
    }
}

impl From<RegistryError> for QueryError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Unknown(name) => Self::UnknownJob(name),
            RegistryError::Ambiguous { .. } | RegistryError::Parts { .. } => {
                Self::AmbiguousJob(error.to_string())
            }
            RegistryError::TooMany(_) => Self::TooMuch(error.to_string()),
            error => Self::Registry(error),
        }
    }
}

const fn is_time(type_name: &str) -> bool {
    matches!(type_name.as_bytes(), b"timestamp with time zone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_postgresqls() {
        let syntax = |type_name| QueryError::Syntax { type_name, text: "x".to_owned() };
        let time = syntax("timestamp with time zone");
        assert_eq!((time.status(), time.code()), (400, "22007"));
        assert_eq!(
            time.problem().message,
            "invalid input syntax for type timestamp with time zone: \"x\""
        );
        assert_eq!((syntax("integer").status(), syntax("integer").code()), (400, "22P02"));
        assert_eq!(QueryError::NoDevice.status(), 400);
        let unknown = QueryError::from(RegistryError::Unknown("7".to_owned()));
        assert_eq!(
            (unknown.status(), unknown.code(), unknown.is_internal()),
            (404, "P0002", false)
        );
    }
}
