//! Logs slow queries: the query, its caller, its cost, and how it ended.
//!
//! The log writes a repeated query once, and later how often it was repeated: see [`config::log`].

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::{HttpError, Why};
use axum::body::Body;
use axum::response::Response;
use futures::StreamExt;
use query::QueryError;
use sql::SqlError;
use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::Reads;
use tokio::time::Instant;

/// Most characters of a query that are logged.
const WORDS_MAX: usize = 500;

/// How a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryEnd {
    Done,
    Limit,
    Rejected,
    Failed,
    Cancelled,
    Gone,
}

impl QueryEnd {
    const fn words(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Limit => "limit",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Gone => "client disconnected",
        }
    }

    const fn of_http_error(why: Why) -> Self {
        match why {
            Why::TooLarge | Why::TooSlow => Self::Limit,
            Why::Fault => Self::Failed,
            _ => Self::Rejected,
        }
    }

    /// Classifies the error that aborted a response.
    fn of_break(error: &(dyn Error + 'static)) -> Self {
        let query = match error.downcast_ref::<SqlError>() {
            Some(SqlError::TooManyRows(_) | SqlError::TooSlow(_) | SqlError::Memory(_)) => {
                return Self::Limit;
            }
            Some(SqlError::Query(error)) => Some(error),
            Some(_) => None,
            None => error.downcast_ref::<QueryError>(),
        };
        match query {
            // While the client still waits, only the time limit cancels a response.
            Some(QueryError::TooManyRows(_) | QueryError::TooMuch(_) | QueryError::Cancelled) => {
                Self::Limit
            }
            _ => Self::Failed,
        }
    }
}

/// The cost of a query, counted while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryCost {
    pub(crate) reads: Reads,
    rows: Arc<AtomicU64>,
}

impl QueryCost {
    /// Adds to the number of returned rows.
    pub(crate) fn count_rows(&self, rows: usize) {
        self.rows.fetch_add(u64::try_from(rows).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// A running query. It is logged if it was slow: the query ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct RunningQuery {
    app: Arc<App>,
    kind: &'static str,
    caller: Caller,
    words: String,
    began: Instant,
    pub(crate) taken: QueryCost,
    end: Option<QueryEnd>,
}

impl RunningQuery {
    /// Starts the measurement of a query.
    pub(crate) fn new(app: &Arc<App>, kind: &'static str, caller: &Caller, words: &str) -> Self {
        Self {
            app: Arc::clone(app),
            kind,
            caller: caller.clone(),
            words: one_line(words),
            began: Instant::now(),
            taken: QueryCost::default(),
            end: None,
        }
    }

    /// Ends the measurement of a query with a complete response or an error.
    pub(crate) fn answered(
        mut self,
        answer: Result<Response, HttpError>,
    ) -> Result<Response, HttpError> {
        self.end = Some(match &answer {
            Ok(_) => QueryEnd::Done,
            Err(http_error) => QueryEnd::of_http_error(http_error.why),
        });
        answer
    }

    /// Ends the measurement of a query that has no HTTP response.
    pub(crate) fn finished(mut self, error: Option<&SqlError>) {
        self.end = Some(match error {
            None => QueryEnd::Done,
            Some(error) => QueryEnd::of_break(error),
        });
    }

    /// Ends the measurement with the end of the response's body, or at once if the query failed.
    pub(crate) fn streamed(
        self,
        answer: Result<Response, HttpError>,
    ) -> Result<Response, HttpError> {
        let Ok(response) = answer else { return self.answered(answer) };
        let (head, body) = response.into_parts();
        let pieces = body.into_data_stream();
        let pieces = futures::stream::unfold((pieces, self), async |(mut pieces, mut running)| {
            let piece = pieces.next().await;
            match &piece {
                None => running.end = Some(QueryEnd::Done),
                Some(Err(error)) => {
                    let end = error.source().map_or(QueryEnd::Failed, QueryEnd::of_break);
                    running.end = Some(end);
                }
                Some(Ok(_)) => {}
            }
            piece.map(|piece| (piece, (pieces, running)))
        });
        Ok(Response::from_parts(head, Body::from_stream(pieces)))
    }

    fn line(&self, seconds: f64, end: QueryEnd) -> String {
        let (read, kind, words) = (self.taken.reads.counts(), self.kind, &self.words);
        let (count_rows, caller) =
            (self.taken.rows.load(Ordering::Relaxed), Arc::clone(&self.caller.actor.who));
        format!(
            "slow query: {kind} of {caller}: {seconds:.3} s, {}, rows returned {count_rows}, rows read \
             {}, bytes read {}: {words}",
            end.words(),
            read.rows,
            read.bytes
        )
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        let (took, after) = (self.began.elapsed(), self.app.slow_after);
        if after.is_none_or(|after| took < after) {
            return;
        }
        // Dropped before its end: the client disconnected, or the server stops.
        let left = || if self.app.ready() { QueryEnd::Gone } else { QueryEnd::Cancelled };
        let end = self.end.unwrap_or_else(left);
        self.app.counts.slow_queries.add(1);
        log::warn!("{}", self.line(took.as_secs_f64(), end));
    }
}

/// Returns the beginning of a text on one line, without characters that mislead a terminal or a reader.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut characters = text.chars();
    for c in characters.by_ref().take(WORDS_MAX) {
        if matches!(c, '\'' | '"' | '\\') {
            line.push(c);
        } else {
            // Writing to a string cannot fail.
            write!(line, "{}", c.escape_debug()).ok();
        }
    }
    if characters.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_it() {
        assert_eq!(
            one_line("SELECT 'a\\b'\n\x1b[31m\u{202e}é"),
            r"SELECT 'a\b'\n\u{1b}[31m\u{202e}é"
        );
        let long = one_line(&"é".repeat(501));
        assert_eq!((long.chars().count(), long.chars().last()), (501, Some('…')));
        assert_eq!(one_line(&"x".repeat(500)), "x".repeat(500));
    }

    #[test]
    fn how_it_ended() {
        let of = |error: SqlError| QueryEnd::of_break(&error);
        assert_eq!(of(SqlError::TooSlow(5)), QueryEnd::Limit);
        assert_eq!(of(SqlError::Memory(5)), QueryEnd::Limit);
        assert_eq!(of(SqlError::Query(QueryError::TooMuch("jobs".to_owned()))), QueryEnd::Limit);
        assert_eq!(of(SqlError::Value("no number".to_owned())), QueryEnd::Failed);
        assert_eq!(QueryEnd::of_break(&QueryError::Cancelled), QueryEnd::Limit);
        assert_eq!(QueryEnd::of_break(&QueryError::NoDevice), QueryEnd::Failed);
        assert_eq!(QueryEnd::of_http_error(Why::TooSlow), QueryEnd::Limit);
        assert_eq!(QueryEnd::of_http_error(Why::Fault), QueryEnd::Failed);
        assert_eq!(QueryEnd::of_http_error(Why::Busy), QueryEnd::Rejected);
    }
}
