//! What browser pages of other origins may read: CORS, for the origins of the setting `access.origins`.
//!
//! A browser lets a page read an answer only if the answer names the page's origin. The server names only origins of
//! the setting, exactly as they are, and only for requests that change nothing. The answers permit no credentials
//! (cookies, saved passwords, certificates): a page sends a token, or reads as an unauthenticated client.

use api::{Method as ApiMethod, Operation};
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use config::PageOrigin;

/// Headers that a page may send.
const REQUEST_HEADERS: HeaderValue =
    HeaderValue::from_static("Authorization, Content-Type, Accept, Prefer, Range, Range-Unit");
/// Headers of an answer that a page may read.
const ANSWER_HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Range, Preference-Applied, Retry-After, X-Jobmeter-Time-Columns, X-Jobmeter-Warning",
);
/// How long a browser remembers the permission to send a request, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// A request of a page of one of the setting's origins that only reads, or a browser's question whether such a page
/// may send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    origin: HeaderValue,
    /// Methods that the page may use, if the browser asks before it sends the page's request.
    preflight: Option<HeaderValue>,
}

/// The request of a page, if the setting names its origin and the request only reads.
pub(crate) fn of_page(origins: &[PageOrigin], request: &Request) -> Option<PageRequest> {
    let origin = only(request.headers(), &header::ORIGIN)?;
    let is_named = |named: &PageOrigin| named.as_str().as_bytes() == origin.as_bytes();
    if !origins.iter().any(is_named) {
        return None;
    }
    let path = request.uri().path();
    let planned = planned_method(request);
    let method = planned.as_ref().unwrap_or(request.method());
    if !only_reads(method, path) {
        return None;
    }
    let methods = || match only_reads(&Method::POST, path) {
        true => HeaderValue::from_static("GET, HEAD, POST"),
        false => HeaderValue::from_static("GET, HEAD"),
    };
    Some(PageRequest { origin: origin.clone(), preflight: planned.is_some().then(methods) })
}

/// The method that a browser asks for in a preflight.
pub(crate) fn planned_method(request: &Request) -> Option<Method> {
    if request.method() != Method::OPTIONS {
        return None;
    }
    let method = only(request.headers(), &header::ACCESS_CONTROL_REQUEST_METHOD)?;
    Method::from_bytes(method.as_bytes()).ok()
}

/// The value of a header that a request has once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Whether requests with this method change nothing there.
fn only_reads(method: &Method, path: &str) -> bool {
    let is_query = |operation: &Operation| {
        operation.path() == path && operation.method() == ApiMethod::Post && operation.only_reads()
    };
    match *method {
        Method::GET | Method::HEAD => true,
        Method::POST => Operation::ALL.iter().any(is_query),
        _ => false,
    }
}

impl PageRequest {
    /// The answer to a browser that asks before it sends the page's request.
    pub(crate) fn preflight(&self) -> Option<Response> {
        let methods = self.preflight.clone()?;
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(response)
    }

    /// Lets the page read an answer.
    pub(crate) fn permit(self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ANSWER_HEADERS);
    }
}
