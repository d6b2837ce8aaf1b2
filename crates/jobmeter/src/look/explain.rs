//! `jobmeter explain`: the origin of series, or why there is none.

use crate::client::http_client::{Client, path};
use crate::client::name_suggestions;
use crate::client::plain::note;
use crate::look::nodes_command::CONFLICT;
use crate::look::{devices, entry_errors, explain_missing};
use crate::output::options::{JsonOption, TimeRange};
use crate::output::show;
use crate::output::times::{Span, Times, machine, parameter};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Exit code for an unknown series.
const NOT_WELL: u8 = 1;
/// Path of the server's explanations.
const EXPLAIN: &str = "/api/v1/explain";
/// Maximum number of series that the server explains at once.
const EXPLAINED_MAX: usize = 100;

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
    let mut body = client.text(&path, "application/json")?;
    let mut explained: Vec<api::Explanation> = client.understood(&path, &body)?;
    if explained.is_empty()
        && let Some(of_feeders) = of_feeders(client, &query_parameters, &interval)?
    {
        (body, explained) = of_feeders;
    }
    explained.iter_mut().for_each(drop_other_runs);
    if args.format.json {
        writeln!(out, "{}", machine(&body))?;
    } else {
        write_all(client, &explained, &interval, &mut out)?;
    }
    out.flush()?;
    let missing = lacking(client, args, &interval, &explained)?;
    missing.iter().try_for_each(|line| note(line))?;
    let is_whole = !explained.is_empty() && missing.is_empty();
    Ok(ExitCode::from(if is_whole { 0 } else { NOT_WELL }))
}

/// The explanation of the series of devices that feed the selected node, as `jobmeter get` prints their samples; `None` if
/// there are none.
fn of_feeders(
    client: &Client,
    [metric, device, job, labels]: &[(&'static str, Option<String>); 4],
    interval: &Interval,
) -> anyhow::Result<Option<(String, Vec<api::Explanation>)>> {
    let (Some(node), None) = (&device.1, &labels.1) else { return Ok(None) };
    let feeders = devices::feeders(client, node);
    if node.contains(',') || feeders.is_empty() {
        return Ok(None);
    }
    let alias = serde_json::json!({ "_device_alias": node }).to_string();
    let parameters =
        [metric.clone(), ("device", Some(feeders.join(","))), job.clone(), ("labels", Some(alias))];
    let path = path(EXPLAIN, &[&parameters[..], &interval.parameters].concat());
    let body = client.text(&path, "application/json")?;
    let explained: Vec<api::Explanation> = client.understood(&path, &body)?;
    Ok((!explained.is_empty()).then_some((body, explained)))
}

/// The interval that is explained.
struct Interval {
    parameters: [(&'static str, Option<String>); 2],
    /// Text of the interval in messages.
    during: &'static str,
    /// Whether the interval ends now.
    is_current: bool,
    /// The server's time.
    now: f64,
}

impl Interval {
    fn of(times: &Times, args: &ExplainArgs) -> anyhow::Result<Self> {
        let span = times.span_of(&args.range)?;
        Ok(Self {
            parameters: [("start", span.from.map(parameter)), ("end", span.to.map(parameter))],
            during: if span == Span::default() { "in the last day" } else { "in this time" },
            is_current: span.to.is_none_or(|to| to == times.instant_now()),
            now: times.now(),
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
    interval: &Interval,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    let conflicts = |device: &str| nodes.iter().any(|node| node.conflict && node.device == device);
    let unread = match interval.is_current {
        true => explain_missing::read_no_more(client, &nodes, explained)?,
        false => Vec::new(),
    };
    let unfit = explain_missing::not_done(client, explained);
    let errors = match explained.iter().any(|one| !one.polls.is_empty()) {
        true => entry_errors_of(client, explained),
        false => Vec::new(),
    };
    for (place, one) in explained.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        write(out, one, (interval.during, interval.now))?;
        if conflicts(&one.series.device) {
            writeln!(out, "  {:<9}{CONFLICT}", "conflict")?;
        }
        if let Some(Some(why)) = unread.get(place) {
            writeln!(out, "  {:<9}not read: {why}", "now")?;
        }
        let is_of = |error: &&api::EntryError| {
            error.device.as_ref() == Some(&one.series.device)
                && error.metric.as_ref() == Some(&one.series.metric)
        };
        for error in errors.iter().filter(is_of) {
            writeln!(out, "  {:<9}{}", "entry", error.text())?;
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

/// The errors in entries of the metrics of these series.
fn entry_errors_of(client: &Client, explained: &[api::Explanation]) -> Vec<api::EntryError> {
    let metrics: Vec<&str> = explained.iter().map(|one| &*one.series.metric).collect();
    entry_errors::of(client, (None, &metrics.join(",")))
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
            true => why_none(client, (device, args.job.as_deref()), metrics, interval),
            false => Ok(narrowed),
        };
    }
    let mut lines =
        name_suggestions::names(client, device.clone().filter(|list| list.contains(',')), None)?;
    let has = |metric: &&str| explained.iter().any(|one| *one.series.metric == **metric);
    for metric in name_suggestions::words(Some(metrics)).filter(|metric| !has(metric)) {
        let selected = (device.clone(), args.job.as_deref());
        lines.extend(why_none(client, selected, metric, interval)?);
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

/// Explains why no series matches: an unknown name, the state of the metric's source on the nodes, or of the devices.
fn why_none(
    client: &Client,
    (device, job): (Option<String>, Option<&str>),
    metrics: &str,
    interval: &Interval,
) -> anyhow::Result<Vec<String>> {
    let during = interval.during;
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
        if let Some(device) = &device {
            lines.extend(devices::why_not(client, device, (metric, interval.now))?);
        }
    }
    if lines.is_empty() {
        let of_job = job.map_or_else(String::new, |job| format!(" of job {job}"));
        lines.push(format!("no samples of {metrics}{of_job} {during}"));
    }
    Ok(lines)
}

/// The source of an agent that reads a series.
fn source(one: &api::Explanation, during: &str) -> String {
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
    }
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
    devices::poll_lines(&one.polls, one.period_seconds, now)
        .into_iter()
        .try_for_each(|(what, text)| line(what, text))?;
    if one.polls.is_empty() {
        line("source", source(one, during))?;
    }
    if let Some(last) = &one.last_error {
        line("error", format!("{}, {}: {}", ago(last.time), last.state, last.reason))?;
    }
    for from in &one.senders {
        let rejected = match from.samples_rejected {
            0 => String::new(),
            count => format!(", {} of its samples rejected", show::count(count as f64)),
        };
        line("from", format!("{}, last batch {}{rejected}", from.origin, ago(from.last_seen)))?;
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
