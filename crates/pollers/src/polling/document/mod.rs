//! Values in JSON documents: one request per document serves all its paths.
//!
//! - `lenient_json`: documents with numbers that serde_json rejects
//! - `redfish_session`: sessions of Redfish services

mod lenient_json;
mod redfish_session;

use super::http::{Authorization, Call, Client, Received};
use super::poller::{Exchange, Poller, Running};
use super::reading::Failure;
use super::values::of_json;
use crate::descriptions::{Description, Target, TlsVerification};
use crate::protocols::Request;
use hyper::StatusCode;
use model::Labels;
use redfish_session::RedfishSession;
use serde_json::Value;
use serde_json_path::JsonPath;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of a document, and of what it unpacks to. In memory it needs up to 20 times as much.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The beginning of the paths of Redfish.
const REDFISH: &str = "/redfish/";

/// A service of JSON documents.
pub(super) struct Documents {
    client: Client,
    target: Arc<Target>,
    /// Its Redfish sessions, one for each way in which certificates are verified.
    sessions: Vec<RedfishSession>,
    /// The documents that reject the user or did not answer: they are requested after the others.
    failing: BTreeSet<String>,
}

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

impl Documents {
    pub(super) fn new(target: &Arc<Target>) -> Self {
        let (client, target) = (Client::new(target), Arc::clone(target));
        Self { client, target, sessions: Vec::new(), failing: BTreeSet::new() }
    }

    async fn read(&mut self, due: &[&Description], exchange: &mut Exchange) {
        let mut documents: Vec<((&str, &TlsVerification), Vec<usize>)> = Vec::new();
        for (place, description) in exchange.open(due) {
            if let Request::Json(request) = &description.request {
                let key = (&*request.document, &description.rare().tls);
                match documents.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, places)) => places.push(place),
                    None => documents.push((key, vec![place])),
                }
            }
        }
        documents.sort_by_key(|((path, _), _)| self.failing.contains(*path));
        for ((path, tls), places) in documents {
            // The exchange may end here, by its timeout.
            self.failing.insert(path.to_owned());
            let fetched = match self.fetch(tls, path).await {
                Err(FetchError::User(failure)) => return exchange.fail_rest(&failure),
                Err(FetchError::Document(failure)) => Err(failure),
                Ok(document) => Ok(document),
            };
            self.failing.remove(path);
            for place in places {
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
    }

    async fn fetch(&mut self, tls: &TlsVerification, path: &str) -> Result<Value, FetchError> {
        let call = Call::get(path, ("application/json", BODY_BYTES_MAX));
        let received = if self.target.user.is_some() && path.starts_with(REDFISH) {
            self.fetch_in_session(tls, &call).await?
        } else {
            self.client.follow(tls, call).await?
        };
        let has_user = self.target.user.is_some();
        let is_rejected = has_user && received.status == StatusCode::UNAUTHORIZED;
        let body = received.into_body().map_err(|failure| match is_rejected {
            true => FetchError::User(failure),
            false => FetchError::Document(failure),
        })?;
        Ok(lenient_json::parse(&body.bytes).map_err(Failure::broken)?)
    }

    /// Sends a request in a session, if the service has them. A session that has ended is opened again,
    /// once; a service that rejects the new one, too, receives the password.
    async fn fetch_in_session(
        &mut self,
        tls: &TlsVerification,
        call: &Call<'_>,
    ) -> Result<Received, FetchError> {
        let known = self.sessions.iter().position(|one| one.verification == *tls);
        let known = known.unwrap_or_else(|| {
            self.sessions.push(RedfishSession::new(tls));
            self.sessions.len() - 1
        });
        let (client, target) = (&mut self.client, &self.target);
        let Some(session) = self.sessions.get_mut(known) else {
            return Ok(client.follow(tls, call.clone()).await?);
        };
        // A session that was used, a new one, and none.
        for _ in 0..3 {
            let token = session.token(client, target).await?;
            let authorization = token
                .as_ref()
                .map_or(Authorization::Basic, |token| Authorization::Token(token.reveal()));
            let received = client.follow(tls, Call { authorization, ..call.clone() }).await?;
            let is_rejected = received.status == StatusCode::UNAUTHORIZED;
            if token.is_none() || !is_rejected {
                if received.status.is_success() {
                    session.accept();
                }
                return Ok(received);
            }
            session.reject(client).await;
        }
        Err(Failure::broken("the service ends each session").into())
    }
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
            for session in &mut self.sessions {
                session.close(&mut self.client).await;
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
    async fn a_document_that_does_not_answer_costs_the_others_one_exchange() {
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
        let mut documents = Documents::new(&all[0].target);
        let mut failures = Vec::new();
        for _ in 0..3 {
            let mut exchange = Exchange::new(Timestamp(0), due.len());
            // The exchange before lasted as long as the period.
            exchange.late = Duration::from_millis(50);
            run(&mut documents, &due, &mut exchange).await;
            let places = exchange.failures.iter().map(|(place, failure)| (*place, &*failure.what));
            let places: Vec<_> = places.map(|(place, what)| format!("{place}: {what}")).collect();
            failures.push(places);
        }
        let no = |place| format!("{place}: no complete answer within 350 ms");
        assert_eq!(failures, [vec![no(0), no(1)], vec![no(0)], vec![no(0)]]);
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
