//! Which rows of a result a request wants: `limit`, `offset`, the header Range, and the preference `count`.

use super::cursor::Cursor;
use crate::common::http_error::{HttpError, Why};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// The unit of a Range header, apart from the header itself.
const RANGE_UNIT: HeaderName = HeaderName::from_static("range-unit");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Preferences that PostgREST has, by name.
const PREFERENCES: [&str; 8] =
    ["count", "params", "return", "handling", "missing", "resolution", "timezone", "tx"];

/// The rows of a result that a request wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    /// Whether the response states how many rows there are without the window.
    pub(crate) counts: bool,
}

impl Window {
    /// Reads the window of a request.
    ///
    /// # Errors
    /// A number, the range or a preference cannot be parsed.
    pub(crate) fn of(pairs: &[(String, String)], headers: &HeaderMap) -> Result<Self, HttpError> {
        let given = |wanted: &'static str| {
            let found = pairs.iter().find(|(name, _)| name == wanted);
            found.map(|(_, text)| number(wanted, text)).transpose()
        };
        let mut window =
            Self { offset: given("offset")?.unwrap_or(0), limit: given("limit")?, counts: false };
        if let Some((first, last)) = range(headers)? {
            window.offset = window.offset.saturating_add(first);
            let rows = last.map(|last| last.saturating_sub(first).saturating_add(1));
            window.limit = [window.limit, rows].into_iter().flatten().min();
        }
        window.counts = counts(headers)?;
        Ok(window)
    }

    /// Whether the result may be a part of the rows.
    pub(crate) const fn is_part(&self) -> bool {
        self.limit.is_some() || self.offset > 0
    }

    /// The number of rows of the window if there are this many rows in all.
    ///
    /// # Errors
    /// It begins after the last row.
    pub(crate) fn rows_of(&self, total: u64) -> Result<u64, HttpError> {
        let Some(left) = total.checked_sub(self.offset) else {
            let offset = self.offset;
            let why =
                format!("An offset of {offset} was requested, but there are only {total} rows.");
            return Err(out_of_range(why));
        };
        Ok(self.limit.map_or(left, |limit| limit.min(left)))
    }

    /// The status and headers for this many rows, of this many in all.
    pub(crate) fn state(
        &self,
        rows: u64,
        total: Option<u64>,
    ) -> (StatusCode, Vec<(HeaderName, HeaderValue)>) {
        let whole = total.map_or_else(|| "*".to_owned(), |total| total.to_string());
        let text = match rows.checked_sub(1) {
            Some(more) => format!("{}-{}/{whole}", self.offset, self.offset.saturating_add(more)),
            None => format!("*/{whole}"),
        };
        let mut headers = Vec::new();
        headers.extend(HeaderValue::try_from(text).ok().map(|text| (header::CONTENT_RANGE, text)));
        if self.counts {
            headers.push((PREFERENCE_APPLIED, HeaderValue::from_static("count=exact")));
        }
        let is_part = total.is_some_and(|total| rows < total);
        (if is_part { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }, headers)
    }
}

fn number(name: &'static str, text: &str) -> Result<u64, HttpError> {
    let number = text.parse::<i64>();
    if number.as_ref().is_ok_and(|number| *number < 0) {
        let word = if name == "limit" { "Limit" } else { "Offset" };
        return Err(out_of_range(format!("{word} should be greater than or equal to zero.")));
    }
    let number = number.ok().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| Cursor::new(name, text).expected("a whole number of rows"))
}

/// PostgREST's error for a window that no rows can have.
fn out_of_range(details: impl Into<String>) -> HttpError {
    let message = "Requested range not satisfiable";
    let status = StatusCode::RANGE_NOT_SATISFIABLE;
    let error = HttpError::new(status, "PGRST103", Why::Malformed, message);
    HttpError { details: Some(details.into()), ..error }
}

/// The first and last row of `Range: 0-9`, `items=0-9` or `0-`. A range of bytes, or of another unit, is not meant.
fn range(headers: &HeaderMap) -> Result<Option<(u64, Option<u64>)>, HttpError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let Some(range) = text(header::RANGE) else { return Ok(None) };
    let (unit, range) = range.split_once('=').unwrap_or(("items", range));
    if unit != "items" || text(RANGE_UNIT).is_some_and(|unit| unit != "items") {
        return Ok(None);
    }
    let unreadable = || out_of_range("The header Range has the form `0-9` or `10-`.");
    let (first, last) = range.split_once('-').ok_or_else(unreadable)?;
    let first = first.parse::<u64>().map_err(|_| unreadable())?;
    let last = Some(last).filter(|last| !last.is_empty());
    let last = last.map(|last| last.parse::<u64>().map_err(|_| unreadable())).transpose()?;
    if last.is_some_and(|last| last < first) {
        let why = "The lower boundary must be lower than or equal to the upper boundary in the Range header.";
        return Err(out_of_range(why));
    }
    Ok(Some((first, last)))
}

/// Whether the header Prefer requests the number of rows. Planned and estimated numbers are the exact one here.
fn counts(headers: &HeaderMap) -> Result<bool, HttpError> {
    let lines = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let given: Vec<(&str, &str)> = lines
        .flat_map(|line| line.split(','))
        .filter_map(|preference| preference.trim().split_once('='))
        .collect();
    let unknown = given.iter().find(|(name, _)| !PREFERENCES.contains(name));
    if let Some((name, value)) = unknown.filter(|_| given.contains(&("handling", "strict"))) {
        let message = "Invalid preferences given with handling=strict";
        let mut error =
            HttpError::new(StatusCode::BAD_REQUEST, "PGRST122", Why::Malformed, message);
        error.details = Some(format!("Invalid preferences: {name}={value}"));
        return Err(error);
    }
    let is_count = |(name, value): &(&str, &str)| {
        *name == "count" && matches!(*value, "exact" | "planned" | "estimated")
    };
    Ok(given.iter().any(is_count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(query: &str, headers: &[(HeaderName, &'static str)]) -> Result<Window, HttpError> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let value = |(name, value): &(HeaderName, &'static str)| {
            (name.clone(), HeaderValue::from_static(value))
        };
        Window::of(&pairs, &headers.iter().map(value).collect())
    }

    #[test]
    fn windows_are_read() {
        let of = |offset, limit, counts| Window { offset, limit, counts };
        let range = |text| (header::RANGE, text);
        for (query, headers, want) in [
            ("", &[][..], of(0, None, false)),
            ("limit=5&offset=2", &[], of(2, Some(5), false)),
            ("limit=0", &[], of(0, Some(0), false)),
            ("", &[range("0-9")], of(0, Some(10), false)),
            ("limit=3", &[range("10-")], of(10, Some(3), false)),
            ("", &[range("items=1-1"), (PREFER, "count=exact")], of(1, Some(1), true)),
            (
                "",
                &[range("bytes=0-9"), (PREFER, "return=minimal, count=planned")],
                of(0, None, true),
            ),
            ("", &[(PREFER, "x=y, count=most")], of(0, None, false)),
        ] {
            assert_eq!(window(query, headers).unwrap(), want, "{query} {headers:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_window_is_an_error() {
        let range = |text| (header::RANGE, text);
        for (query, headers, code) in [
            ("limit=-1", &[][..], "PGRST103"),
            ("offset=-1", &[], "PGRST103"),
            ("offset=x", &[], "PGRST100"),
            ("limit=18446744073709551615", &[], "PGRST100"),
            ("", &[range("9-0")], "PGRST103"),
            ("", &[range("a-b")], "PGRST103"),
            ("", &[range("items=5")], "PGRST103"),
            ("", &[(PREFER, "handling=strict, x=y")], "PGRST122"),
        ] {
            assert_eq!(window(query, headers).unwrap_err().code, code, "{query} {headers:?}");
        }
    }

    #[test]
    fn a_response_states_its_part() {
        let window = Window { offset: 10, limit: Some(5), counts: true };
        let state = |rows, total| {
            let (status, headers) = window.state(rows, total);
            (status.as_u16(), headers[0].1.to_str().unwrap().to_owned())
        };
        assert_eq!(state(5, Some(40)), (206, "10-14/40".to_owned()));
        assert_eq!(state(2, None), (200, "10-11/*".to_owned()));
        assert_eq!(state(0, Some(10)), (206, "*/10".to_owned()));
        assert_eq!((window.rows_of(40).unwrap(), window.rows_of(12).unwrap()), (5, 2));
        assert_eq!(window.rows_of(10).unwrap(), 0);
        assert_eq!(window.rows_of(9).unwrap_err().status, 416);
    }
}
