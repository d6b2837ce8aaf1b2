//! `/rpc/insert_metrics` and `/rpc/insert_user_metrics`: rows that programs and users insert (decision 0043).

use crate::api::batch_routes::{append, full_or_busy, stopping};
use crate::app::App;
use crate::auth::audit::Actor;
use crate::auth::authentication::no_credentials;
use crate::auth::caller::{Caller, Rights};
use crate::auth::connection::Connection;
use crate::auth::tokens::sha256;
use crate::common::http_error::{HttpError, Why};
use crate::http::body::{Bounds, HeldBody, Sender, media_type, plain_encoding, read, unsupported};
use crate::http::selection::wrong;
use crate::ingest::inserter::{Inserter, PushSender, user_name};
use crate::ingest::push_batch::{PushBatch, PushError};
use crate::ingest::push_rows::{PushRow, RowReader, row_error};
use crate::queries::answers::format;
use crate::queries::kwollect_routes::check_site;
use crate::queries::series_routes::known;
use api::Operation;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jobs::{KeyedPush, PushKey, Window};
use model::{Boot, DeviceId, JobKey, Origin, Timestamp};
use query::{QueryContext, QueryError};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use storage::Outcome;

/// The header that makes a repeated request store its rows once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 255;
/// Jobs that the rows of one request may name.
const JOBS_MAX: usize = 64;
/// A user's request with a key counts as at least so many rows: each key is a write of the registry.
const KEYED_ROWS_MIN: usize = 50;
/// A user's row may be this much earlier than the start of their allocation: clocks differ.
const BEFORE_START_US: i64 = 60 * Timestamp::SECOND;

/// The body of a request.
struct PushRequest {
    body: HeldBody,
    is_csv: bool,
    key: Option<PushKey>,
}

/// `POST /rpc/insert_metrics`: for tokens of scope `push`, and administrators.
pub(crate) async fn insert_metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let sender = PushSender::of_program(&caller)?;
    insert(&app, &caller, sender, (request, Operation::InsertMetrics)).await
}

/// `POST /sites/SITE/metrics`: `insert_metrics`.
pub(crate) async fn insert_at_site(
    State(app): State<Arc<App>>,
    site: Result<Path<String>, PathRejection>,
    caller: Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    check_site(&app, site)?;
    insert_metrics(State(app), caller, request).await
}

/// `POST /rpc/insert_user_metrics`: for users, on the nodes of their running jobs; by the settings, also for callers without
/// a token, on their node.
pub(crate) async fn insert_user_metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let Some(uid) = caller.rights.registers_for() else {
        let (sender, caller) = sender_of_node(&app, &caller, &request)?;
        return insert(&app, &caller, sender, (request, Operation::InsertUserMetrics)).await;
    };
    let (origin, inserter, name) = (Origin::of_user_push(uid), Inserter::User(uid), user_name(uid));
    let sender = PushSender { origin, inserter, name };
    insert(&app, &caller, sender, (request, Operation::InsertUserMetrics)).await
}

/// The sender of a request without a token, by the address of its client, and the caller that limits count.
fn sender_of_node(
    app: &App,
    caller: &Caller,
    request: &Request,
) -> Result<(PushSender, Caller), HttpError> {
    let live = app.live();
    let callers = match (&live.node_callers, &caller.rights) {
        (Some(callers), Rights::Nobody | Rights::Anonymous) => callers,
        (None, Rights::Nobody) => return Err(no_credentials()),
        _ => {
            return Err(HttpError::forbidden(
                "inserting metrics of a job's nodes needs a user: their login on the server's machine, or a token of \
                 scope `user:NAME`",
            ));
        }
    };
    if request.headers().contains_key(IDEMPOTENCY_KEY) {
        let message = "a caller without a token has no Idempotency-Key, because others on the node could use it, too";
        return Err(HttpError::forbidden(message));
    }
    let connection = request.extensions().get::<Connection>();
    let connection =
        connection.ok_or_else(|| HttpError::fault(&"a request without a connection"))?;
    let address = callers.client(connection, request.headers()).ok_or_else(|| {
        HttpError::unidentified(
            "not authenticated: the address identifies no node, because a proxy that `push.proxies` does not name \
             forwards the request, or it comes from the server's own machine; send a token",
        )
    })?;
    let node = callers.node(&app.agent_addresses, address, app.now());
    let node = node.map_err(|why| why.error(address))?;
    let origin = Origin::of_node_push(&node).map_err(wrong)?;
    let name = format!("unknown users of {node}");
    let from = address.to_string().into();
    let actor = Actor { who: name.as_str().into(), from, ..caller.actor.clone() };
    let caller = Caller { actor, ..caller.clone() };
    Ok((PushSender { origin, inserter: Inserter::Node(node), name }, caller))
}

async fn insert(
    app: &Arc<App>,
    caller: &Caller,
    sender: PushSender,
    (request, operation): (Request, Operation),
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), operation)?;
    let format = format(&head.headers)?;
    let is_csv = is_csv(&head)?;
    plain_encoding(&head.headers)?;
    let key = idempotency_key(&head.headers, &sender)?;
    if !app.ready() {
        return Err(stopping());
    }
    let within = app.limits.body_time;
    let bounds = match sender.inserter.is_user() {
        true => Bounds {
            bytes_max: app.limits.user_body_bytes_max,
            within,
            budget: &app.bodies.user_batches,
        },
        false => Bounds {
            bytes_max: app.limits.push_body_bytes_max,
            within,
            budget: &app.bodies.batches,
        },
    };
    let body = read(&head.headers, body, bounds, Sender::of(caller)).await?;
    app.counts.bytes.add(body.bytes.len());
    let request = PushRequest { body, is_csv, key };
    let (uid, zone) = (sender.inserter.turn_uid(), app.engine.settings().zone.clone());
    // A client that disconnects does not stop it: a number that is taken, but not stored, would be a gap.
    let stored = tokio::spawn({
        let (app, caller) = (Arc::clone(app), caller.clone());
        async move { store(&app, &caller, &sender, request).await }
    });
    let batch = stored.await.map_err(|error| HttpError::fault(&error))??;
    let answer = app.decoding.turn(uid, move || batch.answer(format, zone)).await;
    let answer = answer.ok_or_else(|| HttpError::fault(&"printing rows ended early"))?;
    let content_type = HeaderValue::from_static(format.content_type());
    Ok(([(header::CONTENT_TYPE, content_type)], answer).into_response())
}

fn is_csv(head: &Parts) -> Result<bool, HttpError> {
    match media_type(&head.headers).as_deref() {
        None | Some("application/json") => Ok(false),
        Some("text/csv") => Ok(true),
        Some(_) => Err(unsupported("rows are sent as application/json or text/csv")),
    }
}

fn idempotency_key(headers: &HeaderMap, sender: &PushSender) -> Result<Option<PushKey>, HttpError> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = match (keys.next(), keys.next()) {
        (None, _) => return Ok(None),
        (Some(key), None) => key.as_bytes(),
        _ => return Err(HttpError::malformed("the request has two headers Idempotency-Key")),
    };
    if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
        let message = format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} characters");
        return Err(HttpError::malformed(message));
    }
    let PushSender { origin, name, .. } = sender;
    Ok(Some(PushKey { sender: format!("{origin} of {name}").into(), key: sha256(key) }))
}

/// Why a batch is not stored.
struct Rejected {
    error: HttpError,
    /// Whether its number may be used again: the store certainly has nothing of the batch.
    is_unused: bool,
}

impl Rejected {
    const fn unused(error: HttpError) -> Self {
        Self { error, is_unused: true }
    }
}

/// Stores the rows of a request, and returns them.
async fn store(
    app: &Arc<App>,
    caller: &Caller,
    sender: &PushSender,
    request: PushRequest,
) -> Result<Arc<PushBatch>, HttpError> {
    let PushRequest { body, is_csv, key } = request;
    let digest = sha256(&body.bytes);
    let (body, now) = (Arc::new(body), app.now());
    let Some(key) = key else {
        let batch = checked(app, caller, sender, (body, is_csv, false), (now, false)).await?;
        return store_once(app, sender, &batch, now).await.map(|()| batch);
    };
    // Requests with a key take turns from the look-up of the key on.
    let mut turn = app.push.numbers.turn(&sender.origin, new_boot()?).await;
    let of = key.clone();
    let first = app.read_registry(move |app| app.registry.keyed_push(&of, now)).await?;
    if let Some(first) = first.map_err(|error| HttpError::fault(&error))? {
        if first.body != digest {
            let message = "the Idempotency-Key was used for a request with another body; a new request needs a new key";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Err(HttpError::new(status, "23505", Why::Malformed, message));
        }
        let batch = checked(app, caller, sender, (body, is_csv, true), (first.at, true)).await?;
        let again = numbered(app, &batch, (first.boot, first.seq), now).await;
        return again.map(|()| batch).map_err(|rejected| rejected.error);
    }
    let batch = checked(app, caller, sender, (body, is_csv, true), (now, false)).await?;
    let number = turn.take();
    let user_key = caller.actor.user_key();
    keep_key(app, &user_key, &key, (number, digest, now)).await?;
    if let Err(Rejected { error, is_unused }) = numbered(app, &batch, number, now).await {
        let forget = move |app: &App| app.registry.forget_keyed_push(&key);
        if is_unused && matches!(app.change_registry(user_key, forget).await, Ok(Ok(()))) {
            turn.give_back(number);
        }
        return Err(error);
    }
    Ok(batch)
}

/// Stores a batch under the next number of its sender.
pub(crate) async fn store_once(
    app: &Arc<App>,
    sender: &PushSender,
    batch: &Arc<PushBatch>,
    now: Timestamp,
) -> Result<(), HttpError> {
    let mut turn = app.push.numbers.turn(&sender.origin, new_boot()?).await;
    let number = turn.take();
    numbered(app, batch, number, now).await.map_err(|Rejected { error, is_unused }| {
        if is_unused {
            turn.give_back(number);
        }
        error
    })
}

/// Stores the key of a request, before its batch.
async fn keep_key(
    app: &Arc<App>,
    user_key: &Arc<str>,
    key: &PushKey,
    ((boot, seq), body, at): ((Boot, u64), [u8; 32], Timestamp),
) -> Result<(), HttpError> {
    let (key, push) = (key.clone(), KeyedPush { body, boot, seq, at });
    let keep = move |app: &App| app.registry.store_keyed_push(&key, &push);
    let kept = app.change_registry(Arc::clone(user_key), keep).await?;
    kept.map_err(|error| HttpError::fault(&error))
}

/// Reads and checks the rows of a body, and counts them in the limits of their sender. Rows of a repeated request were
/// permitted by the time of the first one; the store recognizes those that it has.
async fn checked(
    app: &Arc<App>,
    caller: &Caller,
    sender: &PushSender,
    (body, is_csv, is_keyed): (Arc<HeldBody>, bool, bool),
    (now, is_repeated): (Timestamp, bool),
) -> Result<Arc<PushBatch>, HttpError> {
    let reader = row_reader(app, sender, (now, is_repeated));
    let rows = app.decoding.turn(sender.inserter.turn_uid(), move || {
        let text = std::str::from_utf8(&body.bytes)
            .map_err(|_| HttpError::malformed("the body is not UTF-8"))?;
        if is_csv { reader.csv(text) } else { reader.json(text) }
    });
    let rows = rows.await.ok_or_else(|| HttpError::fault(&"reading rows ended early"))??;
    let (rows, jobs) = match sender.inserter.clone() {
        Inserter::Program => (rows, HashMap::new()),
        Inserter::Node(node) => {
            let check = move |app: &App| check_node(app, &node, &rows).map(|()| rows);
            (app.read_registry(check).await??, HashMap::new())
        }
        Inserter::User(uid) => {
            let context = app.context(caller)?;
            let find = move |app: &App| {
                let jobs = own_jobs(app, &context, uid, (&rows, is_repeated));
                jobs.map(|jobs| (rows, jobs))
            };
            app.read_registry(find).await??
        }
    };
    let batch = PushBatch::new(sender.origin.clone(), rows, &jobs, sender.inserter.clone());
    let batch = batch.map_err(|error| push_error(&error))?;
    limit(app, sender, &batch, is_keyed)?;
    Ok(Arc::new(batch))
}

pub(crate) fn row_reader(
    app: &App,
    sender: &PushSender,
    (now, is_repeated): (Timestamp, bool),
) -> RowReader {
    let rows_max = usize::try_from(app.push.settings.rows_per_request_max).unwrap_or(usize::MAX);
    let settled = app.store.settled().filter(|_| !is_repeated);
    let (zone, is_user) = (app.engine.settings().zone.clone(), sender.inserter.is_user());
    let node = sender.inserter.node().cloned();
    RowReader { now, settled, zone, is_user, node, rows_max }
}

/// Checks that a user may insert these rows, unless they are repeated, and returns the jobs that they name.
fn own_jobs(
    app: &App,
    context: &QueryContext,
    uid: u32,
    (rows, is_repeated): (&[PushRow], bool),
) -> Result<HashMap<Box<str>, JobKey>, HttpError> {
    let mut jobs = HashMap::new();
    let mut allocations: HashMap<Option<&str>, HashMap<DeviceId, Timestamp>> = HashMap::new();
    for (row, number) in rows.iter().zip(1..) {
        let error = |error| row_error(number, error);
        let job = row.job.as_deref();
        let count = allocations.len();
        let devices = match allocations.entry(job) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if count > JOBS_MAX => {
                let message = format!("the rows name more than {JOBS_MAX} jobs");
                return Err(error(HttpError::malformed(message)));
            }
            Entry::Vacant(new) => {
                let key = job.map(|name| job_key(app, context, name)).transpose().map_err(error)?;
                let window = Window { job: key.clone(), uid: Some(uid), ..Window::default() };
                let devices = starts(app, window).map_err(error)?;
                jobs.extend(job.map(Box::<str>::from).zip(key));
                new.insert(devices)
            }
        };
        if is_repeated {
            continue;
        }
        let Some(start) = devices.get(&row.device) else {
            let (device, job) = (&row.device, job.map(|job| format!(" {job}")).unwrap_or_default());
            return Err(error(HttpError::forbidden(format!(
                "you have no running job{job} on {device}; users insert metrics of the nodes of their own running jobs"
            ))));
        };
        check_start(row, *start).map_err(error)?;
    }
    Ok(jobs)
}

/// Checks that a row is not earlier than the start of the allocation.
fn check_start(row: &PushRow, start: Timestamp) -> Result<(), HttpError> {
    if row.at >= start.plus(-BEFORE_START_US) {
        return Ok(());
    }
    let message = format!("the time {} is before your job's start there, {start}", row.at);
    Err(HttpError::new(StatusCode::BAD_REQUEST, "22008", Why::Malformed, message))
}

/// Checks that a job runs on a node, since before these rows.
fn check_node(app: &App, node: &DeviceId, rows: &[PushRow]) -> Result<(), HttpError> {
    let window = Window { device: Some(node.clone()), ..Window::default() };
    let start = starts(app, window)?.remove(node).ok_or_else(|| {
        HttpError::forbidden(format!("no job runs on {node}, the node of this caller's address"))
    })?;
    for (row, number) in rows.iter().zip(1..) {
        check_start(row, start).map_err(|error| row_error(number, error))?;
    }
    Ok(())
}

fn job_key(app: &App, context: &QueryContext, name: &str) -> Result<JobKey, HttpError> {
    Ok(app.engine.job_key(&name.parse().map_err(wrong)?, context)?)
}

/// Devices of the running jobs of a window, with the start of the allocation. An agent or the kernel has verified each: a
/// user could register a job on any device.
fn starts(app: &App, window: Window) -> Result<HashMap<DeviceId, Timestamp>, HttpError> {
    let window = Window { from: Some(app.now()), ..window };
    let verified = app.registry.verified(&window).map_err(QueryError::from)?;
    let mut starts = HashMap::new();
    for allocation in verified.into_iter().filter(|allocation| allocation.stop.is_none()) {
        let start = starts.entry(allocation.device).or_insert(allocation.start);
        *start = allocation.start.min(*start);
    }
    Ok(starts)
}

/// Counts rows in the limits of their sender, and of a user's nodes.
pub(crate) fn limit(
    app: &App,
    sender: &PushSender,
    batch: &PushBatch,
    is_keyed: bool,
) -> Result<(), HttpError> {
    let (settings, now) = (&app.push.settings, app.now());
    let take = |name: &str, rows, max, setting: &str| {
        let too_fast = |seconds| {
            let what = format!(
                "{name} inserts more than {max} rows per second, `push.{setting}` of the server"
            );
            HttpError { retry_after: seconds, ..HttpError::busy(what) }
        };
        app.send_limits.take_rows(name, rows, max, now).map_err(too_fast)
    };
    if !sender.inserter.is_user() {
        let max = settings.rows_per_second_max;
        return take(&sender.name, batch.len(), max, "rows_per_second_max");
    }
    let max = settings.user_rows_per_second_max;
    let rows = batch.len().max(if is_keyed { KEYED_ROWS_MIN } else { 0 });
    take(&sender.name, rows, max, "user_rows_per_second_max")?;
    let max = settings.node_rows_per_second_max;
    for (device, rows) in batch.devices() {
        take(&format!("node {device}"), rows, max, "node_rows_per_second_max")?;
    }
    Ok(())
}

/// Stores a batch under its number, whole or not at all.
async fn numbered(
    app: &Arc<App>,
    batch: &Arc<PushBatch>,
    number: (Boot, u64),
    now: Timestamp,
) -> Result<(), Rejected> {
    if batch.len() == 0 {
        return Ok(());
    }
    let to_encode = Arc::clone(batch);
    let incoming = app
        .decoding
        .turn(batch.inserter().turn_uid(), move || to_encode.incoming(number, now))
        .await;
    let incoming = incoming.ok_or_else(|| HttpError::fault(&"encoding rows ended early"));
    let incoming = incoming.and_then(|made| made.map_err(|error| push_error(&error)));
    let outcomes = append(app, vec![incoming.map_err(Rejected::unused)?]).await;
    let outcomes = outcomes.map_err(|error| Rejected { error, is_unused: false })?;
    match outcomes.into_iter().next() {
        Some(Outcome::Stored { samples_rejected: 0, .. } | Outcome::Duplicate) => Ok(()),
        Some(Outcome::RejectedWhole { place, why }) => {
            Err(Rejected::unused(row_error(batch.row_of(place), of_rejected_row(why))))
        }
        Some(Outcome::RejectedTemporarily(not_now)) => {
            Err(Rejected::unused(full_or_busy(&not_now)))
        }
        Some(Outcome::RejectedPermanently(why) | Outcome::Stored { reason: why, .. }) => {
            Err(Rejected { error: of_rejected_row(why), is_unused: false })
        }
        None => {
            let error = HttpError::fault(&"the store returned no outcome of inserted rows");
            Err(Rejected { error, is_unused: false })
        }
    }
}

/// The error of a row that the store rejects.
pub(crate) fn of_rejected_row(why: String) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, "23514", Why::Malformed, why)
}

pub(crate) fn push_error(error: &PushError) -> HttpError {
    match error {
        PushError::Decode(_) => HttpError::fault(error),
        PushError::Encode(_) => HttpError::too_large(error.to_string()),
        PushError::Metric(_) | PushError::Labels(_) => HttpError::malformed(error.to_string()),
    }
}

fn new_boot() -> Result<Boot, HttpError> {
    let mut bytes = [0; 16];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| HttpError::fault(&"the operating system provides no random numbers"))?;
    Ok(Boot(bytes))
}
