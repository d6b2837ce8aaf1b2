//! Makes untrusted text safe for terminals: names, helps, labels and details come from users, nodes and
//! schedulers.
//!
//! A control character can move the cursor, change the title or type an answer. A direction character can
//! reorder the shown text. Each appears as an escape such as `\u001b`, which JSON parses as the character
//! itself.

use model::is_unprintable;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

/// Writes a message to standard error, made safe for terminals. The command writes all its messages with this
/// function.
pub(crate) fn note(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "jobmeter: {}", plain_lines(text))
}

/// Whether an output was closed at program start. In this case it is `/dev/null`, which the standard library
/// opened for reading and writing.
pub(crate) fn is_closed(output: BorrowedFd<'_>) -> bool {
    let of =
        |stat: &rustix::fs::Stat| (stat.st_rdev, rustix::fs::FileType::from_raw_mode(stat.st_mode));
    let null = rustix::fs::stat("/dev/null").ok();
    let own = rustix::fs::fstat(output).ok();
    let flags = rustix::fs::fcntl_getfl(output).ok();
    let is_null = own.zip(null).is_some_and(|(own, null)| of(&own) == of(&null));
    own.is_none() || is_null && flags.is_none_or(|flags| flags.contains(rustix::fs::OFlags::RDWR))
}

/// Makes a value safe for one line of a terminal.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    made_plain(text, |_| false)
}

/// Makes several lines safe for a terminal.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    made_plain(text, |c| matches!(c, '\n' | '\t'))
}

fn made_plain(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |c: char| is_unprintable(c) && !keep(c);
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if bad(c) {
            // Writing to a string cannot fail.
            write!(out, "\\u{:04x}", u32::from(c)).ok();
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Most characters of a word of a message.
const WORD_MAX: usize = 200;

/// Cuts long words of a message, which repeats arguments of any length.
pub(crate) fn short_words(text: &str) -> String {
    let word = |word: &str| match word.char_indices().nth(WORD_MAX) {
        Some((place, _)) => {
            let end = if word.ends_with('\n') { "…\n" } else { "… " };
            format!("{}{end}", word.get(..place).unwrap_or_default())
        }
        None => word.to_owned(),
    };
    text.split_inclusive(char::is_whitespace).map(word).collect()
}

/// Rewrites JSON so that every parsed string is [`plain`].
pub(crate) fn plain_json(json: &str) -> Cow<'_, str> {
    if !json.contains(|c| c == '\\' || is_unprintable(c)) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    let mut rest = json;
    while let Some(place) = rest.find('\\') {
        let (before, escape) = rest.split_at(place);
        raw(before, &mut out);
        rest = escaped(escape, &mut out);
    }
    raw(rest, &mut out);
    Cow::Owned(out)
}

/// Appends a part of JSON without escapes. Control characters there are in strings, except for whitespace
/// between values.
fn raw(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(c),
            _ if is_unprintable(c) => {
                write!(out, "\\\\u{:04x}", u32::from(c)).ok();
            }
            _ => out.push(c),
        }
    }
}

/// Appends the escape at the start of a text; returns the rest of the text.
fn escaped<'a>(text: &'a str, out: &mut String) -> &'a str {
    let length = if text.starts_with("\\u") { 6 } else { 2 };
    let Some((escape, rest)) = text.split_at_checked(length) else {
        // Invalid JSON: its parser reports the error.
        out.push_str(text);
        return "";
    };
    let code = match escape {
        "\\n" => Some(0x0a),
        "\\r" => Some(0x0d),
        "\\t" => Some(0x09),
        "\\b" => Some(0x08),
        "\\f" => Some(0x0c),
        _ => escape.strip_prefix("\\u").and_then(|digits| u32::from_str_radix(digits, 16).ok()),
    };
    match code.and_then(char::from_u32).filter(|c| is_unprintable(*c)) {
        Some(c) => {
            write!(out, "\\\\u{:04x}", u32::from(c)).ok();
        }
        None => out.push_str(escape),
    }
    rest
}

/// A writer that makes several lines safe for a terminal. In JSON, all values remain the same.
pub(crate) struct Plain<W> {
    out: W,
    /// The start of an incomplete character.
    part: Vec<u8>,
}

impl<W: Write> Plain<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self { out, part: Vec::new() }
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = std::mem::take(&mut self.part);
        all.extend_from_slice(bytes);
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.out.write_all(plain_lines(chunk.valid()).as_bytes())?;
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_begun(invalid) {
                self.part = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.out.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Whether bytes are the start of an incomplete character.
fn is_begun(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_arguments_are_cut() {
        let long = "x".repeat(5000);
        let text =
            short_words(&format!("unexpected argument '--{long}' found\n\n  tip: {long}\nend\n"));
        assert!(text.len() < 600 && text.ends_with("x…\nend\n"), "{text}");
        assert!(text.contains("x… found\n\n  tip: "), "{text}");
        assert_eq!(short_words("a  b\n"), "a  b\n");
    }

    const HOSTILE: &str = "a\x1b]0;x\x07\r\u{9b}2J\u{202e}b\n\u{7f}\u{2066}\u{200b}é";

    #[test]
    fn what_acts_on_a_terminal_is_shown() {
        let shown = "a\\u001b]0;x\\u0007\\u000d\\u009b2J\\u202eb\\u000a\\u007f\\u2066\\u200bé";
        assert_eq!(plain(HOSTILE), shown);
        assert_eq!(plain_lines(HOSTILE), shown.replace("\\u000a", "\n"));
        assert!(matches!(plain("an ordinary é"), Cow::Borrowed(_)));
        let mut out = Vec::new();
        let mut writer = Plain::new(&mut out);
        // A character may arrive in two pieces.
        for byte in HOSTILE.as_bytes() {
            writer.write_all(&[*byte]).unwrap();
        }
        assert_eq!(String::from_utf8(out).unwrap(), plain_lines(HOSTILE));
        let mut out = Vec::new();
        Plain::new(&mut out).write_all(b"a\x9b2Jb").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\u{fffd}2Jb");
    }

    #[test]
    fn json_is_read_as_plain_text_or_as_it_was() {
        let body = serde_json::json!({ "name": HOSTILE, "quote": "\"\\\\n", "n": [1, null] });
        for body in [body.to_string(), serde_json::to_string_pretty(&body).unwrap()] {
            let read: serde_json::Value = serde_json::from_str(&plain_json(&body)).unwrap();
            assert_eq!(read["name"], *plain(HOSTILE));
            assert_eq!(
                (&read["quote"], &read["n"]),
                (&"\"\\\\n".into(), &serde_json::json!([1, null]))
            );
            let mut out = Vec::new();
            Plain::new(&mut out).write_all(body.as_bytes()).unwrap();
            let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(read["name"], HOSTILE);
        }
    }

    proptest! {
        #[test]
        fn any_value_of_json(text: String) {
            let body = serde_json::json!({ "a": text }).to_string();
            let read: serde_json::Value = serde_json::from_str(&plain_json(&body)).unwrap();
            prop_assert_eq!(&read["a"], &*plain(&text));
            prop_assert!(!plain(&text).contains(is_unprintable));
        }

        #[test]
        fn any_text(text: String) {
            plain_json(&text);
        }
    }
}
