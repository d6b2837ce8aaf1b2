//! Why a node has no series of a metric: how the source that would tell it stands there.

use crate::client::{Client, path};
use crate::describe;
use sources::SourceSpec;

/// 1 for each source that an agent reads and that gives samples, else 0; none of a source that it does not read.
const WORKING: &str = "agent_source_working";
/// Most nodes that are told of.
const NODES_MAX: usize = 20;

/// The source of nodes that tells a metric of this name, if one does: not the agent's own account, nor that of
/// `jobmeter run`, of which no agent says how they stand.
pub(crate) fn source_of(metric: &str) -> Option<&'static SourceSpec> {
    let is_of_nodes = |spec: &&SourceSpec| sources::list::find(spec.name).is_some();
    let has = |spec: &&SourceSpec| spec.metrics.iter().any(|one| one.name == metric);
    describe::all().filter(is_of_nodes).find(has)
}

/// Why these devices, all nodes if none is named, have no series of one of its metrics; a sentence each.
pub(crate) fn why(
    client: &Client,
    devices: Option<&str>,
    metric: &str,
    spec: &SourceSpec,
) -> anyhow::Result<Vec<String>> {
    let named: Option<Vec<&str>> = devices
        .map(|list| list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect());
    let mut nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    nodes.retain(|node| named.as_ref().is_none_or(|named| named.contains(&&*node.device)));
    let more = nodes.len().saturating_sub(NODES_MAX);
    nodes.truncate(NODES_MAX);
    let list: Vec<&str> = nodes.iter().map(|node| &*node.device).collect();
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let asked = [("metric", Some(WORKING.to_owned())), ("device", Some(list.join(",")))];
    let told: Vec<api::Last> = client.get(&path("/api/v1/last", &asked))?;
    let mut lines: Vec<String> =
        nodes.iter().map(|node| of_node(node, &told, metric, spec)).collect();
    if more > 0 {
        lines.push(format!("{more} more nodes; --device names one"));
    }
    Ok(lines)
}

fn of_node(node: &api::Node, told: &[api::Last], metric: &str, spec: &SourceSpec) -> String {
    let (device, source) = (&node.device, spec.name);
    if let Some(trouble) = node.troubles.iter().find(|trouble| trouble.source == source) {
        return format!("{device}: source {source} is {}: {}", trouble.state, trouble.why);
    }
    let mut told = told.iter().filter(|last| last.series.device == *device).peekable();
    if told.peek().is_none() {
        return format!("{device}: its agent tells nothing of its sources");
    }
    let is_it = |last: &&api::Last| last.series.labels.get("source").is_some_and(|is| is == source);
    match told.find(is_it).and_then(|last| last.value) {
        None => format!(
            "{device}: source {source} is not read: the agent's settings switch it off, or it is optional and nothing \
             promotes it (`jobmeter promote {metric} --nodes {device}`)"
        ),
        Some(working) if working > 0.0 => format!(
            "{device}: source {source} works and gave no {metric} in the last day: the node has nothing that it could \
             tell, an option of [sources.{source}] is wanted for it, or it is optional and nothing promotes it"
        ),
        Some(_) => format!(
            "{device}: source {source} is absent: the node lacks what it reads ({}), or [sources.{source}] does not say \
             what to read; `jobmeter doctor` there tells which",
            spec.reads.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_metric_is_known_without_a_node_that_has_it() {
        let of = |metric| source_of(metric).map(|spec| spec.name);
        assert_eq!(of("load_1m"), Some("load"));
        assert_eq!(of("cpufreq_mean_hertz"), Some("cpufreq"));
        assert_eq!(of("agent_cpu_seconds_total"), None);
        assert_eq!(of("load"), None);
    }
}
