//! Values in JSON documents: one request per document serves all its paths.

use super::http::Client;
use super::poller::{Exchange, Poller, Running};
use super::reading::Failure;
use super::values::of_json;
use crate::descriptions::{Description, Target, TlsVerification};
use crate::protocols::Request;
use model::Labels;
use serde_json::Value;
use serde_json_path::JsonPath;

/// Bytes of a document, and of what it unpacks to. In memory it needs up to 20 times as much.
const BODY_BYTES_MAX: usize = 4 << 20;

/// A service of JSON documents.
pub(super) struct Documents {
    client: Client,
}

impl Documents {
    pub(super) fn new(target: &Target) -> Self {
        Self { client: Client::new(target) }
    }

    async fn read(&mut self, due: &[&Description], exchange: &mut Exchange) {
        let mut documents: Vec<((&str, &TlsVerification), Vec<usize>)> = Vec::new();
        for (place, description) in due.iter().enumerate() {
            if let Request::Json(request) = &description.request {
                let key = (&*request.document, &description.tls);
                match documents.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, places)) => places.push(place),
                    None => documents.push((key, vec![place])),
                }
            }
        }
        for ((path, tls), places) in documents {
            let fetched = self.fetch(tls, path).await;
            for place in places {
                let Some(description) = due.get(place) else { continue };
                let value = fetched.as_ref().map_err(Clone::clone);
                match value.and_then(|value| value_at(description, value)) {
                    Ok(None) => exchange.settle(place),
                    Ok(Some((value, labels))) => exchange.value(place, due, labels, value),
                    Err(failure) => exchange.fail(place, failure),
                }
            }
        }
    }

    async fn fetch(&mut self, tls: &TlsVerification, path: &str) -> Result<Value, Failure> {
        let body = self.client.get(tls, path, ("application/json", BODY_BYTES_MAX)).await?;
        serde_json::from_slice(&body.bytes)
            .map_err(|error| Failure::broken(format!("the body is no JSON: {error}")))
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
}

/// The value of a description in its document; `None` if it is null. Of several matches the first is used.
fn value_at(description: &Description, document: &Value) -> Result<Option<(f64, Labels)>, Failure> {
    let Request::Json(request) = &description.request else { return Ok(None) };
    let path = JsonPath::parse(&request.json_path);
    let path = path.map_err(|_| Failure::broken("the JSONPath is not valid"))?;
    let matches = path.query(document);
    let Some(value) = matches.first() else {
        return Err(Failure::broken("the JSONPath matches nothing in the document"));
    };
    of_json(value, &description.labels)
}
