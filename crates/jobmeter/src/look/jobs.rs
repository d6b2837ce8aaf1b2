//! Commands about jobs: the list, the report of one job, and job registration in place of a scheduler.

use crate::output::csv_rows;
use crate::output::show::{self, Table};
use crate::output::times::{Times, machine, machine_value, parameter};
use crate::server::client::{Client, escape, path};
use crate::server::plain::note;
use anyhow::{Context, bail};
use clap::ArgMatches;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::str::FromStr;

/// Maximum nodes of a job in a row.
const NODES_SHOWN: usize = 4;
/// Exit code for disagreements between schedulers and nodes.
const DISAGREE: u8 = 1;
/// Maximum nodes in the registration of a job.
const NODES_MAX: usize = 65_536;
/// Options of `job start` that are only valid for a scheduler's job.
const UPDATE_OPTIONS: [&str; 5] = ["user", "account", "project", "queue", "nodes"];

/// Filters of the job list: options of `jobs`, and parameters of `/api/v1/jobs`.
pub(crate) const FILTERS: [&str; 10] =
    ["state", "cluster", "user", "account", "project", "queue", "name", "device", "after", "limit"];
/// Maximum length of a list with the usage of its jobs.
const WITH_USAGE_MAX: usize = 1000;
/// Default number of jobs per page.
const LISTED: usize = 50;

fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

/// `jobmeter jobs`.
pub(crate) fn jobs(client: &Client, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if matches.get_flag("check") {
        return check(client, matches);
    }
    let limit = text(matches, "limit").unwrap_or_else(|| LISTED.to_string());
    let times = Times::of(client)?;
    let span = times.span(matches)?;
    crate::output::names::devices(matches)?;
    let filters = FILTERS.map(|name| match name {
        "limit" => (name, Some(limit.clone())),
        _ => (name, text(matches, name)),
    });
    let span = [("start", span.from.map(parameter)), ("end", span.to.map(parameter))];
    // Usage is expensive, so the command requests it for short lists only.
    let short = limit.parse().is_ok_and(|limit: usize| limit <= WITH_USAGE_MAX);
    let usage = [("usage", short.then(|| "true".to_owned()))];
    let path = path("/api/v1/jobs", &[&filters[..], &span[..], &usage[..]].concat());
    let body = client.text(&path, "application/json")?;
    let jobs: Vec<api::Job> = client.understood(&path, &body)?;
    let mut unknown = Vec::new();
    if jobs.is_empty() {
        unknown = crate::server::name_suggestions::filters(client, &filters)?;
        unknown.iter().try_for_each(|line| note(line))?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if csv_rows::written(matches, &api::columns::<api::Job>(), || Ok(body.clone()), &mut out)? {
        return Ok(ExitCode::SUCCESS);
    }
    if matches.get_flag("json") {
        writeln!(out, "{}", machine(&body))?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_narrowed = FILTERS.iter().any(|name| *name != "limit" && matches.contains_id(name));
    if jobs.is_empty() && (is_narrowed || span != [("start", None), ("end", None)]) {
        // The reason says this already.
        if unknown.is_empty() {
            writeln!(out, "no job that is visible to you matches these options")?;
        }
        return Ok(out.flush().map(|()| ExitCode::SUCCESS)?);
    }
    write_jobs(&jobs, &times, &mut out)?;
    if let Some(place) = jobs.last().and_then(place)
        && limit.parse().is_ok_and(|limit: usize| jobs.len() >= limit)
    {
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
        let wall = wall(job, times.now()).map(|wall| at_least(job, show::seconds(wall)));
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

/// Marks a value of a job as a lower bound if some value of its usage is one.
fn at_least(job: &api::Job, value: String) -> String {
    let is_bound = job.usage.is_some_and(|usage| usage.at_least);
    if is_bound { format!(">={value}") } else { value }
}

/// Busy cores of a job, and its allocated cores.
fn cores(job: &api::Job, now: f64) -> Option<String> {
    let wall = wall(job, now).filter(|wall| *wall > 0.0);
    let seconds = job.usage.and_then(|usage| usage.cpu_seconds);
    let used =
        seconds.zip(wall).map(|(seconds, wall)| at_least(job, format!("{:.1}", seconds / wall)));
    let has = job.used.cpus.or(job.requested.cpus).map(|cpus| cpus.to_string());
    of(used, has)
}

/// Peak memory of a job, and its memory limit.
fn memory(job: &api::Job) -> Option<String> {
    let used = job.usage.and_then(|usage| usage.memory_peak_bytes);
    let used = used.map(|used| at_least(job, show::bytes(used)));
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
fn check(client: &Client, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let found: Vec<api::Disagreement> = client.get("/api/v1/jobs/check")?;
    let mut out = BufWriter::new(io::stdout().lock());
    if csv_rows::written(
        matches,
        &api::columns::<api::Disagreement>(),
        || Ok(serde_json::to_string(&found)?),
        &mut out,
    )? {
        // Both formats end with the same exit code.
    } else if matches.get_flag("json") {
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

/// `jobmeter job` and its subcommands.
pub(crate) fn job(client: &Client, matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    match matches.subcommand() {
        Some(("start", matches)) => return start(client, matches, device),
        Some(("end", matches)) => return end(client, matches),
        _ => {}
    }
    let Some(id) = text(matches, "id") else { bail!("name a job: jobmeter job [CLUSTER:]ID") };
    let path = format!("/api/v1/jobs/{}", escape(&id));
    let mut out = BufWriter::new(io::stdout().lock());
    if matches.get_flag("json") {
        writeln!(out, "{}", machine(&client.text(&path, "application/json")?))?;
    } else {
        let report: api::JobReport = client.get(&path)?;
        crate::output::report::write(&report, &Times::of(client)?, &mut out)?;
    }
    Ok(out.flush()?)
}

fn start(client: &Client, matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    crate::output::names::devices(matches)?;
    let registered: api::Registered = match text(matches, "id") {
        Some(id) => client.post("/api/v1/jobs", &job_update(&id, matches, device)?)?,
        None => {
            if let Some(word) = UPDATE_OPTIONS.iter().find(|word| matches.contains_id(word)) {
                bail!(
                    "--{word} needs a scheduler's job: jobmeter job start CLUSTER:ID --{word} ..."
                );
            }
            let device = text(matches, "device").unwrap_or_else(|| device.to_owned());
            let register = api::Register { name: text(matches, "name"), device, start: None };
            client.post("/api/v1/jobs", &register)?
        }
    };
    let job = format!("{}:{}", registered.cluster, registered.id);
    if let Some(user) = text(matches, "user").filter(|_| registered.user_unknown) {
        note(&format!(
            "the server does not know the user `{user}`; until it does, only administrators and \
             staff can see job {job}"
        ))?;
    }
    let text = match matches.get_flag("json") {
        true => serde_json::to_string(&registered)?,
        false => job.clone(),
    };
    let mut out = io::stdout().lock();
    let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) else { return Ok(()) };
    // Without the ID, the caller cannot end the job. The error is a text: a closed pipe must not count as
    // success here.
    let what = format!("cannot write the ID of job {job} to standard output: {error}");
    if matches.contains_id("id") {
        bail!("{what}; the job is registered");
    }
    let path = format!("/api/v1/jobs/{}/end", escape(&job));
    match client.post::<api::Job>(&path, &api::End { exit_code: None, stop: None }) {
        Ok(_) => bail!("{what}; the job was ended again"),
        Err(end) => {
            bail!("{what}; end it with `jobmeter job end {job}`; this failed now: {end:#}")
        }
    }
}

/// The job record from the options that a scheduler's prologue passes.
fn job_update(id: &str, matches: &ArgMatches, device: &str) -> anyhow::Result<api::JobUpdate> {
    let wrong = || format!("`{id}` is not a scheduler's job; write CLUSTER:ID, such as site:42");
    let (cluster, number) = id.split_once(':').with_context(wrong)?;
    let nodes = text(matches, "nodes").or_else(|| text(matches, "device"));
    let nodes = nodes.unwrap_or_else(|| device.to_owned());
    let nodes = model::expand_hosts(&nodes.replace(['\n', ' '], ","), NODES_MAX);
    // A node file lists each node once per allocated core.
    let names: std::collections::BTreeSet<String> = nodes.context("--nodes")?.into_iter().collect();
    let share = |device: String| api::NodeShare { device, ..Default::default() };
    Ok(api::JobUpdate {
        cluster: cluster.to_owned(),
        id: number.parse().ok().with_context(wrong)?,
        user: text(matches, "user"),
        account: text(matches, "account"),
        project: text(matches, "project"),
        name: text(matches, "name"),
        queue: text(matches, "queue"),
        start: Some(crate::clock().seconds()),
        nodes: Some(names.into_iter().map(share).collect()),
        ..api::JobUpdate::default()
    })
}

fn end(client: &Client, matches: &ArgMatches) -> anyhow::Result<()> {
    let id = text(matches, "id").context("name a job: jobmeter job end [CLUSTER:]ID")?;
    let code = text(matches, "exit-code");
    let exit_code = code
        .map(|code| i32::from_str(&code).context("--exit-code must be a number"))
        .transpose()?;
    let path = format!("/api/v1/jobs/{}/end", escape(&id));
    let ended: api::Ended = client.post(&path, &api::End { exit_code, stop: None })?;
    let mut out = io::stdout().lock();
    if matches.get_flag("json") {
        writeln!(out, "{}", machine_value(serde_json::to_value(&ended)?))?;
    }
    if !ended.changed {
        let (cluster, id) = (&ended.job.cluster, ended.job.id);
        note(&format!("job {cluster}:{id} had already ended; nothing was changed"))?;
    }
    Ok(())
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
            account: None,
            project: None,
            name: None,
            queue: None,
            state: "running".to_owned(),
            state_word: None,
            submit: None,
            start: Some(1_767_706_500.0),
            stop: None,
            exit_code: None,
            part_of: None,
            array_index: None,
            types: Vec::new(),
            requested: api::Resources::default(),
            used: api::Resources::default(),
            devices: vec!["n1".to_owned()],
            usage: None,
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
            at_least: false,
        });
        (used.requested.cpus, used.requested.memory_bytes) = (Some(4), Some(8 << 30));
        let text = shown(&[used.clone()]);
        assert!(text.contains("3.0 of 4  1.0 MiB of 8.0 GiB"), "{text}");
        let mut reported = used;
        reported.usage.as_mut().unwrap().wall_seconds = Some(2.5);
        let text = shown(&[reported.clone()]);
        assert!(text.contains("  2.500 s  6.0 of 4  "), "of the run itself: {text}");
        reported.usage.as_mut().unwrap().at_least = true;
        let text = shown(&[reported]);
        assert!(text.contains("  >=2.500 s  >=6.0 of 4  >=1.0 MiB of "), "{text}");
    }

    #[test]
    fn many_nodes_are_counted() {
        let names: Vec<String> = (1..=6).map(|n| format!("n{n}")).collect();
        assert_eq!(nodes(&names), "n1,n2,n3,n4 and 2 more");
        assert_eq!(nodes(&names[..4]), "n1,n2,n3,n4");
    }
}
