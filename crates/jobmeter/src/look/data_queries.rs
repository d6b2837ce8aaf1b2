//! Commands that query samples: get, sql.

mod passed;

use crate::client::http_client::{Client, escape, path};
use crate::client::name_suggestions;
use crate::client::plain::{Plain, note};
use crate::client::progress::Progress;
use crate::client::streamed::Streamed;
use crate::look::explain_missing;
use crate::look::first_sample::first_sample;
use crate::output::blank_rows::BlankRows;
use crate::output::options::ListFormat;
use crate::output::show::Table;
use crate::output::times::{Span, Times, instant, parameter, rfc_3339, written_times};
use crate::output::utc_times::UtcTimes;
use anyhow::Context as _;
use jiff::tz::TimeZone;
use model::Timestamp;
use passed::pass;
use std::io::{self, BufWriter, IsTerminal as _, Read, Write};
use std::process::ExitCode;

/// Number of first rows that determine a table's column widths; later rows may be wider.
const ROWS_MEASURED: usize = 10_000;

/// Default time range of a query: this duration before now.
const LAST: &str = "5m";
/// Position of the time in the rows of `get_metrics`.
const TIME_COLUMN: usize = 0;
/// Exit code for a query about an unknown name, or without a sample.
const UNKNOWN: u8 = 1;
/// A metric that every job with a cgroup has.
const METRIC_OF_JOBS: &str = "cgroup_memory_bytes";

/// Prints the samples of a node or a job
#[derive(clap::Args, Debug, Default)]
#[command(after_help = "Example: jobmeter get --device node-1 --metric load_1m --last 5m")]
pub(crate) struct GetArgs {
    /// Only samples of this device; several, separated by commas
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only samples of this job, and of its nodes while it ran
    #[arg(long, value_name = "[CLUSTER:]ID")]
    job: Option<String>,
    /// Only this metric; several, separated by commas [default: all]
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Only samples of this time before now [default: 5m; of a job: all]
    #[arg(long, value_name = "TIME")]
    last: Option<String>,
    /// Only samples from this time on
    #[arg(long, value_name = "TIME", alias = "start")]
    since: Option<String>,
    /// Only samples until this time [default: now]
    #[arg(long, value_name = "TIME", alias = "end")]
    until: Option<String>,
    /// Print counters as rates per second
    #[arg(long)]
    rate: bool,
    /// Print windows of five minutes instead of samples: the average of a gauge, the largest value of a counter
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    format: RowFormat,
}

/// Runs an SQL query on metrics, metrics_by_job, jobs, allocations, gaps, catalogue and more
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter sql \"SELECT metric_id, count(*) FROM metrics GROUP BY 1\""
)]
pub(crate) struct SqlArgs {
    #[command(flatten)]
    format: RowFormat,
    /// One SELECT statement, or EXPLAIN or EXPLAIN ANALYZE of one
    #[arg(value_name = "SELECT")]
    query: String,
}

// The formats of rows; no docstring, which would replace the description of its commands.
#[derive(clap::Args, Debug, Default)]
struct RowFormat {
    /// table, csv or json [default: table]
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "csv"])]
    format: Option<Format>,
    #[command(flatten)]
    list: ListFormat,
}

/// `jobmeter get`.
pub(crate) fn get(client: &Client, args: &GetArgs) -> anyhow::Result<ExitCode> {
    let (job, cluster) = match crate::output::check_names::one_job(args.job.as_deref())? {
        Some(job) => match job.split_once(':') {
            Some((cluster, id)) => (Some(id.to_owned()), Some(cluster.to_owned())),
            None => (Some(job), None),
        },
        None => (None, None),
    };
    let times = Times::of(client)?;
    let interval_wanted = interval(&times, args)?;
    let of_job = match args.job.as_deref().filter(|_| interval_wanted != Span::default()) {
        Some(id) => Some(JobTimes::read(client, id, &times)?),
        None => None,
    };
    let span = of_job.as_ref().map_or(interval_wanted, |of_job| of_job.within(interval_wanted));
    let parameters = [
        ("devices", crate::output::check_names::devices(args.device.as_deref())?),
        ("job_id", job),
        ("cluster", cluster),
        ("metrics", args.metric.clone()),
        ("start_time", span.from.map(parameter)),
        ("end_time", span.to.map(parameter)),
        ("summary", args.summary.then(|| "true".to_owned())),
        ("as_rate", args.rate.then(|| "auto".to_owned())),
    ];
    let format = args.format.format();
    let progress = Progress::start("waiting for the server's response");
    let body = client.stream(&path("/rpc/get_metrics", &parameters), format.accept())?;
    let body = Streamed::new(body);
    let job = args.job.as_deref();
    let mut seen = AnswerEnds::default();
    let body = EndsReader { body, seen: &mut seen, progress: Some(progress) };
    let any = match format {
        Format::Csv => print_csv(body)?,
        _ => print(body, format, &[TIME_COLUMN], &times)?,
    };
    if any {
        if let Some(job) = job {
            let what = if args.summary { WINDOWS } else { "samples" };
            let line = whole(job, what, &seen, of_job.as_ref(), &times);
            note(&line)?;
        }
        // The other names of a list hide a mistyped one.
        let list = |names: &Option<String>| names.clone().filter(|names| names.contains(','));
        let (devices, metrics) = (list(&args.device), list(&args.metric));
        return report_missing(&name_suggestions::names(client, devices, metrics)?);
    }
    if let Some(of_job) = of_job.filter(|of_job| of_job.misses(interval_wanted)) {
        note(&format!("{}: not in the selected time range", of_job.text(&times)))?;
        return Ok(ExitCode::from(UNKNOWN));
    }
    // Kwollect answers a query for an unknown name with an empty list. This command reports a mistyped name as
    // an error.
    let mut unknown = name_suggestions::names(client, args.device.clone(), args.metric.clone())?;
    if unknown.is_empty() {
        unknown.push(match job.filter(|_| args.summary) {
            Some(job) => no_window(job),
            None => return report_missing(&no_samples(client, args, span, &times)?),
        });
    }
    report_missing(&unknown)
}

/// Writes what an answer lacks; returns the exit code.
fn report_missing(missing: &[String]) -> anyhow::Result<ExitCode> {
    for what in missing {
        note(what)?;
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNKNOWN) })
}

/// The message for known names without samples: since when there are samples, or the command that explains them.
fn no_samples(
    client: &Client,
    args: &GetArgs,
    span: Span,
    times: &Times,
) -> anyhow::Result<Vec<String>> {
    if let (Some(job), None) = (&args.job, &args.metric) {
        let silent = explain_missing::silent_nodes_of(client, job)?;
        if !silent.is_empty() {
            return Ok(silent);
        }
    }
    // Without a start, the server takes `LAST` before the end.
    let start = || span.to.map(|to| to.plus(-300 * Timestamp::SECOND));
    let from = span.from.or_else(|| start().filter(|_| args.job.is_none()));
    let span = Span { from, ..span };
    let names = (args.device.as_deref(), args.metric.as_deref());
    let end = span.to.filter(|_| args.job.is_none());
    let first = end.and_then(|end| first_sample(client, names, end.seconds()));
    let of = |name: &str, value: &Option<String>| {
        value.as_ref().map_or_else(String::new, |value| format!(" {name} {value}"))
    };
    let what =
        [of("of metric", &args.metric), of("of device", &args.device), of("of job", &args.job)];
    let what = what.concat();
    let at = |word: &str, at: Option<Timestamp>| {
        at.map(|at| format!(" {word} {}", times.show(at.seconds()))).unwrap_or_default()
    };
    let (from, to) = (at("from", span.from), at("to", span.to));
    if let Some(first) = first {
        let first = times.show(first);
        return Ok(vec![format!("no sample{what}{from}{to}: the first one is from {first}")]);
    }
    let of_job = args.job.as_ref().map(|_| METRIC_OF_JOBS);
    let why = match args.metric.as_deref().or(of_job) {
        Some(metric) => {
            let options = [of("--device", &args.device), of("--job", &args.job)].concat();
            format!("jobmeter explain {metric}{options}")
        }
        None => "jobmeter nodes".to_owned(),
    };
    Ok(vec![format!("no samples{what}{from}{to}; `{why}` explains why")])
}

/// The times of a job: from the start of its first run to the end of its last one, or to now.
struct JobTimes {
    id: String,
    from: Timestamp,
    to: Timestamp,
    runs_now: bool,
}

impl JobTimes {
    fn read(client: &Client, id: &str, times: &Times) -> anyhow::Result<Self> {
        let report: api::JobReport = client.get(&format!("/api/v1/jobs/{}", escape(id)))?;
        let job = &report.job;
        let newest =
            api::Run { start: job.start, submit: None, stop: job.stop, state: job.state.clone() };
        let runs: Vec<&api::Run> = report.runs.iter().chain([&newest]).collect();
        let now = times.now();
        let from = runs.iter().filter_map(|run| run.start).fold(now, f64::min);
        let runs_now = runs.iter().any(|run| run.start.is_some() && run.stop.is_none());
        let to = runs.iter().filter_map(|run| run.stop).fold(from, f64::max);
        let at = |seconds| instant(seconds).context("a time of the job is outside of the calendar");
        let to = if runs_now { now } else { to };
        Ok(Self { id: id.to_owned(), from: at(from)?, to: at(to)?, runs_now })
    }

    /// Whether the job did not run in a time range.
    fn misses(&self, span: Span) -> bool {
        span.from.is_some_and(|from| from > self.to) || span.to.is_some_and(|to| to < self.from)
    }

    /// The part of a time range in which the job ran. A bound outside of the job's times is omitted, because the
    /// server knows the tolerance before and after a job. If the job did not run, the end is before the start.
    fn within(&self, span: Span) -> Span {
        if self.misses(span) {
            return Span { from: Some(self.to), to: Some(self.to.plus(-Timestamp::SECOND)) };
        }
        Span {
            from: span.from.filter(|from| *from > self.from),
            to: span.to.filter(|to| *to < self.to),
        }
    }

    fn text(&self, times: &Times) -> String {
        let [from, to] = [self.from, self.to].map(|at| times.show(at.seconds()));
        let to = if self.runs_now { "now".to_owned() } else { to };
        format!("job {} ran from {from} to {to}", self.id)
    }
}

/// Content of a summary.
const WINDOWS: &str = "five-minute windows";

/// The message for a job with an empty summary.
fn no_window(job: &str) -> String {
    format!(
        "no {WINDOWS} of job {job}: windows of its nodes belong to the job only if they begin \
         while it runs; omit --summary to print its samples"
    )
}

/// The message about the time range that `get` returned for a job.
fn whole(
    job: &str,
    what: &str,
    seen: &AnswerEnds,
    within: Option<&JobTimes>,
    times: &Times,
) -> String {
    let show = |at: Option<Timestamp>| at.map(|at| times.show(at.seconds()));
    let span = match (show(seen.first()), show(seen.last())) {
        (Some(first), Some(last)) => format!(" from {first} to {last}"),
        _ => String::new(),
    };
    match within {
        Some(of_job) => format!("{what} of job {job}{span}; {}", of_job.text(times)),
        None => format!(
            "all {what} of job {job}{span}; restrict them with --since, --until or \
                         --last"
        ),
    }
}

/// The start and the end of an answer, which contain its first and its last time.
#[derive(Debug, Default)]
struct AnswerEnds {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// Size of each in bytes: a row is far smaller.
const SEEN_BYTES: usize = 16 << 10;

impl AnswerEnds {
    fn take(&mut self, piece: &[u8]) {
        let space = SEEN_BYTES.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(piece.get(..space).unwrap_or_default());
        self.tail.extend_from_slice(piece);
        self.tail.drain(..self.tail.len().saturating_sub(SEEN_BYTES));
    }

    fn first(&self) -> Option<Timestamp> {
        written_times(&String::from_utf8_lossy(&self.head)).into_iter().next()
    }

    fn last(&self) -> Option<Timestamp> {
        written_times(&String::from_utf8_lossy(&self.tail)).pop()
    }
}

/// A reader that keeps the start and the end of a body.
struct EndsReader<'a, R> {
    body: R,
    seen: &'a mut AnswerEnds,
    /// The progress line until the first rows arrive.
    progress: Option<Progress>,
}

impl<R: Read> Read for EndsReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(into)?;
        self.progress = None;
        self.seen.take(into.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// The time range of a query. Default: the last 5 min, or the whole time of a job.
fn interval(times: &Times, args: &GetArgs) -> anyhow::Result<Span> {
    let (of_job, last) = (args.job.is_some(), args.last.as_deref());
    let mut span = times.span(args.since.as_deref(), args.until.as_deref(), last)?;
    if !of_job && span == Span::default() {
        span.from = Some(times.before(LAST)?);
    }
    if !of_job || last.is_some() {
        // Without an end, the server would use 5 min from the start.
        span.to = span.to.or(Some(times.instant_now()));
    }
    Ok(span)
}

/// `jobmeter sql`.
pub(crate) fn sql(client: &Client, args: &SqlArgs) -> anyhow::Result<()> {
    let (query, format) = (args.query.clone(), args.format.format());
    let now = crate::clock();
    let (name, zone) = named_zone(TimeZone::system(), now);
    let question = api::SqlQuery { query, time_zone: Some(name) };
    let progress = Progress::start("waiting for the server's response");
    let (body, columns) = client.sql(&question, format.accept())?;
    drop(progress);
    print(Streamed::new(body), format, &columns, &Times::at(now, zone))?;
    Ok(())
}

/// Output format of rows.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Table,
    Csv,
    Json,
}

impl RowFormat {
    fn format(&self) -> Format {
        match self.format {
            Some(format) => format,
            None if self.list.json => Format::Json,
            None if self.list.csv => Format::Csv,
            None => Format::Table,
        }
    }
}

impl Format {
    /// The content type that the command requests.
    const fn accept(self) -> &'static str {
        match self {
            Self::Table | Self::Csv => "text/csv",
            Self::Json => "application/json",
        }
    }
}

/// A time zone with the name that the server knows it by: an IANA name, or the present offset for a zone without one.
fn named_zone(zone: TimeZone, now: Timestamp) -> (String, TimeZone) {
    let name = zone.iana_name().filter(|_| !zone.is_unknown()).map(str::to_owned);
    if let Some(name) = name {
        return (name, zone);
    }
    let now = jiff::Timestamp::from_microsecond(now.0).unwrap_or_default();
    let offset = zone.to_offset(now);
    (now.to_zoned(TimeZone::fixed(offset)).strftime("%:z").to_string(), TimeZone::fixed(offset))
}

/// Prints a streamed body of CSV or JSON, or CSV as a table. The cells of `columns` are times. Returns whether the
/// body has a row.
fn print(
    body: impl Read,
    format: Format,
    columns: &[usize],
    times: &Times,
) -> anyhow::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    let any = match format {
        Format::Table => print_table(body, &mut out, |place, cell| {
            if columns.contains(&place) {
                times.show_text(cell)
            } else {
                api::csv_text(cell).to_owned()
            }
        })?,
        Format::Csv if io::stdout().is_terminal() => {
            pass(body, &mut UtcTimes::csv(Plain::new(&mut out), columns))?.lines > 1
        }
        Format::Csv => pass(body, &mut UtcTimes::csv(&mut out, columns))?.lines > 1,
        Format::Json => {
            let passed = pass(body, &mut UtcTimes::json(Plain::new(&mut out), columns))?;
            writeln!(out)?;
            // Without rows, the body is `[]`.
            passed.marks > 2
        }
    };
    out.flush()?;
    Ok(any)
}

/// Prints samples as CSV, with times in the format of every command. Returns whether there is a row.
fn print_csv(body: impl Read) -> anyhow::Result<bool> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(body);
    let mut writer = csv::WriterBuilder::new()
        .flexible(true)
        .from_writer(Plain::new(BufWriter::new(io::stdout().lock())));
    let mut lines = 0_u64;
    for record in reader.records() {
        let time = |(place, cell)| match place {
            TIME_COLUMN => rfc_3339(cell),
            _ => str::to_owned(cell),
        };
        writer.write_record(record?.iter().enumerate().map(time))?;
        lines += 1;
    }
    writer.flush()?;
    Ok(lines > 1)
}

fn print_table(
    body: impl Read,
    out: &mut impl Write,
    cell: impl Fn(usize, &str) -> String,
) -> anyhow::Result<bool> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(BlankRows::new(body));
    let header: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut rows = 0;
    for record in reader.records() {
        table.row(record?.iter().enumerate().map(|(place, text)| cell(place, text)).collect());
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

#[cfg(test)]
mod tests;
