//! Rewrites the times of streamed JSON and CSV as RFC 3339 in UTC: a server writes them in a local time zone.

use crate::output::times::written_time;
use std::io::{self, Write};

/// Maximum length of a time, in bytes.
const TIME_BYTES_MAX: usize = 40;
/// Depth of a row's values in JSON: in a list and an object.
const VALUE_DEPTH: usize = 2;

/// Format of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Csv,
    Json,
}

/// A writer that converts the cells of time columns to UTC. All other bytes are unchanged.
#[derive(Debug)]
pub(crate) struct UtcTimes<'a, W: Write> {
    out: W,
    form: Form,
    /// Positions of the time columns, from 0.
    columns: &'a [usize],
    /// Position of the present cell.
    place: usize,
    /// A text that may still become a time.
    held: Option<Vec<u8>>,
    is_quoted: bool,
    is_escaped: bool,
    /// Whether the next JSON token is a value of an object.
    is_value: bool,
    depth: usize,
}

impl<'a, W: Write> UtcTimes<'a, W> {
    pub(crate) fn csv(out: W, columns: &'a [usize]) -> Self {
        Self::new(out, Form::Csv, columns)
    }

    pub(crate) fn json(out: W, columns: &'a [usize]) -> Self {
        Self::new(out, Form::Json, columns)
    }

    fn new(out: W, form: Form, columns: &'a [usize]) -> Self {
        let (is_quoted, is_escaped, is_value) = (false, false, false);
        let (place, depth) = (0, 0);
        let mut new =
            Self { out, form, columns, place, held: None, is_quoted, is_escaped, is_value, depth };
        if form == Form::Csv {
            new.start_cell();
        }
        new
    }

    fn start_cell(&mut self) {
        self.held = self.columns.contains(&self.place).then(Vec::new);
    }

    /// Writes the held text: a time in UTC, any other text unchanged.
    fn release(&mut self, out: &mut Vec<u8>) {
        let Some(held) = self.held.take() else { return };
        let text = std::str::from_utf8(&held).ok();
        match text.and_then(written_time) {
            Some(at) => out.extend(super::times::utc(at).bytes()),
            None => out.extend(held),
        }
    }

    fn hold(&mut self, byte: u8, out: &mut Vec<u8>) {
        match &mut self.held {
            Some(held) if held.len() < TIME_BYTES_MAX => held.push(byte),
            Some(_) => {
                out.extend(self.held.take().unwrap_or_default());
                out.push(byte);
            }
            None => out.push(byte),
        }
    }

    fn csv_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b'"' => {
                // A quoted field is not a time from the server.
                out.extend(self.held.take().unwrap_or_default());
                self.is_quoted = !self.is_quoted;
                out.push(byte);
            }
            b',' | b'\n' | b'\r' if !self.is_quoted => {
                self.release(out);
                out.push(byte);
                self.place = if byte == b',' { self.place + 1 } else { 0 };
                self.start_cell();
            }
            _ => self.hold(byte, out),
        }
    }

    fn json_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if !self.is_quoted {
            match byte {
                b'"' => {
                    self.is_quoted = true;
                    if self.is_value && self.depth == VALUE_DEPTH {
                        self.start_cell();
                    }
                }
                b'{' | b'[' => {
                    (self.depth, self.is_value) = (self.depth + 1, false);
                    if self.depth == VALUE_DEPTH {
                        self.place = 0;
                    }
                }
                b'}' | b']' => (self.depth, self.is_value) = (self.depth.saturating_sub(1), false),
                b':' => self.is_value = true,
                b',' => {
                    self.is_value = false;
                    self.place += usize::from(self.depth == VALUE_DEPTH);
                }
                _ => {}
            }
            out.push(byte);
        } else if self.is_escaped {
            self.is_escaped = false;
            out.push(byte);
        } else if byte == b'"' {
            self.release(out);
            self.is_quoted = false;
            out.push(byte);
        } else if byte == b'\\' {
            self.is_escaped = true;
            out.extend(self.held.take().unwrap_or_default());
            out.push(byte);
        } else {
            self.hold(byte, out);
        }
    }
}

impl<W: Write> Write for UtcTimes<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = Vec::with_capacity(bytes.len() + TIME_BYTES_MAX);
        for byte in bytes {
            match self.form {
                Form::Csv => self.csv_byte(*byte, &mut out),
                Form::Json => self.json_byte(*byte, &mut out),
            }
        }
        self.out.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        self.release(&mut out);
        self.out.write_all(&out)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text after conversion, written in pieces of one byte and in one piece.
    fn passed(json: bool, columns: &[usize], text: &str) -> String {
        let of = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let mut out = Vec::new();
            let mut times = match json {
                true => UtcTimes::json(&mut out, columns),
                false => UtcTimes::csv(&mut out, columns),
            };
            pieces.for_each(|piece| times.write_all(piece).unwrap());
            times.flush().unwrap();
            String::from_utf8(out).unwrap()
        };
        let whole = of(&mut [text.as_bytes()].into_iter());
        assert_eq!(of(&mut text.as_bytes().chunks(1)), whole);
        whole
    }

    #[test]
    fn time_columns_of_json_are_in_utc() {
        let rows = r#"[{"timestamp":"2026-01-06T14:35:00.25+01:00","device_id":"n\"1","t":null,
            "labels":{"at":"2026-01-06T14:35:00+01:00"},"x":"2026-01-06T14:35:00+01:00"},
            {"timestamp":"2026-01-06T08:35:00-05:00","a,b":1,"c":"2026-01-06T08:35:00-05:00"}]"#;
        let want = rows
            .replacen("2026-01-06T14:35:00.25+01:00", "2026-01-06T13:35:00.25Z", 1)
            .replace("2026-01-06T08:35:00-05:00", "2026-01-06T13:35:00Z");
        assert_eq!(passed(true, &[0, 2, 3], rows), want);
        assert_eq!(passed(true, &[], rows), rows);
        assert_eq!(passed(true, &[0], "[]"), "[]");
    }

    #[test]
    fn time_columns_of_csv_are_in_utc_and_nothing_else_changes() {
        let rows = "t,a\n2026-01-06T19:05:00+05:30,\"x,\"\"y\"\n\n\"\"\n2026-01-06,1\n\
                    2026-01-06T13:35:00+00:00,2026-01-06T13:35:00+00:00";
        let want = rows.replacen("2026-01-06T19:05:00+05:30", "2026-01-06T13:35:00Z", 1);
        let want = want.replacen("2026-01-06T13:35:00+00:00", "2026-01-06T13:35:00Z", 1);
        assert_eq!(passed(false, &[0], rows), want);
        assert_eq!(passed(false, &[], rows), rows);
    }
}
