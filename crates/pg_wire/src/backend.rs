//! Messages of the server.

use crate::oid;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// ID of its type.
    pub oid: u32,
    /// Whether its values are binary.
    pub binary: bool,
}

impl Column {
    /// A column of texts.
    pub fn text(name: &str) -> Self {
        Self { name: name.to_owned(), oid: oid::TEXT, binary: false }
    }
}

/// State of a session's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Outside of a transaction.
    Idle,
    /// In a transaction.
    Open,
    /// In a transaction that failed.
    Failed,
}

/// An error or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `ERROR`, `FATAL`, `NOTICE` or `WARNING`.
    pub severity: &'static str,
    /// PostgreSQL's code.
    pub code: &'static str,
    /// What happened, and what to do.
    pub message: String,
    /// Further details.
    pub detail: Option<String>,
    /// Advice.
    pub hint: Option<String>,
    /// Position in the statement, in characters from 1.
    pub position: Option<usize>,
}

impl Report {
    /// An error that ends a statement.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        let (message, severity) = (message.into(), "ERROR");
        Self { severity, code, message, detail: None, hint: None, position: None }
    }

    /// An error that ends the session.
    pub fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: "FATAL", ..Self::error(code, message) }
    }

    /// The error with a position: a byte of the text.
    #[must_use]
    pub fn at(mut self, text: &str, byte: usize) -> Self {
        self.position = Some(characters(text, byte).saturating_add(1));
        self
    }
}

/// Number of characters of a text before a byte.
pub fn characters(text: &str, byte: usize) -> usize {
    text.char_indices().take_while(|(at, _)| *at < byte).count()
}

/// Messages to a client, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages(pub Vec<u8>);

impl Messages {
    /// Appends a message of a kind.
    pub fn put(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.0.push(kind);
        sized(&mut self.0, fill);
    }

    /// The authentication succeeded.
    pub fn authenticated(&mut self) {
        self.put(b'R', |to| to.extend(0_u32.to_be_bytes()));
    }

    /// A request for a password as it is.
    pub fn password_request(&mut self) {
        self.put(b'R', |to| to.extend(3_u32.to_be_bytes()));
    }

    /// The supported minor version, and parameters of the protocol that are unknown.
    pub fn negotiate(&mut self, unknown: &[&str]) {
        self.put(b'v', |to| {
            to.extend(0_u32.to_be_bytes());
            to.extend(u32::try_from(unknown.len()).unwrap_or(0).to_be_bytes());
            unknown.iter().for_each(|name| text(to, name));
        });
    }

    /// The value of a parameter.
    pub fn parameter(&mut self, name: &str, value: &str) {
        self.put(b'S', |to| {
            text(to, name);
            text(to, value);
        });
    }

    /// The key that cancels the session's statements.
    pub fn cancel_key(&mut self, session: u32, secret: &[u8]) {
        self.put(b'K', |to| {
            to.extend(session.to_be_bytes());
            to.extend_from_slice(secret);
        });
    }

    /// The server is ready for the next query.
    pub fn ready(&mut self, state: State) {
        let state = match state {
            State::Idle => b'I',
            State::Open => b'T',
            State::Failed => b'E',
        };
        self.put(b'Z', |to| to.push(state));
    }

    /// An error or a notice.
    pub fn report(&mut self, report: &Report) {
        let kind = if matches!(report.severity, "ERROR" | "FATAL") { b'E' } else { b'N' };
        self.put(kind, |to| {
            let position = report.position.map(|at| at.to_string());
            for (field, value) in [
                (b'S', Some(report.severity)),
                (b'V', Some(report.severity)),
                (b'C', Some(report.code)),
                (b'M', Some(&*report.message)),
                (b'D', report.detail.as_deref()),
                (b'H', report.hint.as_deref()),
                (b'P', position.as_deref()),
            ] {
                if let Some(value) = value {
                    to.push(field);
                    text(to, value);
                }
            }
            to.push(0);
        });
    }

    /// The columns of a result.
    pub fn columns(&mut self, columns: &[Column]) {
        self.put(b'T', |to| {
            to.extend(u16::try_from(columns.len()).unwrap_or(u16::MAX).to_be_bytes());
            for Column { name, oid, binary } in columns {
                text(to, name);
                to.extend([0; 6]);
                to.extend(oid.to_be_bytes());
                to.extend(oid::size(*oid).to_be_bytes());
                to.extend((-1_i32).to_be_bytes());
                to.extend(u16::from(*binary).to_be_bytes());
            }
        });
    }

    /// Types of a statement's parameters.
    pub fn parameters(&mut self, types: &[u32]) {
        self.put(b't', |to| {
            to.extend(u16::try_from(types.len()).unwrap_or(u16::MAX).to_be_bytes());
            types.iter().for_each(|oid| to.extend(oid.to_be_bytes()));
        });
    }

    /// A row of texts.
    pub fn row(&mut self, values: &[Option<&str>]) {
        self.put(b'D', |to| {
            to.extend(u16::try_from(values.len()).unwrap_or(u16::MAX).to_be_bytes());
            for value in values {
                match value {
                    None => to.extend((-1_i32).to_be_bytes()),
                    Some(value) => value_of(to, |to| to.extend_from_slice(value.as_bytes())),
                }
            }
        });
    }

    /// A statement ended, with its tag such as `SELECT 3`.
    pub fn complete(&mut self, tag: &str) {
        self.put(b'C', |to| text(to, tag));
    }

    /// The start of COPY: `b'G'` to the server, `b'H'` to the client.
    pub fn copy(&mut self, kind: u8, binary: bool, columns: usize) {
        self.put(kind, |to| {
            to.push(u8::from(binary));
            let columns = u16::try_from(columns).unwrap_or(u16::MAX);
            to.extend(columns.to_be_bytes());
            (0..columns).for_each(|_| to.extend(u16::from(binary).to_be_bytes()));
        });
    }

    /// A message without content.
    pub fn empty(&mut self, kind: u8) {
        self.put(kind, |_| ());
    }
}

/// Message kinds without content.
pub const PARSED: u8 = b'1';
/// Values are bound.
pub const BOUND: u8 = b'2';
/// A statement or portal is closed.
pub const CLOSED: u8 = b'3';
/// The query is empty.
pub const EMPTY_QUERY: u8 = b'I';
/// The statement has no result columns.
pub const NO_COLUMNS: u8 = b'n';
/// The portal has more rows.
pub const SUSPENDED: u8 = b's';
/// COPY to the client has ended.
pub const COPY_DONE: u8 = b'c';

/// Appends a value with its length, in bytes.
pub fn value_of(to: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = to.len();
    to.extend([0; 4]);
    fill(to);
    let length = to.len().saturating_sub(at).saturating_sub(4);
    put_length(to, at, length);
}

/// Appends a length that counts itself, and what it counts.
fn sized(to: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = to.len();
    to.extend([0; 4]);
    fill(to);
    let length = to.len().saturating_sub(at);
    put_length(to, at, length);
}

fn put_length(to: &mut [u8], at: usize, length: usize) {
    let length = i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes();
    if let Some(place) = to.get_mut(at..at.saturating_add(4)) {
        place.copy_from_slice(&length);
    }
}

/// Appends a text with its end. A NUL would end it earlier.
fn text(to: &mut Vec<u8>, text: &str) {
    to.extend(text.bytes().map(|byte| if byte == 0 { b' ' } else { byte }));
    to.push(0);
}

/// Length of the first message of these bytes with its kind, if it is complete.
pub fn first_message(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..5)?.try_into().ok().map(u32::from_be_bytes)?;
    let length = usize::try_from(length).ok()?.checked_add(1)?;
    (length >= 5 && bytes.len() >= length).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_length() {
        let mut messages = Messages::default();
        messages.complete("SELECT 1");
        assert_eq!(messages.0, b"C\0\0\0\x0dSELECT 1\0");
        assert_eq!(first_message(&messages.0), Some(14));
        assert_eq!(first_message(&messages.0[..13]), None);
        let mut messages = Messages::default();
        messages.row(&[Some("a"), None]);
        assert_eq!(messages.0, b"D\0\0\0\x0f\0\x02\0\0\0\x01a\xff\xff\xff\xff");
        let mut messages = Messages::default();
        messages.report(&Report::error("42601", "bad\0").at("é x", 3));
        let text = String::from_utf8_lossy(&messages.0).into_owned();
        assert!(text.contains("C42601\0Mbad \0P3\0\0"), "{text}");
    }
}
