//! Reads a text of PostgREST's grammar, and says where it does not follow it.

use crate::common::http_error::{HttpError, Why};
use axum::http::StatusCode;

/// Most characters of a text that an error repeats.
const SHOWN_CHARS_MAX: usize = 200;

/// A text, and how far it has been read.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    /// What the text is: `filter`, `logic tree`, `select parameter`, `order`.
    what: &'static str,
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(what: &'static str, text: &'a str) -> Self {
        Self { what, text, at: 0 }
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.rest().is_empty()
    }

    /// Skips a text if it comes next.
    pub(crate) fn skip(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    /// Reads up to the first of these characters, or to the end.
    pub(crate) fn until(&mut self, ends: &[char]) -> &'a str {
        let rest = self.rest();
        let read = rest.get(..rest.find(ends).unwrap_or(rest.len())).unwrap_or_default();
        self.at += read.len();
        read
    }

    /// Reads `"a name"`, with `\"` and `\\` in it; none if no quote comes next.
    pub(crate) fn quoted(&mut self) -> Result<Option<String>, HttpError> {
        let begin = self.clone();
        if !self.skip("\"") {
            return Ok(None);
        }
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, next)) = chars.next() {
            match next {
                '"' => {
                    self.at += at + 1;
                    return Ok(Some(text));
                }
                '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
                other => text.push(other),
            }
        }
        Err(begin.expected("a closing quote"))
    }

    /// The error that something else was expected here.
    pub(crate) fn expected(&self, what: &str) -> HttpError {
        let shown: String = self.text.chars().take(SHOWN_CHARS_MAX).collect();
        let column = self.text.get(..self.at).unwrap_or_default().chars().count() + 1;
        let message =
            format!("\"failed to parse {} ({shown})\" (line 1, column {column})", self.what);
        let found = self.rest().chars().next();
        let found = found.map_or_else(|| "end of input".to_owned(), |c| format!("{c:?}"));
        let mut error =
            HttpError::new(StatusCode::BAD_REQUEST, "PGRST100", Why::Malformed, message);
        error.details = Some(format!("unexpected {found} expecting {what}"));
        error
    }
}
