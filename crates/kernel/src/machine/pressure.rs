//! Pressure stall information: how long tasks waited for a processor, memory, a disk or interrupts
//! (Documentation/accounting/psi.rst; kernel/sched/psi.c, Linux 4.20 and later). `/proc/pressure/*` for the
//! machine, `*.pressure` for a cgroup.
//!
//! ```text
//! some avg10=0.06 avg60=0.21 avg300=0.99 total=8537362
//! full avg10=0.00 avg60=0.13 avg300=0.96 total=8183134
//! ```
//!
//! `total` is in microseconds since boot. The averages are not taken: they are rates, and rates are
//! computed when read. `irq` has no `some`; the `cpu` of kernels before 5.13 has no `full`.

use crate::parse::{Fields, ParseError, number, whole_lines};
use crate::{OpenFile, ReadError};
use rustix::io::Errno;

/// How long tasks waited for one thing, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some_us: Option<u64>,
    /// All tasks that had something to do waited at once.
    pub full_us: Option<u64>,
}

/// Reads a pressure file.
///
/// # Errors
/// The text is truncated, has neither line, or a line without its total.
pub fn pressure(text: &[u8]) -> Result<Pressure, ParseError> {
    let mut pressure = Pressure::default();
    for line in whole_lines(text)? {
        let mut fields = Fields::of(line);
        let total = match fields.word()? {
            b"some" => &mut pressure.some_us,
            b"full" => &mut pressure.full_us,
            _ => continue,
        };
        let digits = loop {
            if let Some(digits) = fields.word()?.strip_prefix(b"total=") {
                break digits;
            }
        };
        *total = Some(number(digits).ok_or(ParseError::at(line))?);
    }
    match pressure {
        Pressure { some_us: None, full_us: None } => Err(ParseError::at(text)),
        found => Ok(found),
    }
}

/// Reads an open pressure file into `buf`. A kernel built with pressure and booted without it lets the file be
/// opened and rejects reads; the file then counts as absent.
///
/// # Errors
/// It is absent or fails; `path` is for the message.
pub fn read_pressure(file: &OpenFile, path: &str, buf: &mut Vec<u8>) -> Result<(), ReadError> {
    file.read_single(buf).map_err(|errno| rejected(path, errno))
}

fn rejected(path: &str, errno: Errno) -> ReadError {
    let path = format!("/{path}");
    match errno {
        Errno::OPNOTSUPP => ReadError::Absent { path },
        errno => ReadError::Failed { path, why: errno.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"some avg10=0.06 avg60=0.21 avg300=0.99 total=8537362\n\
        full avg10=0.00 avg60=0.13 avg300=0.96 total=8183134\n";

    #[test]
    fn both_lines() {
        let expected = Pressure { some_us: Some(8_537_362), full_us: Some(8_183_134) };
        assert_eq!(pressure(TEXT), Ok(expected));
    }

    #[test]
    fn one_line() {
        let irq = b"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(irq), Ok(Pressure { some_us: None, full_us: Some(7) }));
        let old_cpu = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(old_cpu), Ok(Pressure { some_us: Some(7), full_us: None }));
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            let lines = cut > 0 && TEXT[..cut].ends_with(b"\n");
            assert_eq!(pressure(&TEXT[..cut]).is_ok(), lines, "{cut}");
        }
    }

    #[test]
    fn malformed_text_is_rejected() {
        for text in
            ["some\n", "some total=\n", "some total=x\n", "some total=-1\n", "all total=1\n"]
        {
            assert!(pressure(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(pressure(b"some total=nan\n").is_err());
    }

    #[test]
    fn a_kernel_booted_without_pressure_has_none() {
        assert!(rejected("proc/pressure/cpu", Errno::OPNOTSUPP).is_absent());
        assert!(!rejected("proc/pressure/cpu", Errno::IO).is_absent());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            pressure(&bytes).ok();
        }
    }
}
