//! `/proc/softirqs`: how many soft interrupts of each kind every processor served since boot
//! (Documentation/filesystems/proc.rst, section 1.2; fs/proc/softirqs.c, Linux 6.18).
//!
//! ```text
//!                     CPU0       CPU1
//!           HI:          0          0
//!        TIMER:     963129    1081135
//!       NET_RX:    2217169    1760867
//! ```
//!
//! A column for every processor that the machine could have, off line or not. Each number has 32 bits and
//! wraps to 0 (include/linux/kernel_stat.h, `kstat_softirqs_cpu`).

use crate::parse::{Fields, ParseError, whole_lines};

/// A line of `/proc/softirqs`.
#[derive(Clone, Debug)]
pub struct Kind<'a> {
    /// `TIMER`, `NET_RX`.
    pub name: &'a [u8],
    counts: Fields<'a>,
}

impl Iterator for Kind<'_> {
    type Item = Result<u64, ParseError>;

    /// The count of the next processor.
    fn next(&mut self) -> Option<Self::Item> {
        (!self.counts.rest().is_empty()).then(|| self.counts.number())
    }
}

/// The kinds, each an iterator over the processors' counts.
///
/// # Errors
/// The text is empty or truncated, or does not begin with the processors; then, line by line: one has no name.
pub fn softirqs(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<Kind<'_>, ParseError>>, ParseError> {
    let mut lines = whole_lines(text)?;
    let head = lines.next().ok_or(ParseError::at(b"the end of the file"))?;
    if !Fields::of(head).word()?.starts_with(b"CPU") {
        return Err(ParseError::at(head));
    }
    Ok(lines.map(|line| {
        let mut counts = Fields::of(line);
        let name = counts.word()?.strip_suffix(b":").filter(|name| !name.is_empty());
        Ok(Kind { name: name.ok_or(ParseError::at(line))?, counts })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"                    CPU0       CPU1       \n\
        \x20         HI:          0          1\n\
        \x20      TIMER:     963129    1081135\n";

    type Counts = (Vec<u8>, Vec<u64>);

    fn all(text: &[u8]) -> Result<Vec<Counts>, ParseError> {
        softirqs(text)?
            .map(|kind| {
                let kind = kind?;
                Ok((kind.name.to_owned(), kind.collect::<Result<_, _>>()?))
            })
            .collect()
    }

    #[test]
    fn kinds_and_processors() {
        let expected =
            [(b"HI".to_vec(), vec![0, 1]), (b"TIMER".to_vec(), vec![963_129, 1_081_135])];
        assert_eq!(all(TEXT).unwrap(), expected);
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            assert_eq!(all(&TEXT[..cut]).is_ok(), TEXT[..cut].ends_with(b"\n"), "{cut}");
        }
        for text in ["\n", "HI: 1\n", "CPU0\nHI 1\n", "CPU0\nHI: x\n", "CPU0\n: 1\n"] {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            all(&bytes).ok();
        }
    }
}
