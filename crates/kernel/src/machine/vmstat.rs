//! `/proc/vmstat`: what the memory management did since boot, and what pages are used for now
//! (proc_vmstat(5); mm/vmstat.c and include/linux/vm_event_item.h, Linux 6.18).
//!
//! ```text
//! nr_free_pages 1386805
//! pgpgin 4867981
//! pswpin 0
//! pgfault 12482830
//! oom_kill 0
//! ```
//!
//! Names that begin with `nr_` are pages now, but for `nr_dirtied`, `nr_written` and some others; the rest
//! counts events. `pgpgin` and `pgpgout` are in units of 1024 bytes and not in pages. Which lines there
//! are depends on the kernel's version and configuration.

use crate::parse::{Fields, ParseError, whole_lines};

/// The lines of `/proc/vmstat`: name and number.
///
/// # Errors
/// The text is empty or truncated; then, line by line: one is not a name and a number.
pub fn vmstat(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<(&[u8], u64), ParseError>>, ParseError> {
    if text.is_empty() {
        return Err(ParseError::at(b"the end of the file"));
    }
    Ok(whole_lines(text)?.map(|line| {
        let mut fields = Fields::of(line);
        let both = (fields.word()?, fields.number()?);
        if fields.rest().is_empty() { Ok(both) } else { Err(ParseError::at(line)) }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"nr_free_pages 1386805\npgpgin 4867981\noom_kill 0\n";

    fn all(text: &[u8]) -> Result<Vec<(&[u8], u64)>, ParseError> {
        vmstat(text)?.collect()
    }

    #[test]
    fn names_and_numbers() {
        let expected =
            [(&b"nr_free_pages"[..], 1_386_805), (b"pgpgin", 4_867_981), (b"oom_kill", 0)];
        assert_eq!(all(TEXT).unwrap(), expected);
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            assert_eq!(all(&TEXT[..cut]).is_ok(), TEXT[..cut].ends_with(b"\n"), "{cut}");
        }
    }

    #[test]
    fn malformed_text_is_rejected() {
        for text in ["pgpgin\n", "pgpgin x\n", "pgpgin 1 2\n", "pgpgin -1\n"] {
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
