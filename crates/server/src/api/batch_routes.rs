//! `POST /v1/batches`: receives frames, and returns an ack for each once its batch is on this machine's disk.

mod admission;
mod agent_answer;
mod user_batches;

use crate::app::App;
use crate::auth::authentication::no_credentials;
use crate::auth::caller::{Caller, Rights};
use crate::auth::connection::Connection;
use crate::common::counts;
use crate::common::http_error::{HttpError, Why};
use crate::http::body::{Bounds, Sender, media_type, plain_encoding, read, unsupported};
use crate::ingest::decoding::{SendingUser, USER_REQUEST_BYTES_MAX};
use crate::ingest::senders::Senders;
use admission::{Admitted, FORBIDDEN_MAX, ReportedJobs, Sending, admit};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::ValueRule;
use jobs::{RegistryError, Reporter};
use model::{DeviceId, JobEvent, Origin, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{DeferReason, Incoming, Outcome};
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::{Ack, AckStatus};

/// Job events of one transaction. Other senders take turns between two of them.
const EVENTS_AT_ONCE: usize = 256;

/// The content type of an empty body, by which `jobmeter doctor` learns whether a server accepts an agent's batches.
const KNOCK: &str = "application/x-jobmeter-knock";
/// The content type of a body of frames.
const FRAMES: &str = "application/x-jobmeter-batches";
/// The content type of a response.
const ANSWER: HeaderValue = HeaderValue::from_static("application/x-jobmeter-answer");

/// The results of a request's frames so far.
#[derive(Debug, Default)]
struct Progress {
    acks: Vec<Ack>,
    origins: BTreeSet<Origin>,
    /// Why the last temporarily rejected frame was rejected.
    later: Option<DeferReason>,
    /// Frames that the caller may not send.
    forbidden: usize,
    /// Whether at least one frame is settled: the sender need not send it again.
    settled: bool,
    /// How far the sender's clock is ahead of the server's, in microseconds.
    ahead_us: i64,
}

/// Handles a request with frames.
pub(crate) async fn batches(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let bounds = bounds(&app, &caller)?;
    let media_type = media_type(&head.headers);
    if media_type.as_deref() == Some(KNOCK)
        && let Rights::User(uid) | Rights::StaffUser(uid) = caller.rights
    {
        let message = format!("user {uid} sends only the batches of their own runs");
        return Err(HttpError::forbidden(message));
    }
    if media_type.as_deref() != Some(FRAMES) {
        return Err(unsupported(format!("batches are sent as {FRAMES}")));
    }
    plain_encoding(&head.headers)?;
    if !app.ready() {
        return Err(stopping());
    }
    let held = read(&head.headers, body, bounds, Sender::of(&caller)).await?;
    let (received, began) = (app.now(), Instant::now());
    app.counts.bytes.add(held.bytes.len());
    if !held.bytes.starts_with(b"JMB") {
        app.counts.frames.add(counts::Frame::Malformed, 1);
        return Err(HttpError::malformed("the body does not begin with a frame"));
    }
    // All frames of a request come from one sender, whose clock set their timestamps.
    let reported = app.agents.reported(&head.headers);
    let ahead_us = reported.ahead_us(received);
    let progress = Progress { ahead_us, ..Progress::default() };
    let progress = take(&app, &caller, Arc::new(held.bytes), received, progress).await?;
    if let (Some(not_now), false) = (&progress.later, progress.settled) {
        return Err(full_or_busy(not_now));
    }
    let mut stops = Vec::new();
    // A user's `jobmeter run` is not an agent: it sends nothing after its end.
    for origin in progress.origins.iter().filter(|origin| origin.as_run().is_none()) {
        let news = app.agents.met(origin, &reported, received);
        stops.extend(news.map(|stopped| (origin.clone(), stopped)));
    }
    for (origin, _) in stops.iter().filter(|(_, is_stopped)| *is_stopped) {
        let poller = origin.as_poller_group().and_then(|name| DeviceId::new(name).ok());
        // An ended poller has no entries to repair.
        if let Some(poller) = poller {
            app.engine.entry_errors().report(&poller, Some(api::EntryErrors::default()), received);
        }
    }
    if !stops.is_empty() {
        let note = move |app: &App| app.registry.note_stops(&stops, received);
        let noted = app.change_registry(caller.actor.user_key(), note);
        if let Err(error) = noted.await? {
            log::error!(
                "cannot store which agents were stopped; a restart of the server loses \
                         this: {error}"
            );
        }
    }
    let Progress { acks, origins, .. } = progress;
    note_address(&app, &caller, &head, &origins, received);
    let answer = agent_answer::answer(&app, reported.generation(), acks, origins).await?;
    app.counts.ingest.took(began.elapsed());
    Ok(([(header::CONTENT_TYPE, ANSWER)], answer.encode()).into_response())
}

/// Records from which address agents send, if addresses identify nodes. An agent without a token or certificate of its own
/// counts as one that shares the address.
fn note_address(
    app: &App,
    caller: &Caller,
    head: &Parts,
    origins: &BTreeSet<Origin>,
    received: Timestamp,
) {
    let is_identified = match caller.rights {
        Rights::Agent(ref own) => own.is_some(),
        Rights::Admin(_) => false,
        _ => return,
    };
    let live = app.live();
    let (Some(callers), Some(connection)) =
        (&live.node_callers, head.extensions.get::<Connection>())
    else {
        return;
    };
    let Some(address) = callers.client(connection, &head.headers) else { return };
    let is_agent = |origin: &&Origin| origin.as_run().is_none() && !origin.is_poller_group();
    for origin in origins.iter().filter(is_agent) {
        app.agent_addresses.note(address, origin, is_identified, received);
    }
}

/// Returns the limits of this caller's request body, or an error if the caller may send no batches.
fn bounds<'a>(app: &'a App, caller: &Caller) -> Result<Bounds<'a>, HttpError> {
    let within = app.limits.body_time;
    match caller.rights {
        Rights::Admin(_) | Rights::Agent(_) | Rights::Poller(_) | Rights::Colmet(_) => {
            Ok(Bounds { bytes_max: app.body_bytes_max, within, budget: &app.bodies.batches })
        }
        Rights::User(_) | Rights::StaffUser(_) => {
            let bytes_max = app.limits.user_body_bytes_max;
            Ok(Bounds { bytes_max, within, budget: &app.bodies.user_batches })
        }
        Rights::Guest | Rights::Reading(_) | Rights::Staff(_) => Err(HttpError::forbidden(
            "this token only permits reading; sending batches needs the \
                                    scope `agent`",
        )),
        Rights::JobReporter(_) => Err(HttpError::forbidden(
            "this token only permits reporting jobs; sending batches needs \
                                    the scope `agent`",
        )),
        Rights::Push(_) => Err(HttpError::forbidden(
            "this token only permits inserting metrics; sending batches needs the scope `agent` or `poller`",
        )),
        Rights::Anonymous | Rights::Nobody => Err(no_credentials()),
    }
}

/// Returns the user who sends the frames; `None` for other callers.
fn user(caller: &Caller) -> Option<SendingUser> {
    match caller.rights {
        Rights::User(uid) | Rights::StaffUser(uid) => {
            Some(SendingUser { uid, bytes_left: USER_REQUEST_BYTES_MAX })
        }
        _ => None,
    }
}

/// Decodes and stores a body's frames by slices. A temporary rejection in a slice ends the request there.
async fn take(
    app: &Arc<App>,
    caller: &Caller,
    body: Arc<Vec<u8>>,
    received: Timestamp,
    mut progress: Progress,
) -> Result<Progress, HttpError> {
    let (mut next, mut user) = (Some(0), user(caller));
    let senders = Arc::new(Senders::of(caller.rights.clone()));
    let processors = user_batches::NodeProcessors::default();
    while let Some(at) = next {
        let left = app.limits.frames_per_request_max.saturating_sub(progress.acks.len());
        if left == 0 {
            break;
        }
        let sending = Sending {
            rights: caller.rights.clone(),
            senders: Arc::clone(&senders),
            received,
            forbidden: progress.forbidden,
            rules: Arc::clone(&app.live().when),
            processors: processors.clone(),
        };
        let to_admit = Arc::clone(app);
        let admit = move |frames| (admit(&to_admit, &sending, frames), sending.rules);
        let slice = app.decoding.slice(&body, (at, left), user, &senders, admit).await;
        let mut slice = slice.ok_or_else(|| HttpError::fault(&"decoding batches ended early"))?;
        let bytes_left = slice.bytes_left.ok_or_else(|| {
            let mib = USER_REQUEST_BYTES_MAX >> 20;
            let message =
                format!("the batches have more than {mib} MiB decompressed; send fewer at once");
            HttpError::too_large(message)
        })?;
        next = slice.next;
        user = user.map(|user| SendingUser { bytes_left, ..user });
        let undecided = slice.undecided.take();
        if let Some(admitted) = slice.made.take() {
            store(app, &caller.actor.user_key(), admitted, received, &mut progress).await?;
        }
        drop(slice);
        if progress.later.is_some() {
            break;
        }
        match (undecided, user) {
            (Some(_), _) if progress.forbidden >= FORBIDDEN_MAX => senders.close(),
            (Some(origin), Some(SendingUser { uid, .. })) => {
                let decision = user_batches::job_start(app, uid, &origin).await?;
                senders.decide(origin, decision);
            }
            _ => {}
        }
    }
    Ok(progress)
}

/// Stores the batches of a slice, and adds their acks to the progress.
async fn store(
    app: &Arc<App>,
    caller: &Arc<str>,
    (admitted, rules): (Admitted, Arc<[ValueRule]>),
    received: Timestamp,
    progress: &mut Progress,
) -> Result<(), HttpError> {
    let Admitted { mut acks, batches, places, events, readings, mut origins, forbidden, settled } =
        admitted;
    progress.origins.append(&mut origins);
    progress.forbidden = forbidden;
    progress.settled |= settled;
    let outcomes = append(app, batches).await?;
    apply(app, caller, (&events, &outcomes), (received, progress.ahead_us)).await?;
    for (readings, outcome) in readings.iter().zip(&outcomes) {
        // Rules have already evaluated duplicates.
        if matches!(outcome, Outcome::Stored { .. }) {
            let judged = app.rule_evaluator.evaluate(&rules, readings, received);
            app.counts.rules.add(counts::Rule::Fired, judged.fired);
            app.counts.rules.add(counts::Rule::TooSoon, judged.too_soon);
            app.counts.rules.add(counts::Rule::Unwatched, judged.unwatched);
        }
    }
    for (place, outcome) in places.into_iter().zip(outcomes) {
        if let Some(ack) = acks.get_mut(place) {
            settle(ack, outcome, progress);
        }
    }
    progress.acks.append(&mut acks);
    Ok(())
}

/// Passes batches to the store, and waits until each is on the disk or rejected.
pub(crate) async fn append(
    app: &Arc<App>,
    batches: Vec<Incoming>,
) -> Result<Vec<Outcome>, HttpError> {
    if batches.is_empty() {
        return Ok(Vec::new());
    }
    let samples: Vec<usize> = batches.iter().map(|batch| batch.decoded.index.len()).collect();
    let (done, outcomes) = oneshot::channel();
    let to_count = Arc::clone(app);
    let done = move |outcomes: Vec<Outcome>| {
        // The batches of a client that disconnects are stored and counted all the same.
        for (outcome, samples) in outcomes.iter().zip(samples) {
            count(&to_count, outcome, samples);
        }
        done.send(outcomes).ok();
    };
    app.store.append(batches, Box::new(done));
    outcomes.await.map_err(|_| HttpError::fault(&"the store dropped its batches"))
}

/// Counts the outcome of a batch.
fn count(app: &App, outcome: &Outcome, samples: usize) {
    let outcome_count = match outcome {
        Outcome::Stored { samples_rejected, .. } => {
            let rejected = usize::try_from(*samples_rejected).unwrap_or(usize::MAX);
            app.counts.samples.add(samples.saturating_sub(rejected));
            app.counts.samples_rejected.add(rejected);
            counts::Frame::Stored
        }
        Outcome::Duplicate => counts::Frame::Duplicate,
        Outcome::RejectedPermanently(_) | Outcome::RejectedWhole { .. } => counts::Frame::Rejected,
        Outcome::RejectedTemporarily(_) => counts::Frame::Later,
    };
    app.counts.frames.add(outcome_count, 1);
}

/// Passes the job events of stored and duplicate batches to the registry.
///
/// A duplicate means that an ack was lost, possibly before the registry received the events.
async fn apply(
    app: &Arc<App>,
    caller: &Arc<str>,
    (events, outcomes): (&[ReportedJobs], &[Outcome]),
    (received, ahead_us): (Timestamp, i64),
) -> Result<(), HttpError> {
    let kept = |outcome: &Outcome| matches!(outcome, Outcome::Stored { .. } | Outcome::Duplicate);
    for reporter in [Reporter::Agent, Reporter::Input] {
        let reported = events.iter().zip(outcomes).filter(|(_, outcome)| kept(outcome));
        let reported = reported.filter(|(jobs, _)| jobs.reporter == reporter);
        let mut events: Vec<JobEvent> =
            reported.flat_map(|(jobs, _)| &jobs.events).cloned().collect();
        if reporter == Reporter::Input {
            // The agent of a node knows its jobs better.
            events.retain(|event| !app.agents.has_reporting(&event.device, received));
        }
        for events in events.chunks(EVENTS_AT_ONCE) {
            apply_some(app, caller, events.to_vec(), (received, (reporter, ahead_us))).await?;
        }
    }
    Ok(())
}

/// Passes job events to the registry in one transaction.
async fn apply_some(
    app: &Arc<App>,
    caller: &Arc<str>,
    events: Vec<JobEvent>,
    (received, by): (Timestamp, (Reporter, i64)),
) -> Result<(), HttpError> {
    let applied = app.change_registry(Arc::clone(caller), move |app| {
        let applied = app.registry.apply_by(&events, received, by)?;
        if applied.began + applied.ended + applied.requested > 0 {
            app.node_jobs.changed();
        }
        Ok::<_, RegistryError>(applied)
    });
    let applied = applied.await?.map_err(|error| {
        log::error!("cannot store the job events of nodes: {error}");
        let message = "the registry of jobs cannot be written; send these batches again";
        match error {
            RegistryError::Full(_) => {
                HttpError::new(StatusCode::INSUFFICIENT_STORAGE, "53100", Why::Full, message)
            }
            _ => HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "58000", Why::Busy, message),
        }
    })?;
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    app.counts.job_events.add(count(applied.began + applied.ended + applied.known));
    app.counts.job_events_rejected.add(count(applied.rejected));
    Ok(())
}

/// Writes a batch's outcome into its ack.
fn settle(ack: &mut Ack, outcome: Outcome, progress: &mut Progress) {
    progress.settled |= !matches!(outcome, Outcome::RejectedTemporarily(_));
    match outcome {
        Outcome::Stored { samples_rejected, reason } => {
            ack.status = AckStatus::Stored;
            (ack.samples_rejected, ack.samples_reason) = (samples_rejected, reason);
        }
        Outcome::Duplicate => ack.status = AckStatus::Duplicate,
        Outcome::RejectedPermanently(reason) | Outcome::RejectedWhole { why: reason, .. } => {
            (ack.status, ack.reason) = (AckStatus::RejectedPermanently, reason);
        }
        Outcome::RejectedTemporarily(not_now) => {
            ack.reason = not_now.to_string();
            log::warn!("the server rejects batches temporarily: {not_now}");
            progress.later = Some(not_now);
        }
    }
}

pub(crate) fn full_or_busy(not_now: &DeferReason) -> HttpError {
    if not_now.is_full() {
        let status = StatusCode::INSUFFICIENT_STORAGE;
        return HttpError::new(status, "53100", Why::Full, not_now.to_string());
    }
    let (code, why) = match not_now {
        DeferReason::Closing => ("53300", Why::Stopping),
        DeferReason::Unavailable(_) => ("57P03", Why::Busy),
        _ => ("53300", Why::Busy),
    };
    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, code, why, not_now.to_string())
}

pub(crate) fn stopping() -> HttpError {
    full_or_busy(&DeferReason::Closing)
}
