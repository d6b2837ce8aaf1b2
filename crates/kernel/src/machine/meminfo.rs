//! `/proc/meminfo`: what the memory is used for (proc_meminfo(5); fs/proc/meminfo.c, Linux 6.18).
//!
//! ```text
//! MemTotal:       24684084 kB
//! MemFree:        24109576 kB
//! MemAvailable:   24290628 kB
//! Active(anon):       1528 kB
//! HugePages_Total:       0
//! ```
//!
//! `kB` means 1024 bytes. Lines without it count huge pages. Which lines there are depends on the
//! kernel's version, its configuration and the architecture.

use crate::parse::{Fields, ParseError, whole_lines};

/// A line of `/proc/meminfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its name without the colon: `MemTotal`, `Active(anon)`.
    pub name: &'a [u8],
    /// Its number.
    pub amount: Amount,
}

/// A number of `/proc/meminfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// In units of 1024 bytes.
    KibiBytes(u64),
    /// A plain count.
    Count(u64),
}

/// The lines of `/proc/meminfo`.
///
/// # Errors
/// The text is empty or truncated; then, line by line: one has no name, no number or another unit.
pub fn meminfo(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<Line<'_>, ParseError>>, ParseError> {
    if text.is_empty() {
        return Err(ParseError::at(b"the end of the file"));
    }
    Ok(whole_lines(text)?.map(line))
}

/// The lines of `/sys/devices/system/node/nodeN/meminfo`, which begin with `Node N`
/// (drivers/base/node.c, Linux 6.18):
///
/// ```text
/// Node 0 MemTotal:       98304000 kB
/// ```
///
/// # Errors
/// As [`meminfo`]; or a line does not begin so.
pub fn node_meminfo(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<Line<'_>, ParseError>>, ParseError> {
    if text.is_empty() {
        return Err(ParseError::at(b"the end of the file"));
    }
    Ok(whole_lines(text)?.map(|whole| {
        let mut fields = Fields::of(whole);
        if fields.word()? != b"Node" {
            return Err(ParseError::at(whole));
        }
        fields.number()?;
        line(fields.rest())
    }))
}

fn line(line: &[u8]) -> Result<Line<'_>, ParseError> {
    let wrong = ParseError::at(line);
    let mut fields = Fields::of(line);
    let name = fields.word()?.strip_suffix(b":").filter(|name| !name.is_empty()).ok_or(wrong)?;
    let number = fields.number()?;
    let amount = match fields.rest() {
        b"" => Amount::Count(number),
        b"kB" => Amount::KibiBytes(number),
        _ => return Err(wrong),
    };
    Ok(Line { name, amount })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"MemTotal:       24684084 kB\nActive(anon):       1528 kB\n\
        HugePages_Total:       3\nVmallocTotal:   34359738367 kB\n";

    fn all(text: &[u8]) -> Result<Vec<Line<'_>>, ParseError> {
        meminfo(text)?.collect()
    }

    #[test]
    fn lines_and_units() {
        let lines = all(TEXT).unwrap();
        let expected = [
            (&b"MemTotal"[..], Amount::KibiBytes(24_684_084)),
            (b"Active(anon)", Amount::KibiBytes(1528)),
            (b"HugePages_Total", Amount::Count(3)),
            (b"VmallocTotal", Amount::KibiBytes(34_359_738_367)),
        ];
        assert_eq!(lines, expected.map(|(name, amount)| Line { name, amount }));
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            assert_eq!(all(&TEXT[..cut]).is_ok(), TEXT[..cut].ends_with(b"\n"), "{cut}");
        }
    }

    #[test]
    fn malformed_text_is_rejected() {
        for text in ["MemTotal 1 kB\n", ": 1 kB\n", "a: kB\n", "a: -1 kB\n", "a: 1 MB\n", "a:1\n"] {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn lines_of_a_node() {
        let all = |text: &'static [u8]| -> Result<Vec<Line<'_>>, ParseError> {
            node_meminfo(text)?.collect()
        };
        let lines = all(b"Node 1 MemFree:        12 kB\nNode 1 HugePages_Free:     3\n").unwrap();
        let expected = [Amount::KibiBytes(12), Amount::Count(3)];
        assert_eq!(
            (lines[0].name, [lines[0].amount, lines[1].amount]),
            (&b"MemFree"[..], expected)
        );
        for text in
            [&b""[..], b"MemFree: 12 kB\n", b"Node x MemFree: 1 kB\n", b"Node 1 A: 2\nNode 1"]
        {
            assert!(all(text).is_err(), "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_node_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(lines) = node_meminfo(&bytes) {
                lines.for_each(drop);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            all(&bytes).ok();
        }
    }
}
