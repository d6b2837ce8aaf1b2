//! The files of `ui/`, compiled in: `/` is `index.html`, every other file is under `/ui/`.

use crate::common::http_error::HttpError;
use crate::http::params::part;
use crate::web::openapi;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The files, by path under `ui/`. `build.rs` generates the list.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// A file, with the headers of its response.
#[derive(Debug)]
struct Page {
    bytes: &'static [u8],
    content_type: &'static str,
    etag: HeaderValue,
}

fn pages() -> &'static BTreeMap<&'static str, Page> {
    static PAGES: OnceLock<BTreeMap<&'static str, Page>> = OnceLock::new();
    PAGES.get_or_init(|| FILES.iter().map(|(path, bytes)| (*path, page(path, bytes))).collect())
}

fn page(path: &str, bytes: &'static [u8]) -> Page {
    let hash = digest(&SHA256, bytes);
    let first = hash.as_ref().iter().take(12);
    let hex: String = first.map(|byte| format!("{byte:02x}")).collect();
    let etag = HeaderValue::from_str(&format!("\"{hex}\""));
    let etag = etag.unwrap_or_else(|_| HeaderValue::from_static("\"\""));
    Page { bytes, content_type: content_type(path), etag }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    }
}

/// `/`: the page, or the OpenAPI document for programs that accept JSON, as PostgREST has it there.
pub(crate) async fn index(query: RawQuery, headers: HeaderMap) -> Result<Response, HttpError> {
    let mut response = match wants_document(&headers) {
        true => openapi::document(query).await?,
        false => serve("index.html", &headers)?,
    };
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Whether a JSON type is the first one that the server has here.
fn wants_document(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accepted
        .flat_map(|value| value.split(','))
        .map(|item| item.split(';').next().unwrap_or(item).trim());
    let known = ["text/html", "text/*", "*/*", "application/json", "application/openapi+json"];
    types.find(|item| known.contains(item)).is_some_and(|item| item.starts_with("application/"))
}

/// `/ui/PATH`.
pub(crate) async fn file(
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    serve(&part(path)?, &headers)
}

fn serve(path: &str, headers: &HeaderMap) -> Result<Response, HttpError> {
    let Some(page) = pages().get(path) else {
        let shown: String = path.chars().take(100).collect();
        let meant = config::nearest(&shown, pages().keys().copied());
        let hint = meant.map(|near| format!("did you mean `/ui/{near}`?"));
        return Err(HttpError::not_found(format!("there is no page `{shown}`")).hint(hint));
    };
    let known = |tags: &HeaderValue| {
        let tags = tags.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii);
        tags.map(|tag| tag.strip_prefix(b"W/").unwrap_or(tag))
            .any(|tag| tag == page.etag.as_bytes())
    };
    let unchanged = headers.get_all(IF_NONE_MATCH).iter().any(known);
    let mut response = if unchanged {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        page.bytes.into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    headers.insert(ETAG, page.etag.clone());
    // The browser revalidates each time and gets 304: after an upgrade the new pages show at once.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_accept_json_get_the_document() {
        for (accept, want) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
            ("*/*", false),
            ("application/json", true),
            ("application/openapi+json;version=3, */*", true),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(wants_document(&headers), want, "{accept}");
        }
        assert!(!wants_document(&HeaderMap::new()));
    }

    #[test]
    fn the_first_page_and_what_it_needs_are_there() {
        let index = serve("index.html", &HeaderMap::new()).unwrap();
        assert_eq!(index.status(), 200);
        assert_eq!(index.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        let html = std::str::from_utf8(pages()["index.html"].bytes).unwrap();
        let wanted = html.split("\"ui/").skip(1).map(|rest| rest.split('"').next().unwrap());
        let mut scripts = 0;
        for path in wanted {
            let page = serve(path, &HeaderMap::new()).unwrap_or_else(|e| panic!("{path}: {e:?}"));
            assert_ne!(page.headers()[CONTENT_TYPE], "text/plain; charset=utf-8", "{path}");
            scripts += usize::from(path.ends_with(".js"));
        }
        assert!(scripts > 0, "the page is drawn by script");
    }

    #[test]
    fn a_page_that_did_not_change_is_not_sent_again() {
        let tag = pages()["index.html"].etag.clone();
        for (tags, status) in [
            (tag.to_str().unwrap().to_owned(), 304),
            (format!("\"x\", W/{}", tag.to_str().unwrap()), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let headers = HeaderMap::from_iter([(IF_NONE_MATCH, tags.parse().unwrap())]);
            assert_eq!(serve("index.html", &headers).unwrap().status(), status, "{tags}");
        }
    }

    #[test]
    fn nothing_outside_the_list_is_served() {
        for path in ["", "../Cargo.toml", "/etc/passwd", "index.html/", "Index.html"] {
            let http_error = serve(path, &HeaderMap::new()).unwrap_err();
            assert_eq!(http_error.status, 404, "{path}");
        }
    }
}
