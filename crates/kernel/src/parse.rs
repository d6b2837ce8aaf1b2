//! Parses words and numbers of kernel text, without allocating and without panicking.
//!
//! Integers are parsed as integers: `"total=nan".parse::<f64>()` succeeds.

use std::fmt;

/// A text that does not match the kernel's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    near: [u8; 48],
    length: usize,
}

impl ParseError {
    /// An error at the start of this text.
    pub fn at(text: &[u8]) -> Self {
        let mut near = [0; 48];
        let length = text.len().min(near.len());
        for (to, from) in near.iter_mut().zip(text) {
            *to = *from;
        }
        Self { near, length }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let near = self.near.get(..self.length).unwrap_or_default();
        write!(f, "unexpected text at `{}`", near.escape_ascii())
    }
}

impl std::error::Error for ParseError {}

/// A number of decimal digits alone, within 64 bits.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A number that may have a minus sign.
pub fn signed(digits: &[u8]) -> Option<i64> {
    match digits.strip_prefix(b"-") {
        Some(rest) => number(rest).and_then(|value| 0_i64.checked_sub_unsigned(value)),
        None => number(digits).and_then(|value| i64::try_from(value).ok()),
    }
}

/// The lines of a text, without line ends and without empty lines.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

/// The lines of a text in which every line has an end, as the kernel writes them: a last line without
/// one was truncated, and its last number may be wrong.
///
/// # Errors
/// The last line has no end.
pub fn whole_lines(text: &[u8]) -> Result<impl Iterator<Item = &[u8]>, ParseError> {
    match text.last() {
        None | Some(b'\n') => Ok(lines(text)),
        Some(_) => Err(ParseError::at(lines(text).last().unwrap_or(text))),
    }
}

/// The words of a line, taken one by one.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The words of a text separated by blanks, tabs and line ends.
    pub const fn of(text: &'a [u8]) -> Self {
        Self { rest: text.trim_ascii() }
    }

    /// The next word.
    ///
    /// # Errors
    /// There is none.
    pub fn word(&mut self) -> Result<&'a [u8], ParseError> {
        if self.rest.is_empty() {
            return Err(ParseError::at(b"the end of the line"));
        }
        let end = self.rest.iter().position(u8::is_ascii_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, b""));
        self.rest = rest.trim_ascii_start();
        Ok(word)
    }

    /// The next word as a number.
    ///
    /// # Errors
    /// There is none, or it is not a number.
    pub fn number(&mut self) -> Result<u64, ParseError> {
        let word = self.word()?;
        number(word).ok_or_else(|| ParseError::at(word))
    }

    /// The next word, `12.34`, as 1234.
    ///
    /// # Errors
    /// There is none, or it is not a number with two decimals.
    pub fn hundredths(&mut self) -> Result<u64, ParseError> {
        let word = self.word()?;
        let wrong = ParseError::at(word);
        let (whole, part) = word.split_at_checked(word.len().saturating_sub(3)).ok_or(wrong)?;
        let part = part.strip_prefix(b".").and_then(number).ok_or(wrong)?;
        let whole = number(whole).and_then(|whole| whole.checked_mul(100)).ok_or(wrong)?;
        whole.checked_add(part).ok_or(wrong)
    }

    /// Skips words.
    ///
    /// # Errors
    /// There are fewer.
    pub fn skip(&mut self, words: usize) -> Result<(), ParseError> {
        (0..words).try_for_each(|_| self.word().map(|_| ()))
    }

    /// The remaining text.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        for text in [&b""[..], b"-1", b"+1", b"1.0", b"nan", b" 1"] {
            assert_eq!(number(text), None);
        }
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"9223372036854775808"), None);
    }

    #[test]
    fn words() {
        let mut fields = Fields::of(b"  cpu0 12\t7.05\n");
        assert_eq!(fields.word(), Ok(&b"cpu0"[..]));
        assert_eq!(fields.number(), Ok(12));
        assert_eq!(fields.hundredths(), Ok(705));
        assert!(fields.word().is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut fields = Fields::of(&bytes);
            while fields.hundredths().is_ok() || !fields.rest().is_empty() {
                fields.number().ok();
            }
            drop((signed(&bytes), ParseError::at(&bytes).to_string()));
        }
    }
}
