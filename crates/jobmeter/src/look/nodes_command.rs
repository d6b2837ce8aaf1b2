//! Status of reporting components: `jobmeter nodes`, and `jobmeter explain` for one series.

use crate::client::http_client::{Client, escape, path};
use crate::client::name_suggestions;
use crate::look::explain_missing;
use crate::output::csv_rows;
use crate::output::options::{JsonOption, ListFormat, TimeRange};
use crate::output::show::{self, Table};
use crate::output::times::{Span, Times, machine, machine_value, parameter};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Exit code for a silent node, or for an unknown series.
const NOT_WELL: u8 = 1;
/// Advice if several agents send under one name.
const CONFLICT: &str = "several agents send under this name, so their samples are mixed; give each \
                        node its own --device";
/// State of a throttled source, which exceeds its limit of processor time.
const THROTTLED: &str = "throttled";
/// Path of the server's explanations.
const EXPLAIN: &str = "/api/v1/explain";
/// Maximum number of series that the server explains at once.
const EXPLAINED_MAX: usize = 100;

/// Lists the nodes with their state, clock and agent; exit code 1 if one is silent or has several agents
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter nodes --json")]
pub(crate) struct NodesArgs {
    /// Remove a retired node from the list until it sends again; for administrators
    #[arg(long, value_name = "NODE", conflicts_with = "csv")]
    forget: Option<String>,
    #[command(flatten)]
    format: ListFormat,
}

/// Explains the origin of a series: source, period, errors, gaps; or why a node has none (exit code 1)
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter explain load_1m --device node-1")]
#[command(
    mut_arg("since", |arg| arg.help("Only samples, errors and gaps from this time on [default: 1d]")),
    mut_arg("until", |arg| arg.help("Only samples, errors and gaps until this time [default: now]")),
    mut_arg("last", |arg| arg.help("Only samples, errors and gaps of this time before now"))
)]
pub(crate) struct ExplainArgs {
    /// The metric, such as load_1m; several, separated by commas
    #[arg(value_name = "METRIC")]
    metric: String,
    /// Only of this device; several, separated by commas
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only of this job; `none`: only series of no job
    #[arg(long, value_name = "[CLUSTER:]ID")]
    job: Option<String>,
    /// Only series with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    #[command(flatten)]
    range: TimeRange,
    #[command(flatten)]
    format: JsonOption,
}

/// `jobmeter nodes`: exit code 1 if a node has stopped reporting.
pub(crate) fn nodes(client: &Client, args: &NodesArgs) -> anyhow::Result<ExitCode> {
    if let Some(node) = &args.forget {
        return forget(client, node, args.format.json);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let text = client.text("/api/v1/nodes", "application/json")?;
    let mut nodes: Vec<api::Node> = client.understood("/api/v1/nodes", &text)?;
    let is_well = |node: &api::Node| (node.alive || node.stopped) && !node.conflict;
    let all_well = nodes.iter().all(is_well);
    let code = if all_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) };
    if csv_rows::written(
        args.format.csv,
        &api::columns::<api::Node>(),
        || Ok(text.clone()),
        &mut out,
    )? {
        return Ok(code);
    }
    if args.format.json {
        writeln!(out, "{}", machine(&text))?;
        out.flush()?;
        return Ok(code);
    }
    let health: api::Health = client.get("/api/v1/health")?;
    nodes.sort_by_key(is_well);
    let mut table = Table::new(&[
        "node",
        "state",
        "sends every",
        "clock",
        "series",
        "jobs",
        "agent",
        "settings",
        "sources",
    ]);
    for node in &nodes {
        table.row(vec![
            node.device.clone(),
            state(node, health.now),
            node.period_seconds.map_or_else(String::new, show::seconds),
            node.clock_offset_seconds.map_or_else(String::new, show::offset),
            node.series.to_string(),
            node.jobs.len().to_string(),
            node.agent_version.clone().unwrap_or_default(),
            settings(node),
            source_states(node),
        ]);
    }
    if table.is_empty() {
        let me: api::Me = client.get("/api/v1/me")?;
        writeln!(out, "{}", no_node(&me))?;
    } else {
        table.write(&mut out)?;
    }
    for node in &nodes {
        if node.conflict {
            writeln!(out, "{}: {CONFLICT}", node.device)?;
        }
        for error in &node.source_errors {
            writeln!(
                out,
                "{}: {} is {}: {}",
                node.device, error.source, error.state, error.reason
            )?;
        }
    }
    out.flush()?;
    Ok(code)
}

/// The message for an empty list of nodes.
fn no_node(me: &api::Me) -> &'static str {
    if me.sees_nodes == "own" {
        return "no node is visible to you: this server shows users only the nodes of their own running jobs";
    }
    "no node has reported; on each: jobmeter-agent --server URL"
}

/// `jobmeter nodes --forget`.
fn forget(client: &Client, node: &str, json: bool) -> anyhow::Result<ExitCode> {
    let node: api::Node = client.delete(&format!("/api/v1/nodes/{}", escape(node)))?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&node)?))?;
    } else {
        writeln!(out, "{} is forgotten; retention deletes its samples", node.device)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn state(node: &api::Node, now: f64) -> String {
    match node.last_seen {
        _ if node.conflict => "conflict".to_owned(),
        _ if node.alive => "alive".to_owned(),
        Some(seen) => {
            let state = if node.stopped { "stopped" } else { "silent" };
            format!("{state} for {}", show::seconds((now - seen).max(0.0)))
        }
        None => "never reported".to_owned(),
    }
}

/// Sources, and parts of sources, that yield too few samples or are throttled.
fn source_states(node: &api::Node) -> String {
    let explain_state = |word: &str, is_one: fn(&api::SourceError) -> bool| {
        let names = node.source_errors.iter().filter(|error| is_one(error));
        let names: Vec<&str> = names.map(|error| &*error.source).collect();
        (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")))
    };
    let all = [
        explain_state("without", |error| error.state != THROTTLED && !error.source.contains('/')),
        explain_state("not all of", |error| error.source.contains('/')),
        explain_state(THROTTLED, |error| error.state == THROTTLED),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "all well".to_owned() } else { all.join("; ") }
}

/// Code of a setting that the node applies for a shorter time.
const SHORTENED: &str = "shortened";

/// A setting that the node rejects or shortens, and why.
fn rejection(rejected: &api::SettingRejection) -> String {
    let api::SettingRejection { setting, reason, .. } = rejected;
    if setting.is_empty() { reason.clone() } else { format!("{setting}: {reason}") }
}

/// The generation of the server's settings that the node applies, or why it rejected or shortened some.
fn settings(node: &api::Node) -> String {
    let with = |word: &str, is_shortened: bool| {
        let all = node.config_rejected.iter();
        let all: Vec<String> =
            all.filter(|one| (one.code == SHORTENED) == is_shortened).map(rejection).collect();
        (!all.is_empty()).then(|| format!("{word}: {}", all.join("; ")))
    };
    let not_all: Vec<String> =
        [with("rejected", false), with(SHORTENED, true)].into_iter().flatten().collect();
    match node.config_generation {
        _ if !not_all.is_empty() => not_all.join("; "),
        None | Some(0) => "its own".to_owned(),
        Some(_) => "the server's".to_owned(),
    }
}

/// `jobmeter explain`.
pub(crate) fn explain(client: &Client, args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let labels: serde_json::Map<String, serde_json::Value> = args
        .labels
        .iter()
        .map(|label| match label.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.into())),
            None => Err(anyhow::anyhow!("--label {label}: write KEY=VALUE")),
        })
        .collect::<anyhow::Result<_>>()?;
    let labels = (!labels.is_empty()).then(|| serde_json::Value::Object(labels).to_string());
    let times = Times::of(client)?;
    let interval = Interval::of(&times, args)?;
    let query_parameters = [
        ("metric", Some(args.metric.clone())),
        ("device", crate::output::check_names::devices(args.device.as_deref())?),
        ("job", args.job.clone()),
        ("labels", labels),
    ];
    let path = path(EXPLAIN, &[&query_parameters[..], &interval.parameters].concat());
    let mut out = BufWriter::new(io::stdout().lock());
    let body = client.text(&path, "application/json")?;
    let mut explained: Vec<api::Explanation> = client.understood(&path, &body)?;
    explained.iter_mut().for_each(drop_other_runs);
    if args.format.json {
        writeln!(out, "{}", machine(&body))?;
    } else {
        write_all(client, &explained, (&interval, times.now()), &mut out)?;
    }
    out.flush()?;
    let missing = lacking(client, args, &interval, &explained)?;
    missing.iter().try_for_each(|line| crate::client::plain::note(line))?;
    let is_whole = !explained.is_empty() && missing.is_empty();
    Ok(ExitCode::from(if is_whole { 0 } else { NOT_WELL }))
}

/// The interval that is explained.
struct Interval {
    parameters: [(&'static str, Option<String>); 2],
    /// Text of the interval in messages.
    during: &'static str,
    /// Whether the interval ends now.
    is_current: bool,
}

impl Interval {
    fn of(times: &Times, args: &ExplainArgs) -> anyhow::Result<Self> {
        let span = times.span_of(&args.range)?;
        Ok(Self {
            parameters: [("start", span.from.map(parameter)), ("end", span.to.map(parameter))],
            during: if span == Span::default() { "in the last day" } else { "in this time" },
            is_current: span.to.is_none_or(|to| to == times.instant_now()),
        })
    }
}

/// Drops senders without a relation to the series: runs of other jobs on its node.
fn drop_other_runs(one: &mut api::Explanation) {
    let job = one.series.job;
    one.senders.retain(|sender| {
        let origin = model::Origin::new(&sender.origin);
        let run = origin.as_ref().ok().and_then(model::Origin::as_run);
        run.is_none_or(|(_, id)| job == Some(id.get()))
    });
}

fn write_all(
    client: &Client,
    explained: &[api::Explanation],
    (interval, now): (&Interval, f64),
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    let conflicts = |device: &str| nodes.iter().any(|node| node.conflict && node.device == device);
    let unread = match interval.is_current {
        true => explain_missing::read_no_more(client, &nodes, explained)?,
        false => Vec::new(),
    };
    let unfit = explain_missing::not_done(client, explained);
    for (place, one) in explained.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        write(out, one, (interval.during, now))?;
        if conflicts(&one.series.device) {
            writeln!(out, "  {:<9}{CONFLICT}", "conflict")?;
        }
        if let Some(Some(why)) = unread.get(place) {
            writeln!(out, "  {:<9}not read: {why}", "now")?;
        }
        for line in unfit.get(place).into_iter().flatten() {
            writeln!(out, "  {:<9}{line}", "change")?;
        }
    }
    if explained.len() >= EXPLAINED_MAX {
        writeln!(
            out,
            "\nonly {EXPLAINED_MAX} series are shown; restrict them with --device, --job and \
                       --label"
        )?;
    }
    Ok(())
}

/// Explains requested names without series: all of them, or some names in a list.
fn lacking(
    client: &Client,
    args: &ExplainArgs,
    interval: &Interval,
    explained: &[api::Explanation],
) -> anyhow::Result<Vec<String>> {
    let (device, metrics) = (args.device.clone(), &args.metric);
    if explained.len() >= EXPLAINED_MAX {
        return Ok(Vec::new());
    }
    if explained.is_empty() {
        let narrowed = too_narrow(client, args, interval)?;
        return match narrowed.is_empty() {
            true => why_none(client, (device, args.job.as_deref()), metrics, interval.during),
            false => Ok(narrowed),
        };
    }
    let mut lines =
        name_suggestions::names(client, device.clone().filter(|list| list.contains(',')), None)?;
    let has = |metric: &&str| explained.iter().any(|one| *one.series.metric == **metric);
    for metric in name_suggestions::words(Some(metrics)).filter(|metric| !has(metric)) {
        let selected = (device.clone(), args.job.as_deref());
        lines.extend(why_none(client, selected, metric, interval.during)?);
    }
    lines.sort_unstable();
    lines.dedup();
    Ok(lines)
}

/// Whether series exist without the requested label, or without the requested job.
fn too_narrow(
    client: &Client,
    args: &ExplainArgs,
    interval: &Interval,
) -> anyhow::Result<Vec<String>> {
    let ExplainArgs { metric, device, labels, .. } = args;
    let series = |job: Option<String>| -> anyhow::Result<Vec<api::Explanation>> {
        let query_parameters =
            [("metric", Some(metric.clone())), ("device", device.clone()), ("job", job)];
        client.get(&path(EXPLAIN, &[&query_parameters[..], &interval.parameters].concat()))
    };
    if !labels.is_empty() && !series(args.job.clone())?.is_empty() {
        return Ok(vec![format!("no series of {metric} has the label {}", labels.join(", "))]);
    }
    if args.job.as_deref().is_none_or(|job| job == "none") {
        return Ok(Vec::new());
    }
    let all = series(None)?;
    Ok(match !all.is_empty() && all.iter().all(|one| one.series.job.is_none()) {
        true => vec![format!("{metric} is a metric of nodes, not of jobs; omit --job")],
        false => Vec::new(),
    })
}

/// Explains why no series matches: an unknown name, or the state of the metric's source on the nodes.
fn why_none(
    client: &Client,
    (device, job): (Option<String>, Option<&str>),
    metrics: &str,
    during: &str,
) -> anyhow::Result<Vec<String>> {
    let job = job.filter(|job| *job != "none");
    let mut lines = name_suggestions::names(client, device.clone(), None)?;
    for metric in name_suggestions::words(Some(metrics)) {
        lines.extend(match explain_missing::source_of(metric) {
            Some(spec) => {
                let selected = (device.as_deref(), job);
                explain_missing::why(client, selected, (metric, during), spec)?
            }
            None => name_suggestions::names(client, None, Some(metric.to_owned()))?,
        });
    }
    if lines.is_empty() {
        let of_job = job.map_or_else(String::new, |job| format!(" of job {job}"));
        lines.push(format!("no samples of {metrics}{of_job} {during}"));
    }
    Ok(lines)
}

/// Writes one series, with one line per known property.
fn write(
    out: &mut impl Write,
    one: &api::Explanation,
    (during, now): (&str, f64),
) -> io::Result<()> {
    let series = &one.series;
    let labels: Vec<String> =
        series.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!(" {{{}}}", labels.join(", ")) };
    writeln!(out, "{} {}{labels}", series.device, series.metric)?;
    let mut line = |what: &str, text: String| writeln!(out, "  {what:<9}{text}");
    line("means", one.help.clone())?;
    let unit = if series.unit.is_empty() { String::new() } else { format!(" in {}", series.unit) };
    line("kind", format!("{}{unit}", series.kind))?;
    if let (Some(cluster), Some(job)) = (&series.cluster, series.job) {
        line("job", format!("{cluster}:{job}"))?;
    }
    let ago = |at: f64| format!("{} ago", show::seconds((now - at).max(0.0)));
    line(
        "source",
        match (&one.source, one.source_errors) {
            (Some(source), Some(errors)) if errors > 0.0 => {
                let times =
                    if errors == 1.0 { "once" } else { &*format!("{} times", show::count(errors)) };
                format!("{source}, which failed {times} {during}")
            }
            (Some(source), _) if source == "agent" => "the agent itself".to_owned(),
            (Some(source), _) if source == "run" => "`jobmeter run` itself".to_owned(),
            (Some(source), _) => format!("{source}, which did not fail {during}"),
            (None, _) => "not from an agent: pushed by another program".to_owned(),
        },
    )?;
    if let Some(last) = &one.last_error {
        line("error", format!("{}, {}: {}", ago(last.time), last.state, last.reason))?;
    }
    for from in &one.senders {
        line("from", format!("{}, last batch {}", from.origin, ago(from.last_seen)))?;
    }
    let distance = one.period_seconds.map_or_else(String::new, |seconds| {
        format!(", the latest samples every {}", show::seconds(seconds))
    });
    line("samples", format!("{} {during}{distance}", show::count(one.samples as f64)))?;
    if let Some(time) = one.time {
        let value = one.value.map_or_else(|| "no number".to_owned(), |value| value.to_string());
        line("newest", format!("{value}, {}", ago(time)))?;
    }
    if let Some(from) = one.counter_start {
        line("counts", format!("since {}", ago(from)))?;
    }
    let hidden = one.gaps_count.saturating_sub(one.gaps.len() as u64);
    if hidden > 0 {
        line("gaps", format!("{hidden} older ones, and"))?;
    }
    for gap in &one.gaps {
        let detail =
            if gap.detail.is_empty() { String::new() } else { format!(": {}", gap.detail) };
        let length = show::seconds(gap.to - gap.from);
        line("gap", format!("{length}, {}, {}{detail}", ago(gap.to), gap.cause))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_setting_is_not_rejected() {
        let one = |code: &str| serde_json::json!({"setting": "sources.load", "code": code, "reason": "a limit"});
        let node = serde_json::json!({"device": "n1", "alive": true, "stopped": false, "last_seen": null,
            "period_seconds": null, "clock_offset_seconds": null, "agent_version": null, "config_generation": "7",
            "config_rejected": [one("shortened"), one("limit")], "source_errors": [], "sources_restricted": [],
            "series": 0, "jobs": [], "cpu_cores_used": null, "cpu_cores": null, "memory_used_bytes": null,
            "memory_bytes": null});
        let mut node: api::Node = serde_json::from_value(node).unwrap();
        let why = "sources.load: a limit";
        assert_eq!(settings(&node), format!("rejected: {why}; shortened: {why}"));
        node.config_rejected.clear();
        assert_eq!(settings(&node), "the server's");
    }

    #[test]
    fn runs_of_other_jobs_are_dropped() {
        let origins = |job: Option<i64>| {
            let one = serde_json::json!({
                "device": "n1", "metric": "load_1m", "cluster": null, "job": job, "labels": {}, "unit": "",
                "kind": "gauge", "help": "", "source": "load", "source_errors": null, "last_error": null,
                "senders": [{"origin": "n1", "last_seen": 1}, {"origin": "n1/run-7", "last_seen": 1},
                    {"origin": "n1/run-8", "last_seen": 1}],
                "period_seconds": null, "samples": 0, "time": null, "value": null, "counter_start": null,
                "gaps": [], "gaps_count": 0,
            });
            let mut one: api::Explanation = serde_json::from_value(one).unwrap();
            drop_other_runs(&mut one);
            one.senders.into_iter().map(|sender| sender.origin).collect::<Vec<_>>()
        };
        assert_eq!(origins(None), ["n1"]);
        assert_eq!(origins(Some(8)), ["n1", "n1/run-8"]);
    }
}
