//! Sessions of a Redfish service (DSP0266, section 13.3.4): the password is sent once, not with each request.
//!
//! A BMC has few sessions, and an account is locked after some wrong passwords. So a rejected password is sent once per
//! exchange. A session whose token is rejected is closed. After a request for a session that nothing answered, and after a
//! new token that is rejected, none is opened for an hour. Without a session, each request carries the user and the password.

use super::FetchError;
use crate::descriptions::{Target, TlsVerification};
use crate::polling::http::{Authorization, Call, Client, Received};
use crate::polling::reading::Failure;
use crate::url::Secret;
use bytes::Bytes;
use hyper::header::LOCATION;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The document that names the sessions, and where it does.
const ROOT: &str = "/redfish/v1/";
const SESSIONS: &str = "/Links/Sessions/@odata.id";
/// Types and bytes of the documents of a session.
const LIMITS: (&str, usize) = ("application/json", 1 << 20);
/// Bytes of a token, and of a path.
const TOKEN_BYTES_MAX: usize = 4096;
/// Time without a session after a service that has none.
const ABSENT_FOR: Duration = Duration::from_secs(3600);

/// The session of a service.
pub(super) struct RedfishSession {
    /// How the certificate of its connections is verified.
    pub(super) verification: TlsVerification,
    state: State,
}

enum State {
    /// It has none yet, or the service has ended it.
    Closed,
    /// The service was requested to open one, and has not answered.
    Opening,
    Open {
        token: Secret,
        /// Its path, at which it is closed.
        path: Option<String>,
        /// Whether the service has accepted the token.
        is_accepted: bool,
    },
    /// None is opened before this instant.
    Absent(Instant),
}

impl RedfishSession {
    pub(super) fn new(verification: &TlsVerification) -> Self {
        Self { verification: verification.clone(), state: State::Closed }
    }

    /// The token of a session, which is opened if it is not open; `None` if the service has no sessions.
    pub(super) async fn token(
        &mut self,
        client: &mut Client,
        target: &Target,
    ) -> Result<Option<Secret>, FetchError> {
        match &self.state {
            State::Open { token, .. } => return Ok(Some(token.clone())),
            State::Absent(until) if *until > Instant::now() => return Ok(None),
            // The exchange ended before the response: the service may have opened a session.
            State::Opening => {
                self.state = absent();
                return Ok(None);
            }
            State::Absent(_) | State::Closed => {}
        }
        let Some(sessions) = self.sessions(client).await? else {
            self.state = absent();
            return Ok(None);
        };
        let user = target.user.as_ref().map_or("", |user| user.reveal());
        let password = target.password.as_ref().map_or("", |password| password.reveal());
        let body = json!({"UserName": user, "Password": password}).to_string();
        self.state = State::Opening;
        let call = Call {
            method: Method::POST,
            authorization: Authorization::None,
            body: Bytes::from(body),
            ..Call::get(&sessions, LIMITS)
        };
        // Without a response, the password may be wrong.
        let received = client.send(&self.verification, &call).await.map_err(FetchError::User)?;
        self.opened(client, received)
    }

    /// Takes the response to the request for a session.
    fn opened(
        &mut self,
        client: &Client,
        received: Received,
    ) -> Result<Option<Secret>, FetchError> {
        let status = received.status;
        let token = received.header("x-auth-token");
        self.state = match status {
            _ if status.is_success() && (1..=TOKEN_BYTES_MAX).contains(&token.len()) => {
                let token = Secret::new(token.to_owned());
                let (path, is_accepted) = (path(client, &received), false);
                self.state = State::Open { token: token.clone(), path, is_accepted };
                return Ok(Some(token));
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => State::Closed,
            _ => absent(),
        };
        match received.into_body() {
            Err(failure)
                if status == StatusCode::FORBIDDEN || status == StatusCode::UNAUTHORIZED =>
            {
                Err(FetchError::User(failure))
            }
            // The password may be the reason: it is not sent again in this exchange.
            Err(_) if status == StatusCode::BAD_REQUEST => {
                Err(FetchError::User(Failure::broken(format!("it opens no session: {status}"))))
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The path of the service's sessions; `None` if it has none.
    async fn sessions(&self, client: &mut Client) -> Result<Option<String>, Failure> {
        // The root is for everyone, so it needs no password.
        let authorization = Authorization::None;
        let call = Call { authorization, ..Call::get(ROOT, LIMITS) };
        let received = client.follow(&self.verification, call).await?;
        let root = serde_json::from_slice::<Value>(&received.bytes).unwrap_or_default();
        let path = root.pointer(SESSIONS).and_then(Value::as_str).unwrap_or_default();
        Ok(is_path(path).then(|| path.to_owned()))
    }

    /// Records that the service has accepted the token.
    pub(super) fn accept(&mut self, accepted: &Secret) {
        if let State::Open { is_accepted, token, .. } = &mut self.state {
            *is_accepted |= token == accepted;
        }
    }

    /// Closes a session whose token is rejected. If it was never accepted, the service opens sessions that it does not
    /// use: then none is opened for a time.
    pub(super) async fn reject(&mut self, client: &mut Client, rejected: &Secret) {
        // Another request may have opened the next one.
        if !matches!(&self.state, State::Open { token, .. } if token == rejected) {
            return;
        }
        let is_unused = matches!(self.state, State::Open { is_accepted: false, .. });
        self.close(client).await;
        if is_unused {
            self.state = absent();
        }
    }

    /// Closes the session.
    pub(super) async fn close(&mut self, client: &mut Client) {
        let State::Open { token, path: Some(path), is_accepted } =
            std::mem::replace(&mut self.state, State::Closed)
        else {
            return;
        };
        // The service has just accepted the password.
        let authorization =
            if is_accepted { Authorization::Token(token.reveal()) } else { Authorization::Basic };
        let call = Call { method: Method::DELETE, authorization, ..Call::get(&path, LIMITS) };
        // A service that does not answer ends the session by itself.
        client.send(&self.verification, &call).await.ok();
    }
}

fn absent() -> State {
    State::Absent(Instant::now() + ABSENT_FOR)
}

/// The path of a new session: the header, or the document.
fn path(client: &Client, received: &Received) -> Option<String> {
    let document = serde_json::from_slice::<Value>(&received.bytes).unwrap_or_default();
    let own = document.get("@odata.id").and_then(Value::as_str).unwrap_or_default();
    let header = received.header(LOCATION.as_str());
    // A BMC may name itself otherwise. The path is requested from the same host in any case.
    let path_only =
        || header.split_once("://").and_then(|(_, rest)| Some(rest.split_at(rest.find('/')?).1));
    let found = client.path_of(header).ok().or_else(|| path_only().map(str::to_owned));
    found.into_iter().chain([own.to_owned()]).find(|path| is_path(path))
}

/// Whether a text is a path of Redfish.
fn is_path(text: &str) -> bool {
    text.starts_with(super::REDFISH) && text.len() <= TOKEN_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::super::Documents;
    use super::*;
    use crate::descriptions::{Description, entries_of};
    use crate::polling::poller::{Exchange, Poller as _, run};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use model::{Cause, Timestamp};
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;

    fn documents_of(one: &Description) -> Documents {
        Documents::new(&one.target, Arc::new(Semaphore::new(8)))
    }

    /// What a service does.
    #[derive(Clone, Copy, Debug, Default)]
    struct Options {
        has_no_sessions: bool,
        /// It does not answer the request for a session.
        is_silent: bool,
        /// It opens sessions, but accepts passwords only.
        needs_password: bool,
    }

    /// A service with two documents, and the requests that it received.
    #[derive(Clone)]
    struct Service {
        port: u16,
        options: Options,
        requests: Arc<Mutex<Vec<String>>>,
        /// The token that it accepts.
        token: Arc<Mutex<String>>,
    }

    impl Service {
        async fn start(options: Options) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let (requests, token) = (Arc::default(), Arc::default());
            let service = Self { port, options, requests, token };
            let own = service.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(own.clone().serve(stream));
                }
            });
            service
        }

        async fn serve(self, stream: TcpStream) {
            let mut stream = BufReader::new(stream);
            loop {
                let (mut first, mut user, mut bytes) = (String::new(), "nobody".to_owned(), 0);
                if stream.read_line(&mut first).await.unwrap_or(0) == 0 {
                    return;
                }
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).await.unwrap();
                    match line.trim().split_once(": ") {
                        None => break,
                        Some(("x-auth-token", token)) => user = token.to_owned(),
                        Some(("authorization", basic)) => {
                            let both = STANDARD.decode(basic.strip_prefix("Basic ").unwrap());
                            user = String::from_utf8(both.unwrap()).unwrap();
                        }
                        Some(("content-length", length)) => bytes = length.parse().unwrap(),
                        Some(_) => {}
                    }
                }
                let mut body = vec![0; bytes];
                stream.read_exact(&mut body).await.unwrap();
                let request = first.rsplit_once(' ').unwrap().0.to_owned();
                self.requests.lock().unwrap().push(format!("{request} {user}"));
                let Some((head, body)) = self.response(&request, &user, &body) else {
                    return std::future::pending().await;
                };
                let length = body.len();
                let text = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        }

        fn response(&self, request: &str, user: &str, body: &[u8]) -> Option<(String, String)> {
            let mut token = self.token.lock().unwrap();
            let own = |text: &str| Some((text.to_owned(), String::new()));
            match request {
                "GET /redfish/v1/" if self.options.has_no_sessions => {
                    Some(("200 OK".into(), "{}".into()))
                }
                "GET /redfish/v1/" => {
                    let body = r#"{"Links": {"Sessions": {"@odata.id": "/redfish/v1/Sessions"}}}"#;
                    Some(("200 OK".into(), body.into()))
                }
                "POST /redfish/v1/Sessions" if self.options.is_silent => None,
                "POST /redfish/v1/Sessions" => {
                    let body: Value = serde_json::from_slice(body).unwrap();
                    if body != json!({"UserName": "root", "Password": "calvin"}) {
                        return own("401 Unauthorized");
                    }
                    let number =
                        token.strip_prefix('t').map_or(1, |last| last.parse::<u32>().unwrap() + 1);
                    *token = format!("t{number}");
                    let at = format!("/redfish/v1/Sessions/{number}");
                    own(&format!("201 Created\r\nX-Auth-Token: {token}\r\nLocation: {at}"))
                }
                delete if delete.starts_with("DELETE /redfish/v1/Sessions/") => own("200 OK"),
                _ if user == "root:calvin" || (user == *token && !self.options.needs_password) => {
                    Some(("200 OK".into(), r#"{"Watts": 245}"#.into()))
                }
                _ => own("401 Unauthorized"),
            }
        }

        /// The requests since this was called last.
        fn taken(&self) -> Vec<String> {
            std::mem::take(&mut *self.requests.lock().unwrap())
        }

        fn entries(&self, password: &str) -> Vec<Description> {
            let port = self.port;
            let entry = |path: &str| {
                format!(
                    "- {{name: power, device_id: b, timeout: 1000,\n   url: 'http://root:{password}@127.0.0.1:{port}/redfish/v1/{path}#Watts'}}\n"
                )
            };
            entries_of(&["a", "b"].map(entry).concat())
        }
    }

    /// Polls once. Returns the values, and the causes of what failed.
    async fn poll(documents: &mut Documents, all: &[Description]) -> (Vec<f64>, Vec<Cause>) {
        let due: Vec<&Description> = all.iter().collect();
        let mut exchange = Exchange::new(Timestamp(0), due.len());
        run(documents, &due, &mut exchange).await;
        let values = exchange.readings.iter().map(|one| one.value).collect();
        (values, exchange.failures.iter().map(|(_, failure)| failure.cause).collect())
    }

    const READ: [f64; 2] = [245.0, 245.0];
    const ROOT_GET: &str = "GET /redfish/v1/ nobody";
    const POST: &str = "POST /redfish/v1/Sessions nobody";

    #[tokio::test]
    async fn a_session_is_opened_once_opened_again_when_it_ends_and_closed() {
        let service = Service::start(Options::default()).await;
        let all = service.entries("calvin");
        let mut documents = documents_of(&all[0]);
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        let (a, b) = ("GET /redfish/v1/a t1", "GET /redfish/v1/b t1");
        assert_eq!(service.taken(), [ROOT_GET, POST, a, b]);
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        assert_eq!(service.taken(), [a, b]);
        *service.token.lock().unwrap() = "t7".into();
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        let again = ["GET /redfish/v1/a t8", "GET /redfish/v1/b t8"];
        let close = "DELETE /redfish/v1/Sessions/1 t1";
        assert_eq!(service.taken(), [&[a, close, ROOT_GET, POST][..], &again].concat());
        documents.close().await;
        documents.close().await;
        assert_eq!(service.taken(), ["DELETE /redfish/v1/Sessions/8 t8"]);
    }

    #[tokio::test]
    async fn a_wrong_password_is_sent_once_per_exchange() {
        for has_no_sessions in [false, true] {
            let service = Service::start(Options { has_no_sessions, ..Options::default() }).await;
            let all = service.entries("wrong");
            let mut documents = documents_of(&all[0]);
            let (values, causes) = poll(&mut documents, &all).await;
            assert_eq!((values, causes), (vec![], vec![Cause::PermissionLost; 2]));
            let attempt = if has_no_sessions { "GET /redfish/v1/a root:wrong" } else { POST };
            assert_eq!(service.taken(), [ROOT_GET, attempt]);
        }
    }

    #[tokio::test]
    async fn a_service_without_sessions_or_tokens_receives_the_password() {
        let basic = ["GET /redfish/v1/a root:calvin", "GET /redfish/v1/b root:calvin"];
        let service = Service::start(Options { has_no_sessions: true, ..Options::default() }).await;
        let all = service.entries("calvin");
        let mut documents = documents_of(&all[0]);
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        assert_eq!(service.taken(), [&[ROOT_GET][..], &basic].concat());
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        assert_eq!(service.taken(), basic);
        // It rejects the token that it gave: the session is closed, and none is opened again.
        let service = Service::start(Options { needs_password: true, ..Options::default() }).await;
        let all = service.entries("calvin");
        let mut documents = documents_of(&all[0]);
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        let (first, close) = ("GET /redfish/v1/a t1", "DELETE /redfish/v1/Sessions/1 root:calvin");
        assert_eq!(service.taken(), [&[ROOT_GET, POST, first, close][..], &basic].concat());
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        assert_eq!(service.taken(), basic);
        documents.close().await;
        assert_eq!(service.taken(), [""; 0]);
    }

    #[tokio::test]
    async fn a_session_without_an_answer_is_not_opened_again() {
        let service = Service::start(Options { is_silent: true, ..Options::default() }).await;
        let all = service.entries("calvin");
        let mut documents = documents_of(&all[0]);
        assert_eq!(poll(&mut documents, &all).await.1, vec![Cause::SourceTimeout; 2]);
        assert_eq!(service.taken(), [ROOT_GET, POST]);
        assert_eq!(poll(&mut documents, &all).await, (READ.into(), vec![]));
        assert_eq!(service.taken().len(), 2, "with the password");
    }
}
