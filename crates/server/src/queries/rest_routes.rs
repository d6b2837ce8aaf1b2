//! `GET /rest/NAME`: rows of a table in PostgREST's form.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::{HttpError, Why};
use crate::http::params::{pairs, part};
use crate::queries::postgrest::answer::{RowRequest, answer, rows};
use crate::queries::postgrest::row_query::RowQuery;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use std::sync::Arc;

/// Handles a request.
pub(crate) async fn table(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, HttpError> {
    let name = part(name)?;
    let is_table = sql::tables().any(|table| table == name);
    let Some(rows) = rows(&app, &name).filter(|_| is_table) else { return Err(unknown(&name)) };
    let pairs = pairs(request.uri().query())?;
    let query = RowQuery::of_table(&pairs, &rows)?;
    let wanted = RowRequest::new(query, &pairs, request.headers())?;
    answer(&app, &caller, &wanted).await
}

fn unknown(name: &str) -> HttpError {
    let shown: String = name.chars().take(100).collect();
    let message = format!("Could not find the table '{shown}' in the schema cache");
    let hint = match config::nearest(name, sql::tables()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the tables are {}", sql::tables().collect::<Vec<_>>().join(", ")),
    };
    HttpError::new(StatusCode::NOT_FOUND, "PGRST205", Why::Unknown, message).hint(Some(hint))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_openapi_document_names_every_table() {
        assert_eq!(sql::tables().collect::<Vec<_>>(), api::TABLES);
    }
}
