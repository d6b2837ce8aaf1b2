//! `/api/v1/settings`, `/api/v1/flushes` and `/api/v1/marks`: administrators' on-demand requests to agents, and their
//! history.

use crate::api::job_routes::object;
use crate::app::App;
use crate::auth::caller::{Caller, Rights};
use crate::common::http_error::{HttpError, Why};
use crate::http::params::{Params, part};
use crate::http::selection::{Span, list as names_in, wrong};
use crate::ingest::agent_reports::{AgentCounts, AgentReport};
use crate::queries::answers::{json, reply, wrote};
use crate::queries::series_routes::known;
use api::{Operation, Set, SetBurst, SetSource};
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use control::{Change, DemandError, NewChange};
use jobs::Reader;
use model::setting::{
    NodeSettings, Override, Rejection, RejectionCode, SETTINGS_BYTES_MAX, SettingValue,
};
use model::{DeviceId, NodeList, Timestamp};
use query::SeenMark;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const DAY: i64 = 24 * 3600 * Timestamp::SECOND;
/// Longest duration of a change, in seconds.
const SECONDS_MAX: f64 = 30.0 * 86_400.0;
/// Most sources of a change, events of a source, and nodes whose rejections are listed.
const LISTED_MAX: usize = 100;
/// Longest name of an event, in bytes.
const EVENT_BYTES_MAX: usize = 100;
/// Most marks of a response.
const MARKS_MAX: usize = 10_000;

/// `GET /api/v1/settings`: the active changes, and how many nodes applied or rejected them.
pub(crate) async fn settings(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Settings)?;
    if !caller.reader().is_some_and(Reader::sees_every_job) {
        let message = "only administrators and staff may read setting overrides and flushes";
        return Err(HttpError::forbidden(message));
    }
    let (active, now) = (app.on_demand.active(), app.now());
    let holds = active.held.changes.iter().filter(|change| change.until > now);
    json(&holds.map(|change| shown(&app, change, now)).collect::<Vec<_>>())
}

fn shown(app: &App, change: &Change, now: Timestamp) -> api::SetChange {
    let base = &app.live().agents;
    let mut shown = api::SetChange {
        id: change.number,
        nodes: change.nodes.to_string(),
        settings: change.settings.lines(),
        created: change.made.seconds(),
        created_by: change.by.to_string(),
        until: change.until.seconds(),
        nodes_known: 0,
        nodes_applied: 0,
        rejected: Vec::new(),
        shortened: Vec::new(),
    };
    for agent in app.agents.matching(&change.nodes) {
        shown.nodes_known += 1;
        let reported = app.on_demand.config_for(&agent.device, base, now);
        let left_out = app.on_demand.left_out(&agent.device, change.number);
        let limit = left_out.iter().map(|section| Rejection {
            setting: section.to_string(),
            code: RejectionCode::Limit,
            reason: "the node's limits are reached; it does not receive this".to_owned(),
            until: None,
        });
        let is_current = agent.generation == Some(reported.generation);
        let rejected = agent.rejected.iter().filter(|one| is_current && concerns(change, one));
        let (mut is_taken, mut ends) = (is_current, None);
        for one in limit.chain(rejected.cloned()) {
            if let Some(until) = one.until.filter(|_| one.code == RejectionCode::Shortened) {
                // Of the sources of a change, the first to end counts.
                let new = (until < change.until).then_some((until, one.reason));
                ends = ends.into_iter().chain(new).min();
                continue;
            }
            is_taken = false;
            if shown.rejected.len() < LISTED_MAX {
                let (device, code) = (agent.device.to_string(), one.code.word().to_owned());
                let Rejection { setting, reason, .. } = one;
                shown.rejected.push(api::SetRejection { device, setting, code, reason });
            }
        }
        if let Some((until, reason)) = ends.filter(|_| shown.shortened.len() < LISTED_MAX) {
            let (device, until) = (agent.device.to_string(), until.seconds());
            shown.shortened.push(api::SetShortened { device, until, reason });
        }
        shown.nodes_applied += u64::from(is_taken);
    }
    shown
}

/// Whether a rejection concerns a change: all settings, a source or burst of the change, or one of its settings.
fn concerns(change: &Change, rejection: &Rejection) -> bool {
    let setting = &*rejection.setting;
    let NodeSettings { sources, bursts, .. } = &change.settings;
    let of_source = |source: &str, changed: &Override| {
        let rest = setting.strip_prefix("sources.").and_then(|rest| rest.strip_prefix(source));
        let key = rest.and_then(|rest| rest.strip_prefix('.'));
        rest == Some("") || key.is_some_and(|key| changed.values.contains_key(key))
    };
    // A burst is rejected as a whole. Its `until` is not a setting of the change.
    let burst = setting.strip_prefix("burst.").and_then(|rest| rest.split('.').next());
    setting.is_empty()
        || sources.iter().any(|(source, changed)| of_source(source, changed))
        || burst.is_some_and(|source| bursts.contains_key(source))
}

/// `POST /api/v1/settings`: changes settings of nodes for a time.
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::Set)?;
    administrators_only(&caller)?;
    let set: Set = object(&app, &head, body).await?;
    let now = app.now();
    let new = NewChange {
        nodes: NodeList::new(&set.nodes).map_err(wrong)?,
        until: ends("for_seconds", set.for_seconds, SECONDS_MAX, now)?,
        by: name_of(&app, &caller),
        settings: settings_of(&set)?,
    };
    let known = app.agents.counted(&new.nodes, now);
    let nodes = new.nodes.to_string();
    let number = app.change_registry(caller.actor.user_key(), move |app| {
        let number = app.on_demand.demand().change(&new, now)?;
        app.on_demand.refresh(now)?;
        let settings = new.settings.lines();
        let NewChange { nodes, until, by, .. } = new;
        log::info!("change {number} of {nodes} by {by} until {until}: {}", settings.join("; "));
        Ok((number, settings, full(app, &nodes, number, now)))
    });
    let (number, settings, nodes_full) = number.await?.map_err(http_error)?;
    let more = serde_json::json!({"number": number, "nodes": nodes, "settings": settings});
    wrote(json(&api::ChangeReceipt { nodes_full, ..numbered(number, known) })?, &more)
}

/// Number of reporting nodes whose configuration has no space for the whole change.
fn full(app: &App, nodes: &NodeList, number: i64, now: Timestamp) -> u64 {
    let base = &app.live().agents;
    let is_full = |agent: &AgentReport| {
        app.on_demand.config_for(&agent.device, base, now);
        !app.on_demand.left_out(&agent.device, number).is_empty()
    };
    let full = app.agents.matching(nodes).iter().filter(|agent| is_full(agent)).count();
    u64::try_from(full).unwrap_or(u64::MAX)
}

/// Converts a request to settings.
fn settings_of(set: &Set) -> Result<NodeSettings, HttpError> {
    if set.sources.len() > LISTED_MAX || set.bursts.len() > LISTED_MAX {
        return Err(HttpError::malformed(format!("more than {LISTED_MAX} sources")));
    }
    let mut settings = NodeSettings::default();
    for (name, source) in &set.sources {
        source_word(name)?;
        let values = source_values(source)?;
        if !values.is_empty() {
            settings.sources.insert((&**name).into(), Override { values, until: None });
        }
    }
    for (name, burst) in &set.bursts {
        source_word(name)?;
        let values = burst_values(burst)?;
        settings.bursts.insert((&**name).into(), Override { values, until: None });
    }
    if settings.is_empty() {
        return Err(HttpError::malformed("the change is empty: set `sources` or `bursts`"));
    }
    if wire::encode_settings(&settings).len() > SETTINGS_BYTES_MAX {
        let message = format!("the change has more than {SETTINGS_BYTES_MAX} bytes of settings");
        return Err(HttpError::malformed(message));
    }
    Ok(settings)
}

/// Values by key.
type Values = BTreeMap<Box<str>, SettingValue>;

fn source_values(source: &SetSource) -> Result<Values, HttpError> {
    let SetSource { enabled, period_seconds, events } = source;
    let mut values = Values::new();
    if let Some(enabled) = enabled {
        values.insert("enabled".into(), SettingValue::Switch(*enabled));
    }
    if let Some(period) = period_seconds {
        values.insert("period".into(), span("period_seconds", *period, (0.01, 86_400.0))?);
    }
    if let Some(events) = events {
        let is_word = |event: &String| {
            (1..=EVENT_BYTES_MAX).contains(&event.len())
                && event.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if events.len() > LISTED_MAX || !events.iter().all(is_word) {
            return Err(HttpError::malformed(format!(
                "`events` are {LISTED_MAX} names at most, without blanks, each of \
                 {EVENT_BYTES_MAX} bytes at most"
            )));
        }
        let events = events.iter().map(|event| (&**event).into()).collect();
        values.insert("events".into(), SettingValue::List(events));
    }
    Ok(values)
}

fn burst_values(burst: &SetBurst) -> Result<Values, HttpError> {
    let SetBurst { period_seconds, keep_seconds, flush_on } = burst;
    if flush_on.len() > 2 {
        return Err(HttpError::malformed("`flush_on` has at most two entries"));
    }
    let word = |on: &api::FlushOn| match on {
        api::FlushOn::JobStart => "job_start".into(),
        api::FlushOn::JobEnd => "job_end".into(),
    };
    let flush_on = SettingValue::List(flush_on.iter().map(word).collect());
    let period = span("period_seconds", *period_seconds, (0.01, 86_400.0))?;
    let keep = span("keep_seconds", *keep_seconds, (0.1, 3600.0))?;
    Ok([("period", period), ("keep", keep), ("flush_on", flush_on)]
        .map(|(key, value)| (key.into(), value))
        .into())
}

/// Checks that a text may be the name of a source: api::WORD.
fn source_word(name: &str) -> Result<(), HttpError> {
    if model::is_word(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    let pattern = model::WORD;
    Err(HttpError::malformed(format!(
        "`{shown}` is not a source name; source names match {pattern}"
    )))
}

/// Converts a duration in seconds, rounded to milliseconds.
fn span(what: &str, seconds: f64, (least, most): (f64, f64)) -> Result<SettingValue, HttpError> {
    if !(least..=most).contains(&seconds) {
        return Err(HttpError::malformed(format!(
            "`{what}` must be {least} to {most} seconds ({} to {})",
            shown_seconds(least),
            shown_seconds(most)
        )));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded by the lines above"
    )]
    let ms = (seconds * 1000.0).round() as u64;
    Ok(SettingValue::Duration(Duration::from_millis(ms)))
}

fn shown_seconds(seconds: f64) -> String {
    model::setting::show_duration(Duration::from_secs_f64(seconds))
}

/// Returns the instant `seconds` from now.
pub(crate) fn ends(
    what: &str,
    seconds: f64,
    most: f64,
    now: Timestamp,
) -> Result<Timestamp, HttpError> {
    if !(1.0..=most).contains(&seconds) {
        return Err(HttpError::malformed(format!(
            "`{what}` must be 1 to {most} seconds (1s to {})",
            shown_seconds(most)
        )));
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the lines above")]
    Ok(now.plus((seconds * 1e6).round() as i64))
}

/// `DELETE /api/v1/settings/{number}`: ends a change early.
pub(crate) async fn undo(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    number: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Undo)?;
    administrators_only(&caller)?;
    let number = number_of(number)?;
    let (by, now) = (name_of(&app, &caller), app.now());
    let active = app.on_demand.active();
    let change = active.held.changes.iter().find(|change| change.number == number);
    let nodes = change.map(|change| app.agents.counted(&change.nodes, now)).unwrap_or_default();
    let undone = app.change_registry(caller.actor.user_key(), move |app| {
        let undone = app.on_demand.demand().undo(number, &by, now)?;
        app.on_demand.refresh(now)?;
        if undone {
            log::info!("{by} ended change {number}");
        }
        Ok(undone)
    });
    if !undone.await?.map_err(http_error)? {
        return Err(HttpError::not_found(format!("there is no active change {number}")));
    }
    wrote(json(&numbered(number, nodes))?, &serde_json::json!({"number": number}))
}

/// `POST /api/v1/flushes`: nodes send the samples that a burst kept.
pub(crate) async fn flush(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::Flush)?;
    administrators_only(&caller)?;
    let api::FlushNow { nodes, source } = object(&app, &head, body).await?;
    let nodes = NodeList::new(&nodes).map_err(wrong)?;
    source_word(&source)?;
    let (by, now) = (name_of(&app, &caller), app.now());
    let known = app.agents.counted(&nodes, now);
    let more = serde_json::json!({"nodes": nodes.to_string(), "source": source});
    let number = app.change_registry(caller.actor.user_key(), move |app| {
        let number = app.on_demand.demand().flush(&nodes, &source, &by, now)?;
        app.on_demand.refresh(now)?;
        log::info!("flush {number} of {source} on {nodes} by {by}");
        Ok(number)
    });
    wrote(json(&numbered(number.await?.map_err(http_error)?, known))?, &more)
}

/// `GET /api/v1/marks`: the on-demand requests in the interval; the default is the last day.
///
/// The response has the marks of nodes that were visible to the caller then, and all marks of the caller's jobs.
pub(crate) async fn marks(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params: Params = known(query, Operation::Marks)?;
    let devices = params.text("device")?.map(|names| devices(&names)).transpose()?;
    let span = Span::of(&params, &app.engine, app.now(), DAY)?;
    reply(&app, &caller, move |engine, context| {
        let marks = engine.marks((span.from, span.to), devices.as_deref(), MARKS_MAX, context)?;
        Ok(marks.marks.into_iter().map(shown_mark).collect::<Vec<_>>())
    })
    .await
}

fn shown_mark(SeenMark { mark, nodes }: SeenMark) -> api::Mark {
    api::Mark {
        at: mark.at.seconds(),
        kind: mark.kind.word().to_owned(),
        id: mark.number,
        nodes,
        text: mark.text,
        actor: mark.by.map(Into::into),
        job: mark.job.map(Into::into),
    }
}

fn devices(names: &str) -> Result<Vec<DeviceId>, HttpError> {
    names_in(names)?.map(|name| DeviceId::new(name).map_err(wrong)).collect()
}

pub(crate) fn administrators_only(caller: &Caller) -> Result<(), HttpError> {
    if caller.rights.is_admin() {
        return Ok(());
    }
    Err(HttpError::forbidden("only administrators may change or flush nodes"))
}

/// Returns the caller's name, as stored with a request.
pub(crate) fn name_of(app: &App, caller: &Caller) -> Box<str> {
    match (caller.rights.uid(), &caller.rights) {
        (Some(uid), _) => app.registry.user_name(uid).unwrap_or_else(|| uid.to_string().into()),
        (None, Rights::Admin(_)) => "an administrator's token".into(),
        (None, _) => "nobody".into(),
    }
}

/// Parses the number in a path.
pub(crate) fn number_of(number: Result<Path<String>, PathRejection>) -> Result<i64, HttpError> {
    let text = part(number)?;
    let number = text.parse().ok().filter(|number| (1..1 << 53).contains(number));
    number.ok_or_else(|| {
        HttpError::malformed(
            "the last part of the path must be a whole number \
                                             above 0",
        )
    })
}

pub(crate) fn numbered(number: i64, nodes: AgentCounts) -> api::ChangeReceipt {
    let AgentCounts { known, reporting } = nodes;
    api::ChangeReceipt { id: number, nodes_known: known, nodes_reporting: reporting, nodes_full: 0 }
}

/// Converts the error of an on-demand request.
pub(crate) fn http_error(error: DemandError) -> HttpError {
    match error {
        DemandError::Full { .. } => {
            let status = StatusCode::INSUFFICIENT_STORAGE;
            HttpError::new(status, "53400", Why::Full, error.to_string())
        }
        error => HttpError::fault(&error),
    }
}

#[cfg(test)]
mod tests;
