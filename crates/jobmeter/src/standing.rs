//! How what reports stands: `jobmeter nodes`, and `jobmeter explain` for one series.

use crate::client::{Client, path};
use crate::csv_rows;
use crate::missing;
use crate::show::{self, Table};
use crate::times::machine;
use crate::unknown;
use clap::ArgMatches;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Exit code when a node is silent, or a series is not known.
const NOT_WELL: u8 = 1;
/// How a source stands that costs more than it may.
const SLOWED: &str = "slowed";
/// Most series that the server explains at once.
const TOLD_MAX: usize = 100;

/// `jobmeter nodes`: exit code 1 when one that reported does not.
pub(crate) fn nodes(client: &Client, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let text = client.text("/api/v1/nodes", "application/json")?;
    let mut nodes: Vec<api::Node> = client.understood("/api/v1/nodes", &text)?;
    let all_well = nodes.iter().all(|node| node.alive || node.stopped);
    let code = if all_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) };
    if csv_rows::written(matches, || Ok(text.clone()), &mut out)? {
        return Ok(code);
    }
    if matches.get_flag("json") {
        writeln!(out, "{}", machine(&text))?;
        out.flush()?;
        return Ok(code);
    }
    let health: api::Health = client.get("/api/v1/health")?;
    nodes.sort_by_key(|node| node.alive);
    let mut table = Table::new(&[
        "node", "state", "every", "clock", "series", "jobs", "agent", "settings", "sources",
    ]);
    for node in &nodes {
        table.row(vec![
            node.device.clone(),
            state(node, health.now),
            node.period_seconds.map_or_else(String::new, show::seconds),
            node.clock_offset_seconds.map_or_else(String::new, |offset| format!("{offset:+.3} s")),
            node.series.to_string(),
            node.jobs.len().to_string(),
            node.agent_version.clone().unwrap_or_default(),
            settings(node),
            troubles(node),
        ]);
    }
    if table.is_empty() {
        writeln!(out, "no node has reported; on each: jobmeter-agent --server URL")?;
    } else {
        table.write(&mut out)?;
    }
    for node in &nodes {
        for trouble in &node.troubles {
            writeln!(
                out,
                "{}: {} is {}: {}",
                node.device, trouble.source, trouble.state, trouble.why
            )?;
        }
    }
    out.flush()?;
    Ok(code)
}

fn state(node: &api::Node, now: f64) -> String {
    match node.last_seen {
        _ if node.alive => "alive".to_owned(),
        Some(seen) => {
            let state = if node.stopped { "stopped" } else { "silent" };
            format!("{state} for {}", show::seconds((now - seen).max(0.0)))
        }
        None => "never reported".to_owned(),
    }
}

/// Which sources, or parts of them, give nothing or not all though they should, or are read more rarely.
fn troubles(node: &api::Node) -> String {
    let told = |word: &str, is_one: fn(&api::SourceTrouble) -> bool| {
        let names = node.troubles.iter().filter(|trouble| is_one(trouble));
        let names: Vec<&str> = names.map(|trouble| &*trouble.source).collect();
        (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")))
    };
    let all = [
        told("without", |trouble| trouble.state != SLOWED && !trouble.source.contains('/')),
        told("not all of", |trouble| trouble.source.contains('/')),
        told(SLOWED, |trouble| trouble.state == SLOWED),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "all well".to_owned() } else { all.join("; ") }
}

/// What the node runs by of the settings that the server told.
fn settings(node: &api::Node) -> String {
    match (&node.config_refused, node.config_generation) {
        (Some(why), _) => format!("refused: {why}"),
        (None, None | Some(0)) => "its own".to_owned(),
        (None, Some(_)) => "the server's".to_owned(),
    }
}

/// `jobmeter explain`.
pub(crate) fn explain(client: &Client, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let labels: serde_json::Map<String, serde_json::Value> = matches
        .get_many::<String>("label")
        .unwrap_or_default()
        .map(|label| match label.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.into())),
            None => Err(anyhow::anyhow!("--label {label}: write KEY=VALUE")),
        })
        .collect::<anyhow::Result<_>>()?;
    let labels = (!labels.is_empty()).then(|| serde_json::Value::Object(labels).to_string());
    let asked = [
        ("metric", text("metric")),
        ("device", text("device")),
        ("job", text("job")),
        ("labels", labels),
    ];
    let path = path("/api/v1/explain", &asked);
    let mut out = BufWriter::new(io::stdout().lock());
    let body = client.text(&path, "application/json")?;
    let explained: Vec<api::Explanation> = client.understood(&path, &body)?;
    if matches.get_flag("json") {
        writeln!(out, "{}", machine(&body))?;
        out.flush()?;
        return Ok(if explained.is_empty() { ExitCode::from(NOT_WELL) } else { ExitCode::SUCCESS });
    }
    let health: api::Health = client.get("/api/v1/health")?;
    let unread = missing::read_no_more(client, &explained)?;
    let unfit = missing::not_done(client, &explained);
    for (place, (one, unread)) in explained.iter().zip(unread).enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        write(&mut out, one, health.now)?;
        if let Some(why) = unread {
            writeln!(out, "  {:<9}not read: {why}", "now")?;
        }
        for line in unfit.get(place).into_iter().flatten() {
            writeln!(out, "  {:<9}{line}", "change")?;
        }
    }
    if explained.len() >= TOLD_MAX {
        writeln!(out, "\nonly {TOLD_MAX} series are told; --device, --job and --label name fewer")?;
    }
    out.flush()?;
    if !explained.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut stderr = io::stderr().lock();
    for line in why_none(client, text("device"), text("metric").as_deref().unwrap_or_default())? {
        writeln!(stderr, "jobmeter: {line}")?;
    }
    Ok(ExitCode::from(NOT_WELL))
}

/// Why there is no such series: a name that nobody has, or how the metric's source stands on the nodes.
fn why_none(client: &Client, device: Option<String>, metrics: &str) -> anyhow::Result<Vec<String>> {
    let mut lines = unknown::names(client, device.clone(), None)?;
    for metric in metrics.split(',').map(str::trim).filter(|metric| !metric.is_empty()) {
        lines.extend(match missing::source_of(metric) {
            Some(spec) => missing::why(client, device.as_deref(), metric, spec)?,
            None => unknown::names(client, None, Some(metric.to_owned()))?,
        });
    }
    if lines.is_empty() {
        lines.push("no sample of such a series came in the last day".to_owned());
    }
    Ok(lines)
}

/// A sender, or several of one kind.
struct From {
    name: String,
    last_seen: f64,
}

/// Agents by their names; runs of `jobmeter run`, of which a node may have thousands, as one line.
fn senders(all: &[api::Sender]) -> Vec<From> {
    let is_run = |sender: &&api::Sender| {
        model::Origin::new(&sender.origin).is_ok_and(|origin| origin.as_run().is_some())
    };
    let runs: Vec<&api::Sender> = all.iter().filter(is_run).collect();
    let one =
        |sender: &api::Sender| From { name: sender.origin.clone(), last_seen: sender.last_seen };
    let mut from: Vec<From> = all.iter().filter(|sender| !is_run(sender)).map(one).collect();
    match &*runs {
        [] => {}
        [run] => from.push(one(run)),
        runs => {
            let last_seen = runs.iter().map(|run| run.last_seen).fold(f64::MIN, f64::max);
            from.push(From { name: format!("{} runs", runs.len()), last_seen });
        }
    }
    from
}

/// One series, a line for each thing that is known of it.
fn write(out: &mut impl Write, one: &api::Explanation, now: f64) -> io::Result<()> {
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
                format!("{source}, which failed {} times in the last day", show::count(errors))
            }
            (Some(source), _) => format!("{source}, which did not fail in the last day"),
            (None, _) => "none of an agent's: pushed, or from another program".to_owned(),
        },
    )?;
    if let Some(last) = &one.last_error {
        line("error", format!("{}, {}: {}", ago(last.time), last.state, last.why))?;
    }
    for from in senders(&one.senders) {
        line("from", format!("{}, last batch {}", from.name, ago(from.last_seen)))?;
    }
    line("samples", format!("{} in the last day", show::count(one.samples as f64)))?;
    if let Some(period) = one.period_seconds {
        line("every", show::seconds(period))?;
    }
    if let Some(time) = one.time {
        let value = one.value.map_or_else(|| "no number".to_owned(), |value| value.to_string());
        line("newest", format!("{value}, {}", ago(time)))?;
    }
    if let Some(from) = one.counted_from {
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
    fn runs_are_one_line() {
        let sender = |origin: &str, last_seen| api::Sender { origin: origin.to_owned(), last_seen };
        let mut all = vec![sender("n1", 5.0), sender("n1/run-7", 1.0)];
        let names = |all: &[api::Sender]| {
            senders(all).into_iter().map(|it| (it.name, it.last_seen)).collect::<Vec<_>>()
        };
        assert_eq!(names(&all), [("n1".to_owned(), 5.0), ("n1/run-7".to_owned(), 1.0)]);
        all.extend((8..47).map(|id| sender(&format!("n1/run-{id}"), f64::from(id))));
        assert_eq!(names(&all), [("n1".to_owned(), 5.0), ("40 runs".to_owned(), 46.0)]);
    }
}
