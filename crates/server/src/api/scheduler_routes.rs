//! `/api/v1/schedulers`: the state of each scheduler's poller.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::problem::Refusal;
use crate::queries::answers::json;
use crate::queries::series::known;
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
) -> Result<Response, Refusal> {
    known(query, Operation::Schedulers)?;
    let details = app.asker(&caller)?.reader.sees_every_job();
    let all: Vec<_> = app.schedulers.iter().map(|course| tell(course, details)).collect();
    json(&all)
}

/// Builds the state of a poller. Only callers who see every job get addresses and other users' job names.
fn tell(course: &PollStatus, details: bool) -> api::Scheduler {
    let now = course.now();
    let state = match (&now.trouble, now.last_success) {
        (Some(_), _) => api::SchedulerState::Failing,
        (None, Some(_)) => api::SchedulerState::Ok,
        (None, None) => api::SchedulerState::New,
    };
    api::Scheduler {
        cluster: course.cluster.as_str().to_owned(),
        kind: course.kind.to_owned(),
        interface: course.way.to_owned(),
        state,
        last_error: now.trouble.filter(|_| details),
        last_success: now.last_success.map(|(at, _)| at.seconds()),
        period_seconds: course.period.as_secs_f64(),
        polls: course.good.get(),
        polls_failed: course.failed.get(),
        calls: course.calls.get(),
        records: course.records(),
        records_rejected: course.refused.get(),
        rejections: if details { now.refused } else { Vec::new() },
    }
}
