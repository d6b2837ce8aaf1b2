//! `/api/v1/promotions`, and Kwollect's `update_promoted_metrics`: optional metrics, collected for a time.

use crate::api::demand_routes::{
    LISTED_MAX, administrators_only, ends, http_error, name_of, number_of, numbered,
    shown_rejection,
};
use crate::api::job_routes::object;
use crate::app::App;
use crate::auth::authentication::no_credentials;
use crate::auth::caller::{Caller, Rights};
use crate::common::http_error::HttpError;
use crate::http::selection::wrong;
use crate::ingest::agent_reports::AgentReport;
use crate::queries::answers::{json, wrote};
use crate::queries::kwollect_routes;
use crate::queries::series_routes::known;
use api::{
    EntryError, EntryErrors, Operation, PollerFlush, PollerPeriod, PollerPromotion,
    PollerPromotions, PollerRequest,
};
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use control::{DemandError, NamedPeriod, NewPromotion, Promotion, PromotionOrigin, Quota};
use jobs::{Interval, RegistryError, Window};
use model::setting::Rejection;
use model::{DeviceId, JobKey, JobState, Metric, NodeList, Origin, Timestamp, printable};
use query::{QueryContext, QueryError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Default duration of a promotion, in seconds.
const SECONDS: f64 = 3600.0;
/// What the settings of promotions begin with, in the rejections of agents.
const PROMOTE: &str = "promote.";
/// Most devices of one promotion: a list of names has at most 16 KiB, and a name at most 253 bytes.
const DEVICES_MAX: usize = 60;

/// `GET /api/v1/promotions`: the active promotions that are visible to the caller.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Promotions)?;
    let (context, now) = (app.context(&caller)?, app.now());
    context.meets_any();
    let (active, reports) = (app.on_demand.active(), reports(&app, now)?);
    let seen = active.held.promotions.iter().filter(|promotion| {
        promotion.until.is_none_or(|until| until > now) && context.reader.knows_of(promotion.uid)
    });
    json(&seen.map(|promotion| shown(promotion, &reports)).collect::<Vec<_>>())
}

/// The agents that reject or shorten a promotion of their present settings.
fn reports(app: &App, now: Timestamp) -> Result<Vec<AgentReport>, HttpError> {
    let base = &app.live().agents;
    let mut reports = app.agents.matching(&NodeList::new("*").map_err(wrong)?);
    reports.retain(|agent| {
        agent.rejected.iter().any(|one| one.setting.starts_with(PROMOTE))
            && agent.generation
                == Some(app.on_demand.config_for(&agent.device, base, now).generation)
    });
    Ok(reports)
}

fn shown(promotion: &Promotion, reports: &[AgentReport]) -> api::Promoted {
    let (mut rejected, mut shortened) = (Vec::new(), Vec::new());
    for agent in reports.iter().filter(|agent| promotion.nodes.has(agent.device.as_str())) {
        let is_its = |one: &&Rejection| {
            one.setting.strip_prefix(PROMOTE).is_some_and(|metric| *metric == *promotion.metric)
        };
        for one in agent.rejected.iter().filter(is_its) {
            let ends_earlier = |until: Timestamp| promotion.until.is_none_or(|end| until < end);
            match one.until {
                Some(until) if ends_earlier(until) => shortened.push(api::SetShortened {
                    device: agent.device.to_string(),
                    until: until.seconds(),
                    reason: one.reason.clone(),
                }),
                Some(_) => {}
                None => rejected.push(shown_rejection(agent.device.as_str(), one.clone())),
            }
        }
    }
    rejected.truncate(LISTED_MAX);
    shortened.truncate(LISTED_MAX);
    api::Promoted {
        rejected,
        shortened,
        id: promotion.number,
        nodes: promotion.nodes.to_string(),
        metric: promotion.metric.to_string(),
        created: promotion.made.seconds(),
        created_by: promotion.by.to_string(),
        until: promotion.until.map(Timestamp::seconds),
        origin: promotion.origin.word().to_owned(),
        job: promotion.job.as_ref().map(ToString::to_string),
        error: control::check_expression(&promotion.metric).err(),
    }
}

/// `POST /api/v1/promotions`.
pub(crate) async fn promote(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::Promote)?;
    promoters_only(&caller)?;
    let wanted: api::Promote = object(&app, &head, body).await?;
    control::check_expression(&wanted.metric).map_err(HttpError::malformed)?;
    let nodes = wanted.nodes.as_deref().map(NodeList::new).transpose().map_err(wrong)?;
    let (now, most) = (app.now(), app.promotions.time_max.as_secs_f64());
    let seconds = wanted.for_seconds.unwrap_or(SECONDS.min(most));
    let promotion_request = PromotionRequest {
        nodes,
        job: wanted.job,
        metric: wanted.metric.into(),
        until: ends("for_seconds", seconds, most, now)?,
        by: name_of(&app, &caller),
        of: if caller.rights.is_admin() { None } else { caller.rights.registers_for() },
    };
    let (context, quota) = (app.context(&caller)?, quota(&app, promotion_request.of));
    let made = app.change_registry(caller.actor.user_key(), move |app| {
        let new = promotion_request.promotions(app, &context)?;
        let numbers = app.on_demand.demand().promote(&new, quota, now).map_err(http_error)?;
        app.on_demand.refresh(now).map_err(http_error)?;
        for (number, new) in numbers.iter().zip(&new) {
            let NewPromotion { nodes, metric, by, until, .. } = new;
            log::info!("promotion {number} of {metric} on {nodes} by {by} until {until}");
        }
        let active = app.on_demand.active();
        let promotions = active.held.promotions.iter();
        Ok::<Vec<_>, HttpError>(
            promotions
                .filter(|one| numbers.contains(&one.number))
                .map(|one| shown(one, &[]))
                .collect(),
        )
    });
    let made = made.await??;
    let more = serde_json::json!({"promotions": made.clone()});
    wrote(json(&made)?, &more)
}

/// Rejects callers that may not promote: those that are neither administrator nor user, and read-only tokens.
fn promoters_only(caller: &Caller) -> Result<(), HttpError> {
    if caller.rights.is_admin() || caller.rights.registers_for().is_some() {
        return Ok(());
    }
    Err(HttpError::forbidden(
        "promoting metrics needs the token of a user or an administrator; this token has other \
         rights",
    ))
}

fn quota(app: &App, of: Option<u32>) -> Option<Quota> {
    of.map(|uid| Quota { uid, most: app.promotions.per_user_max })
}

/// A requested promotion.
struct PromotionRequest {
    nodes: Option<NodeList>,
    job: Option<String>,
    metric: Box<str>,
    until: Timestamp,
    by: Box<str>,
    /// The user to whose jobs the promotion is limited; `None`: an administrator's promotion.
    of: Option<u32>,
}

impl PromotionRequest {
    /// Returns one promotion for each of its jobs. An administrator's has no job, unless they name one.
    fn promotions(
        &self,
        app: &App,
        context: &QueryContext,
    ) -> Result<Vec<NewPromotion>, HttpError> {
        let jobs = match (&self.job, self.of) {
            (Some(job), of) => running_job(app, context, job, of)?,
            (None, Some(uid)) => {
                let (uid, from) = (Some(uid), Some(app.now()));
                let own = Window { uid, from, ..Window::default() };
                running_jobs(app.registry.verified(&own).map_err(QueryError::from)?)
            }
            (None, None) => {
                let nodes = self.nodes.clone().ok_or_else(|| {
                    HttpError::malformed(
                        "name the nodes or the job of the promotion: `nodes` or \
                                        `job`",
                    )
                })?;
                return Ok(vec![self.promotion(nodes, None, None)]);
            }
        };
        let mut new = Vec::new();
        for (job, devices) in jobs {
            // A name that parses as a list of several nodes is not the name of one node.
            let meant = |device: &&str| {
                NodeList::is_name(device)
                    && self.nodes.as_ref().is_none_or(|nodes| nodes.has(device))
            };
            let devices: Vec<&str> = devices.iter().map(DeviceId::as_str).filter(meant).collect();
            for devices in devices.chunks(DEVICES_MAX) {
                let nodes = NodeList::new(&devices.join(",")).map_err(wrong)?;
                new.push(self.promotion(nodes, Some(job.to_string().into()), self.of));
            }
        }
        if new.is_empty() {
            return Err(HttpError::not_found(
                "you have no running job on these nodes; a job of `jobmeter run` counts as soon as \
                 the agent there has found its cgroup",
            ));
        }
        Ok(new)
    }

    fn promotion(&self, nodes: NodeList, job: Option<Box<str>>, uid: Option<u32>) -> NewPromotion {
        let (metric, by) = (self.metric.clone(), self.by.clone());
        NewPromotion { nodes, metric, until: self.until, by, uid, job }
    }
}

/// Jobs that are running on devices now, with the devices of each.
type RunningJobs = BTreeMap<JobKey, BTreeSet<DeviceId>>;

fn running_jobs(allocations: Vec<Interval>) -> RunningJobs {
    let mut running_jobs = RunningJobs::new();
    for allocation in allocations.into_iter().filter(|allocation| allocation.stop.is_none()) {
        running_jobs.entry(allocation.key).or_default().insert(allocation.device);
    }
    running_jobs
}

/// Returns the running job of a name, if it is visible to the caller and owned by the user `of`.
///
/// To see a job as a member of its account or as staff gives no right to change what agents measure for it.
fn running_job(
    app: &App,
    context: &QueryContext,
    name: &str,
    of: Option<u32>,
) -> Result<RunningJobs, HttpError> {
    let key = app.engine.job_key(&name.parse().map_err(wrong)?, context)?;
    let job = app.registry.job(&key).map_err(QueryError::from)?;
    if of.is_some() && job.as_ref().is_some_and(|job| job.facts.uid != of) {
        return Err(QueryError::Denied(key).into());
    }
    if job.is_none_or(|job| job.state != JobState::Running) {
        return Err(HttpError::not_found(format!("job {key} does not run")));
    }
    let window = Window { job: Some(key), uid: of, ..Window::default() };
    // An administrator promotes on all devices of the job, a user only on devices with a verified allocation.
    let allocations = match of {
        Some(_) => app.registry.verified(&window),
        None => app.registry.intervals(&window),
    };
    Ok(running_jobs(allocations.map_err(QueryError::from)?))
}

/// `DELETE /api/v1/promotions/{number}`: for the owner of the promotion, and for administrators.
pub(crate) async fn demote(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    number: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Demote)?;
    let number = number_of(number)?;
    promoters_only(&caller)?;
    let (by, now) = (name_of(&app, &caller), app.now());
    let none = || HttpError::not_found(format!("you have no active promotion {number}"));
    let active = app.on_demand.active();
    let found = active.held.promotions.iter().find(|promotion| promotion.number == number);
    let found = found.filter(|promotion| caller.rights.may_end(promotion.uid)).ok_or_else(none)?;
    if found.origin == PromotionOrigin::Rule {
        if !caller.rights.is_admin() {
            return Err(none());
        }
        if found.job.is_none() && found.until.is_none() {
            let message =
                format!("{} is a permanent rule; to end it, remove it from its file", found.by);
            return Err(HttpError::malformed(message));
        }
    }
    let nodes = app.agents.counted(&found.nodes, now);
    let ended = app.change_registry(caller.actor.user_key(), move |app| {
        let ended = app.on_demand.demand().demote(number, &by, now)?;
        app.on_demand.refresh(now)?;
        Ok::<_, DemandError>(ended)
    });
    if !ended.await?.map_err(http_error)? {
        return Err(none());
    }
    wrote(json(&numbered(number, nodes))?, &serde_json::json!({"number": number}))
}

/// `POST /rpc/update_promoted_metrics`: OAR calls this function of Kwollect when a job begins or ends. For administrators
/// and tokens of scope `push`; these receive no rows.
pub(crate) async fn update(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let is_push = matches!(caller.rights, Rights::Push(_));
    if !is_push {
        administrators_only(&caller)?;
    }
    let params = kwollect_routes::params(&app, request).await?;
    params.only(Operation::UpdatePromotedMetrics, StatusCode::NOT_FOUND)?;
    let rules = Arc::clone(&app.live().rules);
    let now = app.now();
    let followed =
        app.with_registry(move |app| app.on_demand.follow(&app.registry, &rules, now)).await?;
    followed.map_err(http_error)?;
    let active = app.on_demand.active();
    let mut rows = BTreeSet::new();
    // A token of scope `push` reads nothing.
    let listed: &[Promotion] = if is_push { &[] } else { &active.held.promotions };
    for promotion in listed {
        let plain = promotion.nodes.plain();
        let names = plain.unwrap_or_else(|| vec![promotion.nodes.as_str()]);
        rows.extend(names.into_iter().map(|name| api::PromotedRow {
            device_id: name.to_owned(),
            metric_id: promotion.metric.to_string(),
        }));
    }
    wrote(json(&rows)?, &serde_json::json!({"promotions": active.held.promotions.len()}))
}

/// `POST /v1/poller/promotions`: the promotions of the devices that a poller reads and of the nodes that these feed, and
/// the changed periods of the devices.
pub(crate) async fn of_poller(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::PollerPromotions)?;
    if caller.rights == Rights::Nobody || caller.rights == Rights::Anonymous {
        return Err(no_credentials());
    }
    let request: PollerRequest = object(&app, &head, body).await?;
    let PollerRequest { poller, names, busy, agents, applied, rejected, entry_errors } = request;
    let poller = DeviceId::new(&poller).map_err(wrong)?;
    let group = Origin::of_poller_group(&poller, 0);
    if !caller.rights.appends_of(&group.map_err(wrong)?) {
        let message = format!("this caller does not send as the poller {poller}");
        return Err(HttpError::forbidden(message));
    }
    if rejected.len() > PollerRequest::REJECTED_MAX {
        let most = PollerRequest::REJECTED_MAX;
        return Err(HttpError::too_large(format!("`rejected` has more than {most} entries")));
    }
    if let Some(one) = rejected.iter().find(|one| !one.is_bounded()) {
        let change = one.change;
        return Err(wrong(format!(
            "`rejected`: source or reason of change {change} is not possible"
        )));
    }
    let entry_errors = entry_errors.map(checked_entry_errors).transpose()?;
    let now = app.now();
    // A token of agents may send as any poller, and knows nothing of the files of each.
    let has_files = matches!(caller.rights, Rights::Poller(_) | Rights::Admin(_));
    if app.pollers.met(poller.clone(), (applied, rejected), now) && has_files {
        app.engine.entry_errors().report(&poller, entry_errors, now);
    }
    let active = app.on_demand.active();
    let version = format!("{:016x}", active.pollers_version());
    let newest_change = active.newest_period_change();
    let answer = PollerPromotions { version, newest_change, ..PollerPromotions::default() };
    let Some(names) = names else {
        return json(&answer);
    };
    if names.len() > PollerRequest::NAMES_MAX {
        let most = PollerRequest::NAMES_MAX;
        return Err(HttpError::too_large(format!("`names` has more than {most} names")));
    }
    let listed = app.read_registry(move |app: &App| {
        let periods = active.periods_of(&names, now).into_iter().map(shown_period).collect();
        let flushes = active.feed_flushes_of(&names, now);
        let flushes = flushes.into_iter().map(|((id, made), names)| {
            let names = names.into_iter().map(str::to_owned).collect();
            PollerFlush { id, made: made.seconds(), names }
        });
        let flushes = Some(flushes.collect());
        let found = active.promotions_of(&names, PollerRequest::OF_NAME_MAX, now);
        let cut = u64::try_from(found.cut).unwrap_or(u64::MAX);
        app.on_demand.cut.fetch_add(cut, Ordering::Relaxed);
        let promotion = |((metric, until), names): ((Box<str>, Timestamp), Vec<&str>)| {
            let names = names.into_iter().map(str::to_owned).collect();
            PollerPromotion { metric: metric.into(), until: until.seconds(), names }
        };
        let promotions = Some(found.listed.into_iter().map(promotion).collect());
        let periods = Some(periods);
        let agents = agents.then(|| app.agents.reporting_of(names.clone(), now));
        let busy = busy.then(|| with_jobs(app, names)).transpose()?;
        let answer = PollerPromotions { promotions, periods, flushes, ..answer };
        Ok::<_, RegistryError>(PollerPromotions { busy, agents, ..answer })
    });
    json(&listed.await?.map_err(|error| HttpError::fault(&error))?)
}

/// Checks the errors that a poller reports of its description files.
fn checked_entry_errors(mut errors: EntryErrors) -> Result<EntryErrors, HttpError> {
    if errors.listed.len() > EntryErrors::LISTED_MAX {
        let most = EntryErrors::LISTED_MAX;
        return Err(HttpError::too_large(format!("`entry_errors` lists more than {most} errors")));
    }
    for error in &mut errors.listed {
        let is_long = |text: &str| text.chars().count() > EntryError::CHARS_MAX;
        if is_long(&error.file) || is_long(&error.reason) {
            let most = EntryError::CHARS_MAX;
            let what = "`entry_errors`: a file or a reason has more than";
            return Err(wrong(format!("{what} {most} characters")));
        }
        let named = [&error.device, &error.alias].into_iter().flatten();
        named.map(|name| DeviceId::new(name)).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        error.metric = error.metric.take().filter(|name| Metric::check_name(name).is_ok());
        (error.file, error.reason) =
            (printable(&error.file).into(), printable(&error.reason).into());
    }
    let listed = u32::try_from(errors.listed.len()).unwrap_or(u32::MAX);
    Ok(EntryErrors { count: errors.count.max(listed), ..errors })
}

fn shown_period(one: NamedPeriod<'_>) -> PollerPeriod {
    let NamedPeriod { number, source, period, until, end, names } = one;
    PollerPeriod {
        change: number,
        source: source.to_owned(),
        period_seconds: period.as_secs_f64(),
        until: until.seconds(),
        end: Some(end.seconds()),
        names: names.into_iter().map(str::to_owned).collect(),
    }
}

/// The names with a job that has not ended.
fn with_jobs(app: &App, mut names: Vec<String>) -> Result<Vec<String>, RegistryError> {
    let busy = app.node_jobs.busy(&app.registry, app.now())?;
    names.retain(|name| DeviceId::new(name).is_ok_and(|device| busy.contains(&device)));
    Ok(names)
}
