//! `jobmeter jobs`: the list of jobs, and differences between schedulers and nodes.

use crate::client::http_client::{Client, path};
use crate::client::plain::note;
use crate::output::csv_rows;
use crate::output::options::{ListFormat, TimeRange};
use crate::output::show::{self, Table};
use crate::output::times::{Times, machine, machine_value, parameter};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Maximum nodes of a job in a row.
const NODES_SHOWN: usize = 4;
/// Exit code for disagreements between schedulers and nodes.
const DISAGREE: u8 = 1;
/// Exit code for an unknown name in a filter.
const UNKNOWN: u8 = 1;
/// Options that `--check` excludes: a message names the given one, and not their group.
const FILTERS: [&str; 13] = [
    "state", "cluster", "user", "account", "project", "queue", "name", "device", "limit", "after",
    "since", "until", "last",
];
/// Maximum length of a list with the usage of its jobs.
const WITH_USAGE_MAX: usize = 1000;
/// Default number of jobs per page.
const LISTED: usize = 50;

/// Lists jobs, newest first; exit code 1 if no job has a name of a filter
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter jobs --account physics --state failed")]
#[command(
    mut_arg("since", |arg| arg.help("Only jobs that ran at or after this time")),
    mut_arg("until", |arg| arg.help("Only jobs that ran at or before this time")),
    mut_arg("last", |arg| arg.help("Only jobs that ran within this time before now"))
)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    range: TimeRange,
    /// List differences between schedulers and nodes; exit code 1 if there is one
    #[arg(long, conflicts_with_all = FILTERS)]
    check: bool,
    #[command(flatten)]
    format: ListFormat,
}

// The filters of the list; no docstring, which would replace the description of the command.
#[derive(clap::Args, Debug)]
struct Filters {
    /// Only jobs in this state
    #[arg(long, value_name = "STATE", value_parser = api::JOB_STATES)]
    state: Option<String>,
    /// Only jobs of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Only jobs of this user, by login name or user ID
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only jobs on this account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Only jobs of this project
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Only jobs of this queue or partition
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only jobs of this node
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Maximum number of jobs [default: 50]
    #[arg(long, value_name = "N")]
    limit: Option<String>,
    /// Start of the next page, as printed in the last line of a full page
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
}

impl Filters {
    /// The parameters of `/api/v1/jobs`, without the time range and the limit.
    fn parameters(&self) -> [(&'static str, Option<String>); 9] {
        let Self { state, cluster, user, account, project, queue, name, device, after, .. } = self;
        [
            ("state", state),
            ("cluster", cluster),
            ("user", user),
            ("account", account),
            ("project", project),
            ("queue", queue),
            ("name", name),
            ("device", device),
            ("after", after),
        ]
        .map(|(name, value)| (name, value.clone()))
    }
}

/// `jobmeter jobs`.
pub(crate) fn jobs(client: &Client, args: &JobsArgs) -> anyhow::Result<ExitCode> {
    if args.check {
        return check(client, args.format);
    }
    let Filters { device, limit, .. } = &args.filters;
    let limit = limit.clone().unwrap_or_else(|| LISTED.to_string());
    let times = Times::of(client)?;
    let span = times.span_of(&args.range)?;
    crate::output::check_names::devices(device.as_deref())?;
    let filters = args.filters.parameters();
    let span = [("start", span.from.map(parameter)), ("end", span.to.map(parameter))];
    // Usage is expensive, so the command requests it for short lists only.
    let short = limit.parse().is_ok_and(|limit: usize| limit <= WITH_USAGE_MAX);
    let more = [("limit", Some(limit.clone())), ("usage", short.then(|| "true".to_owned()))];
    let path = path("/api/v1/jobs", &[&filters[..], &span[..], &more[..]].concat());
    let body = client.text(&path, "application/json")?;
    let jobs: Vec<api::Job> = client.understood(&path, &body)?;
    let mut unknown = Vec::new();
    if jobs.is_empty() {
        unknown = crate::client::name_suggestions::filters(client, &filters)?;
        unknown.iter().try_for_each(|line| note(line))?;
    }
    let code = ExitCode::from(if unknown.is_empty() { 0 } else { UNKNOWN });
    let is_full = limit.parse().is_ok_and(|limit: usize| jobs.len() >= limit);
    let next = jobs.last().and_then(place).filter(|_| is_full);
    let mut out = BufWriter::new(io::stdout().lock());
    let columns = api::columns::<api::Job>();
    let is_csv = csv_rows::written(args.format.csv, &columns, || Ok(body.clone()), &mut out)?;
    if args.format.json {
        writeln!(out, "{}", machine(&body))?;
        out.flush()?;
    }
    if is_csv || args.format.json {
        if let Some(place) = next {
            let count = jobs.len();
            note(&format!(
                "these are the newest {count} jobs at most; there may be more: raise --limit, or add --after {place}"
            ))?;
        }
        return Ok(code);
    }
    let is_narrowed = filters.iter().any(|(_, value)| value.is_some());
    if jobs.is_empty() && (is_narrowed || span != [("start", None), ("end", None)]) {
        // The reason says this already.
        if unknown.is_empty() {
            writeln!(out, "no job that is visible to you matches these options")?;
        }
        return Ok(out.flush().map(|()| code)?);
    }
    write_jobs(&jobs, &times, &mut out)?;
    if let Some(place) = next {
        writeln!(out, "there may be more jobs; add --after {place}")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The position after a job, from which the next page continues.
fn place(job: &api::Job) -> Option<String> {
    let start = job.start.or(job.submit)?;
    Some(format!("{}:{}@{start}", job.cluster, job.id))
}

fn write_jobs(jobs: &[api::Job], times: &Times, out: &mut impl Write) -> io::Result<()> {
    if jobs.is_empty() {
        return writeln!(out, "no jobs; to run one: jobmeter run -- make -j2");
    }
    let header = [
        "job", "user", "account", "queue", "name", "state", "start", "end", "wall", "limit",
        "cpus", "memory", "nodes",
    ];
    let row = |job: &api::Job| {
        let wall = wall(job, times.now()).map(|wall| {
            let is_bound = job.usage.is_some_and(|usage| usage.wall_at_least);
            at_least(is_bound, show::seconds(wall))
        });
        let user = job.user.clone().or_else(|| job.uid.map(|uid| uid.to_string()));
        let account = job.account.clone().or_else(|| job.project.clone());
        let cells = [
            Some(format!("{}:{}", job.cluster, job.display_id)),
            user,
            account,
            job.queue.clone(),
            job.name.clone(),
            Some(job.state.clone()),
            job.start.map(|start| times.show(start)),
            job.stop.map(|stop| times.show(stop)),
            wall,
            job.requested.wall_seconds.map(show::seconds),
            cores(job, times.now()),
            memory(job),
            Some(nodes(&job.devices)),
        ];
        cells.map(Option::unwrap_or_default)
    };
    let rows: Vec<_> = jobs.iter().map(row).collect();
    // Columns without a value in any row are omitted.
    let shown =
        |place: &usize| rows.iter().any(|row| row.get(*place).is_some_and(|c| !c.is_empty()));
    let places: Vec<usize> = (0..header.len()).filter(shown).collect();
    let pick = |of: &[String]| places.iter().filter_map(|place| of.get(*place).cloned()).collect();
    let header: Vec<&str> = places.iter().filter_map(|place| header.get(*place).copied()).collect();
    let mut table = Table::new(&header);
    for row in &rows {
        table.row(pick(row));
    }
    table.write(out)
}

/// Wall time of a job: as `jobmeter run` reported it, otherwise from the registered start to the end or to now.
fn wall(job: &api::Job, now: f64) -> Option<f64> {
    let reported = job.usage.and_then(|usage| usage.wall_seconds);
    reported.or_else(|| job.start.map(|start| (job.stop.unwrap_or(now) - start).max(0.0)))
}

/// Marks a lower bound.
fn at_least(is_bound: bool, value: String) -> String {
    if is_bound { format!(">={value}") } else { value }
}

/// Busy cores of a job, and its allocated cores.
fn cores(job: &api::Job, now: f64) -> Option<String> {
    let wall = wall(job, now).filter(|wall| *wall > 0.0);
    let used = job.usage.zip(wall).and_then(|(usage, wall)| {
        let cores = usage.cpu_seconds? / wall;
        Some(at_least(usage.cpu_at_least, format!("{cores:.1}")))
    });
    let has = job.used.cpus.or(job.requested.cpus).map(|cpus| cpus.to_string());
    of(used, has)
}

/// Peak memory of a job, and its memory limit.
fn memory(job: &api::Job) -> Option<String> {
    let used = job.usage.and_then(|usage| {
        Some(at_least(usage.memory_peak_at_least, show::bytes(usage.memory_peak_bytes?)))
    });
    of(used, job.requested.memory_bytes.map(|bytes| show::bytes(bytes as f64)))
}

fn of(used: Option<String>, has: Option<String>) -> Option<String> {
    match (used, has) {
        (Some(used), Some(has)) => Some(format!("{used} of {has}")),
        (used, has) => used.or_else(|| has.map(|has| format!("- of {has}"))),
    }
}

fn nodes(devices: &[String]) -> String {
    let (shown, more) = devices.split_at(devices.len().min(NODES_SHOWN));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", shown.join(","))
}

/// `jobmeter jobs --check`.
fn check(client: &Client, format: ListFormat) -> anyhow::Result<ExitCode> {
    let found: Vec<api::Disagreement> = client.get("/api/v1/jobs/check")?;
    let mut out = BufWriter::new(io::stdout().lock());
    if csv_rows::written(
        format.csv,
        &api::columns::<api::Disagreement>(),
        || Ok(serde_json::to_string(&found)?),
        &mut out,
    )? {
        // Both formats end with the same exit code.
    } else if format.json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&found)?))?;
    } else if found.is_empty() {
        writeln!(out, "schedulers and nodes agree")?;
    } else {
        let health: api::Health = client.get("/api/v1/health")?;
        let mut table =
            Table::new(&["job", "node", "difference", "for", "scheduler", "observed on the node"]);
        for one in &found {
            table.row(vec![
                format!("{}:{}", one.cluster, one.id),
                one.device.clone(),
                one.difference.clone(),
                show::seconds((health.now - one.since).max(0.0)),
                one.scheduler.clone(),
                one.node.clone(),
            ]);
        }
        table.write(&mut out)?;
    }
    out.flush()?;
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DISAGREE) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use model::Timestamp;

    fn job(id: i64) -> api::Job {
        api::Job {
            cluster: "site".to_owned(),
            id,
            display_id: id.to_string(),
            user: Some("alice".to_owned()),
            uid: Some(1000),
            state: "running".to_owned(),
            start: Some(1_767_706_500.0),
            devices: vec!["n1".to_owned()],
            ..api::Job::default()
        }
    }

    fn shown(jobs: &[api::Job]) -> String {
        let mut out = Vec::new();
        let times = Times::at(Timestamp::from_seconds(1_767_706_505), TimeZone::UTC);
        write_jobs(jobs, &times, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_no_job_has_is_no_column() {
        let text = shown(&[job(7)]);
        assert_eq!(
            text,
            "job     user   state    start     wall     nodes\nsite:7  alice  running  13:35:00  5.000 s  n1\n"
        );
        let mut waiting = job(8);
        (waiting.start, waiting.state, waiting.devices) = (None, "waiting".to_owned(), Vec::new());
        (waiting.account, waiting.queue) = (Some("physics".to_owned()), Some("long".to_owned()));
        waiting.requested.cpus = Some(64);
        let text = shown(&[waiting, job(7)]);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[0],
            ["job", "user", "account", "queue", "state", "start", "wall", "cpus", "nodes"]
        );
        assert_eq!(lines[1], ["site:8", "alice", "physics", "long", "waiting", "-", "of", "64"]);
        assert!(shown(&[]).starts_with("no job"));
        let mut used = job(9);
        used.usage = Some(api::Usage {
            cpu_seconds: Some(15.0),
            memory_peak_bytes: Some(1048576.0),
            wall_seconds: None,
            ..api::Usage::default()
        });
        (used.requested.cpus, used.requested.memory_bytes) = (Some(4), Some(8 << 30));
        let text = shown(&[used.clone()]);
        assert!(text.contains("3.0 of 4  1.0 MiB of 8.0 GiB"), "{text}");
        let mut reported = used;
        reported.usage.as_mut().unwrap().wall_seconds = Some(2.5);
        let text = shown(&[reported.clone()]);
        assert!(text.contains("  2.500 s  6.0 of 4  "), "of the run itself: {text}");
        // Only the values that are lower bounds are marked.
        let usage = reported.usage.as_mut().unwrap();
        (usage.cpu_at_least, usage.memory_peak_at_least) = (true, true);
        let text = shown(&[reported.clone()]);
        assert!(text.contains("  2.500 s  >=6.0 of 4  >=1.0 MiB of "), "{text}");
        let usage =
            api::Usage { cpu_at_least: false, wall_at_least: true, ..reported.usage.unwrap() };
        reported.usage = Some(usage);
        let text = shown(&[reported]);
        assert!(text.contains("  >=2.500 s  6.0 of 4  >=1.0 MiB of "), "{text}");
    }

    #[test]
    fn many_nodes_are_counted() {
        let names: Vec<String> = (1..=6).map(|n| format!("n{n}")).collect();
        assert_eq!(nodes(&names), "n1,n2,n3,n4 and 2 more");
        assert_eq!(nodes(&names[..4]), "n1,n2,n3,n4");
    }
}
