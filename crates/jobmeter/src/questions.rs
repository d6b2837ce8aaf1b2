//! Commands that ask the server: get, sql.

use crate::client::{Client, path};
use crate::show::Table;
use crate::times::{Span, Times, parameter};
use crate::unknown;
use clap::ArgMatches;
use std::io::{self, BufWriter, Read, Write};
use std::process::ExitCode;

/// Rows by which the columns of a table get their widths; later rows may be wider.
const ROWS_MEASURED: usize = 10_000;

/// Time before now that a question without a time is about.
const LAST: &str = "5m";
/// Exit code of a question about a name that nobody has.
const UNKNOWN: u8 = 1;

fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

/// `jobmeter get`.
pub(crate) fn get(client: &Client, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (job, cluster) = match text(matches, "job") {
        Some(job) => match job.split_once(':') {
            Some((cluster, id)) => (Some(id.to_owned()), Some(cluster.to_owned())),
            None => (Some(job), None),
        },
        None => (None, None),
    };
    let times = Times::of(client)?;
    let span = interval(&times, matches, job.is_some())?;
    let parameters = [
        ("devices", text(matches, "device")),
        ("job_id", job),
        ("cluster", cluster),
        ("metrics", text(matches, "metric")),
        ("start_time", span.from.map(parameter)),
        ("end_time", span.to.map(parameter)),
        ("as_rate", matches.get_flag("rate").then(|| "auto".to_owned())),
    ];
    let format = Format::of(matches);
    let body = client.stream(&path("/rpc/get_metrics", &parameters), format.accept())?;
    if print(body, format, |cell| times.show_text(cell))? {
        return Ok(ExitCode::SUCCESS);
    }
    // Kwollect's answer to a name that nobody has is the empty one. Here a slip of the pen is told.
    let unknown = unknown::names(client, text(matches, "device"), text(matches, "metric"))?;
    for what in &unknown {
        writeln!(io::stderr(), "jobmeter: {what}")?;
    }
    Ok(if unknown.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNKNOWN) })
}

/// Which time is meant: without a word the last five minutes, of a job all of its time.
fn interval(times: &Times, matches: &ArgMatches, of_job: bool) -> anyhow::Result<Span> {
    let mut span = times.span(matches)?;
    if !of_job && span == Span::default() {
        span.from = Some(times.before(LAST)?);
    }
    if !of_job || text(matches, "last").is_some() {
        // Without an end the server would take five minutes from the start.
        span.to = span.to.or(Some(times.instant_now()));
    }
    Ok(span)
}

/// `jobmeter sql`.
pub(crate) fn sql(client: &Client, matches: &ArgMatches) -> anyhow::Result<()> {
    let query = text(matches, "query").unwrap_or_default();
    let format = Format::of(matches);
    let question = api::SqlQuestion { query };
    let body = client.post_stream("/api/v1/sql", &question, format.accept())?;
    print(body, format, str::to_owned)?;
    Ok(())
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Table,
    Csv,
    Json,
}

impl Format {
    fn of(matches: &ArgMatches) -> Self {
        match matches.get_one::<String>("format").map(String::as_str) {
            _ if matches.get_flag("json") => Self::Json,
            Some("json") => Self::Json,
            Some("csv") => Self::Csv,
            _ => Self::Table,
        }
    }

    /// What the server is asked for.
    const fn accept(self) -> &'static str {
        match self {
            Self::Table | Self::Csv => "text/csv",
            Self::Json => "application/json",
        }
    }
}

/// Prints a body of CSV or JSON, CSV as a table when asked to, as it comes. Tells whether it has a row.
fn print(body: impl Read, format: Format, cell: impl Fn(&str) -> String) -> anyhow::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    let any = match format {
        Format::Table => print_table(body, &mut out, cell)?,
        Format::Csv => pass(body, &mut out)?.lines > 1,
        Format::Json => {
            let passed = pass(body, &mut out)?;
            writeln!(out)?;
            // Without a row it is `[]`.
            passed.marks > 2
        }
    };
    out.flush()?;
    Ok(any)
}

fn print_table(
    body: impl Read,
    out: &mut impl Write,
    cell: impl Fn(&str) -> String,
) -> anyhow::Result<bool> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(body);
    let header: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut rows = 0;
    for record in reader.records() {
        table.row(record?.iter().map(&cell).collect());
        rows += 1;
        if rows % ROWS_MEASURED == 0 {
            table.write(out)?;
            table = Table::new(&header);
        }
    }
    if !table.is_empty() || rows == 0 {
        table.write(out)?;
    }
    Ok(rows > 0)
}

/// What was passed on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Passed {
    lines: u64,
    /// Bytes that are no blanks.
    marks: u64,
}

/// Passes a text on as it comes.
fn pass(mut body: impl Read, out: &mut impl Write) -> io::Result<Passed> {
    let (mut passed, mut piece) = (Passed::default(), vec![0; 64 << 10]);
    loop {
        let length = match body.read(&mut piece) {
            Ok(0) => return Ok(passed),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = piece.get(..length).unwrap_or_default();
        out.write_all(piece)?;
        for byte in piece {
            passed.lines += u64::from(*byte == b'\n');
            passed.marks += u64::from(!byte.is_ascii_whitespace());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_an_answer_has_rows() {
        let passed = |text: &str| {
            let mut out = Vec::new();
            let passed = pass(text.as_bytes(), &mut out).unwrap();
            assert_eq!(out, text.as_bytes());
            passed
        };
        assert_eq!(passed("timestamp,device_id\n"), Passed { lines: 1, marks: 19 });
        assert_eq!(passed("a\n1\n").lines, 2);
        assert_eq!(passed("[\n]\n").marks, 2);
        let mut out = Vec::new();
        assert!(!print_table("a,b\n".as_bytes(), &mut out, str::to_owned).unwrap());
        assert!(print_table("a,b\n1,2\n".as_bytes(), &mut out, str::to_owned).unwrap());
        assert_eq!(String::from_utf8(out).unwrap(), "a  b\na  b\n1  2\n");
    }
}
