//! `/api/v1/schedulers`: the state of each scheduler's poller.

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
