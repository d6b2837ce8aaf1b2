//! Reasons why a statement has no result.

use crate::common::error_texts;
use crate::common::value_codes::value_code;
use datafusion::error::DataFusionError;
use query::QueryError;

/// The engine's texts for a pattern that is constant, and for others.
const INVALID_PATTERN: &str = "Invalid regex";
const UNCOMPILED_PATTERN: &str = "Regular expression did not compile";

/// Reason why a statement has no result.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The text is not valid SQL, or it refers to unknown tables or columns.
    #[error("{0}")]
    Statement(String),
    /// The statement is not a SELECT.
    #[error("only SELECT is answered here, and this is {0}")]
    NotSelect(String),
    /// The time zone is unknown.
    #[error("`time_zone` {0}: no time zone has this name; write Europe/Paris or +01:00")]
    Zone(String),
    /// The text is longer than a statement may be.
    #[error("the statement has {0} bytes; {1} at most")]
    TooLong(usize, usize),
    /// The statement is nested too deeply, or has too many parts.
    #[error("the statement is too complex: {0}")]
    TooComplex(String),
    /// The limits of running and waiting statements are reached, or no turn became free in time.
    #[error("too many statements: {0} are running and others are waiting; retry in a moment")]
    Busy(usize),
    /// The result has more rows than the limit.
    #[error("the result has more than {0} rows; add LIMIT, or select less")]
    TooManyRows(u64),
    /// The statement exceeded its time limit.
    #[error("the statement took more than {0} s; choose a shorter time range or fewer devices")]
    TooSlow(u64),
    /// The statement needs more than its share of the memory, in MiB.
    #[error(
        "the statement needs more than {0} MiB of memory; choose a shorter time range or fewer \
         devices, or retry when no other statement is running"
    )]
    Memory(usize),
    /// The statement met an invalid value while it ran, such as text that is not a number.
    #[error("{0}")]
    Value(String),
    /// A pattern is no regular expression.
    #[error("invalid regular expression: {0}")]
    Pattern(String),
    /// The rows cannot be read.
    #[error(transparent)]
    Query(QueryError),
    /// The engine or its worker crashed on this statement.
    #[error("the SQL engine failed on this statement: {0}; rewrite it")]
    Died(String),
    /// An internal error of this crate.
    #[error("the statement failed: {0}")]
    Internal(String),
}

impl SqlError {
    /// HTTP status of the error.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Statement(_)
            | Self::Zone(_)
            | Self::Value(_)
            | Self::Pattern(_)
            | Self::Died(_) => 400,
            Self::NotSelect(_) => 403,
            Self::TooLong(..)
            | Self::TooComplex(_)
            | Self::TooManyRows(_)
            | Self::TooSlow(_)
            | Self::Memory(_) => 413,
            Self::Busy(_) => 429,
            Self::Query(error) => error.status(),
            Self::Internal(_) => 500,
        }
    }

    /// PostgreSQL's error code, which scripts may match.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Statement(text) if text.starts_with("the type `bytea`") => "0A000",
            Self::Statement(text) if text.starts_with("LIMIT must") => "2201W",
            Self::Statement(_) => "42601",
            Self::NotSelect(_) => "42501",
            Self::Zone(_) => "22023",
            Self::TooLong(..) | Self::TooManyRows(_) => "54000",
            Self::TooComplex(_) => "54001",
            Self::Busy(_) => "53400",
            Self::TooSlow(_) => "57014",
            Self::Memory(_) => "53200",
            Self::Value(text) => value_code(text),
            Self::Pattern(_) => "2201B",
            Self::Query(error) => error.code(),
            Self::Died(_) | Self::Internal(_) => "58000",
        }
    }

    /// Converts an error of the engine, with text for the statement's author.
    pub(crate) fn of(error: DataFusionError, memory_mib: usize) -> Self {
        match error {
            DataFusionError::Context(what, inner) if what == INVALID_PATTERN => {
                Self::Pattern(error_texts::of_pattern(&inner.to_string()))
            }
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::of(*inner, memory_mib)
            }
            DataFusionError::Shared(inner) => Self::of_shared(&inner, memory_mib),
            DataFusionError::ResourcesExhausted(_) => Self::Memory(memory_mib),
            DataFusionError::External(inner) => Self::external(inner),
            DataFusionError::Plan(text) | DataFusionError::NotImplemented(text) => {
                Self::Statement(first_line(&error_texts::of_plan(&text)))
            }
            DataFusionError::SQL(error, _) => {
                Self::Statement(first_line(&error_texts::of_text(&error)))
            }
            DataFusionError::SchemaError(error, _) => {
                Self::Statement(first_line(&error_texts::of_columns(&error)))
            }
            DataFusionError::Execution(text) => Self::value(&text),
            DataFusionError::ArrowError(error, _) => Self::value(&error.to_string()),
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => Self::of(first, memory_mib),
                None => Self::Internal("the engine reported no error".to_owned()),
            },
            other => Self::other(&other),
        }
    }

    /// Converts an error about a value.
    fn value(text: &str) -> Self {
        match text.contains(UNCOMPILED_PATTERN) {
            true => Self::Pattern(error_texts::of_pattern(text)),
            false => Self::Value(first_line(&error_texts::of_plan(text))),
        }
    }

    /// Converts an engine error of another kind. If the engine cannot process a statement, the statement is at
    /// fault, not the server.
    fn other(error: &DataFusionError) -> Self {
        match error {
            DataFusionError::Internal(text) => Self::Statement(format!(
                "the SQL engine does not support this: {}",
                first_line(text)
            )),
            DataFusionError::ExecutionJoin(error) => Self::Died(first_line(&error.to_string())),
            DataFusionError::Plan(text) | DataFusionError::NotImplemented(text) => {
                Self::Statement(first_line(&error_texts::of_plan(text)))
            }
            other => Self::Internal(first_line(&other.strip_backtrace())),
        }
    }

    fn external(inner: Box<dyn std::error::Error + Send + Sync>) -> Self {
        match inner.downcast::<Self>().map_err(|inner| inner.downcast::<QueryError>()) {
            Ok(error) => *error,
            Err(Ok(error)) => Self::Query(*error),
            Err(Err(other)) => Self::Internal(other.to_string()),
        }
    }

    /// Converts an error that several tasks share. Its content cannot be moved out.
    fn of_shared(error: &DataFusionError, memory_mib: usize) -> Self {
        match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => Self::Memory(memory_mib),
            DataFusionError::External(inner) if inner.is::<Self>() => match inner.downcast_ref() {
                Some(Self::TooSlow(seconds)) => Self::TooSlow(*seconds),
                // The server knows the cause.
                Some(Self::Query(_)) => Self::Query(QueryError::Cancelled),
                _ => Self::Internal(inner.to_string()),
            },
            DataFusionError::External(inner) => match inner.downcast_ref::<QueryError>() {
                Some(QueryError::Cancelled) => Self::Query(QueryError::Cancelled),
                Some(QueryError::TooMuch(text)) => Self::Query(QueryError::TooMuch(text.clone())),
                _ => Self::Internal(inner.to_string()),
            },
            DataFusionError::Execution(text) => Self::value(text),
            DataFusionError::ArrowError(error, _) => Self::value(&error.to_string()),
            other => Self::other(other),
        }
    }
}

/// Returns the first line, without a final dot.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.strip_suffix('.').unwrap_or(line).chars().take(1000).collect()
}
