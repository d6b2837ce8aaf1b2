//! Runs queries and builds their complete responses.

use crate::app::App;
use crate::auth::audit::{AuditedChange, Unchanged};
use crate::auth::caller::Caller;
use crate::common::http_error::{HttpError, Why};
use crate::queries::slow_query_log::RunningQuery;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use query::{Format, QueryContext, QueryEngine, QueryError};
use serde::Serialize;
use std::sync::Arc;

/// The content type of JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Queries the store and the registry, and returns the result as JSON.
pub(crate) async fn reply<T: Serialize>(
    app: &Arc<App>,
    caller: &Caller,
    query: impl FnOnce(&QueryEngine, &QueryContext) -> Result<T, QueryError> + Send + 'static,
) -> Result<Response, HttpError> {
    let context = app.context(caller)?;
    let (cancel, engine) = (context.cancel.clone(), app.engine.clone());
    let user_key = Arc::clone(&context.user_key);
    let answer = app.work.answer(&user_key, cancel, move || {
        query(&engine, &context).map(|answer| api::to_json(&answer))
    });
    let body = answer.await?.map_err(|error| HttpError::fault(&error))?;
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

/// Like `ask`, for a query that may be slow. `rows` counts the rows of the result.
pub(crate) async fn reply_long<T: Serialize>(
    app: &Arc<App>,
    caller: &Caller,
    running: RunningQuery,
    rows: impl FnOnce(&T) -> usize + Send + 'static,
    query: impl FnOnce(&QueryEngine, &QueryContext) -> Result<T, QueryError> + Send + 'static,
) -> Result<Response, HttpError> {
    let taken = running.taken.clone();
    let answer = reply(app, caller, move |engine, context| {
        let answer = taken.reads.during(|| query(engine, context))?;
        taken.count_rows(rows(&answer));
        Ok(answer)
    });
    running.answered(answer.await)
}

/// Marks a response for the audit: the request changed `what`.
pub(crate) fn wrote(mut answer: Response, what: &serde_json::Value) -> Result<Response, HttpError> {
    answer.extensions_mut().insert(AuditedChange(what.clone()));
    Ok(answer)
}

/// Marks a response for the audit: the request changed nothing.
pub(crate) fn unchanged(mut answer: Response) -> Result<Response, HttpError> {
    answer.extensions_mut().insert(Unchanged);
    Ok(answer)
}

/// Serializes a value as a JSON response.
pub(crate) fn json(value: &impl Serialize) -> Result<Response, HttpError> {
    let body = api::to_json(value).map_err(|error| HttpError::fault(&error))?;
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

/// Returns the format of rows that the client wants: the first supported one of its `Accept` header.
pub(crate) fn format(headers: &HeaderMap) -> Result<Format, HttpError> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accepted
        .flat_map(|value| value.split(','))
        .map(|item| item.split(';').next().unwrap_or(item).trim().to_ascii_lowercase())
        .filter(|item| !item.is_empty())
        .peekable();
    if types.peek().is_none() {
        return Ok(Format::Json);
    }
    let known = types.find_map(|item| match &*item {
        "application/json" | "application/*" | "*/*" => Some(Format::Json),
        "text/csv" | "text/*" => Some(Format::Csv),
        _ => None,
    });
    known.ok_or_else(|| {
        let message = "the formats of rows are application/json and text/csv";
        HttpError::new(StatusCode::NOT_ACCEPTABLE, "PGRST107", Why::Malformed, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_a_client_wants() {
        let of = |accept: &'static str| {
            let headers = [(header::ACCEPT, HeaderValue::from_static(accept))];
            format(&HeaderMap::from_iter(headers)).ok()
        };
        assert_eq!(format(&HeaderMap::new()).ok(), Some(Format::Json));
        for (accept, want) in [
            ("*/*", Some(Format::Json)),
            ("text/csv", Some(Format::Csv)),
            ("text/csv; charset=utf-8, application/json", Some(Format::Csv)),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Some(Format::Json)),
            ("application/xml", None),
            ("", Some(Format::Json)),
        ] {
            assert_eq!(of(accept), want, "{accept}");
        }
    }
}
