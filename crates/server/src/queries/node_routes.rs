//! `/api/v1`: the server's health, the nodes, and the other devices with their pollers.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::{HttpError, Why};
use crate::http::params::part;
use crate::http::selection::{listed_devices, wrong};
use crate::queries::answers::{json, reply, wrote};
use crate::queries::series_routes::{known, truth};
use api::Operation;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use jobs::Filter;
use model::{DeviceId, JobState};
use query::{DeviceFilter, QueryContext, QueryEngine, QueryError};
use std::sync::Arc;

/// Whether this is a release build. Measurements of a development build are not meaningful.
pub(crate) const BUILD: &str = if cfg!(debug_assertions) { "development" } else { "release" };

/// `GET /api/v1/ready`, without authentication: whether the server answers requests.
pub(crate) async fn ready(
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Ready)?;
    if app.ready() {
        return json(&api::Ready { ready: true });
    }
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Err(HttpError::new(status, "57P01", Why::Stopping, "the server is stopping"))
}

/// `GET /api/v1/health`.
pub(crate) async fn health(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Health)?;
    let (ready, uptime_seconds) = (app.ready(), app.started.elapsed().as_secs_f64());
    let agents = Arc::clone(&app);
    reply(&app, &caller, move |engine, context| {
        // The response has counts only and names no job, so that the audit needs no entry.
        let unwatched = QueryContext { watch: None, ..context.clone() };
        let nodes = listed(&agents, engine, &unwatched)?;
        let alive = nodes.iter().filter(|node| node.alive).count();
        Ok(api::Health {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: BUILD.to_owned(),
            ready,
            writing_fails: agents.store.stats().last_failure.is_some(),
            uptime_seconds,
            now: context.now.seconds(),
            nodes_alive: u64::try_from(alive).unwrap_or(u64::MAX),
            nodes: u64::try_from(nodes.len()).unwrap_or(u64::MAX),
            jobs_running: running(engine, &unwatched)?,
        })
    })
    .await
}

/// Number of running jobs that are visible to the caller.
fn running(engine: &QueryEngine, context: &QueryContext) -> Result<u64, QueryError> {
    if context.reader.sees_every_job() {
        return Ok(engine.registry().running()?);
    }
    let seen = Filter { state: Some(JobState::Running), ..Filter::default() };
    Ok(u64::try_from(engine.listed(&seen, context)?.len()).unwrap_or(u64::MAX))
}

/// `GET /api/v1/nodes`.
pub(crate) async fn nodes(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Nodes)?;
    let agents = Arc::clone(&app);
    reply(&app, &caller, move |engine, context| listed(&agents, engine, context)).await
}

/// Returns the nodes, with the details that their agents reported.
fn listed(
    app: &App,
    engine: &QueryEngine,
    context: &QueryContext,
) -> Result<Vec<api::Node>, QueryError> {
    let mut nodes = engine.nodes(context)?;
    nodes.iter_mut().for_each(|node| app.agents.add_status(node, context.now));
    Ok(nodes)
}

/// Default number of devices in a list.
const DEVICES_LISTED: usize = 1000;

/// `GET /api/v1/devices`.
pub(crate) async fn devices(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::Devices)?;
    let name = |parameter: &str| {
        let text = params.text(parameter)?;
        text.map(|name| DeviceId::listed(&name)).transpose().map_err(wrong)
    };
    let named = params.text("device")?.map(|text| listed_devices(&text));
    let filter = DeviceFilter {
        devices: named.transpose()?,
        node: name("node")?,
        search: params.text("search")?,
        only_failing: truth(&params, "failing")?.unwrap_or(false),
        after: name("after")?,
        limit: Some(params.limit(api::DEVICES_MAX)?.unwrap_or(DEVICES_LISTED)),
    };
    reply(&app, &caller, move |engine, context| engine.devices(&filter, context)).await
}

/// `GET /api/v1/pollers`.
pub(crate) async fn pollers(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Pollers)?;
    reply(&app, &caller, move |engine, context| engine.pollers(context)).await
}

/// `DELETE /api/v1/nodes/{node}`: removes a retired node from the list until it sends again.
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    node: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::ForgetNode)?;
    if !caller.rights.is_admin() {
        return Err(HttpError::forbidden("only administrators remove nodes"));
    }
    let device = DeviceId::new(&part(node)?).map_err(wrong)?;
    let more = serde_json::json!({"node": device.as_str()});
    // Looking up the node reads no job data: the audit records the change only.
    let context = QueryContext { watch: None, ..app.context(&caller)? };
    let forgotten = app.change_registry(caller.actor.user_key(), move |app| {
        let nodes = listed(app, &app.engine, &context)?;
        let Some(node) = nodes.iter().find(|node| node.device == device.as_str()) else {
            let meant = config::nearest(device.as_str(), nodes.iter().map(|node| &*node.device));
            let hint = meant.map(|near| format!("did you mean `{near}`?"));
            return Err(HttpError::not_found(format!("there is no node {device}")).hint(hint));
        };
        if node.alive {
            let message = format!("node {device} sends samples: stop its agent first");
            return Err(HttpError::new(StatusCode::CONFLICT, "55000", Why::Malformed, message));
        }
        app.registry.forget_node(&device, context.now).map_err(QueryError::from)?;
        app.agents.forget(&device);
        log::info!("node {device} is forgotten");
        Ok(node.clone())
    });
    wrote(json(&forgotten.await??)?, &more)
}

/// `DELETE /api/v1/pollers/{poller}`: removes the devices of an ended or silent poller from the list until it sends again.
pub(crate) async fn forget_poller(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    poller: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::ForgetPoller)?;
    if !caller.rights.is_admin() {
        return Err(HttpError::forbidden("only administrators remove pollers"));
    }
    let poller = DeviceId::new(&part(poller)?).map_err(wrong)?;
    let more = serde_json::json!({"poller": poller.as_str()});
    let forgotten = app.change_registry(caller.actor.user_key(), move |app| {
        let now = app.now();
        let pollers = app.engine.poll_summary(now)?.pollers;
        let Some(found) = pollers.iter().find(|one| one.name == poller.as_str()) else {
            let meant = config::nearest(poller.as_str(), pollers.iter().map(|one| &*one.name));
            let hint = meant.map(|near| format!("did you mean `{near}`?"));
            return Err(HttpError::not_found(format!("there is no poller {poller}")).hint(hint));
        };
        if !found.is_silent && !found.is_ended {
            let message = format!("poller {poller} sends samples: stop it first");
            return Err(HttpError::new(StatusCode::CONFLICT, "55000", Why::Malformed, message));
        }
        app.registry.forget_poller(&poller, now).map_err(QueryError::from)?;
        log::info!("poller {poller} is forgotten");
        let last_seen = now.seconds() - found.age_seconds;
        Ok(api::ForgottenPoller { poller: poller.to_string(), ended: found.is_ended, last_seen })
    });
    wrote(json(&forgotten.await??)?, &more)
}
