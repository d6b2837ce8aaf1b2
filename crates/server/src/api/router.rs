//! The routes: each operation that `api` declares, and the web page.

use crate::api::request_middleware::{gate, job_reporters_too, pushers_too, readers_only};
use crate::api::{
    account_routes, audit_routes, batch_routes, connected_routes, demand_routes, job_routes,
    promotion_routes, push_routes, token_routes,
};
use crate::app::App;
use crate::common::http_error::{HttpError, Why};
use crate::queries::{
    job_metrics_route, kwollect_routes, node_routes, rest_routes, series_routes, sql_routes,
};
use crate::web::{files, metrics, openapi};
use api::{Access, Operation};
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodFilter, MethodRouter, get, on, post};
use std::sync::Arc;

/// Paths of Kwollect's functions at Grid'5000.
const SITE_METRICS: [&str; 3] =
    ["/sites/{site}/metrics", "/stable/sites/{site}/metrics", "/sid/sites/{site}/metrics"];

/// Returns every route, behind the gate.
pub(crate) fn router(app: Arc<App>) -> Router {
    let (mut open, mut reading) = (Router::new(), Router::new());
    let (mut reporting, mut pushing) = (Router::new(), Router::new());
    for operation in Operation::ALL.iter().copied() {
        match operation.access() {
            Access::Readers => reading = reading.route(operation.path(), handler(operation)),
            Access::JobReporters => {
                reporting = reporting.route(operation.path(), handler(operation))
            }
            Access::Pushers => pushing = pushing.route(operation.path(), handler(operation)),
            Access::Anyone | Access::Senders => {
                open = open.route(operation.path(), handler(operation));
            }
        }
    }
    for path in SITE_METRICS {
        reading = reading.route(path, get(kwollect_routes::metrics_of_site));
        open = open.route(path, post(push_routes::insert_at_site));
    }
    let reading = reading.route_layer(from_fn(readers_only));
    // Programs that insert rows may name a function that there is not.
    let pushing =
        pushing.route("/rpc/{name}", get(kwollect_routes::unknown).post(kwollect_routes::unknown));
    open.route("/", get(files::index))
        .route("/ui/{*path}", get(files::file))
        .merge(reading)
        .merge(reporting.route_layer(from_fn(job_reporters_too)))
        .merge(pushing.route_layer(from_fn(pushers_too)))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), gate))
        .with_state(app)
}

/// Returns the function that handles an operation.
fn handler(operation: Operation) -> MethodRouter<Arc<App>> {
    let method = match operation.method() {
        api::Method::Get => MethodFilter::GET,
        api::Method::Post => MethodFilter::POST,
        api::Method::Delete => MethodFilter::DELETE,
    };
    match operation {
        Operation::Batches => on(method, batch_routes::batches),
        Operation::PollerPromotions => on(method, promotion_routes::of_poller),
        Operation::GetMetrics | Operation::PostGetMetrics => {
            on(method, kwollect_routes::get_metrics)
        }
        Operation::AvailableMetrics | Operation::PostAvailableMetrics => {
            on(method, kwollect_routes::available_metrics)
        }
        Operation::GetJobMetrics | Operation::PostGetJobMetrics => {
            on(method, job_metrics_route::get_job_metrics)
        }
        Operation::RestTable => on(method, rest_routes::table),
        Operation::OpenApi => on(method, openapi::document),
        Operation::Ready => on(method, node_routes::ready),
        Operation::Health => on(method, node_routes::health),
        Operation::Nodes => on(method, node_routes::nodes),
        Operation::ForgetNode => on(method, node_routes::forget),
        Operation::Devices => on(method, node_routes::devices),
        Operation::Pollers => on(method, node_routes::pollers),
        Operation::ForgetPoller => on(method, node_routes::forget_poller),
        Operation::Schedulers => on(method, connected_routes::schedulers),
        Operation::Outputs => on(method, connected_routes::outputs),
        Operation::FillOutput => on(method, connected_routes::fill),
        Operation::RetryOutput => on(method, connected_routes::retry),
        Operation::Jobs => on(method, job_routes::list),
        Operation::JobsCheck => on(method, job_routes::check),
        Operation::Report => on(method, job_routes::report),
        Operation::Register => on(method, job_routes::register),
        Operation::End => on(method, job_routes::end),
        Operation::Series => on(method, series_routes::series),
        Operation::Range => on(method, series_routes::range),
        Operation::Last => on(method, series_routes::last),
        Operation::Explain => on(method, series_routes::explain),
        Operation::Catalogue => on(method, series_routes::catalogue),
        Operation::Gaps => on(method, series_routes::gaps),
        Operation::Sql => on(method, sql_routes::sql),
        Operation::Settings => on(method, demand_routes::settings),
        Operation::Set => on(method, demand_routes::set),
        Operation::Undo => on(method, demand_routes::undo),
        Operation::Flush => on(method, demand_routes::flush),
        Operation::Marks => on(method, demand_routes::marks),
        Operation::Promotions => on(method, promotion_routes::list),
        Operation::Promote => on(method, promotion_routes::promote),
        Operation::Demote => on(method, promotion_routes::demote),
        Operation::UpdatePromotedMetrics => on(method, promotion_routes::update),
        Operation::InsertMetrics => on(method, push_routes::insert_metrics),
        Operation::InsertUserMetrics => on(method, push_routes::insert_user_metrics),
        Operation::Me => on(method, token_routes::me),
        Operation::Tokens => on(method, token_routes::list),
        Operation::MakeToken => on(method, token_routes::make),
        Operation::RevokeToken => on(method, token_routes::revoke),
        Operation::Accounts => on(method, account_routes::list),
        Operation::ChangeAccount => on(method, account_routes::change),
        Operation::DeleteAccount => on(method, account_routes::delete),
        Operation::Audit => on(method, audit_routes::audit),
        Operation::Metrics => on(method, metrics::metrics),
    }
}

/// Paths that may be suggested for an unknown path.
fn paths() -> impl Iterator<Item = &'static str> {
    let operations = Operation::ALL.iter().map(|operation| operation.path());
    std::iter::once("/").chain(operations.filter(|path| !path.contains('{')))
}

async fn unknown(uri: Uri) -> HttpError {
    let path: String = uri.path().chars().take(200).collect();
    let meant = config::nearest(&path, paths()).map(|near| format!("did you mean `{near}`?"));
    HttpError::not_found(format!("there is nothing at {path}")).hint(meant)
}

async fn not_allowed(method: Method, uri: Uri) -> HttpError {
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("{method} is not for {path}");
    HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "PGRST117", Why::Unknown, message)
}
