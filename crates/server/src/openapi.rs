//! `GET /api/v1/openapi.json`: what can be asked here, for programs.

use crate::answers::JSON;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::OnceLock;

/// The document, for everyone: it tells what the server is, and nothing of what it holds.
pub(crate) async fn document() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| api::openapi().to_string());
    ([(header::CONTENT_TYPE, JSON)], text.as_str()).into_response()
}
