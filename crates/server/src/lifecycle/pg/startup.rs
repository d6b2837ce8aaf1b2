//! The start of a connection: TLS, authentication, and requests to cancel.

use crate::app::App;
use crate::auth::access_settings::UserFiles;
use crate::auth::authentication::{AuthContext, authenticate_session};
use crate::auth::caller::{Caller, Rights};
use crate::auth::connection::Connection;
use crate::auth::name_service::{GETENT, getent};
use crate::auth::peer::Ends;
use crate::common::counts::Arrival;
use crate::common::http_error::HttpError;
use crate::common::pg_counts::PgLimit;
use crate::lifecycle::pg::input::exactly;
use crate::lifecycle::pg::listener::PgServing;
use crate::lifecycle::pg::session::serve;
use kernel::Root;
use kernel::user_files::uid_of;
use pg_wire::backend::{Messages, Report};
use pg_wire::frontend::{Message, STARTUP_BYTES_MAX, Startup, message, startup};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

/// Longest password in bytes: tokens are short, and signed ones have a few kilobytes.
const PASSWORD_BYTES_MAX: usize = 16 << 10;
/// Wait after a wrong key, which slows guessing down.
const WRONG_KEY_WAIT: Duration = Duration::from_secs(1);
/// User name of a client that reads without a token, where the settings permit it.
const ANONYMOUS: &str = "anonymous";
/// What the audit log names as the request of a session.
const WHAT: &str = "SQL by PostgreSQL's protocol";

/// A connection with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync> Stream for S {}

/// What is known of a connection before its first message.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) ends: Ends,
    /// The user who owns the other end, as the kernel reports.
    pub(super) owner: Option<u32>,
    pub(super) is_local: bool,
    pub(super) is_unix: bool,
    /// The socket of the connection, which tells when the client has closed its end.
    pub(super) socket: Option<OwnedFd>,
}

/// A client that is known.
pub(super) struct Admitted {
    pub(super) stream: Box<dyn Stream>,
    pub(super) caller: Caller,
    pub(super) credentials: Credentials,
    pub(super) user: String,
    pub(super) parameters: Vec<(String, String)>,
    /// Whether the client requested a later minor version, or parameters of the protocol.
    pub(super) negotiates: bool,
}

/// What identifies a client: a token, or the kernel's answer about its connection.
pub(super) struct Credentials {
    connection: Connection,
    token: Option<String>,
}

impl Credentials {
    /// The caller, by the tokens and settings of now.
    pub(super) fn caller(&self, app: &App) -> Result<Caller, HttpError> {
        let (live, now) = (app.live(), app.now());
        let known = AuthContext {
            names: &live.names,
            tokens: &live.tokens,
            jwt: live.jwt.as_ref(),
            jwt_rejected: &app.counts.jwt_rejected,
            now,
            access: &live.access,
        };
        let found = |token: &str| app.user_tokens.find(token, now);
        let token = self.token.as_deref();
        let caller = authenticate_session(&known, &found, &self.connection, (token, WHAT))?;
        match caller.rights {
            Rights::Nobody => {
                Err(HttpError::unidentified("not authenticated: send a token as the password"))
            }
            Rights::Push(_) => Ok(caller),
            _ if caller.reader().is_none() => Err(HttpError::forbidden(
                "this token permits neither reading nor inserting metrics",
            )),
            _ => Ok(caller),
        }
    }
}

/// Why a connection ends before its session.
enum Rejected {
    Report(Report),
    Silent,
}

impl From<std::io::Error> for Rejected {
    fn from(_: std::io::Error) -> Self {
        Self::Silent
    }
}

/// Serves a connection: its start within a time limit, and then its session.
pub(super) async fn meet(stream: Box<dyn Stream>, greeted: Greeted, serving: &PgServing) {
    let (app, mut stream) = (&serving.app, Some(stream));
    let counts = &app.pg.counts;
    let started = begin(&mut stream, &greeted, serving);
    let report = match tokio::time::timeout(app.limits.handshake_time, started).await {
        Ok(Ok(Some(admitted))) => {
            counts.arrivals.add(Arrival::Served, 1);
            return serve(admitted, greeted.socket, app).await;
        }
        Ok(Ok(None) | Err(Rejected::Silent)) => return,
        Ok(Err(Rejected::Report(report))) => report,
        Err(_) => {
            counts.limits.add(PgLimit::Slow, 1);
            Report::fatal("57014", "the session did not begin in time")
        }
    };
    if let Some(mut stream) = stream {
        let mut messages = Messages::default();
        messages.report(&report);
        // The connection ends in any case.
        stream.write_all(&messages.0).await.ok();
        stream.shutdown().await.ok();
    }
}

async fn begin(
    held: &mut Option<Box<dyn Stream>>,
    greeted: &Greeted,
    serving: &PgServing,
) -> Result<Option<Admitted>, Rejected> {
    let app = &serving.app;
    let (mut has_tls, mut requests) = (false, 0);
    let (minor, parameters) = loop {
        let stream = held.as_mut().ok_or(Rejected::Silent)?;
        requests += 1;
        match first_message(stream, app).await? {
            // A second request for encryption is no start.
            Startup::Ssl | Startup::Gss if requests > 2 => {
                return Err(malformed(app, "no startup"));
            }
            Startup::Gss => stream.write_all(b"N").await?,
            Startup::Ssl => {
                let tls = app.live().tls.clone().filter(|_| !has_tls && !greeted.is_unix);
                let Some(tls) = tls else {
                    stream.write_all(b"N").await?;
                    continue;
                };
                stream.write_all(b"S").await?;
                stream.flush().await?;
                let plain = held.take().ok_or(Rejected::Silent)?;
                match TlsAcceptor::from(tls).accept(plain).await {
                    Ok(encrypted) => *held = Some(Box::new(encrypted)),
                    Err(_) => {
                        app.pg.counts.arrivals.add(Arrival::Handshake, 1);
                        return Err(Rejected::Silent);
                    }
                }
                has_tls = true;
            }
            Startup::Cancel { session, secret } => {
                if !app.pg.cancel(session, &secret) {
                    app.pg.counts.wrong_keys.add(1);
                    tokio::time::sleep(WRONG_KEY_WAIT).await;
                }
                return Ok(None);
            }
            Startup::Session { minor, parameters } => break (minor, parameters),
        }
    };
    let of_protocol = |(name, _): &(String, String)| name.starts_with("_pq_.");
    let negotiates = minor > 0 || parameters.iter().any(of_protocol);
    let user = parameters.iter().find(|(name, _)| name == "user").map(|(_, user)| user.clone());
    let user = user.filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| malformed(app, "the startup message names no user"))?;
    if parameters.iter().any(|(name, value)| name == "replication" && value != "false") {
        return Err(Rejected::Report(Report::fatal("0A000", "replication is not supported")));
    }
    let stream = held.as_mut().ok_or(Rejected::Silent)?;
    let (caller, credentials) = identify(stream, greeted, (&user, has_tls), serving).await?;
    let stream = held.take().ok_or(Rejected::Silent)?;
    Ok(Some(Admitted { stream, caller, credentials, user, parameters, negotiates }))
}

fn malformed(app: &App, what: &str) -> Rejected {
    app.pg.counts.malformed.add(1);
    Rejected::Report(Report::fatal("08P01", what))
}

async fn first_message(stream: &mut Box<dyn Stream>, app: &App) -> Result<Startup, Rejected> {
    let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(malformed(app, "this is not PostgreSQL's protocol"));
    }
    let body = exactly(stream, length - 4).await?;
    startup(&body).map_err(|error| malformed(app, &error.0))
}

/// Identifies the caller: by a token, which is the password, or by the kernel.
async fn identify(
    stream: &mut Box<dyn Stream>,
    greeted: &Greeted,
    (user, has_tls): (&str, bool),
    serving: &PgServing,
) -> Result<(Caller, Credentials), Rejected> {
    let app = &serving.app;
    let live = app.live();
    let connection = greeted.connection(live.access.by_kernel);
    let is_private = has_tls || greeted.is_local;
    let needs_token = match connection.owner {
        Some(uid) => !is_login(user, uid, &serving.root, live.access_settings.name_service).await,
        None => user != ANONYMOUS || !live.access.anonymous,
    };
    if needs_token && !is_private {
        app.pg.counts.unidentified.add(1);
        let message = "a token is accepted only over TLS, on loopback or on the unix socket; connect with sslmode=require";
        return Err(Rejected::Report(Report::fatal("28000", message)));
    }
    let token = if needs_token { Some(password(stream, app).await?) } else { None };
    let credentials = Credentials { connection, token };
    let caller = credentials.caller(app).map(|caller| (caller, credentials));
    caller.map_err(|error| {
        app.pg.counts.unidentified.add(1);
        let code = if error.code == "28000" && needs_token { "28P01" } else { error.code };
        Rejected::Report(Report::fatal(code, error.message))
    })
}

async fn password(stream: &mut Box<dyn Stream>, app: &App) -> Result<String, Rejected> {
    let mut messages = Messages::default();
    messages.password_request();
    stream.write_all(&messages.0).await?;
    stream.flush().await?;
    let (kind, length) = (stream.read_u8().await?, stream.read_u32().await?);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(4..=PASSWORD_BYTES_MAX).contains(&length) {
        return Err(malformed(app, "the password is too long"));
    }
    let body = exactly(stream, length - 4).await?;
    match message(kind, &body) {
        Ok(Message::Password(password)) => Ok(password),
        _ => Err(malformed(app, "a password is expected")),
    }
}

/// Whether a name is the login of a user of this machine. Only then the kernel identifies the caller; with any other
/// name the client has a token.
async fn is_login(name: &str, uid: u32, root: &Root, by_service: bool) -> bool {
    let (name, root) = (name.to_owned(), root.clone());
    let find = move || {
        let files = UserFiles::read(&root);
        if let Some(known) = uid_of(&files.passwd, &name) {
            return known == uid;
        }
        let found = by_service.then(|| getent(GETENT, "passwd", &[&name]).ok()).flatten();
        found.is_some_and(|(_, passwd)| uid_of(&passwd, &name) == Some(uid))
    };
    tokio::task::spawn_blocking(find).await.unwrap_or(false)
}
