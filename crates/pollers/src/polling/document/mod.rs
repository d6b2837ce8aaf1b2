//! Values in JSON documents: one request per document serves all its paths.
//!
//! - `lenient_json`: documents with numbers that serde_json rejects
//! - `redfish_session`: sessions of Redfish services

mod lenient_json;
mod redfish_session;

use super::http::{Authorization, Call, Client, Received};
use super::poller::{Exchange, Poller, Running, Turns, still_silent, waits_for_turn};
use super::reading::Failure;
use super::values::of_json;
use crate::descriptions::{Description, Target, TlsVerification};
use crate::protocols::Request;
use hyper::StatusCode;
use model::Labels;
use redfish_session::RedfishSession;
use serde_json::Value;
use serde_json_path::JsonPath;
use std::panic::resume_unwind;
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

/// Bytes of a document, and of what it unpacks to. In memory it needs up to 20 times as much.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The beginning of the paths of Redfish.
const REDFISH: &str = "/redfish/";

/// Documents of a service that are requested at the same time, and of one with TLS: a new connection costs a BMC about a
/// second, so that each is kept.
const AT_ONCE: usize = 4;
const AT_ONCE_TLS: usize = 2;

/// A service of JSON documents.
pub(super) struct Documents {
    /// Clients without a request.
    clients: Vec<Client>,
    target: Arc<Target>,
    /// The requests to the services of the host. The exchange has one of them.
    host: Arc<Semaphore>,
    /// Its Redfish sessions, one for each way in which certificates are verified.
    sessions: Vec<(TlsVerification, SharedSession)>,
    /// The documents that reject the user or did not answer: they are requested after the others.
    paths: Turns<String>,
}

type SharedSession = Arc<Mutex<RedfishSession>>;

/// Why a document is not read.
#[derive(Clone)]
enum FetchError {
    /// The user or the password is rejected, or may be. Another attempt may lock the account.
    User(Failure),
    /// Any other reason.
    Document(Failure),
}

impl From<Failure> for FetchError {
    fn from(failure: Failure) -> Self {
        Self::Document(failure)
    }
}

/// A document, and the places of its descriptions.
type Wanted<'a> = ((&'a str, &'a TlsVerification), Vec<usize>);

impl Documents {
    pub(super) fn new(target: &Arc<Target>, host: Arc<Semaphore>) -> Self {
        let (clients, sessions) = (Vec::new(), Vec::new());
        Self { clients, target: Arc::clone(target), host, sessions, paths: Turns::default() }
    }

    async fn read(&mut self, due: &[&Description], exchange: &mut Exchange) {
        let documents = self.documents(due, exchange);
        let mut next = documents.iter().enumerate();
        let mut running = JoinSet::new();
        // A wrong password is sent once: the others wait until the service has accepted it.
        let mut is_accepted = self.target.user.is_none();
        loop {
            let at_once = if self.target.is_tls { AT_ONCE_TLS } else { AT_ONCE };
            while running.is_empty() || is_accepted && running.len() < at_once {
                let Ok(permit) = self.permit(running.is_empty()) else { break };
                let Some((nth, ((path, tls), places))) = next.next() else { break };
                if exchange.is_over_for(self.paths.place(*path)) {
                    exchange.fail_all(places, &waits_for_turn());
                    continue;
                }
                exchange.send(places.iter().copied());
                // The exchange may end before the response, by its timeout.
                let until = exchange.deadline(self.paths.begin((*path).to_owned()));
                let client = self.clients.pop().unwrap_or_else(|| Client::new(&self.target));
                let session = self.session(path, tls);
                let request = (Arc::clone(&self.target), (*tls).clone(), (*path).to_owned());
                running.spawn(async move {
                    let _permit = permit;
                    (nth, timeout_at(until, fetch(client, session, request)).await)
                });
            }
            let (nth, answer) = match running.join_next().await {
                None => return,
                Some(Ok(joined)) => joined,
                // The exchange reports it.
                Some(Err(error)) => resume_unwind(error.into_panic()),
            };
            let Some(((path, _), places)) = documents.get(nth) else { continue };
            let Ok((client, fetched)) = answer else {
                self.paths.failed(*path);
                exchange.fail_all(places, &still_silent());
                continue;
            };
            self.clients.push(client);
            let fetched = match fetched {
                Err(FetchError::User(failure)) => return exchange.fail_rest(&failure),
                Err(FetchError::Document(failure)) => Err(failure),
                Ok(document) => Ok(document),
            };
            is_accepted |= fetched.is_ok();
            self.paths.answered(*path);
            add(places, &fetched, due, exchange);
        }
    }

    /// The documents of the descriptions without a result. Those that failed are the last.
    fn documents<'a>(&self, due: &[&'a Description], exchange: &Exchange) -> Vec<Wanted<'a>> {
        let mut documents: Vec<Wanted<'_>> = Vec::new();
        for (place, description) in exchange.open(due) {
            if let Request::Json(request) = &description.request {
                let key = (&*request.document, &description.rare().tls);
                match documents.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, places)) => places.push(place),
                    None => documents.push((key, vec![place])),
                }
            }
        }
        documents.sort_by_key(|((path, _), _)| self.paths.place(*path));
        documents
    }

    /// Permits a request: the first by the exchange itself, a further one if the host has few.
    fn permit(&self, is_first: bool) -> Result<Option<OwnedSemaphorePermit>, TryAcquireError> {
        if is_first {
            return Ok(None);
        }
        Arc::clone(&self.host).try_acquire_owned().map(Some)
    }

    /// The session in which a document is requested, if it is one of Redfish.
    fn session(&mut self, path: &str, tls: &TlsVerification) -> Option<SharedSession> {
        if self.target.user.is_none() || !path.starts_with(REDFISH) {
            return None;
        }
        let known = self.sessions.iter().find(|(of, _)| of == tls);
        if let Some((_, session)) = known {
            return Some(Arc::clone(session));
        }
        let session = Arc::new(Mutex::new(RedfishSession::new(tls)));
        self.sessions.push((tls.clone(), Arc::clone(&session)));
        Some(session)
    }
}

/// Adds the values of the descriptions at `places`, which are in one document.
fn add(
    places: &[usize],
    fetched: &Result<Value, Failure>,
    due: &[&Description],
    exchange: &mut Exchange,
) {
    for place in places.iter().copied() {
        let Some(description) = due.get(place) else { continue };
        let value = fetched.as_ref().map_err(Clone::clone);
        match value.and_then(|value| value_at(description, value)) {
            Ok((value, labels, is_only)) => {
                exchange.value(place, due, labels, value);
                if !is_only {
                    let Description { name, device, .. } = description;
                    let what = "the JSONPath matches several values; the first is used";
                    exchange.warnings.push(format!("{name} of {device}: {what}"));
                }
            }
            Err(failure) => exchange.fail(place, failure),
        }
    }
}

/// Requests a document. Returns the client for the next one.
async fn fetch(
    mut client: Client,
    session: Option<SharedSession>,
    (target, tls, path): (Arc<Target>, TlsVerification, String),
) -> (Client, Result<Value, FetchError>) {
    let document = fetch_with(&mut client, session.as_deref(), (&target, &tls, &path)).await;
    (client, document)
}

async fn fetch_with(
    client: &mut Client,
    session: Option<&Mutex<RedfishSession>>,
    (target, tls, path): (&Target, &TlsVerification, &str),
) -> Result<Value, FetchError> {
    let call = Call::get(path, ("application/json", BODY_BYTES_MAX));
    let received = match session {
        Some(session) => fetch_in_session(client, session, (target, tls), &call).await?,
        None => client.follow(tls, call).await?,
    };
    let is_rejected = target.user.is_some() && received.status == StatusCode::UNAUTHORIZED;
    let body = received.into_body().map_err(|failure| match is_rejected {
        true => FetchError::User(failure),
        false => FetchError::Document(failure),
    })?;
    Ok(lenient_json::parse(&body.bytes).map_err(Failure::broken)?)
}

/// Sends a request in a session, if the service has them. A session that has ended is opened again,
/// once; a service that rejects the new one, too, receives the password.
async fn fetch_in_session(
    client: &mut Client,
    session: &Mutex<RedfishSession>,
    (target, tls): (&Target, &TlsVerification),
    call: &Call<'_>,
) -> Result<Received, FetchError> {
    // A session that was used, a new one, and none.
    for _ in 0..3 {
        let token = session.lock().await.token(client, target).await?;
        let authorization = token
            .as_ref()
            .map_or(Authorization::Basic, |token| Authorization::Token(token.reveal()));
        let received = client.follow(tls, Call { authorization, ..call.clone() }).await?;
        let is_rejected = received.status == StatusCode::UNAUTHORIZED;
        match token {
            Some(token) if is_rejected => session.lock().await.reject(client, &token).await,
            Some(token) if received.status.is_success() => {
                session.lock().await.accept(&token);
                return Ok(received);
            }
            _ => return Ok(received),
        }
    }
    Err(Failure::broken("the service ends each session").into())
}

impl Poller for Documents {
    fn exchange<'a>(
        &'a mut self,
        due: &'a [&'a Description],
        exchange: &'a mut Exchange,
    ) -> Running<'a> {
        Box::pin(self.read(due, exchange))
    }

    fn close(&mut self) -> Running<'_> {
        Box::pin(async {
            let mut client = self.clients.pop().unwrap_or_else(|| Client::new(&self.target));
            for (_, session) in &self.sessions {
                session.lock().await.close(&mut client).await;
            }
        })
    }
}

/// The value of a description in its document. Of several matches the first is used.
fn value_at(description: &Description, document: &Value) -> Result<(f64, Labels, bool), Failure> {
    match &description.request {
        Request::Json(request) => value_of(&request.json_path, document, &description.labels),
        _ => Err(Failure::broken("it is in no document")),
    }
}

fn value_of(
    json_path: &str,
    document: &Value,
    labels: &Labels,
) -> Result<(f64, Labels, bool), Failure> {
    let path = JsonPath::parse(json_path);
    let path = path.map_err(|_| Failure::broken("the JSONPath is not valid"))?;
    let matches = path.query(document);
    let Some(value) = matches.first() else {
        return Err(Failure::broken("the JSONPath matches nothing in the document"));
    };
    of_json(value, labels).map(|(value, labels)| (value, labels, matches.len() == 1))
}

/// Reads bytes as a JSONPath in the first line, and a document after it.
pub fn parse_any(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (path, document) = bytes.split_at(end);
    if let (Ok(path), Ok(document)) = (std::str::from_utf8(path), lenient_json::parse(document)) {
        value_of(path, &document, &Labels::default()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;
    use crate::polling::poller::run;
    use model::Timestamp;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_document_that_does_not_answer_costs_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                    if bytes[..length].starts_with(b"GET /a") {
                        silent.push(stream);
                        break;
                    }
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"x\":1}";
                    stream.write_all(response).await.unwrap();
                }
            }
        });
        let entry = |path: &str| {
            format!(
                "- {{name: {path}, device_id: d, url: 'http://127.0.0.1:{port}/{path}#x', timeout: 400}}\n"
            )
        };
        let all = entries_of(&["a", "b"].map(entry).concat());
        let due: Vec<&Description> = all.iter().collect();
        let mut failures = Vec::new();
        // The host permits only one request at a time, and further ones.
        for permits in [0, 8] {
            let mut documents = Documents::new(&all[0].target, Arc::new(Semaphore::new(permits)));
            for _ in 0..3 {
                let mut exchange = Exchange::new(Timestamp(0), due.len());
                // The exchange before lasted as long as the period.
                exchange.late = Duration::from_millis(50);
                run(&mut documents, &due, &mut exchange).await;
                let failed = exchange.failures.iter();
                let failed = failed.map(|(place, failure)| format!("{place}: {}", failure.what));
                failures.push(failed.collect::<Vec<_>>());
            }
        }
        let no = |place| format!("{place}: no complete answer within 350 ms");
        let again = format!("0: {}", still_silent().what);
        let again = || vec![again.clone()];
        assert_eq!(failures[..3], [vec![no(0), no(1)], again(), again()]);
        assert_eq!(failures[3..], [vec![no(0)], again(), again()]);
    }

    #[test]
    fn null_is_no_reading_and_a_wrong_number_costs_no_other_value() {
        let text = br#"{"power": null, "power": null, "a": 1e999, "b": [-Infinity, NaN], "c": 42, "c": 43,
            "long": 100000000000000000000000000000000000000000, "text": "NaN, 1e999, \"", "tiny": 1e-999}"#;
        let document = lenient_json::parse(text).unwrap();
        let labels = Labels::default();
        let value = |path: &str| value_of(path, &document, &labels).map(|(value, ..)| value);
        let failure = value("$.power").unwrap_err();
        assert_eq!(&*failure.what, "the device has no reading: the value is null");
        assert_eq!(value("$.a"), Ok(f64::INFINITY));
        assert_eq!(value("$.b[0]"), Ok(f64::NEG_INFINITY));
        assert!(value("$.b[1]").unwrap().is_nan());
        assert_eq!((value("$.c"), value("$.long"), value("$.tiny")), (Ok(43.0), Ok(1e41), Ok(0.0)));
        let (_, labels, _) = value_of("$.text", &document, &labels).unwrap();
        assert_eq!(labels.get("value_str").as_deref(), Some("NaN, 1e999, \""));
    }
}
