//! `/api/v1/settings`, `/api/v1/flushes` and `/api/v1/marks`: administrators' on-demand requests to agents, and their
//! history.

mod changed_settings;
mod declared_sources;
mod polled_devices;

use crate::api::job_routes::object;
use crate::app::App;
use crate::auth::caller::{Caller, Rights};
use crate::common::http_error::{HttpError, Why};
use crate::http::params::{Params, part};
use crate::http::selection::{Span, listed_devices, wrong};
use crate::ingest::agent_reports::{AgentCounts, AgentReport};
use crate::queries::answers::{json, reply, wrote};
use crate::queries::series_routes::known;
use api::{Operation, Set};
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use changed_settings::{RejectedKey, changed_sources, settings_of};
use control::{Active, Change, DemandError, NewChange};
use declared_sources::DeclaredSource;
use jobs::Reader;
use model::setting::{NodeSettings, Rejection, RejectionCode};
use model::{DeviceId, NodeList, Timestamp};
use polled_devices::{PolledDevices, ReceivedChanges};
use query::SeenMark;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const DAY: i64 = 24 * 3600 * Timestamp::SECOND;
/// Longest duration of a change, in seconds.
const SECONDS_MAX: f64 = 30.0 * 86_400.0;
/// Maximum number of nodes in a list of rejections.
pub(crate) const LISTED_MAX: usize = 100;
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
    let holds = || active.held.changes.iter().filter(|change| change.until > now);
    let polled = PolledDevices::of(&app, &caller, holds().map(|one| (&one.nodes, &one.settings)));
    let polled = polled.await?;
    let mut received = ReceivedChanges::new();
    let shown = holds().map(|change| shown(&app, (&active, change), (&polled, &mut received), now));
    json(&shown.collect::<Vec<_>>())
}

fn shown<'a>(
    app: &App,
    (active, change): (&Active, &Change),
    (polled, received): (&'a PolledDevices, &mut ReceivedChanges<'a>),
    now: Timestamp,
) -> api::SetChange {
    let mut shown = api::SetChange {
        id: change.number,
        nodes: change.nodes.to_string(),
        settings: changed_sources(&change.settings),
        created: change.made.seconds(),
        created_by: change.by.to_string(),
        until: change.until.seconds(),
        nodes_known: 0,
        nodes_applied: 0,
        rejected: Vec::new(),
        shortened: Vec::new(),
        superseded: Vec::new(),
    };
    let mut taken = BTreeMap::new();
    if control::concerns_agents(&change.settings) {
        for agent in app.agents.matching(&change.nodes) {
            let rejections = agent_rejections(app, change, &agent, now);
            note(&mut shown, &mut taken, (agent.device.as_str(), change), rejections);
        }
    }
    for (device, outcome) in polled.outcomes(app, (active, change), received, now) {
        let is_taken = outcome.is_received && outcome.superseded.is_none();
        note(&mut shown, &mut taken, (device, change), (is_taken, outcome.rejections));
        if let Some((source, by, poller)) = outcome.superseded
            && shown.superseded.len() < LISTED_MAX
        {
            let (device, source) = (device.to_owned(), source.to_owned());
            shown.superseded.push(api::SetSuperseded { device, source, by, poller });
        }
    }
    shown.nodes_known = u64::try_from(taken.len()).unwrap_or(u64::MAX);
    let applied = taken.values().filter(|is_taken| **is_taken).count();
    shown.nodes_applied = u64::try_from(applied).unwrap_or(u64::MAX);
    shown
}

/// Whether an agent has received a change, and what it rejects or shortens of it.
fn agent_rejections(
    app: &App,
    change: &Change,
    agent: &AgentReport,
    now: Timestamp,
) -> (bool, Vec<Rejection>) {
    let reported = app.on_demand.config_for(&agent.device, &app.live().agents, now);
    let left_out = app.on_demand.left_out(&agent.device, change.number);
    let limit = left_out.iter().map(|section| Rejection {
        setting: section.to_string(),
        code: RejectionCode::Limit,
        reason: "the node's limits are reached; it does not receive this".to_owned(),
        until: None,
    });
    let is_current = agent.generation == Some(reported.generation);
    // A node keeps what it took while it has not received a later change yet.
    let newest = agent.generation.and_then(|at| app.on_demand.newest_change(&agent.device, at));
    let is_received = is_current || newest.is_some_and(|newest| change.number <= newest);
    let rejected = agent.rejected.iter().filter(|one| is_received && concerns(change, one));
    (is_received, limit.chain(rejected.cloned()).collect())
}

/// Adds a node or device to a shown change: whether it received the change, and what it rejects or shortens of it.
fn note(
    shown: &mut api::SetChange,
    taken: &mut BTreeMap<Box<str>, bool>,
    (device, change): (&str, &Change),
    (is_received, rejections): (bool, Vec<Rejection>),
) {
    let (mut is_taken, mut ends) = (is_received, None);
    for one in rejections {
        if let Some(until) = one.until.filter(|_| one.code == RejectionCode::Shortened) {
            // Of the sources of a change, the first to end counts.
            let new = (until < change.until).then_some((until, one.reason));
            ends = ends.into_iter().chain(new).min();
            continue;
        }
        is_taken = false;
        if shown.rejected.len() < LISTED_MAX {
            shown.rejected.push(shown_rejection(device, one));
        }
    }
    if let Some((until, reason)) = ends.filter(|_| shown.shortened.len() < LISTED_MAX) {
        let (device, until) = (device.to_owned(), until.seconds());
        shown.shortened.push(api::SetShortened { device, until, reason });
    }
    let before = taken.entry(device.into()).or_insert(true);
    *before &= is_taken;
}

pub(crate) fn shown_rejection(device: &str, rejection: Rejection) -> api::SetRejection {
    let Rejection { setting, code, reason, .. } = rejection;
    let key = RejectedKey::of(&setting);
    api::SetRejection {
        device: device.to_owned(),
        source: key.and_then(|key| key.source).map(str::to_owned),
        setting: key.and_then(RejectedKey::word),
        code: code.word().to_owned(),
        reason,
    }
}

/// Whether a rejection concerns a change: all settings, a source or burst of the change, or one of its settings.
fn concerns(change: &Change, rejection: &Rejection) -> bool {
    let NodeSettings { sources, bursts, .. } = &change.settings;
    let Some(RejectedKey { source, is_burst, key }) = RejectedKey::of(&rejection.setting) else {
        return false;
    };
    let Some(source) = source else { return true };
    // A burst is rejected as a whole. Its `until` is not a setting of the change.
    if is_burst {
        return bursts.contains_key(source);
    }
    let changed = sources.get(source);
    changed.is_some_and(|changed| key.is_none_or(|key| changed.values.contains_key(key)))
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
    let polled = PolledDevices::of(&app, &caller, [(&new.nodes, &new.settings)].into_iter());
    let polled = polled.await?;
    let known = polled.counted(&app, (&new.nodes, &new.settings), now);
    let not_polled = polled.not_polled(&app, (&new.nodes, &new.settings));
    let nodes = new.nodes.to_string();
    let number = app.change_registry(caller.actor.user_key(), move |app| {
        let number = app.on_demand.demand().change(&new, now)?;
        app.on_demand.refresh(now)?;
        let (lines, settings) = (new.settings.lines(), changed_sources(&new.settings));
        let NewChange { nodes, until, by, .. } = new;
        log::info!("change {number} of {nodes} by {by} until {until}: {}", lines.join("; "));
        Ok((number, settings, full(app, &nodes, number, now)))
    });
    let (number, settings, nodes_full) = number.await?.map_err(http_error)?;
    let more = serde_json::json!({"number": number, "nodes": nodes, "settings": settings});
    wrote(json(&api::ChangeReceipt { nodes_full, not_polled, ..numbered(number, known) })?, &more)
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
    let change = change.map(|change| (&change.nodes, &change.settings));
    let polled = PolledDevices::of(&app, &caller, change.into_iter()).await?;
    let nodes = change.map(|change| polled.counted(&app, change, now)).unwrap_or_default();
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
    let (by, now) = (name_of(&app, &caller), app.now());
    let known = if source == config::FED_SOURCE {
        polled_devices::meter_ports(&app, &caller, &nodes).await?
    } else {
        DeclaredSource::with_burst(&source)?;
        app.agents.counted(&nodes, now)
    };
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
    Ok(listed_devices(names)?.into_iter().collect())
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
    api::ChangeReceipt {
        id: number,
        nodes_known: known,
        nodes_reporting: reporting,
        nodes_full: 0,
        not_polled: Vec::new(),
    }
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
