//! The systems that the server is connected to: `/api/v1/schedulers` and `/api/v1/outputs`.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::{HttpError, Why};
use crate::http::params::part;
use crate::http::selection::{Span, job};
use crate::queries::answers::{json, wrote};
use crate::queries::series_routes::known;
use crate::schedulers::scheduler_poller::PollStatus;
use api::Operation;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use jobs::Reader;
use outputs::{FillError, FillState, FillStatus, OutputState, OutputStatus, SetAsideStatus};
use std::sync::Arc;

/// `GET /api/v1/schedulers`.
pub(crate) async fn schedulers(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Schedulers)?;
    let details = app.context(&caller)?.reader.sees_every_job();
    let all: Vec<_> = app.schedulers.iter().map(|status| scheduler(status, details)).collect();
    json(&all)
}

/// Builds the state of a poller. Only callers who see every job get addresses and other users' job names.
fn scheduler(status: &PollStatus, details: bool) -> api::Scheduler {
    let now = status.now();
    let state = match (&now.failure, now.last_success) {
        (Some(_), _) => api::SchedulerState::Failing,
        (None, Some(_)) => api::SchedulerState::Ok,
        (None, None) => api::SchedulerState::New,
    };
    api::Scheduler {
        cluster: status.cluster.as_str().to_owned(),
        kind: status.kind.to_owned(),
        interface: status.way.to_owned(),
        state,
        last_error: now.failure.filter(|_| details),
        last_success: now.last_success.map(|(at, _)| at.seconds()),
        period_seconds: status.period.as_secs_f64(),
        polls: status.good.get(),
        polls_failed: status.failed.get(),
        calls: status.calls.get(),
        records: status.records(),
        records_rejected: status.rejected.get(),
        rejections: if details { now.rejected } else { Vec::new() },
    }
}

/// `GET /api/v1/outputs`.
pub(crate) async fn outputs(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Outputs)?;
    if !caller.reader().is_some_and(Reader::sees_every_job) {
        return Err(HttpError::forbidden("only administrators and staff may read outputs"));
    }
    // Counting what is behind reads the store's lists under their locks.
    let status = tokio::task::spawn_blocking(move || app.outputs.status());
    let status = status.await.map_err(|error| HttpError::fault(&error))?;
    json(&status.iter().map(output).collect::<Vec<_>>())
}

/// `POST /api/v1/outputs/{output}/fill`: queues a time range that an output sends again.
pub(crate) async fn fill(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::FillOutput)?;
    if !caller.rights.is_admin() {
        return Err(HttpError::forbidden("only administrators send samples again"));
    }
    let name = part(name)?;
    if !app.outputs.has(&name) {
        return Err(of_fill(FillError::Unknown(name)));
    }
    let from = params.text("start")?.ok_or_else(|| HttpError::malformed("`start` is missing"))?;
    let span = Span::of(&params, &app.engine, app.now(), 0)?;
    let job = params.text("job")?.map(|name| job(&name, &params)).transpose()?;
    let context = app.context(&caller)?;
    let more = serde_json::json!({"output": name, "start": from});
    // It writes the range to the disk.
    let queued = tokio::task::spawn_blocking(move || {
        let key = job.map(|job| app.engine.job_key(&job, &context)).transpose()?;
        app.outputs.fill(&name, (span.from, span.to), key.as_ref()).map_err(of_fill)
    });
    let queued = queued.await.map_err(|error| HttpError::fault(&error))??;
    wrote(json(&shown_fill(&queued))?, &more)
}

fn of_fill(error: FillError) -> HttpError {
    let what = error.to_string();
    match error {
        FillError::Unknown(_) => HttpError::not_found(what),
        FillError::Unsupported(..) | FillError::TooMany => {
            HttpError::new(StatusCode::CONFLICT, "55000", Why::Malformed, what)
        }
        FillError::Empty => HttpError::malformed(what),
        FillError::File(..) => HttpError::fault(&what),
    }
}

fn shown_fill(fill: &FillStatus) -> api::OutputFill {
    use api::OutputFillState as Shown;
    let (state, done, reason) = match &fill.state {
        FillState::Queued => (Shown::Queued, None, None),
        FillState::Running => (Shown::Running, None, None),
        FillState::Waiting(why) => (Shown::Waiting, None, Some(why.clone())),
        FillState::Done(at) => (Shown::Done, Some(at.seconds()), None),
        FillState::Failed(why) => (Shown::Failed, None, Some(why.clone())),
    };
    api::OutputFill {
        start: fill.from.seconds(),
        end: fill.to.seconds(),
        job: fill.job.as_ref().map(ToString::to_string),
        requested: fill.requested.seconds(),
        state,
        done,
        reason,
        samples: fill.samples,
        sent_to: fill.sent_to.map(|at| at.seconds()),
    }
}

/// `POST /api/v1/outputs/{output}/retry`: makes an output send again what it has set aside.
pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::RetryOutput)?;
    if !caller.rights.is_admin() {
        return Err(HttpError::forbidden("only administrators send rejected items again"));
    }
    let name = part(name)?;
    let Some(set_aside) = app.outputs.retry(&name) else {
        return Err(of_fill(FillError::Unknown(name)));
    };
    wrote(json(&shown_set_aside(&set_aside))?, &serde_json::json!({"output": name}))
}

fn shown_set_aside(status: &SetAsideStatus) -> api::OutputSetAside {
    let SetAsideStatus { items, bytes, deleted, message, is_retrying } = status.clone();
    api::OutputSetAside { items, bytes, deleted, message, retrying: is_retrying }
}

fn output(status: &OutputStatus) -> api::Output {
    let (state, since, reason) = match &status.state {
        OutputState::Working => (api::OutputState::Working, None, None),
        OutputState::Waiting { since, why } => {
            (api::OutputState::Waiting, Some(since.seconds()), Some(why.clone()))
        }
    };
    let gaps = status.gaps.iter().map(|gap| api::OutputGap {
        start: gap.from.seconds(),
        end: gap.to.seconds(),
        samples: gap.samples,
        reason: gap.why.clone(),
    });
    api::Output {
        output: status.name.to_string(),
        kind: status.kind.to_owned(),
        guarantee: status.guarantee.word().to_owned(),
        state,
        since,
        reason,
        samples_behind: status.behind,
        newest: status.newest.map(|at| at.seconds()),
        samples: status.samples,
        failures: status.failures,
        samples_left_out: status.left_out,
        samples_lost: status.samples_lost,
        gaps: gaps.collect(),
        samples_resent: status.resent,
        fills: status.fills.iter().map(shown_fill).collect(),
        set_aside: shown_set_aside(&status.set_aside),
    }
}
