//! `/api/v1/jobs`: lists and reports of jobs, the start and end of `jobmeter run`'s local jobs, and updates of
//! schedulers' jobs.

use crate::app::App;
use crate::auth::caller::{Caller, Rights};
use crate::common::http_error::{HttpError, Why};
use crate::http::body::{media_type, unsupported};
use crate::http::params::{Params, part};
use crate::http::selection::{Span, job, metrics, wrong};
use crate::queries::answers::{json, reply, reply_long, unchanged, wrote};
use crate::queries::series_routes::{known, truth};
use crate::queries::slow_query_log::RunningQuery;
use crate::schedulers::job_update_parser::{instant, latest, record_update};
use api::Operation;
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use jobs::{
    Filter, JobName, ListPosition, RecordUpdate, Registration, Registry, RegistryError, RunFacts,
};
use model::{ClusterId, DeviceId, JobKey, JobState, NodeList, Timestamp, is_unprintable};
use query::{QueryContext, QueryEngine, QueryError, parse_time};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;

const DAY: i64 = 24 * 3600 * Timestamp::SECOND;
/// Default number of jobs in a list.
const LISTED: usize = 1000;
/// Longest name of a job, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// The possible exit codes of a command.
const EXIT_CODES: std::ops::RangeInclusive<i32> = 0..=255;
/// The error for an end before the start.
const BACKWARDS: &str =
    "the job would end more than a minute before it starts: `stop` is before `start`";
/// Largest difference between a local job's start and the server's clock: clocks may differ a little.
const START_WITHIN: i64 = 60 * Timestamp::SECOND;
/// Most local jobs of one user within a day.
const JOBS_PER_DAY_MAX: usize = 10_000;

/// `GET /api/v1/jobs`: lists jobs, latest first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::Jobs)?;
    let filter = filter(&app, &params)?;
    if !truth(&params, "usage")?.unwrap_or(false) {
        return reply(&app, &caller, move |engine, context| engine.jobs(&filter, context)).await;
    }
    if filter.limit.is_some_and(|limit| limit > LISTED) {
        return Err(HttpError::malformed(format!(
            "with `usage`, `limit` must be {LISTED} or less"
        )));
    }
    let running = RunningQuery::new(&app, "jobs usage", &caller, "");
    let list = move |engine: &QueryEngine, context: &QueryContext| {
        engine.jobs_with_usage(&filter, context)
    };
    reply_long(&app, &caller, running, Vec::len, list).await
}

fn filter(app: &App, params: &Params) -> Result<Filter, HttpError> {
    let state = params.text("state")?.map(|word| {
        JobState::from_word(&word).ok_or_else(|| {
            let words = JobState::ALL.map(JobState::word);
            let meant = config::nearest(&word, words).map(|near| format!("did you mean `{near}`?"));
            HttpError::malformed(format!("`state` is one of {}", words.join(", "))).hint(meant)
        })
    });
    let limit = params.limit(api::JOBS_MAX)?;
    let part_of = params.text("part_of")?.map(|number| {
        let number = number.parse().ok().filter(|number| (1..=api::NUMBER_MAX).contains(number));
        let message = || format!("`part_of` must be a whole number from 1 to {}", api::NUMBER_MAX);
        number.ok_or_else(|| HttpError::malformed(message()))
    });
    let cluster = params.text("cluster")?.map(|name| ClusterId::new(&name)).transpose();
    let (cluster, account) = of_account(cluster.map_err(wrong)?, params.text("account")?)?;
    let device = params.text("device")?.map(|name| DeviceId::listed(&name)).transpose();
    let mut filter = Filter {
        state: state.transpose()?,
        cluster,
        part_of: part_of.transpose()?,
        user: params.text("user")?,
        account,
        project: params.text("project")?,
        queue: params.text("queue")?,
        name: params.text("name")?,
        after: params.text("after")?.map(|text| place(&text)).transpose()?,
        device: device.map_err(wrong)?,
        limit: Some(limit.unwrap_or(LISTED)),
        ..Filter::default()
    };
    let (start, end) = (params.text("start")?.is_some(), params.text("end")?.is_some());
    let span = Span::of(params, &app.engine, app.now(), 0)?;
    filter.from = start.then_some(span.from);
    filter.to = end.then_some(span.to);
    Ok(filter)
}

/// Splits `NAME` or `CLUSTER:NAME` of an account into cluster and name.
fn of_account(
    cluster: Option<ClusterId>,
    account: Option<String>,
) -> Result<(Option<ClusterId>, Option<String>), HttpError> {
    let named = account.as_deref().and_then(|text| text.split_once(':'));
    let Some((of, name)) = named.and_then(|(of, name)| Some((ClusterId::new(of).ok()?, name)))
    else {
        return Ok((cluster, account));
    };
    if cluster.is_some_and(|cluster| cluster != of) {
        return Err(HttpError::malformed("`account` and `cluster` name different clusters"));
    }
    Ok((Some(of), Some(name.to_owned())))
}

/// Parses the position where a list continues: `CLUSTER:ID@START` of the last job received.
fn place(text: &str) -> Result<ListPosition, HttpError> {
    let read = || {
        let (name, start) = text.split_once('@')?;
        let (cluster, id) = name.split_once(':')?;
        let key = JobKey { cluster: ClusterId::new(cluster).ok()?, id: id.parse().ok()? };
        let start = Timestamp::parse(start)
            .ok()
            .filter(|_| start.starts_with(|c: char| c.is_ascii_digit()));
        Some(ListPosition { start: start?, key })
    };
    read().ok_or_else(|| {
        HttpError::malformed(
            "`after` must be CLUSTER:ID@START of the last job received, such as \
             slurm:7@1767657600.25",
        )
    })
}

/// `GET /api/v1/jobs/check`: where the reports of schedulers and nodes disagree.
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::JobsCheck)?;
    if !caller.reader().is_some_and(jobs::Reader::sees_every_job) {
        return Err(HttpError::forbidden(
            "only administrators and staff may read the differences between schedulers and nodes",
        ));
    }
    let running = RunningQuery::new(&app, "jobs check", &caller, "");
    let check = |engine: &QueryEngine, context: &QueryContext| engine.disagreements(context);
    reply_long(&app, &caller, running, |_| 1, check).await
}

/// `GET /api/v1/jobs/{[CLUSTER:]ID}`.
pub(crate) async fn report(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::Report)?;
    let (name, metrics) = (job(&part(name)?, &params)?, metrics(&params)?);
    // A start cut to seconds or milliseconds also selects its run; an exact one selects no run that began later.
    let by = |text: String| parse_time(&text, app.now(), &app.engine.settings().zone);
    let by = params.text("start")?.map(by).transpose()?;
    let by = by.map(|by| {
        let mut units = [Timestamp::SECOND, Timestamp::SECOND / 1000].into_iter();
        by.plus(units.find(|unit| by.0 % unit == 0).map_or(0, |unit| unit - 1))
    });
    let running = RunningQuery::new(&app, "job report", &caller, &name.to_string());
    reply_long(
        &app,
        &caller,
        running,
        |_| 1,
        move |engine, context| engine.job_report_with(&name, by, metrics.as_ref(), context),
    )
    .await
}

/// `POST /api/v1/jobs`: registers a local job; with `cluster` or `id`, updates a scheduler's job.
pub(crate) async fn register(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::Register)?;
    must_be_json(&head)?;
    let sent = app.question_body(&head, body).await?;
    let keys: serde_json::Value = parsed(&sent.bytes)?;
    if keys.get("cluster").or(keys.get("id")).is_some() {
        let update = parsed(&sent.bytes)?;
        drop(sent);
        return report_job(&app, &caller, update).await;
    }
    let job = parsed(&sent.bytes)?;
    drop(sent);
    begin(&app, &caller, job).await
}

fn parsed<T: DeserializeOwned>(text: &[u8]) -> Result<T, HttpError> {
    serde_json::from_slice(text).map_err(|error| HttpError::unreadable(text, &error))
}

/// Applies an update of a scheduler's job.
async fn report_job(
    app: &Arc<App>,
    caller: &Caller,
    sent: api::JobUpdate,
) -> Result<Response, HttpError> {
    let now = app.now();
    let cluster = ClusterId::new(&sent.cluster).map_err(|e| HttpError::malformed(e.to_string()))?;
    if cluster != ClusterId::local() && !caller.rights.reports_jobs_of(&cluster) {
        let rule = "only administrators and a cluster's tokens of scope `jobs` report its jobs";
        return Err(HttpError::forbidden(rule));
    }
    // A list of nodes may name 65 536 of them: only what has a turn is expanded.
    let rights = caller.rights.clone();
    let result = app.change_registry(caller.actor.user_key(), move |app| {
        let update = record_update(sent, latest(!rights.is_job_reporter(), now))
            .map_err(HttpError::malformed)?;
        let key = update.key.clone();
        let stats = app.take_update(update, &rights, now).map_err(http_error)?;
        let job = app.registry.job(&key).map_err(http_error)?;
        Ok::<_, HttpError>((key, stats, job))
    });
    let (key, stats, job) = result.await??;
    if stats.backwards > 0 {
        return Err(HttpError::malformed(BACKWARDS));
    }
    if stats.limited > 0 {
        let jobs::Limits { reported_open_max, reported_writes_max, .. } = app.registry.limits();
        return Err(HttpError::busy(format!(
            "the clusters of this token have {reported_open_max} running allocations of nodes to jobs, or \
             {reported_writes_max} nodes and updates in an hour, or mainly their jobs fill half of the \
             registry; end some of these jobs, or try again later"
        )));
    }
    if stats.rejected > 0 {
        let full = RegistryError::Full(app.registry.limits().records_max);
        return Err(http_error(full));
    }
    let registered = api::Registered {
        cluster: key.cluster.to_string(),
        id: key.id.get(),
        server: String::new(),
        user_unknown: job.is_some_and(|job| job.facts.user.is_some() && job.facts.uid.is_none()),
    };
    if stats.new + stats.changed == 0 {
        return unchanged(json(&registered)?);
    }
    log::info!("received an update of job {key}");
    wrote(json(&registered)?, &serde_json::json!({"job": key.to_string()}))
}

/// Registers a local job of the caller.
async fn begin(app: &Arc<App>, caller: &Caller, new: api::Register) -> Result<Response, HttpError> {
    let uid = caller.rights.registers_for().ok_or_else(|| {
        HttpError::forbidden(match caller.rights {
            Rights::Reading(_) => "this token may only read: use one of the scope `user:NAME`",
            _ => "this token names no user, and a job is a user's: use one of `user:NAME`",
        })
    })?;
    let now = app.now();
    let device = begun_on(&new.device)?;
    let registration = Registration {
        uid,
        user: None,
        name: new.name.map(checked_name).transpose()?,
        is_verified: caller.verifies(device.as_str(), &device_of_server()),
        device,
        start: new.start.map_or(Ok(now), |start| begun_at(start, now))?,
    };
    let key = app.change_registry(caller.actor.user_key(), move |app| {
        let since = now.plus(-DAY);
        if app.registry.local_since(uid, since, JOBS_PER_DAY_MAX)? >= JOBS_PER_DAY_MAX {
            return Ok(None);
        }
        let key = app.registry.register_local(&registration)?;
        app.node_jobs.changed();
        Ok(Some(key))
    });
    let Some(key) = key.await?.map_err(http_error)? else {
        let message = format!("user {uid} had {JOBS_PER_DAY_MAX} local jobs within a day");
        return Err(HttpError::busy(message));
    };
    log::info!("job {key} of user {uid} begins");
    let (cluster, server) = (key.cluster.to_string(), app.registry.identity().to_owned());
    let registered = api::Registered { cluster, id: key.id.get(), server, user_unknown: false };
    wrote(json(&registered)?, &serde_json::json!({"job": key.to_string()}))
}

/// `POST /api/v1/jobs/{[CLUSTER:]ID}/end`: ends a local job.
///
/// Administrators end any job. Tokens of scope `jobs` end jobs of their clusters.
pub(crate) async fn end(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let params = known(head.uri.query().map(str::to_owned), Operation::End)?;
    let name = job(&part(name)?, &params)?;
    let ended: api::End = object(&app, &head, body).await?;
    let now = app.now();
    let stop = ended.stop.map_or(Ok(now), |stop| time("stop", stop, now))?;
    let code = ended.exit_code;
    if code.is_some_and(|code| !EXIT_CODES.contains(&code)) {
        return Err(HttpError::malformed("`exit_code` must be a whole number from 0 to 255"));
    }
    if matches!(caller.rights, Rights::JobReporter(_)) {
        return end_reported(&app, &caller, name, stop, ended.exit_code).await;
    }
    let context = app.context(&caller)?;
    let job = app.change_registry(caller.actor.user_key(), move |app| {
        let key = app.engine.job_key(&name, &context)?;
        let is_changed;
        if key.cluster == ClusterId::local() {
            if !caller.rights.may_end(app.registry.owner(&key)?) {
                return Err(QueryError::Denied(key));
            }
            is_changed = app.registry.end_local(key.id, stop, ended.exit_code)?;
            if is_changed {
                app.node_jobs.changed();
            }
        } else if caller.rights.is_admin() {
            let stats = app.take_update(
                RecordUpdate::end(key.clone(), stop, ended.exit_code),
                &caller.rights,
                now,
            )?;
            if stats.backwards > 0 {
                return Ok(None);
            }
            is_changed = stats.new + stats.changed > 0;
        } else {
            return Err(QueryError::Scheduled(key));
        }
        let job = ended_job(&app.registry, &key)?;
        Ok(Some((job.ok_or(QueryError::UnknownJob(key.to_string()))?, is_changed)))
    });
    let Some((job, is_changed)) = job.await?? else { return Err(HttpError::malformed(BACKWARDS)) };
    let other_code = job.exit_code.filter(|had| code.is_some_and(|code| code != *had));
    if let Some(had) = other_code.filter(|_| !is_changed) {
        let message = format!(
            "job {}:{} has already ended with exit code {had}; nothing was changed",
            job.cluster, job.id
        );
        return Err(HttpError::new(StatusCode::CONFLICT, "55000", Why::Malformed, message));
    }
    answer_end(job, is_changed, |job| job)
}

/// Builds the response to an end: the visible part of the job, and whether it changed.
fn answer_end(
    job: api::Job,
    changed: bool,
    shown: impl Fn(api::Job) -> api::Job,
) -> Result<Response, HttpError> {
    let more = serde_json::json!({"job": format!("{}:{}", job.cluster, job.id), "owner": job.uid});
    let answer = json(&api::Ended { job: shown(job), changed })?;
    if changed { wrote(answer, &more) } else { unchanged(answer) }
}

/// Ends a scheduler's job for a caller without read access. The response has only the job's key and its end.
async fn end_reported(
    app: &Arc<App>,
    caller: &Caller,
    name: JobName,
    stop: Timestamp,
    exit_code: Option<i32>,
) -> Result<Response, HttpError> {
    let Some(cluster) = &name.cluster else {
        return Err(HttpError::malformed("the cluster of the job is missing; write CLUSTER:ID"));
    };
    if cluster.reads_as_local() || !caller.rights.reports_jobs_of(cluster) {
        return Err(HttpError::forbidden(format!(
            "this token does not permit reporting jobs of \
                                               `{cluster}`"
        )));
    }
    let now = app.now();
    let rights = caller.rights.clone();
    let job = app.change_registry(caller.actor.user_key(), move |app| {
        let key = app.registry.resolve(&name)?;
        let update = RecordUpdate::end(key.clone(), stop, exit_code);
        let stats = app.take_update(update, &rights, now)?;
        Ok::<_, RegistryError>((ended_job(&app.registry, &key)?, stats.new + stats.changed > 0))
    });
    let (job, is_changed) = job.await?.map_err(QueryError::from)?;
    let Some(job) = job else {
        return Err(HttpError::fault(
            &"the registry lacks a job that it has \
                                                           just ended",
        ));
    };
    answer_end(job, is_changed, what_became)
}

/// Keeps only the job's key and its end. The reporter has reported these fields, or could have.
fn what_became(job: api::Job) -> api::Job {
    api::Job {
        cluster: job.cluster,
        id: job.id,
        display_id: job.display_id,
        state: job.state,
        stop: job.stop,
        exit_code: job.exit_code,
        ..api::Job::default()
    }
}

/// Returns the latest run of a job, in the form of the API.
fn ended_job(registry: &Registry, key: &JobKey) -> Result<Option<api::Job>, RegistryError> {
    let Some(RunFacts { job, allocations, .. }) = registry.whole(key)? else { return Ok(None) };
    let devices: BTreeSet<_> = allocations.into_iter().map(|interval| interval.device).collect();
    Ok(Some(api::Job::new(job, devices)))
}

/// Converts the error of a registration.
fn http_error(error: RegistryError) -> HttpError {
    match error {
        RegistryError::Full(_) | RegistryError::FullForUser { .. } => {
            let status = StatusCode::INSUFFICIENT_STORAGE;
            HttpError::new(status, "53100", Why::Full, error.to_string())
        }
        RegistryError::OpenLocal { .. } => HttpError::busy(error.to_string()),
        error => QueryError::from(error).into(),
    }
}

fn must_be_json(head: &Parts) -> Result<(), HttpError> {
    if media_type(&head.headers).as_deref() == Some("application/json") {
        return Ok(());
    }
    Err(unsupported("the content type must be application/json"))
}

/// Parses a request body as a JSON object.
pub(crate) async fn object<T: DeserializeOwned>(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<T, HttpError> {
    must_be_json(head)?;
    parsed(&app.question_body(head, body).await?.bytes)
}

/// Parses the one device of a local job.
fn begun_on(device: &str) -> Result<DeviceId, HttpError> {
    if NodeList::is_name(device) {
        return DeviceId::new(device).map_err(wrong);
    }
    Err(HttpError::malformed(
        "`device` must be the name of one node, without blanks, commas, `*`, `[` and `]`",
    ))
}

/// Parses the start of a local job, which must be within 60 s of the server's clock.
fn begun_at(seconds: f64, now: Timestamp) -> Result<Timestamp, HttpError> {
    let start = time("start", seconds, now)?;
    if (now.plus(-START_WITHIN)..=now.plus(START_WITHIN)).contains(&start) {
        return Ok(start);
    }
    let most = START_WITHIN / Timestamp::SECOND;
    Err(HttpError::malformed(format!(
        "`start` differs from the server's clock by more than {most} s; register a job when it \
         starts, and synchronise the clocks"
    )))
}

/// Returns the device name of the server's own machine, as an agent there reports it.
fn device_of_server() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn checked_name(name: String) -> Result<Box<str>, HttpError> {
    if name.len() > NAME_BYTES_MAX || name.contains(is_unprintable) {
        return Err(HttpError::malformed(format!(
            "a job's name has {NAME_BYTES_MAX} bytes at most, and only printable characters: no control \
             characters, and no marks of direction or of no width"
        )));
    }
    Ok(name.into())
}

fn time(what: &str, seconds: f64, now: Timestamp) -> Result<Timestamp, HttpError> {
    instant(what, seconds, latest(false, now)).map_err(HttpError::malformed)
}

#[cfg(test)]
mod tests;
