//! JSON as PostgreSQL prints it for `jsonb` (PostgreSQL 15, `jsonb.c` and `numeric.c`): keys ordered by length, then by
//! bytes; of equal keys the last; one blank after `:` and `,`; numbers without an exponent and with all their digits.

use super::LABELS_BYTES_MAX;

/// Nested lists and objects.
const DEPTH_MAX: usize = 64;

/// Keys with the canonical texts of their values.
pub(super) type Members = Vec<(String, String)>;

/// The text that PostgreSQL prints for a JSON text. PostgreSQL rejects U+0000, which labels of agents may contain
/// as `\u0000`.
///
/// # Errors
/// Why PostgreSQL rejects it, or a limit.
pub(super) fn canonical(text: &str) -> Result<String, &'static str> {
    let mut reader = Reader::new(text);
    let mut out = String::with_capacity(text.len() + 8);
    reader.value(&mut out)?;
    reader.skip_blanks();
    match reader.rest {
        "" => Ok(out),
        _ => Err("a text follows the JSON value"),
    }
}

/// Keys and values of an object's canonical text; `None` if it is no object.
pub(super) fn members(object: &str) -> Option<Vec<(String, &str)>> {
    let mut rest = object.strip_prefix('{')?;
    let mut members = Vec::new();
    if rest == "}" {
        return Some(members);
    }
    loop {
        let mut reader = Reader::new(rest);
        let key = reader.text().ok()?;
        let (value, tail) = split_value(reader.rest.strip_prefix(": ")?)?;
        members.push((key, value));
        match tail.strip_prefix(", ") {
            Some(tail) => rest = tail,
            None => return (tail == "}").then_some(members),
        }
    }
}

/// The object's text of members in any order, each with the canonical text of its value.
pub(super) fn object<V: AsRef<str>>(mut members: Vec<(String, V)>, out: &mut String) {
    members.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    out.push('{');
    let mut is_first = true;
    for (place, (key, value)) in members.iter().enumerate() {
        // The order of equal keys is that of the text.
        if members.get(place + 1).is_some_and(|(next, _)| next == key) {
            continue;
        }
        out.push_str(if is_first { "" } else { ", " });
        is_first = false;
        quote(key, out);
        out.push_str(": ");
        out.push_str(value.as_ref());
    }
    out.push('}');
}

/// The text of a canonical value, as `->>` gives it: that of a text without its quotes, and none of null.
pub(super) fn text_of(value: &str) -> Option<String> {
    match value {
        "null" => None,
        text if text.starts_with('"') => Reader::new(text).text().ok(),
        other => Some(other.to_owned()),
    }
}

/// Writes a JSON string like PostgreSQL: short escapes where JSON has them, `\u00xx` for other control
/// characters, everything else unchanged.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Splits a canonical value from what follows it.
fn split_value(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for (place, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '[' | '{' => depth += 1,
            ']' | '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => return text.split_at_checked(place),
            _ => {}
        }
    }
    None
}

#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: text, depth: 0 }
    }

    pub(super) fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    pub(super) fn take(&mut self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word);
        rest.inspect(|rest| self.rest = rest).is_some()
    }

    fn value(&mut self, out: &mut String) -> Result<(), &'static str> {
        self.skip_blanks();
        if out.len() > LABELS_BYTES_MAX {
            return Err("the text is too long");
        }
        if self.take("{") {
            return self.nested(|reader| reader.object(out));
        }
        if self.take("[") {
            return self.nested(|reader| reader.list(out));
        }
        if self.rest.starts_with('"') {
            quote(&self.text()?, out);
            return Ok(());
        }
        for word in ["true", "false", "null"] {
            if self.take(word) {
                out.push_str(word);
                return Ok(());
            }
        }
        self.number(out)
    }

    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, &'static str>,
    ) -> Result<T, &'static str> {
        if self.depth == DEPTH_MAX {
            return Err("more than 64 nested lists and objects");
        }
        self.depth += 1;
        let found = read(self)?;
        self.depth -= 1;
        Ok(found)
    }

    fn list(&mut self, out: &mut String) -> Result<(), &'static str> {
        out.push('[');
        self.skip_blanks();
        if self.take("]") {
            out.push(']');
            return Ok(());
        }
        loop {
            self.value(out)?;
            self.skip_blanks();
            if self.take("]") {
                out.push(']');
                return Ok(());
            }
            if !self.take(",") {
                return Err("`,` or `]` is missing in a list");
            }
            out.push_str(", ");
        }
    }

    fn object(&mut self, out: &mut String) -> Result<(), &'static str> {
        object(self.members(usize::MAX)?, out);
        Ok(())
    }

    /// Reads the keys and values of an object, after its `{`.
    pub(super) fn members(&mut self, most: usize) -> Result<Members, &'static str> {
        let mut members = Vec::new();
        self.skip_blanks();
        let mut is_complete = self.take("}");
        while !is_complete {
            if members.len() >= most {
                return Err("an object has too many keys");
            }
            self.skip_blanks();
            let key = self.text()?;
            self.skip_blanks();
            if !self.take(":") {
                return Err("`:` is missing after a key");
            }
            let mut value = String::new();
            self.value(&mut value)?;
            members.push((key, value));
            self.skip_blanks();
            is_complete = self.take("}");
            if !is_complete && !self.take(",") {
                return Err("`,` or `}` is missing in an object");
            }
        }
        Ok(members)
    }

    /// Reads a text in quotes.
    fn text(&mut self) -> Result<String, &'static str> {
        if !self.take("\"") {
            return Err("a text in quotes is missing");
        }
        let mut out = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next().ok_or("a text in quotes does not end")? {
                '"' => break,
                '\\' => out.push(match chars.next() {
                    Some(letter @ ('"' | '\\' | '/')) => letter,
                    Some('b') => '\u{8}',
                    Some('f') => '\u{c}',
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some('u') => {
                        let (letter, tail) = escaped(chars.as_str())?;
                        chars = tail.chars();
                        letter
                    }
                    _ => return Err("an escape is unknown"),
                }),
                letter if letter < ' ' => return Err("a control character is not escaped"),
                letter => out.push(letter),
            }
        }
        self.rest = chars.as_str();
        Ok(out)
    }

    /// Reads a number and writes it without an exponent.
    fn number(&mut self, out: &mut String) -> Result<(), &'static str> {
        const WRONG: &str = "it is not a JSON value";
        let sign = if self.take("-") { "-" } else { "" };
        let whole = self.digits();
        let is_whole = whole == "0" || (!whole.is_empty() && !whole.starts_with('0'));
        let fraction = if self.take(".") { Some(self.digits()) } else { None };
        let exponent = match self.take("e") || self.take("E") {
            false => 0,
            true => {
                let is_negative = self.take("-");
                if !is_negative {
                    self.take("+");
                }
                let digits = self.digits();
                if digits.is_empty() {
                    return Err(WRONG);
                }
                // A longer exponent is beyond every limit, too.
                let size: i64 = digits.parse().unwrap_or(i64::MAX);
                if is_negative { -size } else { size }
            }
        };
        if !is_whole || fraction == Some("") {
            return Err(WRONG);
        }
        let digits = format!("{whole}{}", fraction.unwrap_or_default());
        let is_zero = digits.bytes().all(|digit| digit == b'0');
        let point = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(exponent);
        let number = shifted(&digits, point, is_zero).ok_or("a number has too many digits")?;
        out.push_str(if is_zero { "" } else { sign });
        out.push_str(&number);
        Ok(())
    }

    fn digits(&mut self) -> &'a str {
        let end = self.rest.find(|letter: char| !letter.is_ascii_digit());
        let (digits, rest) =
            self.rest.split_at_checked(end.unwrap_or(self.rest.len())).unwrap_or_default();
        self.rest = rest;
        digits
    }
}

/// Digits with the decimal point at a place. `None` beyond the length of labels.
fn shifted(digits: &str, point: i64, is_zero: bool) -> Option<String> {
    let length = i64::try_from(digits.len()).ok()?;
    let most = i64::try_from(LABELS_BYTES_MAX).ok()?;
    if is_zero && point >= length {
        return Some("0".to_owned());
    }
    if point.abs().saturating_add(length) > most {
        return None;
    }
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
    let (whole, fraction) = match usize::try_from(point) {
        Ok(place) if point < length => {
            let (whole, fraction) = digits.split_at_checked(place)?;
            (whole.to_owned(), fraction.to_owned())
        }
        Ok(_) => (format!("{digits}{}", zeros(point - length)), String::new()),
        Err(_) => (String::new(), format!("{}{digits}", zeros(-point))),
    };
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") })
}

/// The character of `\uXXXX`, after the `u`; two escapes make one character beyond U+FFFF.
fn escaped(text: &str) -> Result<(char, &str), &'static str> {
    const WRONG: &str = "an escape `\\u` is no character";
    let unit = |text: &str| -> Option<u32> {
        let digits = text.get(..4).filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = unit(text).ok_or(WRONG)?;
    let rest = text.get(4..).unwrap_or_default();
    let (code, rest) = match first {
        0xd800..0xdc00 => {
            let second = rest.strip_prefix("\\u").and_then(unit).ok_or(WRONG)?;
            let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400).ok_or(WRONG)?;
            (0x10000 + ((first - 0xd800) << 10) + low, rest.get(6..).unwrap_or_default())
        }
        _ => (first, rest),
    };
    Ok((char::from_u32(code).ok_or(WRONG)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_as_by_postgresql() {
        for (text, printed) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("1.50", "1.50"),
            ("1e3", "1000"),
            ("1.5E3", "1500"),
            ("1.50e1", "15.0"),
            ("-12e-3", "-0.012"),
            ("0e5", "0"),
            ("0.0e-2", "0.000"),
            ("0e9999999999", "0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            (" [ 1 , [ ] , { } ,null ]", "[1, [], {}, null]"),
            (r#"{"bb":1,"a":{"d":2,"c":3},"bb":true}"#, r#"{"a": {"c": 3, "d": 2}, "bb": true}"#),
            (r#""\u00e9\ud83d\ude00\/\u0001\u007f""#, "\"é😀/\\u0001\u{7f}\""),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(printed), "{text}");
            assert_eq!(canonical(printed).as_deref(), Ok(printed), "{printed}");
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "",
            "01",
            "+1",
            ".5",
            "1.",
            "1e",
            "1e+",
            "--1",
            "0x1",
            "NaN",
            "tru",
            "nul",
            "[1,]",
            "[1 2]",
            "{1:2}",
            "{\"a\"}",
            "{\"a\":1,}",
            "\"a",
            "\"\t\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "1 2",
            "1e99999",
            "1e-99999",
            "0e-99999",
            "[",
            "]",
            "{\"a\":}",
        ] {
            assert!(canonical(text).is_err(), "{text}: {:?}", canonical(text));
        }
        assert!(canonical(&"[".repeat(1000)).is_err());
        assert!(canonical(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_ok());
    }

    #[test]
    fn members_of_objects() {
        let text = r#"{"a": [1, {"x": "}]"}], "b": "q\"}", "cc": null, "dd": {}}"#;
        let found = members(text).unwrap();
        let values: Vec<_> = found.iter().map(|(key, value)| (&**key, *value)).collect();
        assert_eq!(
            values,
            [("a", r#"[1, {"x": "}]"}]"#), ("b", r#""q\"}""#), ("cc", "null"), ("dd", "{}")]
        );
        assert_eq!(text_of(r#""q\"}""#).as_deref(), Some("q\"}"));
        assert_eq!(text_of("null"), None);
        assert_eq!(text_of("{}").as_deref(), Some("{}"));
    }
}
