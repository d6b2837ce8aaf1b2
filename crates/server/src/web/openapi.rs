//! `GET /api/v1/openapi.json`: describes the API for programs.

use crate::common::http_error::HttpError;
use crate::queries::answers::JSON;
use crate::queries::series_routes::known;
use api::Operation;
use axum::extract::RawQuery;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::OnceLock;

/// Returns the document, without authentication: it describes the server, and contains no stored data.
pub(crate) async fn document(RawQuery(query): RawQuery) -> Result<Response, HttpError> {
    static TEXT: OnceLock<String> = OnceLock::new();
    known(query, Operation::OpenApi)?;
    let text = TEXT.get_or_init(|| api::openapi().to_string());
    Ok(([(header::CONTENT_TYPE, JSON)], text.as_str()).into_response())
}
