//! `/proc/schedstat`: how long tasks ran on each processor and waited for it
//! (Documentation/scheduler/sched-stats.rst; kernel/sched/stats.c, Linux 6.18).
//!
//! ```text
//! version 17
//! timestamp 4295234520
//! cpu0 0 0 0 0 0 0 85467292000 1204560000 91242
//! domain0 MC 00000003 10 10 0 0 0 0 0 0 0 0 0 0
//! ```
//!
//! Of a processor's nine numbers the last three are taken, the same since version 15 (Linux 2.6.30):
//! nanoseconds that tasks ran, nanoseconds that they waited to, and how often one ran. Processors that are off
//! line are missing. The file is there with CONFIG_SCHEDSTATS alone.

use crate::machine::stat::CPUS_MAX;
use crate::parse::{Fields, ParseError, number, whole_lines};

/// The values of one processor's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSched {
    /// Its number, below [`CPUS_MAX`].
    pub cpu: u32,
    /// Nanoseconds that tasks ran.
    pub run_ns: u64,
    /// Nanoseconds that runnable tasks waited.
    pub wait_ns: u64,
    /// How often a task ran.
    pub slices: u64,
}

/// The processors' lines.
///
/// # Errors
/// The text is truncated, has no version, or one before 15 with other columns; then, line by line: one lacks a
/// number.
pub fn schedstat(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<CpuSched, ParseError>>, ParseError> {
    let mut lines = whole_lines(text)?;
    let head = lines.next().ok_or(ParseError::at(b"the end of the file"))?;
    let mut fields = Fields::of(head);
    if fields.word()? != b"version" || fields.number()? < 15 {
        return Err(ParseError::at(head));
    }
    Ok(lines.filter(|line| line.starts_with(b"cpu")).map(cpu))
}

fn cpu(line: &[u8]) -> Result<CpuSched, ParseError> {
    let mut fields = Fields::of(line);
    let digits = fields.word()?.strip_prefix(b"cpu").unwrap_or_default();
    let cpu = number(digits).and_then(|cpu| u32::try_from(cpu).ok()).filter(|cpu| *cpu < CPUS_MAX);
    let cpu = cpu.ok_or(ParseError::at(line))?;
    fields.skip(6)?;
    Ok(CpuSched {
        cpu,
        run_ns: fields.number()?,
        wait_ns: fields.number()?,
        slices: fields.number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"version 17\ntimestamp 4295234520\n\
        cpu0 0 0 0 0 0 0 85467292000 1204560000 91242\n\
        domain0 MC 00000003 10 10 0 0 0 0 0 0\n\
        cpu3 1 0 2 3 4 5 7 8 9\n";

    fn all(text: &[u8]) -> Result<Vec<CpuSched>, ParseError> {
        schedstat(text)?.collect()
    }

    #[test]
    fn processors_and_no_domains() {
        let first =
            CpuSched { cpu: 0, run_ns: 85_467_292_000, wait_ns: 1_204_560_000, slices: 91_242 };
        let second = CpuSched { cpu: 3, run_ns: 7, wait_ns: 8, slices: 9 };
        assert_eq!(all(TEXT).unwrap(), [first, second]);
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            assert_eq!(all(&TEXT[..cut]).is_ok(), TEXT[..cut].ends_with(b"\n"), "{cut}");
        }
    }

    #[test]
    fn old_versions_and_malformed_text_are_rejected() {
        for text in [
            "version 14\ncpu0 1 2 3 4 5 6 7 8 9\n",
            "cpu0 1 2 3 4 5 6 7 8 9\n",
            "version 15\ncpu0 1 2 3 4 5 6 7 8\n",
            "version 15\ncpu8192 1 2 3 4 5 6 7 8 9\n",
            "version 15\ncpu 1 2 3 4 5 6 7 8 9\n",
        ] {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            all(&bytes).ok();
            let mut text = b"version 15\ncpu".to_vec();
            text.extend(bytes);
            all(&text).ok();
        }
    }
}
