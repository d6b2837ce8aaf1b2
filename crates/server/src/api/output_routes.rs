//! `/api/v1/outputs`: the state of each output.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::queries::answers::json;
use crate::queries::series_routes::known;
use api::Operation;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use jobs::Reader;
use outputs::{OutputState, OutputStatus};
use std::sync::Arc;

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
        samples_lost: status.samples_lost,
        gaps: gaps.collect(),
    }
}
