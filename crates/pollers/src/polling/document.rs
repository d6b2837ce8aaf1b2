//! Values in JSON documents: one request per document serves all its paths.

use super::http;
use super::reading::{Failure, Reading};
use super::values::of_json;
use crate::descriptions::{Description, Target};
use crate::protocols::Request;
use model::Timestamp;
use serde_json::Value;
use serde_json_path::JsonPath;

/// Fetches a document of a target.
pub(super) async fn fetch(
    target: &Target,
    first: &Description,
    document: &str,
) -> Result<Value, Failure> {
    let body = http::get(target, &first.tls, document, "application/json").await?;
    serde_json::from_slice(&body.bytes)
        .map_err(|error| Failure::broken(format!("the body is no JSON: {error}")))
}

/// The value of a description in its document; `None` if it is null. Of several matches the first is used.
pub(super) fn reading(
    description: &Description,
    document: &Value,
    at: Timestamp,
) -> Result<Option<Reading>, Failure> {
    let Request::Json(request) = &description.request else { return Ok(None) };
    let path = JsonPath::parse(&request.json_path);
    let path = path.map_err(|_| Failure::broken("the JSONPath is not valid"))?;
    let matches = path.query(document);
    let Some(value) = matches.first() else {
        return Err(Failure::broken("the JSONPath matches nothing in the document"));
    };
    let value = of_json(value, &description.labels)?;
    Ok(value.map(|(value, labels)| Reading::of(description, labels, at, value)))
}
