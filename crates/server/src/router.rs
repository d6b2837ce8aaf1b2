//! The routes.

use crate::app::App;
use crate::gate::{gate, readers_only};
use crate::problem::{Refusal, Why};
use crate::{exposition, ingest, job_routes, kwollect, nodes, pages, series, statements};
use axum::Router;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use std::sync::Arc;

/// Paths that are offered where one is near what was asked for.
const PATHS: [&str; 15] = [
    "/",
    "/v1/batches",
    "/rpc/get_metrics",
    "/rpc/available_metrics",
    "/api/v1/health",
    "/api/v1/ready",
    "/api/v1/nodes",
    "/api/v1/jobs",
    "/api/v1/series",
    "/api/v1/range",
    "/api/v1/last",
    "/api/v1/catalogue",
    "/api/v1/gaps",
    "/api/v1/sql",
    "/metrics",
];

/// Every route, behind the gate.
pub(crate) fn router(app: Arc<App>) -> Router {
    let reading = Router::new()
        .route("/rpc/get_metrics", get(kwollect::get_metrics).post(kwollect::get_metrics))
        .route(
            "/rpc/available_metrics",
            get(kwollect::available_metrics).post(kwollect::available_metrics),
        )
        .route("/rpc/{name}", get(kwollect::unknown).post(kwollect::unknown))
        .route("/api/v1/health", get(nodes::health))
        .route("/api/v1/nodes", get(nodes::nodes))
        .route("/api/v1/jobs", get(job_routes::list).post(job_routes::register))
        .route("/api/v1/jobs/{name}", get(job_routes::report))
        .route("/api/v1/jobs/{name}/end", post(job_routes::end))
        .route("/api/v1/series", get(series::series))
        .route("/api/v1/range", get(series::range))
        .route("/api/v1/last", get(series::last))
        .route("/api/v1/catalogue", get(series::catalogue))
        .route("/api/v1/gaps", get(series::gaps))
        .route("/api/v1/sql", post(statements::sql))
        .route("/metrics", get(exposition::metrics))
        .route_layer(from_fn(readers_only));
    Router::new()
        .route("/", get(pages::index))
        .route("/ui/{*path}", get(pages::file))
        .route("/api/v1/ready", get(nodes::ready))
        .route("/v1/batches", post(ingest::batches))
        .merge(reading)
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), gate))
        .with_state(app)
}

/// A part of the path that is a name.
pub(crate) fn part(path: Result<Path<String>, PathRejection>) -> Result<String, Refusal> {
    path.map(|Path(name)| name).map_err(|error| Refusal::malformed(error.body_text()))
}

async fn unknown(uri: Uri) -> Refusal {
    let path: String = uri.path().chars().take(200).collect();
    let meant = config::nearest(&path, PATHS).map(|near| format!("is `{near}` meant?"));
    Refusal::not_found(format!("there is nothing at {path}")).hint(meant)
}

async fn not_allowed(method: Method, uri: Uri) -> Refusal {
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("{method} is not for {path}");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "PGRST117", Why::Unknown, message)
}
