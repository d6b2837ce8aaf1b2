//! Lustre's statistics (lustre/obdclass/lprocfs_status.c, `lprocfs_stats_seq_show`, and lnet/lnet/router_proc.c,
//! `proc_lnet_stats`, Lustre 2.1 to 2.16; Lustre Operations Manual, chapter "Lustre Parameters").
//!
//! ```text
//! snapshot_time             1409777887.590578 secs.usecs
//! read_bytes                27 samples [bytes] 1 30000000 34556
//! write_bytes               27 samples [bytes] 1 30000000 34556 1194117136
//! open                      48 samples [regs]
//! getattr                   51 samples [usec] 4 20 300 2000
//! ```
//!
//! How often, in what unit; then, where they are kept, the smallest, the largest, the sum and, in newer versions, the
//! sum of squares. The sum is so the third of these, and not the last. Lines without `samples` are times.
//!
//! `lnet/stats` is one line of eleven numbers:
//!
//! ```text
//! 0 79 0 5438513 5433466 0 0 1763884280 3028484 0 0
//! ```

use crate::parse::{Fields, ParseError, whole_lines};

/// A line of a `stats` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// `read_bytes`, `open`.
    pub name: &'a [u8],
    /// Number of samples.
    pub count: u64,
    /// `bytes`, `usec`, `reqs`, `regs`, `pages`.
    pub unit: &'a [u8],
    /// The sum in that unit, if recorded.
    pub sum: Option<u64>,
}

/// The lines of a `stats` file, those of times left out.
///
/// # Errors
/// The text is truncated; then, line by line: one lacks a field or has a number where none can be read.
pub fn stats(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<Stat<'_>, ParseError>>, ParseError> {
    Ok(whole_lines(text)?.filter_map(|line| stat(line).transpose()))
}

fn stat(line: &[u8]) -> Result<Option<Stat<'_>>, ParseError> {
    let mut fields = Fields::of(line);
    let (name, first) = (fields.word()?, Fields::of(fields.rest()).word()?);
    if first.contains(&b'.') {
        return Ok(None);
    }
    let count = fields.number()?;
    if fields.word()? != b"samples" {
        return Err(ParseError::at(line));
    }
    let unit = fields.word()?;
    let unit = unit.strip_prefix(b"[").and_then(|unit| unit.strip_suffix(b"]"));
    let unit = unit.ok_or(ParseError::at(line))?;
    let sum = match fields.rest().is_empty() {
        true => None,
        false => {
            fields.skip(2)?;
            Some(fields.number()?)
        }
    };
    Ok(Some(Stat { name, count, unit, sum }))
}

/// LNet's counters of sent and received messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lnet {
    /// Messages in progress.
    pub messages: u64,
    /// Most of them at a time.
    pub messages_peak: u64,
    /// Errors.
    pub errors: u64,
    /// Messages sent, received, passed on, dropped.
    pub counts: [u64; 4],
    /// Their bytes.
    pub bytes: [u64; 4],
}

/// Reads `lnet/stats`.
///
/// # Errors
/// The text is truncated, or has fewer than eleven numbers.
pub fn lnet(text: &[u8]) -> Result<Lnet, ParseError> {
    let line = whole_lines(text)?.next().ok_or(ParseError::at(b"the end of the file"))?;
    let mut fields = Fields::of(line);
    let mut lnet = Lnet {
        messages: fields.number()?,
        messages_peak: fields.number()?,
        errors: fields.number()?,
        counts: [0; 4],
        bytes: [0; 4],
    };
    for number in lnet.counts.iter_mut().chain(&mut lnet.bytes) {
        *number = fields.number()?;
    }
    Ok(lnet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"snapshot_time             1409777887.590578 secs.usecs\n\
        start_time                1409770000.000000000 secs.nsecs\n\
        read_bytes                27 samples [bytes] 1 30000000 34556\n\
        write_bytes               28 samples [bytes] 1 30000000 34557 1194117136\n\
        open                      48 samples [regs]\n\
        getattr                   51 samples [usec] 4 20 300 2000\n";

    fn all(text: &[u8]) -> Result<Vec<Stat<'_>>, ParseError> {
        stats(text)?.collect()
    }

    #[test]
    fn the_sum_is_found_whatever_follows() {
        let found = all(TEXT).unwrap();
        assert_eq!(found.len(), 4);
        let read = Stat { name: b"read_bytes", count: 27, unit: b"bytes", sum: Some(34_556) };
        assert_eq!((found[0], found[1].sum), (read, Some(34_557)));
        assert_eq!((found[2].count, found[2].unit, found[2].sum), (48, &b"regs"[..], None));
        assert_eq!(found[3].sum, Some(300));
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            let lines = cut == 0 || TEXT[..cut].ends_with(b"\n");
            assert_eq!(all(&TEXT[..cut]).is_ok(), lines, "{cut}");
        }
        for text in [
            "open\n",
            "open 1\n",
            "open x samples [regs]\n",
            "open 1 samples regs\n",
            "open 1 samples [usec] 1 2\n",
        ] {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn messages_of_lnet() {
        let found = lnet(b"0 79 1 5438513 5433466 0 7 1763884280 3028484 0 0\n").unwrap();
        assert_eq!((found.messages_peak, found.errors), (79, 1));
        assert_eq!(found.counts, [5_438_513, 5_433_466, 0, 7]);
        assert_eq!(found.bytes, [1_763_884_280, 3_028_484, 0, 0]);
        for text in ["", "1 2 3\n", "0 79 1 5438513 5433466 0 7 1763884280 3028484 0 0"] {
            assert!(lnet(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            all(&bytes).ok();
            lnet(&bytes).ok();
        }

        #[test]
        fn no_changed_byte_panics(place in 0..TEXT.len(), byte: u8) {
            let mut text = TEXT.to_vec();
            text[place] = byte;
            all(&text).ok();
        }
    }
}
