//! The systems that the server is connected to: `/api/v1/schedulers` and `/api/v1/outputs`.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::queries::answers::json;
use crate::queries::series_routes::known;
use crate::schedulers::scheduler_poller::PollStatus;
use api::Operation;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use jobs::Reader;
use outputs::{OutputState, OutputStatus};
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
    }
}
