//! `/proc/loadavg`: load averages and numbers of tasks (proc_loadavg(5); fs/proc/loadavg.c, Linux 6.18).
//!
//! ```text
//! 0.52 0.58 0.59 3/1052 24510
//! ```
//!
//! Load averages over 1, 5 and 15 minutes with two decimals, runnable tasks and all tasks, the last
//! assigned process ID.

use crate::parse::{Fields, ParseError};

/// The numbers of `/proc/loadavg`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadAvg {
    /// Load averages over 1, 5 and 15 minutes, in hundredths.
    pub hundredths: [u64; 3],
    /// Tasks that can run now.
    pub runnable: u64,
    /// All tasks, threads included.
    pub tasks: u64,
}

/// Reads the one line of `/proc/loadavg`.
///
/// # Errors
/// A field is missing or not a number.
pub fn loadavg(text: &[u8]) -> Result<LoadAvg, ParseError> {
    let mut fields = Fields::of(text);
    let hundredths = [fields.hundredths()?, fields.hundredths()?, fields.hundredths()?];
    let mut counts = fields.word()?.splitn(2, |b| *b == b'/');
    let mut count = || counts.next().and_then(crate::parse::number).ok_or(ParseError::at(text));
    Ok(LoadAvg { hundredths, runnable: count()?, tasks: count()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line() {
        let load = loadavg(b"0.52 10.58 0.09 3/1052 24510\n").unwrap();
        assert_eq!(load, LoadAvg { hundredths: [52, 1058, 9], runnable: 3, tasks: 1052 });
    }

    #[test]
    fn every_truncated_text_is_rejected() {
        let line = b"0.52 0.58 0.59 3/1052";
        for cut in 0..=16 {
            assert!(loadavg(&line[..cut]).is_err(), "{cut}");
        }
        for text in
            ["x 0.58 0.59 3/1", "0.5 0.58 0.59 3/1", "0.50 0.58 0.59 3-1", "-1.00 0.00 0.00 1/1"]
        {
            assert!(loadavg(text.as_bytes()).is_err(), "{text}");
        }
    }
}
