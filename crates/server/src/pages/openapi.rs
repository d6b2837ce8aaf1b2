//! `GET /api/v1/openapi.json`: what can be asked here, for programs.

use crate::common::problem::Refusal;
use crate::queries::answers::JSON;
use crate::queries::series::known;
use api::Operation;
use axum::extract::RawQuery;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::OnceLock;

/// The document, for everyone: it tells what the server is, and nothing of what it holds.
pub(crate) async fn document(RawQuery(query): RawQuery) -> Result<Response, Refusal> {
    static TEXT: OnceLock<String> = OnceLock::new();
    known(query, Operation::OpenApi)?;
    let text = TEXT.get_or_init(|| api::openapi().to_string());
    Ok(([(header::CONTENT_TYPE, JSON)], text.as_str()).into_response())
}
