//! `--print`: every sample as a line of text before it is sent.
//!
//! A line has the columns `metric device job labels at start value`, with tabs between them:
//!
//! ```text
//! load_1m    n1  -         {}              2026-01-06T13:35:00+00:00  -                          0.5
//! cpu_s…     n1  slurm:12  {"cpu": "0"}    2026-01-06T13:35:00+00:00  2026-01-06T13:00:00+00:00  8.25
//! ```
//!
//! `job` is `-` for samples of the whole device, and `start` is `-` if there is none. `value` is the shortest text
//! that parses to the same double. The printer sorts the lines of each sealing.

use model::{SeriesEntry, Timestamp};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Prints samples as text.
pub struct Printer {
    out: Box<dyn Write + Send>,
    lines: Vec<String>,
}

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

impl Printer {
    /// Creates a printer that writes to `out`.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, lines: Vec::new() }
    }

    /// Adds a sample to the next [`Self::print`].
    pub fn add(&mut self, entry: &SeriesEntry, at: Timestamp, value: f64) {
        let mut line = String::new();
        let (metric, device, labels) = (&entry.metric.name, &entry.device, entry.labels.as_str());
        // Writing to a string cannot fail, here and below.
        write!(line, "{metric}\t{device}\t").ok();
        match &entry.job {
            Some(job) => write!(line, "{job}\t{labels}\t{at}\t").ok(),
            None => write!(line, "-\t{labels}\t{at}\t").ok(),
        };
        match entry.start {
            Some(start) => writeln!(line, "{start}\t{value}").ok(),
            None => writeln!(line, "-\t{value}").ok(),
        };
        self.lines.push(line);
    }

    /// Prints the added samples and flushes the output.
    ///
    /// # Errors
    /// The reader has closed the pipe, or the disk is full.
    pub fn print(&mut self) -> io::Result<()> {
        self.lines.sort_unstable();
        let text = self.lines.concat();
        self.lines.clear();
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}
