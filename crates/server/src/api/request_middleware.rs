//! The checks that every request passes: the host name, the origin of the page that sends it, and the caller.

use crate::app::App;
use crate::auth::audit::{AuditedChange, Unchanged};
use crate::auth::authentication::{AuthContext, authenticate, no_credentials};
use crate::auth::caller::{Caller, Rights};
use crate::auth::page_origins::{self, PageRequest};
use crate::common::counts::Route;
use crate::common::http_error::{HttpError, Why};
use crate::http::compression::{Coding, compress};
use crate::http::connection_limits::Slot;
use crate::http::sent_body::holding;
use api::Operation;
use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// Headers of every response: browsers do not guess types, frame or embed it, or send the referrer to other sites.
const ON_EVERY_ANSWER: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
];

/// With TLS: browsers use only HTTPS for this host for a year.
const TLS_FROM_NOW_ON: &str = "max-age=31536000";

/// Passes a request on with its [`Caller`], or rejects it, and counts it.
pub(crate) async fn gate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (began, _under_way) = (Instant::now(), app.counts.begins());
    let route = Route::of(request.uri().path());
    let page = page_origins::of_page(&app.live().access_settings.origins, &request);
    if let Some(status) = is_too_long(&request, app.limits.header_bytes_max) {
        app.counts.answered(route, status.as_u16(), began.elapsed());
        return with_common_headers(&app, route, page, status.into_response());
    }
    let coding = Coding::accepted(request.headers());
    let admitted = admit(&app, &request, page.as_ref());
    let traced = log::log_enabled!(log::Level::Trace)
        .then(|| format!("{} {} of {admitted:?}", request.method(), request.uri().path()));
    let admitted = admitted.and_then(|caller| Ok((request_slot(&app, &caller)?, caller)));
    let mut slots = Slots::default();
    let response = match admitted {
        Ok((slot, caller)) => {
            slots = Slots { user_key: caller.actor.user_key(), request: slot, answer: None };
            let (actor, changes) = (caller.actor.clone(), changes(&request));
            // This includes tokens of scope `jobs` and `push`: a prologue in a loop must not displace administrators' entries.
            let is_user = matches!(
                caller.rights,
                Rights::User(_) | Rights::StaffUser(_) | Rights::JobReporter(_) | Rights::Push(_)
            );
            request.extensions_mut().insert(caller);
            let response = match page.as_ref().and_then(PageRequest::preflight) {
                Some(response) => response,
                None => next.run(request).await,
            };
            let audited = response.extensions().get::<AuditedChange>();
            let is_unchanged = response.extensions().get::<Unchanged>().is_some();
            let has_changed =
                response.status().is_success() && !is_unchanged && (changes || audited.is_some());
            if has_changed {
                let nothing = AuditedChange::default();
                let AuditedChange(more) = audited.unwrap_or(&nothing);
                match is_user {
                    true => app.audit.wrote_as_user(&actor, app.now(), more),
                    false => app.audit.wrote(&actor, app.now(), more),
                }
            }
            slots.hold_answer(&app, response, has_changed)
        }
        Err(http_error) => http_error.into_response(),
    };
    if let Some(why) = response.extensions().get::<Why>() {
        app.counts.http_errors.add(*why, 1);
    }
    if let Some(traced) = traced {
        log::trace!("{traced}: {}", response.status());
    }
    app.counts.answered(route, response.status().as_u16(), began.elapsed());
    let response = compress(coding, response, (&app.compressing, &slots.user_key));
    with_common_headers(&app, route, page, response.map(|body| holding(body, slots)))
}

/// Adds the headers of every response.
fn with_common_headers(
    app: &App,
    route: Route,
    page: Option<PageRequest>,
    mut response: Response,
) -> Response {
    let (is_error, live) = (response.status().is_client_error(), app.live());
    let headers = response.headers_mut();
    if !live.access_settings.origins.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(page) = page {
        page.permit(headers);
    }
    for (name, value) in ON_EVERY_ANSWER {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if route != Route::Pages || is_error {
        // A response is for one caller only. A shared cache could return it to another.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if live.tls.is_some() {
        let always = HeaderValue::from_static(TLS_FROM_NOW_ON);
        headers.insert(header::STRICT_TRANSPORT_SECURITY, always);
    }
    response
}

/// Maximum length of a URL. hyper itself rejects one beyond 65 534 bytes, without the headers of every response.
const URL_BYTES_MAX: usize = 60 << 10;

/// Returns the status for a URL or headers beyond the limit. The connection's own limit is that of its buffer, which
/// holds up to twice as much.
fn is_too_long(request: &Request, bytes_max: usize) -> Option<StatusCode> {
    let url = request.uri().path_and_query().map_or(0, |url| url.as_str().len());
    if url > URL_BYTES_MAX {
        return Some(StatusCode::URI_TOO_LONG);
    }
    let lengths = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    (lengths.sum::<usize>() > bytes_max).then_some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
}

/// What a response occupies until the client has received it.
struct Slots {
    /// Key of the caller in limits per user.
    user_key: Arc<str>,
    /// The slot of the request; agents and administrators need none.
    request: Option<Slot<Arc<str>>>,
    /// The slots of the answer's bytes in memory.
    answer: Option<Slot<Arc<str>>>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { user_key: "nobody".into(), request: None, answer: None }
    }
}

impl Slots {
    /// Counts the bytes of a whole answer as the user's until the client has received them. If the user's earlier
    /// answers fill the limit, rejects the request. Answers in pieces are small at any time.
    ///
    /// The answer to a change is never replaced, because the caller would repeat the change. The limit of requests
    /// bounds how many of them exceed the limit of bytes.
    fn hold_answer(&mut self, app: &App, response: Response, has_changed: bool) -> Response {
        let bytes = response.body().size_hint().exact().unwrap_or(0);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes >= LARGE_BYTES {
            app.had_large_answers.store(true, Ordering::Relaxed);
        }
        if self.request.is_none() || bytes < ANSWER_MIN_BYTES {
            return response;
        }
        let key = Arc::clone(&self.user_key);
        self.answer = match has_changed {
            true => app.unsent_answers.take_beyond(key, bytes),
            false => app.unsent_answers.take_several(key, bytes),
        };
        if self.answer.is_some() {
            return response;
        }
        HttpError::busy(
            "earlier answers wait to be received by the same user or token; read these first",
        )
        .into_response()
    }
}

/// Shorter answers do not count: the limit of requests bounds them.
const ANSWER_MIN_BYTES: usize = 64 << 10;

/// Answers of at least this size leave gaps in the heap that are worth returning.
const LARGE_BYTES: usize = 1 << 20;

/// Takes one of a user's slots for concurrent requests, or of a token's; agents, pollers and administrators need none.
///
/// The limit bounds how long these wait for shared resources, such as the registry. The slot is held until the client
/// has received the response.
fn request_slot(app: &App, caller: &Caller) -> Result<Option<Slot<Arc<str>>>, HttpError> {
    if matches!(
        caller.rights,
        Rights::Admin(_) | Rights::Agent(_) | Rights::Poller(_) | Rights::Colmet(_)
    ) {
        return Ok(None);
    }
    let most = app.limits.requests_per_user_max;
    let full =
        || HttpError::busy(format!("one user or token has {most} requests under way at most"));
    app.requests.take(caller.actor.user_key()).map(Some).ok_or_else(full)
}

/// Whether a request changes something, by its method and route.
///
/// Queries with a body do not count, nor do samples and the queries of pollers, which come every second. An operation that changes something by
/// another method or route marks its response.
fn changes(request: &Request) -> bool {
    let path = request.uri().path();
    let route = Route::of(path);
    !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && route == Route::Api
        && path != Operation::PollerPromotions.path()
}

/// Passes callers who may read.
pub(crate) async fn readers_only(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    match caller {
        Some(caller) if caller.reader().is_some() => next.run(request).await,
        Some(Caller { rights: Rights::Agent(_), .. }) => HttpError::forbidden(
            "a token of scope `agent` only permits sending batches, not \
                                reading",
        )
        .into_response(),
        Some(Caller { rights: Rights::Poller(_), .. }) => HttpError::forbidden(
            "a token of scope `poller` only permits sending a poller's batches, not reading",
        )
        .into_response(),
        Some(Caller { rights: Rights::Colmet(_), .. }) => HttpError::forbidden(
            "a token of scope `colmet` only permits sending what Colmet's nodes report, not reading",
        )
        .into_response(),
        Some(Caller { rights: Rights::Push(_), .. }) => HttpError::forbidden(
            "a token of scope `push` only permits inserting metrics, not reading",
        )
        .into_response(),
        Some(Caller { rights: Rights::JobReporter(_), .. }) => {
            let message = "a token of scope `jobs` only permits reporting a scheduler's jobs, not \
                           reading";
            HttpError::forbidden(message).into_response()
        }
        _ => no_credentials().into_response(),
    }
}

/// Passes callers who may read, and callers who may report schedulers' jobs.
pub(crate) async fn job_reporters_too(request: Request, next: Next) -> Response {
    match request.extensions().get::<Caller>() {
        Some(Caller { rights: Rights::JobReporter(_), .. }) => next.run(request).await,
        _ => readers_only(request, next).await,
    }
}

/// Passes callers who may read, and tokens of scope `push`.
pub(crate) async fn pushers_too(request: Request, next: Next) -> Response {
    match request.extensions().get::<Caller>() {
        Some(Caller { rights: Rights::Push(_), .. }) => next.run(request).await,
        _ => readers_only(request, next).await,
    }
}

fn admit(app: &App, request: &Request, page: Option<&PageRequest>) -> Result<Caller, HttpError> {
    let (live, now) = (app.live(), app.now());
    let known = AuthContext {
        names: &live.names,
        tokens: &live.tokens,
        jwt: live.jwt.as_ref(),
        jwt_rejected: &app.counts.jwt_rejected,
        now,
        access: &live.access,
    };
    let made = |token: &str| app.user_tokens.find(token, now);
    let caller = authenticate(&known, &made, request, page.is_some())?;
    let is_refused = page.is_none() && !live.access_settings.origins.is_empty();
    if is_refused && page_origins::planned_method(request).is_some() {
        let message = "pages of this origin may not send this request; `access.origins` names the origins whose pages \
                       may read";
        return Err(HttpError::new(StatusCode::FORBIDDEN, "42501", Why::Origin, message));
    }
    Ok(caller)
}
