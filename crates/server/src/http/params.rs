//! Query parameters, from the query string, a JSON object or a form.

use crate::common::http_error::{HttpError, Why};
use crate::common::json_error;
use crate::http::body::{media_type, unsupported};
use api::Operation;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The parameters of a request, each at most once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Params {
    given: BTreeMap<String, Value>,
}

impl Params {
    /// Parses a query string, percent-decoded, with `+` as a blank.
    pub(crate) fn of_query(query: Option<&str>) -> Result<Self, HttpError> {
        Self::of_pairs(query.unwrap_or_default().as_bytes())
    }

    fn of_pairs(text: &[u8]) -> Result<Self, HttpError> {
        let mut params = Self::default();
        for (name, value) in form_urlencoded::parse(text) {
            params.add(name.into_owned(), Value::String(value.into_owned()))?;
        }
        Ok(params)
    }

    /// Parses a query string and a body: a JSON object, or a form. An empty body has no parameters.
    pub(crate) fn of_body(
        query: Option<&str>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Self, HttpError> {
        let mut params = Self::of_query(query)?;
        if body.is_empty() {
            return Ok(params);
        }
        let more = match media_type(headers).as_deref() {
            None | Some("application/json") => {
                let unreadable = |error| HttpError::unreadable(body, &error);
                let object = serde_json::from_slice(body).map_err(unreadable)?;
                with_digits(object, body).map_err(unreadable)?
            }
            Some("application/x-www-form-urlencoded") => Self::of_pairs(body)?.given,
            Some(other) => {
                return Err(unsupported(format!(
                    "`{}` is not supported here; use application/json or \
                     application/x-www-form-urlencoded",
                    other.chars().take(100).collect::<String>()
                )));
            }
        };
        for (name, value) in more {
            params.add(name, value)?;
        }
        Ok(params)
    }

    fn add(&mut self, name: String, value: Value) -> Result<(), HttpError> {
        if self.given.contains_key(&name) {
            return Err(HttpError::malformed(format!("duplicate parameter `{name}`")));
        }
        self.given.insert(name, value);
        Ok(())
    }

    /// Rejects unknown names, and suggests the closest known name. PostgREST answers 404 for a function
    /// without such an argument; other routes answer 400.
    pub(crate) fn only(&self, operation: Operation, status: StatusCode) -> Result<(), HttpError> {
        let known: Vec<&str> = operation.params().iter().map(|param| param.name).collect();
        let Some(unknown) = self.given.keys().find(|name| !known.contains(&&***name)) else {
            return Ok(());
        };
        let shown: String = unknown.chars().take(100).collect();
        let message = match &*known {
            [] => format!("unknown parameter `{shown}`; this route has no parameters"),
            _ => format!("unknown parameter `{shown}`; the parameters are {}", known.join(", ")),
        };
        let meant = config::nearest(unknown, known);
        let hint = meant.map(|near| format!("did you mean `{near}`?"));
        Err(HttpError::new(status, "PGRST202", Why::Unknown, message).hint(hint))
    }

    /// Returns a parameter as text. Numbers and booleans become text; null counts as absent.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, HttpError> {
        match self.given.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(Value::Bool(truth)) => Ok(Some(truth.to_string())),
            Some(Value::Array(_) | Value::Object(_)) => {
                Err(HttpError::malformed(format!("the parameter `{name}` must be one value")))
            }
        }
    }

    /// Returns the requested number of list entries: from 1 to `most`.
    pub(crate) fn limit(&self, most: u32) -> Result<Option<usize>, HttpError> {
        let Some(text) = self.text("limit")? else { return Ok(None) };
        let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let message = || format!("`limit` must be a whole number from 1 to {most}");
        limit.map(Some).ok_or_else(|| HttpError::malformed(message()))
    }

    /// Returns a parameter that may hold an array or object; in a query string or form it is JSON text.
    pub(crate) fn json(&self, name: &str) -> Result<Option<Value>, HttpError> {
        match self.given.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => serde_json::from_str(text).map(Some).map_err(|error| {
                let why = json_error::describe(text.as_bytes(), &error);
                HttpError::malformed(format!(
                    "the parameter `{name}`: {why}; write JSON such as {{\"disk\": \"sda\"}}"
                ))
            }),
            Some(value) => Ok(Some(value.clone())),
        }
    }
}

/// Replaces numbers that a float holds by their text in the body: a name may be a number with more digits than
/// a float has.
fn with_digits(
    mut object: BTreeMap<String, Value>,
    body: &[u8],
) -> Result<BTreeMap<String, Value>, serde_json::Error> {
    if object.values().any(Value::is_f64) {
        let texts: BTreeMap<String, &RawValue> = serde_json::from_slice(body)?;
        for (name, text) in texts {
            if let Some(value) = object.get_mut(&name).filter(|value| value.is_f64()) {
                *value = Value::String(text.get().to_owned());
            }
        }
    }
    Ok(object)
}

/// Returns the parameters of a query string in their order, percent-decoded, with `+` as a blank. PostgreSQL has no text
/// with other bytes than UTF-8 or with a NUL, so such a parameter would never match.
pub(crate) fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, HttpError> {
    const REPLACEMENT: &str = "\u{fffd}";
    let query = query.unwrap_or_default();
    let is_written =
        query.contains(REPLACEMENT) || query.to_ascii_uppercase().contains("%EF%BF%BD");
    let is_text = |text: &str| !text.contains('\0') && (is_written || !text.contains(REPLACEMENT));
    let pair = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
        if is_text(&name) && is_text(&value) {
            return Ok((name.into_owned(), value.into_owned()));
        }
        let message =
            "a parameter is not UTF-8, or has a NUL: encode each byte of the UTF-8 text as %XX";
        Err(HttpError::new(StatusCode::BAD_REQUEST, "22021", Why::Malformed, message))
    };
    form_urlencoded::parse(query.as_bytes()).map(pair).collect()
}

/// Returns a path segment that is a name.
pub(crate) fn part(path: Result<Path<String>, PathRejection>) -> Result<String, HttpError> {
    let what = "a part of the path is not UTF-8: encode each byte of the UTF-8 text as %XX";
    path.map(|Path(name)| name).map_err(|_| HttpError::malformed(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};
    use proptest::prelude::*;

    fn typed(kind: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))])
    }

    #[test]
    fn the_same_from_everywhere() {
        let query = Params::of_query(Some("job_id=7&nodes=a%2Cb&summary=true")).unwrap();
        let json = br#"{"job_id": 7, "nodes": "a,b", "summary": true, "devices": null}"#;
        let json = Params::of_body(None, &typed("application/json; charset=utf-8"), json).unwrap();
        let kind = typed("application/x-www-form-urlencoded");
        let form = Params::of_body(Some("job_id=7"), &kind, b"nodes=a,b&summary=true").unwrap();
        for params in [query, json, form] {
            let text = |name| params.text(name).unwrap();
            assert_eq!(text("job_id").as_deref(), Some("7"));
            assert_eq!(text("nodes").as_deref(), Some("a,b"));
            assert_eq!(text("summary").as_deref(), Some("true"));
            assert_eq!(text("devices"), None);
        }
    }

    #[test]
    fn a_number_keeps_its_digits() {
        let json = br#"{"a": 79432145842022383616, "b": 1.50, "c": 7, "nod\u0065": 1e2}"#;
        let params = Params::of_body(None, &typed("application/json"), json).unwrap();
        let text = |name| params.text(name).unwrap();
        assert_eq!(text("a").as_deref(), Some("79432145842022383616"));
        assert_eq!((text("b").as_deref(), text("c").as_deref()), (Some("1.50"), Some("7")));
        assert_eq!(text("node").as_deref(), Some("1e2"));
        assert_eq!(params.json("b").unwrap(), Some(serde_json::json!(1.5)));
    }

    #[test]
    fn errors_are_reported() {
        let twice = Params::of_query(Some("a=1&a=2")).unwrap_err();
        assert!(twice.message.contains("duplicate parameter `a`"));
        let kind = typed("text/csv");
        assert_eq!(Params::of_body(None, &kind, b"a,b").unwrap_err().status, 415);
        let kind = typed("application/json");
        for body in [&b"[1]"[..], b"{", b"7", b"\xff"] {
            assert_eq!(Params::of_body(None, &kind, body).unwrap_err().status, 400);
        }
        let list = Params::of_body(None, &kind, br#"{"nodes": ["a"]}"#).unwrap();
        assert!(list.text("nodes").is_err());
        assert_eq!(list.json("nodes").unwrap(), Some(serde_json::json!(["a"])));
    }

    #[test]
    fn an_unknown_name_comes_with_the_near_one() {
        let params = Params::of_query(Some("metric=x")).unwrap();
        let http_error = params.only(Operation::GetMetrics, StatusCode::NOT_FOUND).unwrap_err();
        assert_eq!((http_error.status.as_u16(), http_error.code), (404, "PGRST202"));
        assert_eq!(http_error.hint.as_deref(), Some("did you mean `metrics`?"));
        assert!(params.only(Operation::Last, StatusCode::NOT_FOUND).is_ok());
    }

    #[test]
    fn a_limit_is_a_number_from_one_on() {
        let limit = |query| Params::of_query(Some(query)).unwrap().limit(100);
        assert_eq!(limit("limit=1").unwrap(), Some(1));
        assert_eq!((limit("limit=100").unwrap(), limit("a=1").unwrap()), (Some(100), None));
        for query in ["limit=0", "limit=101", "limit=-1", "limit=x", "limit="] {
            let http_error = limit(query).unwrap_err();
            assert_eq!(
                http_error.message, "`limit` must be a whole number from 1 to 100",
                "{query}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_query_panics(query in ".{0,80}") {
            Params::of_query(Some(&query)).ok();
        }
    }
}
