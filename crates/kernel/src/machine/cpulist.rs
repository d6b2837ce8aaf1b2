//! Lists of processors as sysfs writes them, `0-3,8,10-11` (Documentation/admin-guide/cputopology.rst;
//! lib/vsprintf.c, `bitmap_list_string`, Linux 6.18).

use crate::parse::{ParseError, number};

/// Number of processors in a list; 0 for an empty one.
///
/// # Errors
/// A range lacks a number, or ends before it begins.
pub fn cpus_in(text: &[u8]) -> Result<u64, ParseError> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(0);
    }
    let mut cpus = 0_u64;
    for range in text.split(|byte| *byte == b',') {
        let mut ends = range.splitn(2, |byte| *byte == b'-').map(number);
        let first = ends.next().flatten().ok_or(ParseError::at(range))?;
        let last = ends.next().unwrap_or(Some(first)).ok_or(ParseError::at(range))?;
        let more = last.checked_sub(first).ok_or(ParseError::at(range))?;
        cpus = cpus.saturating_add(more.saturating_add(1));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges() {
        for (text, cpus) in [("0\n", 1), ("0-3,8,10-11\n", 7), ("\n", 0), ("", 0), ("0-8191", 8192)]
        {
            assert_eq!(cpus_in(text.as_bytes()), Ok(cpus), "{text:?}");
        }
        for text in ["-", "0-", "3-1", "0,,1", "0-3:2", "a"] {
            assert!(cpus_in(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in "[0-9,\\-]{0,40}", any in proptest::collection::vec(any::<u8>(), 0..40)) {
            cpus_in(bytes.as_bytes()).ok();
            cpus_in(&any).ok();
        }
    }
}
