//! Runs a query in PostgREST's form, and builds its response.

use super::column_ref::Rows;
use super::row_query::RowQuery;
use super::window::Window;
use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::{HttpError, Why};
use crate::queries::answers::format;
use crate::queries::slow_query_log::{QueryCost, RunningQuery};
use crate::queries::sql_routes::{complete, streamed_rows};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use query::Format;
use serde::Deserialize;
use sql::Encoding;
use std::sync::Arc;

/// The media type of a single object, without its parameters.
const OBJECT: &str = "application/vnd.pgrst.object";

/// A request for rows.
#[derive(Debug)]
pub(crate) struct RowRequest {
    pub(crate) query: RowQuery,
    pub(crate) window: Window,
    output: Output,
}

/// The form of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Rows(Format),
    /// The only row.
    Object,
}

/// The row of a statement that counts.
#[derive(Debug, Deserialize)]
struct Counted {
    rows: u64,
}

impl RowRequest {
    /// Reads a request's window and form.
    ///
    /// # Errors
    /// One cannot be parsed, or the form is unknown.
    pub(crate) fn new(
        query: RowQuery,
        pairs: &[(String, String)],
        headers: &HeaderMap,
    ) -> Result<Self, HttpError> {
        let window = Window::of(pairs, headers)?;
        let output =
            if wants_object(headers) { Output::Object } else { Output::Rows(format(headers)?) };
        Ok(Self { query, window, output })
    }
}

/// Whether a request has a parameter, a header or a form that only this form of a query has.
pub(crate) fn is_wanted(pairs: &[(String, String)], headers: &HeaderMap) -> bool {
    let window = Window::of(&[], headers);
    !pairs.is_empty()
        || wants_object(headers)
        || window.map_or(true, |window| window != Window::default())
}

/// Whether a client wants a single object.
pub(crate) fn wants_object(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|item| item.trim_start().starts_with(OBJECT))
}

/// Rows of a table or function for a request.
pub(crate) fn rows<'a>(app: &'a App, name: &'a str) -> Option<Rows<'a>> {
    let (columns, zone) = (sql::columns(name)?, &app.engine.settings().zone);
    Some(Rows { name, columns, now: app.now(), zone })
}

/// Answers a request for rows.
pub(crate) async fn answer(
    app: &Arc<App>,
    caller: &Caller,
    request: &RowRequest,
) -> Result<Response, HttpError> {
    let RowRequest { query, window, output } = request;
    let statement = query.statement(window.limit, window.offset);
    let mut running = RunningQuery::new(app, "rows", caller, &statement);
    let answer = match output {
        Output::Object => object(app, caller, request, &mut running.taken).await,
        Output::Rows(format) => page(app, caller, request, *format, &mut running.taken).await,
    };
    running.streamed(answer)
}

async fn page(
    app: &App,
    caller: &Caller,
    RowRequest { query, window, .. }: &RowRequest,
    format: Format,
    taken: &mut QueryCost,
) -> Result<Response, HttpError> {
    let total = match window.counts {
        true => Some(count(app, caller, &query.count(None, 0), taken).await?),
        false => None,
    };
    // The number of rows is in a header, so it must be known before the first row.
    let rows = match total {
        Some(total) => Some(window.rows_of(total)?),
        None if window.is_part() => {
            let counted = query.count(window.limit, window.offset);
            Some(count(app, caller, &counted, taken).await?)
        }
        None => None,
    };
    let statement = query.statement(rows.or(window.limit), window.offset);
    let encoding = Encoding { format, like_postgrest: true };
    let (mut response, held) =
        streamed_rows(app, caller, &statement, None, encoding, taken).await?;
    // A long result without a window has no header: it is sent while it is read.
    if let Some(rows) = rows.or(held) {
        let (status, headers) = window.state(rows, total);
        *response.status_mut() = status;
        response.headers_mut().extend(headers);
    }
    Ok(response)
}

async fn object(
    app: &App,
    caller: &Caller,
    RowRequest { query, window, .. }: &RowRequest,
    taken: &mut QueryCost,
) -> Result<Response, HttpError> {
    let limit = window.limit.map_or(2, |limit| limit.min(2));
    let statement = query.statement(Some(limit), window.offset);
    let encoding = Encoding { format: Format::Json, like_postgrest: true };
    let (text, rows) = complete(app, caller, &statement, encoding, taken).await?;
    if rows != 1 {
        let message = "JSON object requested, multiple (or no) rows returned";
        let mut error =
            HttpError::new(StatusCode::NOT_ACCEPTABLE, "PGRST116", Why::Malformed, message);
        let number = if rows == 0 { "0 rows" } else { "several rows" };
        error.details = Some(format!("The result contains {number}"));
        return Err(error);
    }
    let object = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
    let object = object.unwrap_or(&text).to_vec();
    let (status, headers) = window.state(1, None);
    let mut response = (status, object).into_response();
    response.headers_mut().extend(headers);
    let content_type = "application/vnd.pgrst.object+json; charset=utf-8";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

async fn count(
    app: &App,
    caller: &Caller,
    statement: &str,
    taken: &mut QueryCost,
) -> Result<u64, HttpError> {
    let (text, _) = complete(app, caller, statement, Format::Json.into(), taken).await?;
    let counted: Vec<Counted> =
        serde_json::from_slice(&text).map_err(|error| HttpError::fault(&error))?;
    counted.first().map(|counted| counted.rows).ok_or_else(|| HttpError::fault(&"no count"))
}
