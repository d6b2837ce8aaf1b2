//! `/proc/uptime`: how long the machine has run (proc_uptime(5); fs/proc/uptime.c, Linux 6.18).
//!
//! ```text
//! 1019.91 1660.75
//! ```
//!
//! Seconds since boot, time asleep included; idle seconds, summed over all processors, so that
//! they can exceed the first number.

use crate::parse::{Fields, ParseError, whole_lines};

/// The numbers of `/proc/uptime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uptime {
    /// Hundredths of a second since boot.
    pub up_hundredths: u64,
    /// Hundredths of a second that processors were idle.
    pub idle_hundredths: u64,
}

/// Reads the one line of `/proc/uptime`.
///
/// # Errors
/// The text is truncated, or a field is missing or not a number of two decimals.
pub fn uptime(text: &[u8]) -> Result<Uptime, ParseError> {
    let line = whole_lines(text)?.next().unwrap_or_default();
    let mut fields = Fields::of(line);
    Ok(Uptime { up_hundredths: fields.hundredths()?, idle_hundredths: fields.hundredths()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line() {
        let expected = Uptime { up_hundredths: 101_991, idle_hundredths: 166_075 };
        assert_eq!(uptime(b"1019.91 1660.75\n"), Ok(expected));
    }

    #[test]
    fn every_truncated_text_is_rejected() {
        let text = b"1019.91 1660.75\n";
        for cut in 0..text.len() {
            assert!(uptime(&text[..cut]).is_err(), "{cut}");
        }
        for text in ["x 1.00\n", "1.00\n", "1 2\n", "-1.00 1.00\n"] {
            assert!(uptime(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            uptime(&bytes).ok();
        }
    }
}
