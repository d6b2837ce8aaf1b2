//! Commands that ask the server: jobs, job, get, sql.

use crate::client::{Client, path};
use crate::show::{self, Table};
use anyhow::{Context, bail};
use clap::ArgMatches;
use std::io::{self, BufWriter, Read, Write};

/// Rows by which the columns of a table get their widths; later rows may be wider.
const ROWS_MEASURED: usize = 10_000;

fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

/// `jobmeter jobs`.
pub(crate) fn jobs(client: &Client, matches: &ArgMatches) -> anyhow::Result<()> {
    let limit = text(matches, "limit").unwrap_or_else(|| "50".to_owned());
    let parameters = [
        ("state", text(matches, "state")),
        ("user", text(matches, "user")),
        ("device", text(matches, "device")),
        ("limit", Some(limit)),
    ];
    let path = path("/api/v1/jobs", &parameters);
    let mut out = BufWriter::new(io::stdout().lock());
    if matches.get_flag("json") {
        writeln!(out, "{}", client.text(&path, "application/json")?)?;
        return Ok(out.flush()?);
    }
    let health: api::Health = client.get("/api/v1/health")?;
    let jobs: Vec<api::Job> = client.get(&path)?;
    let mut table = Table::new(&["job", "user", "name", "state", "wall", "nodes"]);
    for job in jobs {
        let wall = job.stop.unwrap_or(health.now) - job.start;
        table.row(vec![
            format!("{}:{}", job.cluster, job.spelling),
            job.user.or_else(|| job.uid.map(|uid| uid.to_string())).unwrap_or_default(),
            job.name.unwrap_or_default(),
            job.state,
            show::seconds(wall.max(0.0)),
            job.devices.join(","),
        ]);
    }
    if table.is_empty() {
        writeln!(out, "no job; to run one: jobmeter run -- make -j2")?;
    } else {
        table.write(&mut out)?;
    }
    Ok(out.flush()?)
}

/// `jobmeter job`, and its verbs.
pub(crate) fn job(client: &Client, matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    match matches.subcommand() {
        Some(("start", matches)) => return start(client, matches, device),
        Some(("end", matches)) => return end(client, matches),
        _ => {}
    }
    let Some(id) = text(matches, "id") else { bail!("name a job: jobmeter job [CLUSTER:]ID") };
    let path = format!("/api/v1/jobs/{}", crate::client::escape(&id));
    let mut out = BufWriter::new(io::stdout().lock());
    if matches.get_flag("json") {
        writeln!(out, "{}", client.text(&path, "application/json")?)?;
    } else {
        let report: api::JobReport = client.get(&path)?;
        crate::report::write(&report, &mut out)?;
    }
    Ok(out.flush()?)
}

fn start(client: &Client, matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    let device = text(matches, "device").unwrap_or_else(|| device.to_owned());
    let register = api::Register { name: text(matches, "name"), device, start: None };
    let registered: api::Registered = client.post("/api/v1/jobs", &register)?;
    let mut out = io::stdout().lock();
    if matches.get_flag("json") {
        writeln!(out, "{}", serde_json::to_string(&registered)?)?;
    } else {
        writeln!(out, "{}:{}", registered.cluster, registered.id)?;
    }
    Ok(())
}

fn end(client: &Client, matches: &ArgMatches) -> anyhow::Result<()> {
    let id = text(matches, "id").context("name a job: jobmeter job end [CLUSTER:]ID")?;
    let code = text(matches, "exit-code");
    let exit_code =
        code.map(|code| code.parse().context("--exit-code wants a number")).transpose()?;
    let path = format!("/api/v1/jobs/{}/end", crate::client::escape(&id));
    let job: api::Job = client.post(&path, &api::End { exit_code, stop: None })?;
    let mut out = io::stdout().lock();
    if matches.get_flag("json") {
        writeln!(out, "{}", serde_json::to_string(&job)?)?;
    }
    Ok(())
}

/// `jobmeter get`.
pub(crate) fn get(client: &Client, matches: &ArgMatches) -> anyhow::Result<()> {
    let (job, cluster) = match text(matches, "job") {
        Some(job) => match job.split_once(':') {
            Some((cluster, id)) => (Some(id.to_owned()), Some(cluster.to_owned())),
            None => (Some(job), None),
        },
        None => (None, None),
    };
    let (mut start, end) = (text(matches, "start"), text(matches, "end"));
    if start.is_none() && end.is_none() && (job.is_none() || text(matches, "last").is_some()) {
        let last = text(matches, "last").unwrap_or_else(|| "5m".to_owned());
        let last = config::parse_duration(&last)
            .with_context(|| format!("--last {last}: write 30s, 5m or 2h"))?;
        let health: api::Health = client.get("/api/v1/health")?;
        start = Some(format!("{:.6}", health.now - last.as_secs_f64()));
    } else if text(matches, "last").is_some() {
        bail!("--last goes with neither --start nor --end");
    }
    let end = end.or_else(|| {
        start.as_ref().filter(|_| text(matches, "start").is_none()).map(|_| "now".to_owned())
    });
    let parameters = [
        ("devices", text(matches, "device")),
        ("job_id", job),
        ("cluster", cluster),
        ("metrics", text(matches, "metric")),
        ("start_time", start),
        ("end_time", end),
        ("as_rate", matches.get_flag("rate").then(|| "auto".to_owned())),
    ];
    let format = text(matches, "format").unwrap_or_else(|| "table".to_owned());
    let accept = if format == "json" { "application/json" } else { "text/csv" };
    let body = client.stream(&path("/rpc/get_metrics", &parameters), accept)?;
    print(body, &format)
}

/// `jobmeter sql`.
pub(crate) fn sql(client: &Client, matches: &ArgMatches) -> anyhow::Result<()> {
    let query = text(matches, "query").unwrap_or_default();
    let format = text(matches, "format").unwrap_or_else(|| "table".to_owned());
    let accept = if format == "json" { "application/json" } else { "text/csv" };
    let body = client.post_stream("/api/v1/sql", &api::SqlQuestion { query }, accept)?;
    print(body, &format)
}

/// Prints a body of CSV or JSON, CSV as a table when asked to, as it comes.
fn print(mut body: impl Read, format: &str) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if format != "table" {
        io::copy(&mut body, &mut out)?;
        return Ok(out.flush()?);
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(body);
    let header: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut rows = 0;
    for record in reader.records() {
        table.row(record?.iter().map(str::to_owned).collect());
        rows += 1;
        if rows % ROWS_MEASURED == 0 {
            table.write(&mut out)?;
            table = Table::new(&header);
        }
    }
    if !table.is_empty() || rows == 0 {
        table.write(&mut out)?;
    }
    Ok(out.flush()?)
}
