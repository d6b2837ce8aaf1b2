//! `/proc/cpuinfo`: the frequency of each processor, for machines without a driver that reports it (proc_cpuinfo(5);
//! arch/x86/kernel/cpu/proc.c, Linux 6.18).
//!
//! ```text
//! processor  : 0
//! model name  : Intel(R) Xeon(R) Processor @ 2.60GHz
//! cpu MHz  : 2599.998
//! ```
//!
//! Only x86 has it. A virtual machine shows the frequency that it received at boot.

use crate::parse::{ParseError, number, whole_lines};

/// The frequencies, in thousands of hertz, of the processors that have one, in the file's order.
///
/// # Errors
/// The text is truncated; then, line by line: a frequency is not a number with three decimals.
pub fn frequencies_khz(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<u64, ParseError>>, ParseError> {
    Ok(whole_lines(text)?.filter(|line| line.starts_with(b"cpu MHz")).map(|line| {
        let wrong = ParseError::at(line);
        let colon = line.iter().position(|byte| *byte == b':').ok_or(wrong)?;
        let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
        let (whole, part) = value.split_at_checked(value.len().saturating_sub(4)).ok_or(wrong)?;
        let part = part.strip_prefix(b".").and_then(number).ok_or(wrong)?;
        let whole = number(whole).and_then(|whole| whole.checked_mul(1000)).ok_or(wrong)?;
        whole.checked_add(part).ok_or(wrong)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"processor\t: 0\ncpu MHz\t\t: 2599.998\nflags\t\t: fpu\n\n\
        processor\t: 1\ncpu MHz\t\t: 800.001\n\n";

    fn all(text: &[u8]) -> Result<Vec<u64>, ParseError> {
        frequencies_khz(text)?.collect()
    }

    #[test]
    fn frequencies() {
        assert_eq!(all(TEXT), Ok(vec![2_599_998, 800_001]));
        assert_eq!(all(b"processor\t: 0\nBogoMIPS\t: 50.00\n"), Ok(vec![]));
        for cut in 0..TEXT.len() {
            let lines = cut == 0 || TEXT[..cut].ends_with(b"\n");
            assert_eq!(all(&TEXT[..cut]).is_ok(), lines, "{cut}");
        }
        for text in ["cpu MHz\n", "cpu MHz : 12.34\n", "cpu MHz : x.000\n", "cpu MHz : .000\n"] {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            all(&bytes).ok();
            all(&[b"cpu MHz", &bytes[..], b"\n"].concat()).ok();
        }
    }
}
