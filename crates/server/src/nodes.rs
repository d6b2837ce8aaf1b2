//! `/api/v1`: the server's health, and the nodes.

use crate::answers::{ask, json};
use crate::app::App;
use crate::caller::Caller;
use crate::problem::{Refusal, Why};
use crate::series::known;
use api::Operation;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use jobs::Filter;
use model::JobState;
use query::{Asker, QueryError, Questions};
use std::sync::Arc;

/// Whether this is a build that figures may be taken from.
pub(crate) const BUILD: &str = if cfg!(debug_assertions) { "development" } else { "release" };

/// `GET /api/v1/ready`, for everyone: whether requests are answered.
pub(crate) async fn ready(
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    known(query, Operation::Ready)?;
    if app.ready() {
        return json(&api::Ready { ready: true });
    }
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Err(Refusal::new(status, "57P01", Why::Stopping, "the server is stopping"))
}

/// `GET /api/v1/health`.
pub(crate) async fn health(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    known(query, Operation::Health)?;
    let (ready, uptime_seconds) = (app.ready(), app.started.elapsed().as_secs_f64());
    let agents = Arc::clone(&app);
    ask(&app, &caller, move |questions, asker| {
        // Numbers are told, and no job: nothing for the audit.
        let unwatched = Asker { watch: None, ..asker.clone() };
        let mut nodes = questions.nodes(&unwatched)?;
        nodes.iter_mut().for_each(|node| agents.agents.tell(node, asker.now));
        let alive = nodes.iter().filter(|node| node.alive).count();
        Ok(api::Health {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: BUILD.to_owned(),
            ready,
            uptime_seconds,
            now: asker.now.seconds(),
            nodes_alive: u64::try_from(alive).unwrap_or(u64::MAX),
            nodes: u64::try_from(nodes.len()).unwrap_or(u64::MAX),
            jobs_running: running(questions, &unwatched)?,
        })
    })
    .await
}

/// How many jobs run that this asker may see.
fn running(questions: &Questions, asker: &Asker) -> Result<u64, QueryError> {
    if asker.reader.sees_every_job() {
        return Ok(questions.registry().running()?);
    }
    let seen = Filter { state: Some(JobState::Running), ..Filter::default() };
    Ok(u64::try_from(questions.listed(&seen, asker)?.len()).unwrap_or(u64::MAX))
}

/// `GET /api/v1/nodes`.
pub(crate) async fn nodes(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    known(query, Operation::Nodes)?;
    let agents = Arc::clone(&app);
    ask(&app, &caller, move |questions, asker| {
        let mut nodes = questions.nodes(asker)?;
        nodes.iter_mut().for_each(|node| agents.agents.tell(node, asker.now));
        Ok(nodes)
    })
    .await
}
