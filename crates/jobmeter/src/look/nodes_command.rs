//! `jobmeter nodes`: the nodes with the status of their agents.

use crate::client::http_client::{Client, escape};
use crate::look::devices;
use crate::output::csv_rows;
use crate::output::options::ListFormat;
use crate::output::show::{self, Table};
use crate::output::times::{machine, machine_value};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Exit code for a silent node.
const NOT_WELL: u8 = 1;
/// Advice if several agents send under one name.
pub(super) const CONFLICT: &str = "several agents send under this name, so their samples are mixed; give each \
                        node its own --device";
/// State of a throttled source, which exceeds its limit of processor time.
const THROTTLED: &str = "throttled";

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
            agent(node),
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
    write_problems(&nodes, &mut out)?;
    if let Some(line) = devices::count_line(client) {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(code)
}

/// The version of a node's agent, or what reports the node instead.
fn agent(node: &api::Node) -> String {
    match (&node.agent_version, node.reported_by.as_deref()) {
        (None, Some(api::COLMET)) => "by Colmet".to_owned(),
        (version, _) => version.clone().unwrap_or_default(),
    }
}

/// Writes a line for each conflict and for each source that yields too few samples.
fn write_problems(nodes: &[api::Node], out: &mut impl Write) -> io::Result<()> {
    for node in nodes {
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
    Ok(())
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
        assert_eq!(agent(&node), "", "an older server");
        node.reported_by = Some("colmet".to_owned());
        assert_eq!(agent(&node), "by Colmet");
    }
}
