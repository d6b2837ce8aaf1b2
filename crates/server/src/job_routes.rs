//! `/api/v1/jobs`: lists, reports, and the local jobs of `jobmeter run`: they begin and end here.

use crate::answers::{ask, ask_long, json};
use crate::app::App;
use crate::body::{media_type, unsupported};
use crate::caller::Caller;
use crate::params::Params;
use crate::problem::{Refusal, Why};
use crate::router::part;
use crate::selection::{Span, job, wrong};
use crate::series::known;
use crate::slow::Asked;
use api::Operation;
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use jobs::{Filter, Listed, Registration, Registry, RegistryError, Whole};
use model::{ClusterId, DeviceId, JobKey, JobState, Timestamp};
use query::{QueryError, shown};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;

const DAY: i64 = 24 * 3600 * Timestamp::SECOND;
/// Jobs in a list where nobody says how many.
const LISTED: usize = 1000;
/// Longest name of a job, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Most local jobs that one user may have had within a day.
const JOBS_PER_DAY_MAX: usize = 10_000;

/// `GET /api/v1/jobs`: the newest first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let params = known(query, Operation::Jobs)?;
    let filter = filter(&app, &params)?;
    ask(&app, &caller, move |questions, asker| questions.jobs(&filter, asker)).await
}

fn filter(app: &App, params: &Params) -> Result<Filter, Refusal> {
    let state = params.text("state")?.map(|word| {
        JobState::from_word(&word).ok_or_else(|| {
            let words = JobState::ALL.map(JobState::word);
            let meant = config::nearest(&word, words).map(|near| format!("is `{near}` meant?"));
            Refusal::malformed(format!("`state` is one of {}", words.join(", "))).hint(meant)
        })
    });
    let limit = params.text("limit")?.map(|limit| {
        let most = limit.parse::<u32>().ok().filter(|limit| *limit <= api::COUNT_MAX);
        let message = || format!("`limit` is a whole number, {} at most", api::COUNT_MAX);
        most.and_then(|limit| usize::try_from(limit).ok())
            .ok_or_else(|| Refusal::malformed(message()))
    });
    let cluster = params.text("cluster")?.map(|name| ClusterId::new(&name)).transpose();
    let device = params.text("device")?.map(|name| DeviceId::new(&name)).transpose();
    let mut filter = Filter {
        state: state.transpose()?,
        cluster: cluster.map_err(wrong)?,
        user: params.text("user")?,
        device: device.map_err(wrong)?,
        limit: Some(limit.transpose()?.unwrap_or(LISTED)),
        ..Filter::default()
    };
    let (start, end) = (params.text("start")?.is_some(), params.text("end")?.is_some());
    let span = Span::of(params, &app.questions, app.now(), 0)?;
    filter.from = start.then_some(span.from);
    filter.to = end.then_some(span.to);
    Ok(filter)
}

/// `GET /api/v1/jobs/{[CLUSTER:]ID}`.
pub(crate) async fn report(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let params = known(query, Operation::Report)?;
    let name = job(&part(name)?, &params)?;
    let asked = Asked::new(&app, "job report", &caller, &name.to_string());
    ask_long(
        &app,
        &caller,
        asked,
        |_| 1,
        move |questions, asker| questions.job_report(&name, asker),
    )
    .await
}

/// `POST /api/v1/jobs`: a local job begins. Its user is the caller.
pub(crate) async fn register(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::Register)?;
    let uid = caller.registers_for().ok_or_else(|| {
        Refusal::forbidden(
            "this token names no user, and a job is a user's: use one of `user:NAME`",
        )
    })?;
    let begun: api::Register = object(&app, &head.headers, body).await?;
    let now = app.now();
    let registration = Registration {
        uid,
        user: None,
        name: begun.name.map(checked_name).transpose()?,
        device: DeviceId::new(&begun.device).map_err(wrong)?,
        start: begun.start.map_or(Ok(now), |start| instant("start", start, now))?,
    };
    let key = app.with_registry(move |app| {
        let before = Filter {
            uid: Some(uid),
            cluster: Some(ClusterId::local()),
            from: Some(now.plus(-DAY)),
            limit: Some(JOBS_PER_DAY_MAX),
            ..Filter::default()
        };
        if app.registry.list(&before)?.len() >= JOBS_PER_DAY_MAX {
            return Ok(None);
        }
        let key = app.registry.register_local(&registration)?;
        app.told_jobs.changed();
        Ok(Some(key))
    });
    let Some(key) = key.await?.map_err(refusal)? else {
        let message = format!("user {uid} had {JOBS_PER_DAY_MAX} local jobs within a day");
        return Err(Refusal::busy(message));
    };
    log::info!("job {key} of user {uid} begins");
    json(&api::Registered { cluster: key.cluster.to_string(), id: key.id.get() })
}

/// `POST /api/v1/jobs/{[CLUSTER:]ID}/end`: a local job has ended.
pub(crate) async fn end(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let params = known(head.uri.query().map(str::to_owned), Operation::End)?;
    let name = job(&part(name)?, &params)?;
    let ended: api::End = object(&app, &head.headers, body).await?;
    let now = app.now();
    let stop = ended.stop.map_or(Ok(now), |stop| instant("stop", stop, now))?;
    let asker = app.asker(&caller)?;
    let job = app.with_registry(move |app| {
        let key = app.questions.job_key(&name, &asker)?;
        if key.cluster != ClusterId::local() || !caller.may_end(app.registry.owner(&key)?) {
            return Err(QueryError::Denied(key));
        }
        app.registry.end_local(key.id, stop, ended.exit_code)?;
        app.told_jobs.changed();
        Ok(ended_job(&app.registry, &key)?)
    });
    let job = job.await??;
    let Some(job) = job else { return Err(Refusal::fault(&"a job that ended is not known")) };
    json(&job)
}

/// The newest run of a job, as the API tells it.
fn ended_job(registry: &Registry, key: &JobKey) -> Result<Option<api::Job>, RegistryError> {
    let Some(Whole { job, allocations, .. }) = registry.whole(key)? else { return Ok(None) };
    let devices: BTreeSet<_> = allocations.into_iter().map(|stay| stay.device).collect();
    Ok(Some(shown(Listed { job, devices: devices.into_iter().collect() })))
}

/// Why a job could not be registered.
fn refusal(error: RegistryError) -> Refusal {
    match error {
        RegistryError::Full(_) => {
            let status = StatusCode::INSUFFICIENT_STORAGE;
            Refusal::new(status, "53100", Why::Full, "the registry of jobs is full")
        }
        error => QueryError::from(error).into(),
    }
}

/// A JSON object of a body.
async fn object<T: DeserializeOwned>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Refusal> {
    if media_type(headers).as_deref() != Some("application/json") {
        return Err(unsupported("this takes application/json"));
    }
    let held = app.question_body(headers, body).await?;
    serde_json::from_slice(&held.bytes).map_err(|error| Refusal::malformed(error.to_string()))
}

fn checked_name(name: String) -> Result<Box<str>, Refusal> {
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Refusal::malformed(format!(
            "a job's name has {NAME_BYTES_MAX} bytes at most, and no control characters"
        )));
    }
    Ok(name.into())
}

/// Seconds since 1970 as an instant that a job may begin or end at.
fn instant(what: &str, seconds: f64, now: Timestamp) -> Result<Timestamp, Refusal> {
    let latest = now.plus(DAY);
    if !(Timestamp::YEAR_2000.seconds()..=latest.seconds()).contains(&seconds) {
        let message = format!("`{what}` is seconds since 1970, from 2000 to a day from now");
        return Err(Refusal::malformed(message));
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the lines above")]
    Ok(Timestamp((seconds * 1e6).round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_of_jobs() {
        let now = Timestamp::from_seconds(1_767_706_500);
        assert_eq!(instant("start", 1_767_706_500.25, now).unwrap().0, 1_767_706_500_250_000);
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1_767_800_000.0] {
            assert!(instant("start", seconds, now).is_err(), "{seconds}");
        }
    }

    #[test]
    fn states_are_declared() {
        assert_eq!(api::JOB_STATES, JobState::ALL.map(JobState::word));
    }

    #[test]
    fn names_of_jobs() {
        assert!(checked_name("make -j2 é".to_owned()).is_ok());
        assert!(checked_name("x".repeat(201)).is_err());
        assert!(checked_name("a\u{1b}[31m".to_owned()).is_err());
    }
}
