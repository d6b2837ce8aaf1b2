//! `POST /api/v1/sql`: runs one SELECT and streams its rows.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::{HttpError, Why};
use crate::http::body::{media_type, unsupported};
use crate::http::query_executor::streamed;
use crate::queries::answers::format;
use crate::queries::series_routes::known;
use crate::queries::slow_query_log::{QueryCost, RunningQuery};
use api::Operation;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use sql::{Encoding, SqlError, SqlRows};
use std::sync::Arc;

/// The server holds the beginning of a response until it has this many bytes, or the response ends.
const HELD_BYTES: usize = 64 << 10;

/// Positions of the columns with times, from 0: texts may look like times.
const TIME_COLUMNS: HeaderName = HeaderName::from_static(api::TIME_COLUMNS);
/// Maximum number of positions in the header, so that it stays within the clients' limits.
const TIME_COLUMNS_MAX: usize = 1000;

/// A response that is being streamed.
struct SentRows {
    rows: SqlRows,
    taken: QueryCost,
    /// Number of rows so far.
    sent: u64,
}

/// Handles a statement.
pub(crate) async fn sql(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let format = format(request.headers())?;
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::Sql)?;
    if media_type(&head.headers).as_deref() != Some("application/json") {
        return Err(unsupported(
            "a statement is sent as application/json: {\"query\": \"SELECT …\"}",
        ));
    }
    let held = app.question_body(&head, body).await?;
    let query: api::SqlQuery = serde_json::from_slice(&held.bytes)
        .map_err(|error| HttpError::unreadable(&held.bytes, &error))?;
    let mut running = RunningQuery::new(&app, "sql", &caller, &query.query);
    let (zone, encoding) = (query.time_zone.as_deref(), format.into());
    let answer =
        streamed_rows(&app, &caller, &query.query, zone, encoding, &mut running.taken).await;
    running.streamed(answer.map(|(response, _)| response))
}

/// Runs a statement, and counts what it reads and returns. Returns also the number of rows if the result is short
/// enough to be complete before it is sent.
pub(crate) async fn streamed_rows(
    app: &App,
    caller: &Caller,
    statement: &str,
    zone: Option<&str>,
    encoding: Encoding,
    taken: &mut QueryCost,
) -> Result<(Response, Option<u64>), HttpError> {
    let rows = app.sql.query(statement, zone, app.context(caller)?, encoding).await?;
    let times = time_columns(rows.times());
    taken.reads = rows.reads().clone();
    let mut sent_rows = SentRows { rows, taken: taken.clone(), sent: 0 };
    let (mut begin, mut complete) = (Vec::new(), None);
    // An error within the first `HELD_BYTES` bytes is returned with its own HTTP status.
    while begin.len() < HELD_BYTES {
        let Some(piece) = sent_rows.next().await else {
            complete = Some(sent_rows.sent);
            break;
        };
        begin.extend(piece?);
    }
    let begin = futures::stream::once(async move { Ok::<_, SqlError>(Bytes::from(begin)) });
    let rest = futures::stream::unfold(sent_rows, |mut sent_rows| async move {
        let piece = sent_rows.next().await?;
        Some((piece, sent_rows))
    });
    let mut response = streamed(encoding.format.content_type(), begin.chain(rest));
    response.headers_mut().extend(times.map(|times| (TIME_COLUMNS, times)));
    Ok((response, complete))
}

/// Runs a statement that has a few rows. Returns its text and the number of rows.
pub(crate) async fn complete(
    app: &App,
    caller: &Caller,
    statement: &str,
    encoding: Encoding,
    taken: &mut QueryCost,
) -> Result<(Vec<u8>, u64), HttpError> {
    let mut rows = app.sql.query(statement, None, app.context(caller)?, encoding).await?;
    taken.reads = rows.reads().clone();
    let (mut text, mut count) = (Vec::new(), 0_u64);
    while let Some(piece) = rows.next().await {
        let piece = piece?;
        count = count.saturating_add(piece.rows);
        text.extend(piece.text);
    }
    Ok((text, count))
}

/// The header's value; none without a time column.
fn time_columns(places: &[usize]) -> Option<HeaderValue> {
    let places: Vec<String> =
        places.iter().take(TIME_COLUMNS_MAX).map(ToString::to_string).collect();
    HeaderValue::try_from(places.join(",")).ok().filter(|value| !value.is_empty())
}

impl SentRows {
    /// Returns the next piece of the response's text.
    async fn next(&mut self) -> Option<Result<Bytes, SqlError>> {
        let piece = self.rows.next().await?;
        Some(piece.map(|piece| {
            self.sent = self.sent.saturating_add(piece.rows);
            self.taken.count_rows(usize::try_from(piece.rows).unwrap_or(usize::MAX));
            Bytes::from(piece.text)
        }))
    }
}

impl From<SqlError> for HttpError {
    fn from(error: SqlError) -> Self {
        let error = match error {
            SqlError::Query(error) => return Self::from(error),
            SqlError::Internal(_) => return Self::fault(&error),
            error => error,
        };
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let why = match error {
            SqlError::NotSelect(_) => Why::Rights,
            SqlError::Busy(_) => Why::Busy,
            SqlError::TooSlow(_) => Why::TooSlow,
            SqlError::TooLong(..)
            | SqlError::TooComplex(_)
            | SqlError::TooManyRows(_)
            | SqlError::Memory(_) => Why::TooLarge,
            _ => Why::Malformed,
        };
        Self::new(status, error.code(), why, error.to_string())
    }
}
