//! Explains why a node has no series of a metric, from the state of the metric's source there.

use crate::client::http_client::{Client, escape, path};
use crate::client::name_suggestions::words;
use crate::node::describe;
use config::MetricPattern;
use model::NodeList;
use model::setting::Kind;
use sources::SourceSpec;

/// Metric of each source that an agent reads: 1 if the source yields samples, otherwise 0.
const WORKING: &str = "agent_source_working";
/// The source of the metrics that a job has only with a cgroup.
const CGROUP: &str = "cgroup";
/// Maximum number of explained nodes.
const NODES_MAX: usize = 20;

/// The node source of a metric, if any. Metrics of the agent itself and of `jobmeter run` have none: agents do
/// not report the state of these sources.
pub(crate) fn source_of(metric: &str) -> Option<&'static SourceSpec> {
    let is_of_nodes = |spec: &&SourceSpec| sources::list::find(spec.name).is_some();
    let has = |spec: &&SourceSpec| spec.metrics.iter().any(|one| one.name == metric);
    describe::all().filter(is_of_nodes).find(has)
}

/// Explains why these devices, or the nodes of a job, have no series of one of the metric's names, in one sentence
/// each. Without devices and a job: all nodes.
pub(crate) fn why(
    client: &Client,
    (devices, job): (Option<&str>, Option<&str>),
    (metric, during): (&str, &str),
    spec: &SourceSpec,
) -> anyhow::Result<Vec<String>> {
    let report = match job.map(|job| report_of(client, job)) {
        Some(Err(error)) if devices.is_none() => return Err(error),
        report => report.and_then(Result::ok),
    };
    if spec.name == CGROUP && report.as_ref().is_some_and(had_no_cgroup) {
        let job = job.unwrap_or_default();
        return Ok(vec![format!(
            "job {job}: `jobmeter run` had no cgroup for it and read its processes, so nothing measured {metric}; a \
             note at the end of the run states the reason; `jobmeter run` as root makes a cgroup"
        )]);
    }
    let named: Option<Vec<String>> = match (devices, report) {
        (Some(list), _) => Some(words(Some(list)).map(str::to_owned).collect()),
        (None, report) => report.map(|report| report.job.devices),
    };
    let mut nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    let mut lines = match (job, &named) {
        (Some(job), Some(named)) => without_reports(job, named, &nodes),
        _ => Vec::new(),
    };
    nodes.retain(|node| {
        named.as_ref().is_none_or(|named| named.contains(&node.device))
            && (job.is_none() || node.last_seen.is_some())
    });
    let more = nodes.len().saturating_sub(NODES_MAX);
    nodes.truncate(NODES_MAX);
    let list: Vec<&str> = nodes.iter().map(|node| &*node.device).collect();
    if list.is_empty() {
        return Ok(lines);
    }
    let parameters = [("metric", Some(WORKING.to_owned())), ("device", Some(list.join(",")))];
    let last_values: Vec<api::Last> = client.get(&path("/api/v1/last", &parameters))?;
    let is_requested = Overrides::of(client, nodes.iter())?;
    let of_node = |node| of_node(node, &last_values, &is_requested, (metric, during), (spec, job));
    lines.extend(nodes.iter().map(of_node));
    if more > 0 {
        lines.push(format!("{more} more nodes; --device names one"));
    }
    Ok(lines)
}

fn report_of(client: &Client, job: &str) -> anyhow::Result<api::JobReport> {
    client.get(&format!("/api/v1/jobs/{}", escape(job)))
}

/// Whether the job's own report says that there was no cgroup.
fn had_no_cgroup(report: &api::JobReport) -> bool {
    let mut notes = report.origins.iter().filter_map(|origin| origin.note.as_deref());
    notes.any(|note| note.contains(api::PEAK_OF_PROCESSES))
}

/// Why a job has no samples at all: nodes of it that never reported.
pub(crate) fn silent_nodes_of(client: &Client, job: &str) -> anyhow::Result<Vec<String>> {
    let named = report_of(client, job)?.job.devices;
    if named.is_empty() {
        return Ok(vec![format!("job {job} has no node yet")]);
    }
    let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    Ok(without_reports(job, &named, &nodes))
}

fn without_reports(job: &str, named: &[String], nodes: &[api::Node]) -> Vec<String> {
    let line = |device: &String| match nodes.iter().find(|node| node.device == *device) {
        Some(node) if node.last_seen.is_some() => None,
        Some(_) => Some(format!(
            "{device}: this node has never reported, so nothing of job {job} was measured there; \
             start jobmeter-agent on it"
        )),
        None => Some(format!("{device}: no node of this name that is visible to you has reported")),
    };
    named.iter().filter_map(line).take(NODES_MAX).collect()
}

/// For each series: the setting, change or promotion because of which its node no longer reads it, if any.
pub(crate) fn read_no_more(
    client: &Client,
    nodes: &[api::Node],
    explained: &[api::Explanation],
) -> anyhow::Result<Vec<Option<String>>> {
    let lacks = |node: &&api::Node| {
        explained.iter().any(|one| one.series.device == node.device && !is_read(one))
    };
    let parameters = Overrides::of(client, nodes.iter().filter(lacks))?;
    let why = |one: &api::Explanation| {
        let series = &one.series;
        let node = nodes.iter().find(|node| node.device == series.device)?;
        unread(node, &parameters, &series.metric, source_of(&series.metric)?)
    };
    Ok(explained.iter().map(|one| if is_read(one) { None } else { why(one) }).collect())
}

/// For each series: parts of visible setting changes for its source that its node rejected.
pub(crate) fn not_done(client: &Client, explained: &[api::Explanation]) -> Vec<Vec<String>> {
    let changes: Vec<api::SetChange> = client.get("/api/v1/settings").unwrap_or_default();
    explained.iter().map(|one| not_done_of(one, &changes)).collect()
}

fn not_done_of(one: &api::Explanation, changes: &[api::SetChange]) -> Vec<String> {
    let declared = || source_of(&one.series.metric).map(|spec| spec.name);
    let Some(source) = one.source.as_deref().or_else(declared) else { return Vec::new() };
    let of_it = changes.iter().filter(|change| of_source(change, source).is_some());
    let mut lines = Vec::new();
    for change in of_it {
        let is_of = |rejected: &&api::SetRejection| {
            *rejected.device == *one.series.device
                && rejected.source.as_deref().is_none_or(|of| of == source)
        };
        for rejected in change.rejected.iter().filter(is_of) {
            let why = crate::change::change_list::in_flags(rejected);
            lines.push(format!(
                "{} of {} is only partly applied: {why}",
                change.id, change.created_by
            ));
        }
    }
    lines
}

/// The settings of a source in a change.
fn of_source<'a>(change: &'a api::SetChange, source: &str) -> Option<&'a api::ChangedSource> {
    change.settings.iter().find(|one| one.source == source)
}

/// Whether samples still arrive: the newest is at most three periods older than the node's last report.
fn is_read(one: &api::Explanation) -> bool {
    let latest = one.senders.iter().map(|sender| sender.last_seen).max_by(f64::total_cmp);
    let old = one.period_seconds.unwrap_or(0.0) * 3.0;
    latest.zip(one.time).is_some_and(|(latest, time)| latest - time <= old)
}

/// Current setting overrides and promotions, as far as they are visible to the user and explain a disabled
/// source.
#[derive(Default)]
struct Overrides {
    /// Ascending by time; `None`: not visible to the user.
    changes: Option<Vec<api::SetChange>>,
    promotions: Vec<api::Promoted>,
}

impl Overrides {
    fn of<'a>(client: &Client, nodes: impl Iterator<Item = &'a api::Node>) -> anyhow::Result<Self> {
        let unread: Vec<&str> =
            nodes.flat_map(|node| &node.sources_restricted).map(|one| &*one.reason).collect();
        let has_reason = |why: &str| unread.contains(&why);
        let mut parameters = Self::default();
        if has_reason("server") {
            // Only staff and administrators may read the settings.
            parameters.changes = client.get("/api/v1/settings").ok();
        }
        if has_reason("optional") {
            parameters.promotions = client.get("/api/v1/promotions")?;
        }
        Ok(parameters)
    }

    /// The change that disables a source on a node.
    fn change(&self, device: &str, source: &str) -> Option<&api::SetChange> {
        let enabled = |change: &api::SetChange| of_source(change, source)?.enabled;
        let of_it =
            |change: &&api::SetChange| means(&change.nodes, device) && enabled(change).is_some();
        let last = self.changes.as_ref()?.iter().rfind(of_it)?;
        (enabled(last) == Some(false)).then_some(last)
    }

    /// The promotion of a metric on a node.
    fn promotion(&self, device: &str, metric: &str) -> Option<&api::Promoted> {
        self.promotions.iter().find(|it| means(&it.nodes, device) && matches(&it.metric, metric))
    }
}

fn means(nodes: &str, device: &str) -> bool {
    NodeList::new(nodes).is_ok_and(|nodes| nodes.has(device))
}

/// Whether an expression matches a metric; an invalid expression matches none.
fn matches(pattern: &str, metric: &str) -> bool {
    MetricPattern::new(pattern).is_ok_and(|pattern| pattern.matches(metric))
}

fn of_node(
    node: &api::Node,
    last_values: &[api::Last],
    parameters: &Overrides,
    (metric, during): (&str, &str),
    (spec, job): (&SourceSpec, Option<&str>),
) -> String {
    let (device, source) = (&node.device, spec.name);
    if let Some(why) = unread(node, parameters, metric, spec) {
        return format!("{device}: {why}");
    }
    if let Some(error) = node.source_errors.iter().find(|error| error.source == source) {
        return format!("{device}: source {source} is {}: {}", error.state, error.reason);
    }
    let not_all = parts_without_samples(node, source);
    let mut last_values =
        last_values.iter().filter(|last| last.series.device == *device).peekable();
    if last_values.peek().is_none() {
        return format!("{device}: its agent reports no state of its sources");
    }
    let is_it = |last: &&api::Last| last.series.labels.get("source").is_some_and(|is| is == source);
    match last_values.find(is_it).and_then(|last| last.value) {
        None => format!(
            "{device}: source {source} is not read: the agent's settings disable it, or it is \
             optional and not promoted (`jobmeter promote {metric} --nodes {device}`)"
        ),
        Some(working) if working > 0.0 && !not_all.is_empty() => format!(
            "{device}: source {source} works, but has no {metric} {during}, and not all of it is read: {not_all}"
        ),
        Some(working) if working > 0.0 && job.is_some() => format!(
            "{device}: source {source} works, but has no {metric} of job {} {during}: the job has no \
             cgroup there, it ended before the first reading ({}), the node lacks the data, or the \
             metric is optional and not promoted",
            job.unwrap_or_default(),
            describe::every(spec)
        ),
        Some(working) if working > 0.0 => format!(
            "{device}: source {source} works, but has no {metric} {during}: the node lacks the \
             data, the metric needs an option of [sources.{source}], or it is optional and not \
             promoted"
        ),
        Some(_) => format!(
            "{device}: source {source} is absent: the node lacks its files ({}), or \
             [sources.{source}] does not configure it; run `jobmeter doctor` on the node",
            spec.reads.join(", ")
        ),
    }
}

/// The parts of a source that a node does not read, with the reasons; empty if it reads all.
fn parts_without_samples(node: &api::Node, source: &str) -> String {
    let is_part = |error: &&api::SourceError| {
        error.source.strip_prefix(source).is_some_and(|rest| rest.starts_with('/'))
    };
    let parts = node.source_errors.iter().filter(is_part);
    let parts: Vec<String> =
        parts.map(|part| format!("{} is {}: {}", part.source, part.state, part.reason)).collect();
    parts.join("; ")
}

/// Why a node does not read a metric, and how to enable it. `None`: the node reports no such reason.
fn unread(
    node: &api::Node,
    parameters: &Overrides,
    metric: &str,
    spec: &SourceSpec,
) -> Option<String> {
    let (device, source) = (&node.device, spec.name);
    let unread = node.sources_restricted.iter().find(|one| one.source == source)?;
    let set = format!("`jobmeter set --nodes {device} --source {source} --enabled true --for 1h`");
    let file = format!("`enabled = true` under [sources.{source}] there enables it");
    Some(match &*unread.reason {
        "file" if spec.options.iter().any(|option| matches!(option.kind, Kind::Command(_))) => {
            format!(
                "source {source} is disabled in the node's own file: {file}; the server cannot \
                 enable it, because it runs a program"
            )
        }
        "file" => format!(
            "source {source} is disabled in the node's own file: {file}; or, if its `remote.allow` \
             has `sources`, enable it for 1 h: {set}"
        ),
        "server" => match (&parameters.changes, parameters.change(device, source)) {
            (_, Some(api::SetChange { id, created_by, .. })) => format!(
                "{created_by} disabled source {source} through the server; to undo: `jobmeter set \
                 --undo {id}`"
            ),
            (None, None) => format!(
                "source {source} is disabled through the server: an administrator finds the change \
                 with `jobmeter set --list`, or enables the source for 1 h ({set})"
            ),
            (Some(_), None) => format!(
                "source {source} is disabled by the server's file for agents (`agent_config`): \
                 remove the line `enabled = false` under [sources.{source}], or enable it for 1 h: \
                 {set}"
            ),
        },
        _ if !unread.optional.iter().any(|pattern| matches(pattern, metric)) => return None,
        _ => match (parameters.promotion(device, metric), node.config_rejected.first()) {
            (None, _) => format!(
                "{metric} is optional in the node's own file, and no promotion visible to you \
                 enables it; to enable it: `jobmeter promote {metric} --nodes {device}`"
            ),
            (Some(promotion), Some(why)) => format!(
                "{metric} is optional in the node's own file; promotion {} of {} requests it, but \
                 the node rejected {}: {}",
                promotion.id, promotion.created_by, why.setting, why.reason
            ),
            (Some(_), None) => return None,
        },
    })
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

    #[test]
    fn a_job_with_the_peak_of_its_processes_had_no_cgroup() {
        assert!(source_of("cgroup_memory_bytes").is_some_and(|spec| spec.name == CGROUP));
        let of = |note: &str| {
            let report = serde_json::json!({
                "job": {"cluster": "local", "id": 7, "display_id": "7", "user": null, "uid": null,
                    "account": null, "project": null, "name": null, "queue": null, "state": "ended",
                    "state_word": null, "submit": null, "start": 1, "stop": 3, "exit_code": null,
                    "part_of": null, "array_index": null, "types": [], "requested": {}, "used": {},
                    "devices": ["n1"]},
                "runs": [], "allocations": [], "nodes": [], "steps": [], "totals": {"wall_seconds": 2},
                "origins": [{"total": "memory_peak_bytes", "origins": ["report"], "note": note, "nodes": 1}],
                "coverage": {"nodes": 1, "of": 1, "silent": []}, "metrics": [], "series": [], "gaps": [],
            });
            had_no_cgroup(&serde_json::from_value(report).unwrap())
        };
        assert!(of(&format!("{}; at least", api::PEAK_OF_PROCESSES)));
        assert!(!of(api::PEAK_CHARGED) && !of(api::PEAK_OF_TASK));
    }

    fn node(why: &str, optional: &[&str], rejected: Option<&str>) -> api::Node {
        let unread = serde_json::json!([{"source": "load", "reason": why, "optional": optional}]);
        let rejection = |reason| serde_json::json!({"setting": "promote.load_.*", "code": "not_allowed", "reason": reason});
        let rejected: Vec<_> = rejected.map(rejection).into_iter().collect();
        let node = serde_json::json!({
            "device": "n1", "alive": true, "stopped": false, "last_seen": null, "period_seconds": null,
            "clock_offset_seconds": null, "agent_version": null, "config_generation": null,
            "config_rejected": rejected, "source_errors": [], "sources_restricted": unread, "series": 0, "jobs": [],
            "cpu_cores_used": null, "cpu_cores": null, "memory_used_bytes": null, "memory_bytes": null,
        });
        serde_json::from_value(node).unwrap()
    }

    fn change(number: i64, nodes: &str, enabled: bool) -> api::SetChange {
        let load = api::ChangedSource {
            source: "load".to_owned(),
            enabled: Some(enabled),
            ..api::ChangedSource::default()
        };
        api::SetChange {
            id: number,
            nodes: nodes.to_owned(),
            settings: vec![load],
            created: 0.0,
            created_by: "root".to_owned(),
            until: 1.0,
            nodes_known: 1,
            nodes_applied: 1,
            rejected: Vec::new(),
            shortened: Vec::new(),
            superseded: Vec::new(),
        }
    }

    fn reason_for(node: &api::Node, parameters: &Overrides) -> String {
        unread(node, parameters, "load_1m", source_of("load_1m").unwrap()).unwrap_or_default()
    }

    #[test]
    fn a_disabled_source_is_reported_with_the_command_that_enables_it() {
        let nothing = Overrides::default();
        let own = reason_for(&node("file", &[], None), &nothing);
        assert!(
            own.contains("the node's own file: `enabled = true` under [sources.load]"),
            "{own}"
        );
        assert!(own.contains("--nodes n1 --source load --enabled true"), "{own}");
        let program = unread(
            &node("file", &[], None),
            &nothing,
            "x",
            describe::all().find(|it| it.name == "exec").unwrap(),
        );
        assert_eq!(program, None, "what is said of load is not of exec");

        let server = node("server", &[], None);
        assert!(reason_for(&server, &nothing).contains("an administrator finds the change"));
        let with = |changes| {
            reason_for(&server, &Overrides { changes: Some(changes), ..Overrides::default() })
        };
        let undone =
            with(vec![change(6, "n1", false), change(7, "n[1-3]", false), change(8, "n2", false)]);
        assert!(
            undone.contains("root disabled") && undone.contains("`jobmeter set --undo 7`"),
            "{undone}"
        );
        let base = with(vec![change(6, "n1", false), change(7, "n1", true)]);
        assert!(base.contains("agent_config"), "the later one counts: {base}");
        assert!(with(Vec::new()).contains("agent_config"));
    }

    #[test]
    fn optional_metrics_are_reported_with_the_missing_promotion() {
        let promotion = api::Promoted {
            id: 4,
            nodes: "n1".to_owned(),
            metric: "load_.*".to_owned(),
            created: 0.0,
            created_by: "alice".to_owned(),
            until: None,
            origin: "api".to_owned(),
            job: None,
            error: None,
            rejected: Vec::new(),
            shortened: Vec::new(),
        };
        let (nothing, parameters) = (
            Overrides::default(),
            Overrides { promotions: vec![promotion], ..Overrides::default() },
        );
        let all = node("optional", &["x", "load_.*"], None);
        assert!(reason_for(&all, &nothing).contains("`jobmeter promote load_1m --nodes n1`"));
        assert_eq!(reason_for(&all, &parameters), "", "it is read, as far as is known");
        let rejected = node("optional", &[".*"], Some("`remote.allow` has no `promotions`"));
        let why = reason_for(&rejected, &parameters);
        assert!(why.contains("promotion 4 of alice") && why.contains("no `promotions`"), "{why}");
        assert_eq!(
            reason_for(&node("optional", &["load_5m", "("], None), &nothing),
            "",
            "another metric is"
        );
    }
}
