//! Explains changes, promotions and flushes without an effect: no known metric, no node, no optional metric, no burst.

use crate::change::change_list::in_flags;
use crate::client::http_client::{Client, path};
use crate::client::plain::note;
use api::{Promoted, SetChange, SetRejection};
use config::MetricPattern;
use model::NodeList;

/// Why a node does not read a metric before its promotion.
const OPTIONAL: &str = "optional";
/// Metrics of an agent: the state of each source, and the flushes of each source with a burst.
const WORKING: &str = "agent_source_working";
const FLUSHES: &str = "agent_source_burst_flushes_total";
/// Maximum number of nodes to look up for bursts.
const LOOKED_UP_MAX: usize = 100;
/// Most unknown nodes that are named.
const NAMED_MAX: usize = 10;

/// Messages for new promotions without a known metric, a node that has reported, or a metric that needs
/// promotion.
pub(super) fn of_promotions(client: &Client, promoted: &[Promoted]) -> anyhow::Result<Vec<String>> {
    let Some(first) = promoted.first() else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    let catalogue: Vec<api::MetricInfo> = client.get("/api/v1/catalogue")?;
    let Ok(pattern) = MetricPattern::new(&first.metric) else { return Ok(lines) };
    // The catalogue contains an optional metric only after its first sample.
    let declared =
        crate::node::describe::all().flat_map(|spec| spec.metrics).map(|metric| &*metric.name);
    let names = declared.chain(catalogue.iter().map(|metric| &*metric.name));
    let names: Vec<&str> = names.filter(|name| pattern.matches(name)).collect();
    let devices: Vec<api::Device> = client.get("/api/v1/devices?limit=10000").unwrap_or_default();
    let is_polled = |one: &Promoted| is_polled(&devices, &one.nodes);
    if names.is_empty() && promoted.iter().any(is_polled) {
        // Exposed metrics have names of their own, so an entry of an exporter is in no catalogue.
        if !begins_one(&first.metric, catalogue.iter().map(|metric| &*metric.name)) {
            note(&format!(
                "no metric that has samples begins with a match of `{}`; the poller reads its optional entries with such \
                 names, if it has any",
                first.metric
            ))?;
        }
    } else if names.is_empty() {
        lines.push(format!(
            "{}, and promotes nothing yet: `{}` matches no known metric; write a regular \
             expression of full metric names, such as perf_.*, or the beginning of the name of a \
             poller's entry",
            made(promoted),
            first.metric
        ));
    }
    let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    // Only a poller knows its entries.
    for one in promoted.iter().filter(|one| !is_polled(one)) {
        let Ok(list) = NodeList::new(&one.nodes) else { continue };
        let made = made(std::slice::from_ref(one));
        let named: Vec<&api::Node> = nodes.iter().filter(|node| list.has(&node.device)).collect();
        if named.is_empty() {
            lines.push(format!(
                "{made}, and promotes nothing yet: no node `{}` has reported",
                one.nodes
            ));
            continue;
        }
        lines.extend(unknown_among(&nodes, &one.nodes, &made));
        if !names.is_empty() && !named.iter().any(|node| may_wait(node, &names)) {
            lines.push(format!(
                "{made}, and promotes nothing yet: no metric that `{}` matches is optional on `{}`: the nodes read it \
                 already, or their settings switch it off; `jobmeter explain {} --device {}` shows why",
                one.metric,
                one.nodes,
                names.first().copied().unwrap_or_default(),
                named.first().map_or("NODE", |node| &*node.device)
            ));
        }
    }
    Ok(lines)
}

/// Whether a name begins with a match, as pollers match the names of their entries.
fn begins_one<'a>(expression: &str, mut names: impl Iterator<Item = &'a str>) -> bool {
    config::bounded_regex(&format!("^(?:{expression})"))
        .is_ok_and(|start| names.any(|name| start.is_match(name)))
}

/// Whether a poller reads a device of the list, or one that feeds a node of it.
fn is_polled(devices: &[api::Device], list: &str) -> bool {
    let Ok(list) = NodeList::new(list) else { return false };
    let mut polled = devices.iter().filter(|device| device.poller.is_some());
    polled.any(|one| list.has(&one.device) || one.aliases.iter().any(|node| list.has(node)))
}

/// Messages for the names of a list that are no known node, if others are; ranges and stars are not checked. `made`
/// names what holds for the others.
pub(super) fn unknown_nodes(client: &Client, list: &str, made: &str) -> Vec<String> {
    let nodes = client.get::<Vec<api::Node>>("/api/v1/nodes");
    nodes.map_or_else(|_| Vec::new(), |nodes| unknown_among(&nodes, list, made))
}

fn unknown_among(nodes: &[api::Node], list: &str, made: &str) -> Vec<String> {
    let Ok(list) = NodeList::new(list) else { return Vec::new() };
    let is_known =
        |name: &str| nodes.iter().any(|node| node.device == name && node.last_seen.is_some());
    let unknown = list.names().filter(|name| !is_known(name)).take(NAMED_MAX);
    let line = |name| format!("no node `{name}` has ever reported; {made} for the others");
    unknown.map(line).collect()
}

/// The promotions that were made, by their IDs.
fn made(promoted: &[Promoted]) -> String {
    let ids: Vec<String> = promoted.iter().map(|one| one.id.to_string()).collect();
    format!("promotion {} is active", ids.join(", "))
}

/// Whether a node has an unread optional metric with one of these names. A node that has not reported its
/// sources yet may have any.
fn may_wait(node: &api::Node, names: &[&str]) -> bool {
    let optional = node.sources_restricted.iter().filter(|one| one.reason == OPTIONAL);
    let mut patterns = optional.flat_map(|one| &one.optional);
    node.agent_version.is_none()
        || patterns.any(|text| {
            MetricPattern::new(text)
                .is_ok_and(|pattern| names.iter().any(|name| pattern.matches(name)))
        })
}

/// The nodes of the list that rejected a burst of the source, with their reasons, and whether another node of an
/// active change accepted one.
pub(super) fn rejected_bursts(client: &Client, nodes: &str, source: &str) -> (Vec<String>, bool) {
    let changes = client.get::<Vec<SetChange>>("/api/v1/settings").unwrap_or_default();
    let all = client.get::<Vec<api::Node>>("/api/v1/nodes").unwrap_or_default();
    let devices: Vec<&str> = all.iter().map(|node| &*node.device).collect();
    rejections(&changes, &devices, nodes, source)
}

fn rejections(
    changes: &[SetChange],
    devices: &[&str],
    nodes: &str,
    source: &str,
) -> (Vec<String>, bool) {
    let (mut lines, mut is_accepted) = (Vec::new(), false);
    let Ok(node_list) = NodeList::new(nodes) else { return (lines, is_accepted) };
    for change in changes.iter().filter(|change| sets_burst(change, source)) {
        let Ok(list) = NodeList::new(&change.nodes) else { continue };
        for device in devices.iter().filter(|device| node_list.has(device) && list.has(device)) {
            let is_burst = |one: &&SetRejection| {
                let setting = one.setting.as_deref().unwrap_or_default();
                let is_of_source = one.source.as_deref() == Some(source);
                // Without a source, all settings are rejected.
                let is_burst = is_of_source && setting.starts_with("burst");
                one.device == **device && (is_burst || one.source.is_none())
            };
            match change.rejected.iter().find(is_burst) {
                Some(one) => {
                    lines.push(format!(
                        "{device} rejected change {}: {}",
                        change.id,
                        in_flags(one)
                    ));
                }
                None => is_accepted = true,
            }
        }
    }
    (lines, is_accepted)
}

/// Whether an active change enables bursts of a source on some of these nodes.
pub(super) fn has_burst(client: &Client, nodes: &str, source: &str) -> bool {
    let Ok(changes) = client.get::<Vec<SetChange>>("/api/v1/settings") else { return true };
    let Ok(all) = client.get::<Vec<api::Node>>("/api/v1/nodes") else { return true };
    let Ok(node_list) = NodeList::new(nodes) else { return true };
    let bursts = changes.iter().filter(|change| sets_burst(change, source));
    bursts.filter_map(|change| NodeList::new(&change.nodes).ok()).any(|of_change| {
        all.iter().any(|node| node_list.has(&node.device) && of_change.has(&node.device))
    })
}

/// Whether a node of the list may have a burst of the source in its own file: its agent counts the flushes of each
/// burst, or reports no state of its sources.
pub(super) fn may_have_own_burst(client: &Client, nodes: &str, source: &str) -> bool {
    let Ok(all) = client.get::<Vec<api::Node>>("/api/v1/nodes") else { return true };
    let Ok(list) = NodeList::new(nodes) else { return true };
    let devices: Vec<&str> =
        all.iter().map(|node| &*node.device).filter(|device| list.has(device)).collect();
    if devices.is_empty() || devices.len() > LOOKED_UP_MAX {
        return true;
    }
    let metrics = format!("{WORKING},{FLUSHES}");
    let parameters = [("metric", Some(metrics)), ("device", Some(devices.join(",")))];
    let last = client.get::<Vec<api::Last>>(&path("/api/v1/last", &parameters));
    last.map_or(true, |last| devices.iter().any(|device| counts_flushes(&last, device, source)))
}

fn counts_flushes(last: &[api::Last], device: &str, source: &str) -> bool {
    let of_node = || last.iter().filter(|one| one.series.device == device);
    let working = of_node().filter(|one| one.series.metric == WORKING);
    let Some(newest) = working.map(|one| one.time).max_by(f64::total_cmp) else { return true };
    of_node().any(|one| {
        one.series.metric == FLUSHES
            && one.time >= newest
            && one.series.labels.get("source").is_some_and(|is| is == source)
    })
}

fn sets_burst(change: &SetChange, source: &str) -> bool {
    change.settings.iter().any(|one| one.source == source && one.burst.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(nodes: &str, rejected: &[(&str, &str)]) -> SetChange {
        let rejected: Vec<_> = rejected
            .iter()
            .map(|(device, reason)| {
                serde_json::json!({"device": device, "source": "cpu", "setting": "burst", "code": "not_allowed",
                    "reason": reason})
            })
            .collect();
        let change = serde_json::json!({"id": 7, "nodes": nodes, "settings": [{"source": "cpu", "burst": {"period_seconds": 0.1}}],
            "created": 1.0, "created_by": "root", "until": 2.0, "nodes_known": 1, "nodes_applied": 0,
            "rejected": rejected});
        serde_json::from_value(change).unwrap()
    }

    #[test]
    fn a_burst_that_every_node_rejected_is_none() {
        let reason = "`remote.allow` has no `bursts`";
        let all = [change("n1", &[("n1", reason)])];
        let line = "n1 rejected change 7: --burst of cpu: `remote.allow` has no `bursts`";
        let rejected = vec![line.to_owned()];
        let of = |changes: &[SetChange], nodes, source| {
            rejections(changes, &["n1", "n2"], nodes, source)
        };
        assert_eq!(of(&all, "n*", "cpu"), (rejected.clone(), false));
        assert_eq!(of(&all, "n1", "load"), (Vec::new(), false));
        let some = [change("n*", &[("n1", reason)])];
        assert_eq!(of(&some, "n*", "cpu"), (rejected, true), "n2 has one");
    }
    #[test]
    fn an_agent_without_a_count_of_flushes_has_no_burst() {
        let one = |metric: &str, source: &str, time: f64| {
            let last = serde_json::json!({"device": "n1", "metric": metric, "cluster": null, "job": null,
                "labels": {"source": source}, "unit": "", "kind": "gauge", "time": time, "value": 1.0});
            serde_json::from_value::<api::Last>(last).unwrap()
        };
        let working = || one(WORKING, "cpu", 20.0);
        assert!(counts_flushes(&[], "n1", "cpu"), "unknown");
        assert!(!counts_flushes(&[working()], "n1", "cpu"));
        assert!(counts_flushes(&[working(), one(FLUSHES, "cpu", 20.0)], "n1", "cpu"));
        assert!(!counts_flushes(&[working(), one(FLUSHES, "disk", 20.0)], "n1", "cpu"));
        assert!(
            !counts_flushes(&[working(), one(FLUSHES, "cpu", 10.0)], "n1", "cpu"),
            "a past one"
        );
    }
}
