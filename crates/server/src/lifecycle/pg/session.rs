//! A session: the messages of a client, in their order.

use crate::app::App;
use crate::auth::caller::{Caller, Rights};
use crate::common::pg_counts::{PgLimit, PgStatement};
use crate::common::tasks::stopped;
use crate::http::body::Sender;
use crate::http::pg_sessions::OpenSession;
use crate::lifecycle::pg::extended::{Extended, Portal, Prepared};
use crate::lifecycle::pg::input::{Input, read_messages};
use crate::lifecycle::pg::reports::{Failure, of_sql, of_syntax};
use crate::lifecycle::pg::session_settings::SessionSettings;
use crate::lifecycle::pg::startup::{Admitted, Credentials, Stream};
use crate::lifecycle::pg::statement_rows::Interrupt;
use crate::lifecycle::pg::writes::PendingRows;
use pg_wire::backend::{EMPTY_QUERY, Messages, Report, State};
use pg_wire::frontend::Message;
use pg_wire::scanner::statements;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Messages that wait while a statement runs.
const WAITING: usize = 4;
/// Messages to the client are sent when they have this many bytes.
pub(super) const SENT_BYTES: usize = 64 << 10;

/// A session.
pub(super) struct Session {
    pub(super) app: Arc<App>,
    pub(super) caller: Caller,
    credentials: Credentials,
    pub(super) user: String,
    pub(super) open: OpenSession,
    pub(super) input: mpsc::Receiver<Input>,
    output: WriteHalf<Box<dyn Stream>>,
    /// Messages that were not sent yet.
    pub(super) out: Messages,
    pub(super) state: State,
    pub(super) settings: SessionSettings,
    pub(super) extended: Extended,
    /// Rows that the transaction inserts when it ends.
    pub(super) pending: PendingRows,
    /// Whether the running statement ends its message: outside of a transaction block, its rows are stored at once.
    pub(super) is_last: bool,
    gone: watch::Receiver<bool>,
}

/// Serves a session until it ends.
pub(super) async fn serve(admitted: Admitted, socket: Option<OwnedFd>, app: &Arc<App>) {
    let Admitted { stream, caller, credentials, user, parameters, negotiates } = admitted;
    let (from, mut output) = tokio::io::split(stream);
    let mut out = Messages::default();
    let of_user = app.pg.users.take(caller.actor.user_key());
    let open = app.pg.open();
    let mut settings = SessionSettings::new(&user, app.sql.zone());
    let begun = settings.begin(&parameters);
    let (Some(_of_user), Some(open), Ok(())) = (of_user, open, &begun) else {
        app.pg.counts.limits.add(PgLimit::Sessions, usize::from(begun.is_ok()));
        let many = "this user has too many sessions; `pg.connections_per_user_max` allows more";
        let report = begun.err().unwrap_or_else(|| Report::error("53300", many));
        out.report(&Report { severity: "FATAL", ..report });
        // The session ends in any case.
        output.write_all(&out.0).await.ok();
        output.shutdown().await.ok();
        return;
    };
    if negotiates {
        let unknown = parameters.iter().map(|(name, _)| &**name);
        let unknown: Vec<&str> = unknown.filter(|name| name.starts_with("_pq_.")).collect();
        out.negotiate(&unknown);
    }
    out.authenticated();
    for (name, value) in settings.reported() {
        out.parameter(name, &value);
    }
    settings.changed();
    out.cancel_key(open.id, &open.secret);
    out.ready(State::Idle);
    let (to, input) = mpsc::channel(WAITING);
    let (to_gone, gone) = watch::channel(false);
    let may_write = matches!(caller.rights, Rights::Push(_) | Rights::Admin(_));
    let reads = (Arc::clone(app), Sender::of(&caller), may_write);
    let reading = tokio::spawn(read_messages((from, socket), to, to_gone, reads));
    let mut session = Session {
        app: Arc::clone(app),
        caller,
        credentials,
        user,
        open,
        input,
        output,
        out,
        state: State::Idle,
        settings,
        extended: Extended::default(),
        pending: PendingRows::default(),
        is_last: false,
        gone,
    };
    session.run().await;
    reading.abort();
}

impl Session {
    async fn run(&mut self) {
        let mut stopping = self.app.stopping.clone();
        loop {
            if self.flush().await.is_err() {
                return;
            }
            let input = tokio::select! {
                input = self.input.recv() => input.unwrap_or(Input::Gone),
                () = stopped(&mut stopping) => {
                    let report = Report::fatal("57P01", "the server is stopping");
                    return self.end(&report).await;
                }
            };
            let done = match input {
                Input::Message(Message::Terminate, _) | Input::Gone => return,
                Input::Message(message, _share) => self.message(message).await,
                other => Err(self.broken(&other)),
            };
            match done {
                Ok(()) => {}
                Err(Failure::Gone) => return,
                Err(Failure::Fatal(report) | Failure::Report(report)) => {
                    return self.end(&report).await;
                }
            }
        }
    }

    /// The error of an input that ends the session.
    pub(super) fn broken(&self, input: &Input) -> Failure {
        let counts = &self.app.pg.counts;
        let report = match input {
            Input::Malformed(what) => {
                counts.malformed.add(1);
                Report::fatal("08P01", what.clone())
            }
            Input::Limit(limit) => {
                counts.limits.add(*limit, 1);
                match limit {
                    PgLimit::Idle => Report::fatal(
                        "57P05",
                        "the session sent nothing for too long; `pg.idle_max` allows more",
                    ),
                    PgLimit::Slow => Report::fatal("57014", "a message did not arrive in time"),
                    PgLimit::Memory => {
                        Report::fatal("53200", "too many requests are under way; retry in a moment")
                    }
                    _ => Report::fatal("54000", "the message is too long"),
                }
            }
            Input::Message(..) | Input::Gone => return Failure::Gone,
        };
        Failure::Fatal(Box::new(report))
    }

    async fn message(&mut self, message: Message) -> Result<(), Failure> {
        if matches!(message, Message::Query(_) | Message::Parse { .. } | Message::Bind { .. }) {
            // A request to cancel an earlier statement does not concern the one that begins.
            self.open.cancels.borrow_and_update();
        }
        if matches!(
            message,
            Message::Query(_)
                | Message::Parse { .. }
                | Message::Describe(..)
                | Message::Execute(..)
                | Message::Sync
        ) {
            self.identify()?;
        }
        match message {
            Message::Query(_) if self.extended.skips => Ok(()),
            Message::Query(text) => {
                let done = self.query(&text).await;
                self.ended(done)?;
                self.ready();
                Ok(())
            }
            Message::Sync => {
                self.extended.skips = false;
                let done = self.end_message().await;
                self.ended(done)?;
                self.ready();
                Ok(())
            }
            // Remains of a COPY that has failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Password(_) | Message::Terminate => {
                Err(self.broken(&Input::Malformed("a password is not expected now".to_owned())))
            }
            _ if self.extended.skips => Ok(()),
            message => {
                self.is_last = false;
                let done = self.extended_message(message).await;
                self.extended.skips = matches!(done, Err(Failure::Report(_)));
                self.ended(done)
            }
        }
    }

    /// Identifies the caller again: a token may have expired, been revoked, or have other rights since the session began.
    pub(super) fn identify(&mut self) -> Result<(), Failure> {
        match self.credentials.caller(&self.app) {
            Ok(caller) => self.caller = caller,
            Err(error) => {
                self.app.pg.counts.unidentified.add(1);
                return Err(Failure::Fatal(Box::new(Report::fatal(error.code, error.message))));
            }
        }
        Ok(())
    }

    /// The server is ready for the next query. Outside of a transaction, portals have ended.
    fn ready(&mut self) {
        if self.state == State::Idle {
            self.end_portals();
        }
        for (name, value) in self.settings.changed() {
            self.out.parameter(name, &value);
        }
        self.out.ready(self.state);
    }

    /// Reports the error of a statement. Other errors end the session.
    fn ended(&mut self, done: Result<(), Failure>) -> Result<(), Failure> {
        let Err(Failure::Report(report)) = done else { return done };
        self.app.pg.counts.statements.add(PgStatement::Failed, 1);
        match self.state {
            // Its rows remain: ROLLBACK TO a savepoint returns to those before it.
            State::Open | State::Failed => self.state = State::Failed,
            State::Idle => self.discard_pending(),
        }
        self.out.report(&report);
        Ok(())
    }

    /// Executes the statements of a text, one after another. All are parsed before the first one runs, and outside of a
    /// transaction block they are one transaction.
    async fn query(&mut self, text: &str) -> Result<(), Failure> {
        let parts = statements(text).map_err(|error| of_syntax(&error, text))?;
        if parts.is_empty() {
            self.out.empty(EMPTY_QUERY);
        }
        let (count, mut parsed) = (parts.len(), Vec::with_capacity(parts.len()));
        for (start, part) in parts {
            let one = Prepared::new(part, Vec::new());
            parsed.push((start, one.map_err(|report| Failure::from(report).within(text, start))?));
        }
        if count > 1 {
            self.check(&parsed, text).await?;
        }
        for ((start, prepared), number) in parsed.into_iter().zip(1_usize..) {
            self.is_last = number == count;
            let mut portal = Portal::of(&prepared, Vec::new(), Vec::new());
            let done = self.execute(&mut portal, 0, true).await;
            done.map_err(|failure| failure.within(text, start))?;
        }
        self.end_message().await
    }

    /// Parses what the engine will run of a text's statements, without running it.
    async fn check(&self, parsed: &[(usize, Prepared)], text: &str) -> Result<(), Failure> {
        let (mut texts, mut starts) = (Vec::new(), Vec::new());
        for (start, prepared) in parsed {
            let of_engine = prepared.engine_text();
            let of_engine =
                of_engine.map_err(|report| Failure::from(report).within(text, *start))?;
            if let Some(of_engine) = of_engine {
                texts.push(of_engine.to_owned());
                starts.push((*start, of_engine));
            }
        }
        let checked = self.app.sql.check(texts, &self.caller.actor.user_key()).await;
        checked.map_err(|(place, error)| {
            let (start, of_engine) = starts.get(place).copied().unwrap_or_default();
            Failure::from(of_sql(&error, of_engine)).within(text, start)
        })
    }

    /// Stores the rows of a message that no transaction block holds, and keeps its settings.
    async fn end_message(&mut self) -> Result<(), Failure> {
        if self.state == State::Idle {
            self.store_pending().await?;
            self.settings.commit();
        }
        Ok(())
    }

    /// The interruptions of a statement.
    pub(super) fn interrupt(&self) -> Interrupt {
        let deadline = self.settings.time_max().map(|time| Instant::now() + time);
        Interrupt { cancels: self.open.cancels.clone(), gone: self.gone.clone(), deadline }
    }

    /// Sends the messages.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        if !self.out.0.is_empty() {
            self.output.write_all(&self.out.0).await?;
            self.output.flush().await?;
            self.out.0.clear();
            self.out.0.shrink_to(SENT_BYTES);
        }
        Ok(())
    }

    /// Sends the reason, and ends the session.
    async fn end(&mut self, report: &Report) {
        self.out.report(&Report { severity: "FATAL", ..report.clone() });
        if self.flush().await.is_ok() {
            self.output.shutdown().await.ok();
        }
    }
}
