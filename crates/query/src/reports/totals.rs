//! Totals of a job: for each node the largest value that an origin verifies (decision 0024).

use crate::reports::job_gaps::{Missed, NodeMissed};
use api::AT_LEAST;
use model::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// Read from the job's cgroup.
const CGROUP: &str = "cgroup";
/// The kernel's accounting of the job's tasks, including ended tasks.
const EXITS: &str = "exits";
/// Memory charged to the job's cgroup at its limit, as the kernel reported it with an OOM kill.
const KILL: &str = "kill";
/// Memory of a killed task, or of a full cgroup below the job's cgroup.
const KILLED: &str = "killed";
/// Read by `jobmeter run` for a command without a cgroup.
const RUN: &str = "run";

/// The final report of `jobmeter run`.
const REPORT: &str = "report";

/// A later origin wins only if its value exceeds the earlier one by this factor. Smaller differences are two
/// readings of one value.
const SAME: f64 = 1.001;

/// The job's processor time as verified by its cgroup and its tasks.
const JOB_CPU: &str = "taskstats_job_cpu_seconds_total";
const CANCELLED: &str = "taskstats_cancelled_write_bytes_total";
/// The peak memory charged to the job's cgroup.
const CHARGED: &str = "cgroup_memory_peak_bytes";
const UNREAD: &str = "cgroup_unread_seconds";
const UNREAD_PRESSURE: &str = "cgroup_pressure_unread_seconds";
const UNREAD_IO: &str = "cgroup_io_unread_seconds";
/// Memory charged when a task was killed at the job's own limit: a cgroup is never charged more than its limit.
const AT_LIMIT: &str = "cgroup_oom_charged_bytes";
/// Processor time of a command that `jobmeter run` follows by its processes, without a cgroup.
const OF_PROCESSES: &str = "run_cpu_seconds_total";
/// A part of the job's memory that an OOM kill verifies.
const KILLED_PART: &str = "cgroup_oom_part_bytes";

/// The total of one metric on one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSum {
    pub(crate) kind: Kind,
    /// Growth, for counters. `None`: the growth is unknown.
    pub(crate) increase: Option<f64>,
    /// The largest value among the series.
    pub(crate) max: Option<f64>,
}

/// The total of every metric on every node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByNode(BTreeMap<String, Node>);

impl ByNode {
    pub(crate) fn insert(&mut self, device: &str, metric: &str, sum: NodeSum) {
        self.0.entry(device.to_owned()).or_default().metrics.insert(metric.to_owned(), sum);
    }

    /// Sets the times that the totals of a node with metrics do not include.
    pub(crate) fn set_missed(&mut self, device: &str, missed: NodeMissed) {
        if let Some(node) = self.0.get_mut(device) {
            node.missed = missed;
        }
    }
}

/// The metrics of one node.
#[derive(Clone, Debug, Default)]
struct Node {
    metrics: BTreeMap<String, NodeSum>,
    missed: NodeMissed,
}

impl Node {
    fn grew(&self, metric: &str) -> Option<f64> {
        self.metrics
            .get(metric)
            .filter(|sum| sum.kind == Kind::Counter)
            .and_then(|sum| sum.increase)
    }

    fn most(&self, metric: &str) -> Option<f64> {
        self.metrics.get(metric).filter(|sum| sum.kind == Kind::Gauge).and_then(|sum| sum.max)
    }

    /// The largest value above 0. A memory of 0 was read after the last task had ended, or was never counted.
    fn some(&self, metric: &str) -> Option<f64> {
        self.most(metric).filter(|value| *value > 0.0)
    }

    /// The sum of two counters; `None` unless both are known.
    fn both(&self, one: &str, other: &str) -> Option<f64> {
        self.grew(one).zip(self.grew(other)).map(|(one, other)| one + other)
    }

    /// The note on an origin's written bytes. The kernel cancels a write if its file is deleted before the data
    /// reaches a disk. It counts the cancellation for the task that deletes the file, whichever job wrote it.
    fn cancelled(&self, origin: &str) -> Option<&'static str> {
        let cancelled = self.grew(CANCELLED);
        let written = self.grew("taskstats_write_bytes_total").unwrap_or(0.0);
        match (origin, cancelled) {
            (EXITS, None) | (RUN, _) => Some("cancelled writes not known"),
            (EXITS, Some(cancelled)) if cancelled > written => {
                Some("cancelled writes of another job's files")
            }
            (EXITS, Some(cancelled)) if cancelled > 0.0 => Some("cancelled writes subtracted"),
            _ => None,
        }
    }

    /// The time that a value of an origin does not include.
    fn missed(&self, origins: Origins, origin: &str) -> Option<Missed> {
        let NodeMissed { end, exits, .. } = self.missed;
        // The job's counter includes what its cgroup counted meanwhile.
        let is_whole = std::ptr::eq(origins, CPU) && self.grew(JOB_CPU).is_some();
        match origin {
            KILL => None,
            EXITS if !is_whole => Missed::longer(end, exits),
            _ => end,
        }
    }

    /// Growth of a counter minus the growth of its part; the whole growth if the part is unknown.
    fn without(&self, whole: &str, part: &str) -> Option<f64> {
        let part = self.grew(part).unwrap_or(0.0);
        self.grew(whole).map(|whole| (whole - part).max(0.0))
    }
}

type Reading = fn(&Node) -> Option<f64>;
type Origins = &'static [(&'static str, Reading)];

const CPU: Origins = &[
    (CGROUP, |node| {
        let split = node.both("cgroup_cpu_user_seconds_total", "cgroup_cpu_system_seconds_total");
        node.grew("cgroup_cpu_seconds_total").or(split)
    }),
    (EXITS, |node| {
        let ticks =
            node.both("taskstats_cpu_user_seconds_total", "taskstats_cpu_system_seconds_total");
        let tasks = node.grew("taskstats_cpu_run_virtual_seconds_total").or(ticks);
        // The job's counter is the larger one, unless an agent was killed and its successor did not read all
        // tasks.
        [node.grew(JOB_CPU), tasks].into_iter().flatten().reduce(f64::max)
    }),
    (RUN, |node| {
        let split = node.both("run_cpu_user_seconds_total", "run_cpu_system_seconds_total");
        node.grew("run_cpu_seconds_total").or(split)
    }),
];
const CPU_USER: Origins = &[
    (CGROUP, |node| node.grew("cgroup_cpu_user_seconds_total")),
    (EXITS, |node| node.grew("taskstats_cpu_user_seconds_total")),
    (RUN, |node| node.grew("run_cpu_user_seconds_total")),
];
const CPU_SYSTEM: Origins = &[
    (CGROUP, |node| node.grew("cgroup_cpu_system_seconds_total")),
    (EXITS, |node| node.grew("taskstats_cpu_system_seconds_total")),
    (RUN, |node| node.grew("run_cpu_system_seconds_total")),
];
const MEMORY_PEAK: Origins = &[
    (CGROUP, |node| node.some(CHARGED).or(node.some("cgroup_memory_bytes"))),
    (KILL, |node| node.some(AT_LIMIT)),
    (KILLED, |node| node.some(KILLED_PART)),
    (EXITS, |node| node.some("taskstats_hiwater_rss_bytes")),
    (RUN, |node| node.some("run_memory_resident_bytes")),
];
/// Peak memory if the charged memory is known completely.
const MEMORY_CHARGED: Origins =
    &[(CGROUP, |node| node.some(CHARGED)), (KILL, |node| node.some(AT_LIMIT))];
/// Metrics of [`CPU`], [`MEMORY_PEAK`], their notes, and the corresponding reports of `jobmeter run`.
pub(crate) const USAGE_METRICS: [&str; 25] = [
    "run_report_wall_seconds",
    "run_report_cpu_seconds",
    "run_report_memory_peak_bytes",
    "cgroup_cpu_seconds_total",
    "cgroup_cpu_user_seconds_total",
    "cgroup_cpu_system_seconds_total",
    "taskstats_cpu_run_virtual_seconds_total",
    JOB_CPU,
    "taskstats_cpu_user_seconds_total",
    "taskstats_cpu_system_seconds_total",
    "run_cpu_seconds_total",
    "run_cpu_user_seconds_total",
    "run_cpu_system_seconds_total",
    "cgroup_memory_peak_bytes",
    "cgroup_memory_bytes",
    "taskstats_hiwater_rss_bytes",
    "run_memory_resident_bytes",
    AT_LIMIT,
    KILLED_PART,
    UNREAD,
    // The end of the last process.
    "cgroup_tasks",
    "taskstats_tasks",
    "run_processes",
    api::LOST_CHILDREN.metric,
    api::LEFT_PROCESSES.metric,
];
const IO_READ: Origins = &[
    (CGROUP, |node| node.grew("cgroup_io_read_bytes_total")),
    (EXITS, |node| node.grew("taskstats_read_bytes_total")),
    (RUN, |node| node.grew("run_io_read_bytes_total")),
];
const IO_WRITE: Origins = &[
    (CGROUP, |node| node.grew("cgroup_io_write_bytes_total")),
    (EXITS, |node| node.without("taskstats_write_bytes_total", CANCELLED)),
    (RUN, |node| node.grew("run_io_write_bytes_total")),
];
const MINOR_FAULTS: Origins = &[
    // The kernel's count of faults includes the major ones.
    (CGROUP, |node| {
        let major = node.grew("cgroup_page_faults_major_total")?;
        node.grew("cgroup_page_faults_total").map(|all| (all - major).max(0.0))
    }),
    (EXITS, |node| node.grew("taskstats_minor_faults_total")),
];
const MAJOR_FAULTS: Origins = &[
    (CGROUP, |node| node.grew("cgroup_page_faults_major_total")),
    (EXITS, |node| node.grew("taskstats_major_faults_total")),
];
const VOLUNTARY: Origins = &[(EXITS, |node| node.grew("taskstats_voluntary_switches_total"))];
const INVOLUNTARY: Origins = &[(EXITS, |node| node.grew("taskstats_involuntary_switches_total"))];
const THROTTLED: Origins = &[(CGROUP, |node| node.grew("cgroup_cpu_throttled_seconds_total"))];
const WAITED_CPU: Origins = &[(CGROUP, |node| node.grew("cgroup_pressure_cpu_some_seconds_total"))];
const WAITED_MEMORY: Origins =
    &[(CGROUP, |node| node.grew("cgroup_pressure_memory_some_seconds_total"))];
const WAITED_IO: Origins = &[(CGROUP, |node| node.grew("cgroup_pressure_io_some_seconds_total"))];
const NOT_READ: Origins = &[(CGROUP, |node| {
    let end = node.missed.end.map(|missed| missed.seconds);
    node.most(UNREAD).into_iter().chain(end).reduce(f64::max)
})];

/// How the values of several nodes are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combination {
    Sum,
    Largest,
}

/// A node's value and its origin.
#[derive(Clone, Copy)]
struct NodeTotal {
    origin: &'static str,
    value: f64,
    /// The cgroup's last reading was missed, and no other origin covers the time after the previous one.
    missed: bool,
    /// For pressure and transfers: the last seconds of the job without a reading.
    unread_seconds: Option<f64>,
    /// For written bytes: the note on cancelled writes.
    cancelled: Option<&'static str>,
    /// A time that the value does not include.
    gap: Option<Missed>,
}

fn node_total(origins: Origins, node: &Node) -> Option<NodeTotal> {
    let unread = node.most(UNREAD).is_some_and(|seconds| seconds > 0.0);
    // Charged memory is comparable with a limit. A task's resident memory includes pages charged to other
    // cgroups.
    let charged = node.some(AT_LIMIT).or(node.some(CHARGED).filter(|_| !unread));
    let is_charged = std::ptr::eq(origins, MEMORY_PEAK) && charged.is_some();
    let mut best: Option<NodeTotal> = None;
    let mut is_end_covered = false;
    for (origin, reading) in if is_charged { MEMORY_CHARGED } else { origins } {
        let Some(value) = reading(node).filter(|value| value.is_finite()) else { continue };
        is_end_covered |= !matches!(*origin, CGROUP | KILLED)
            && best.is_none_or(|best| value * SAME >= best.value);
        if best.is_none_or(|best| value > best.value * SAME) {
            let (unread_seconds, cancelled, gap) = (None, None, None);
            best = Some(NodeTotal { origin, value, missed: false, unread_seconds, cancelled, gap });
        }
    }
    let is_write = std::ptr::eq(origins, IO_WRITE);
    let unread_metric = if [IO_READ, IO_WRITE].iter().any(|of| std::ptr::eq(*of, origins)) {
        Some(UNREAD_IO)
    } else {
        let waited = [WAITED_CPU, WAITED_MEMORY, WAITED_IO];
        waited.iter().any(|of| std::ptr::eq(*of, origins)).then_some(UNREAD_PRESSURE)
    };
    let unread_seconds = unread_metric.and_then(|metric| node.some(metric));
    let is_missed = unread || unread_seconds.is_some();
    best.map(|node_total| NodeTotal {
        missed: is_missed && node_total.origin == CGROUP && !is_end_covered,
        unread_seconds,
        cancelled: node.cancelled(node_total.origin).filter(|_| is_write),
        gap: node.missed(origins, node_total.origin),
        ..node_total
    })
}

/// Totals during their computation, and the origin of each.
struct Totals<'a> {
    nodes: Vec<&'a Node>,
    origins: Vec<api::TotalOrigin>,
}

impl Totals<'_> {
    fn total(&mut self, name: &str, origins: Origins, join: Combination) -> Option<f64> {
        let mut values: Vec<NodeTotal> =
            self.nodes.iter().filter_map(|node| node_total(origins, node)).collect();
        let nodes = u32::try_from(values.len()).unwrap_or(u32::MAX);
        if join == Combination::Largest {
            values.sort_by(|a, b| b.value.total_cmp(&a.value));
            values.truncate(1);
        }
        let total = values.iter().map(|node_total| node_total.value).reduce(|a, b| a + b)?;
        let used: BTreeSet<&str> = values.iter().map(|node_total| node_total.origin).collect();
        let note = note(origins, &values);
        let (total_of, origins) = (name.to_owned(), used.into_iter().map(str::to_owned).collect());
        self.origins.push(api::TotalOrigin { total: total_of, origins, note, nodes });
        Some(total)
    }
}

/// The note on the peak memory that `jobmeter run` reported, by its own rule. A short command has no reading of
/// its resident memory, but always one of its processor time.
fn reported_peak(nodes: &[&Node], peak: Option<f64>) -> String {
    let charged = nodes.iter().filter_map(|node| node.some(CHARGED)).reduce(f64::max);
    let note = if nodes.iter().any(|node| node.metrics.contains_key(OF_PROCESSES)) {
        api::PEAK_OF_PROCESSES
    } else if charged.is_some() && charged >= peak {
        api::PEAK_CHARGED
    } else {
        api::PEAK_OF_TASK
    };
    note.to_owned()
}

/// The note on the peak memory of an origin.
fn peak_note(origin: &str) -> Option<&'static str> {
    match origin {
        CGROUP => Some(api::PEAK_CHARGED),
        KILL => Some(api::PEAK_AT_LIMIT),
        KILLED => Some(api::PEAK_AT_LEAST),
        EXITS => Some(api::PEAK_OF_TASK),
        _ => None,
    }
}

fn note(origins: Origins, values: &[NodeTotal]) -> Option<String> {
    let by_exits = values.iter().any(|node_total| node_total.origin == EXITS);
    let is = |other: Origins| std::ptr::eq(origins, other);
    let mut notes = Vec::new();
    if is(MEMORY_PEAK) {
        notes.extend(
            values.iter().filter_map(|node_total| peak_note(node_total.origin)).map(str::to_owned),
        );
    }
    if by_exits && (is(CPU_USER) || is(CPU_SYSTEM)) {
        notes.push("counted in timer ticks".to_owned());
    }
    let cancelled: BTreeSet<&str> =
        values.iter().filter_map(|node_total| node_total.cancelled).collect();
    notes.extend(cancelled.into_iter().map(str::to_owned));
    let of_missed = || values.iter().filter(|node_total| node_total.missed);
    let missed = of_missed().count();
    if missed > 0 && !is(NOT_READ) {
        let of = if values.len() > 1 { format!(" on {missed} nodes") } else { String::new() };
        let seconds =
            of_missed().filter_map(|node_total| node_total.unread_seconds).reduce(f64::max);
        notes.push(match seconds {
            Some(seconds) => format!("{AT_LEAST}: last {seconds:.2} s not read{of}"),
            None => format!("{AT_LEAST}: last reading missed{of}"),
        });
    }
    let gaps = || values.iter().filter_map(|node_total| node_total.gap);
    if let Some(gap) = gaps().map(Some).fold(None, Missed::longer).filter(|_| !is(NOT_READ)) {
        let of =
            if values.len() > 1 { format!(" on {} nodes", gaps().count()) } else { String::new() };
        notes.push(format!("{}{of}", gap.note()));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// Whether a total is a lower bound.
pub(crate) fn is_at_least(origin: &api::TotalOrigin) -> bool {
    origin.note.as_deref().is_some_and(|note| note.contains(AT_LEAST))
}

/// The note on the wall time, if the end of the job was not observed.
fn wall_origin(nodes: &[&Node]) -> Option<api::TotalOrigin> {
    let unknown = || nodes.iter().filter(|node| node.missed.is_stop_unknown);
    let missed = unknown().map(|node| node.missed.end).fold(None, Missed::longer)?;
    Some(api::TotalOrigin {
        total: "wall_seconds".to_owned(),
        origins: Vec::new(),
        note: Some(missed.note()),
        nodes: u32::try_from(unknown().count()).unwrap_or(u32::MAX),
    })
}

/// The notes on totals that `jobmeter run` reported.
fn reported_origins(
    nodes: &[&Node],
    reported: Vec<&'static str>,
    peak: Option<f64>,
) -> impl Iterator<Item = api::TotalOrigin> {
    // Without a cgroup, `jobmeter run` reads block I/O, whose cancelled writes the kernel does not report.
    let is_blocks = nodes.iter().any(|node| node.grew(OF_PROCESSES).is_some());
    let peak_note = reported_peak(nodes, peak);
    let applies =
        |one: &&api::Reservation| nodes.iter().any(|node| node.some(one.metric).is_some());
    let reservations: Vec<_> = api::RESERVATIONS.into_iter().filter(applies).collect();
    reported.into_iter().map(move |total| {
        let mut notes = Vec::new();
        match total {
            "io_write_bytes" if is_blocks => notes.push("cancelled writes not known"),
            "memory_peak_bytes" => notes.push(&*peak_note),
            _ => {}
        }
        let reserved = reservations.iter().filter(|one| one.totals.contains(&total));
        notes.extend(reserved.map(|one| one.note));
        api::TotalOrigin {
            total: total.to_owned(),
            origins: vec![REPORT.to_owned()],
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            nodes: 1,
        }
    })
}

/// Usage of a job, and the origin of each value. `None`: no origin has the value.
pub(crate) fn totals(by_node: &ByNode, wall_seconds: f64) -> (api::Totals, Vec<api::TotalOrigin>) {
    let mut made = Totals { nodes: by_node.0.values().collect(), origins: Vec::new() };
    made.origins.extend(wall_origin(&made.nodes));
    let mut sum = |name, origins| made.total(name, origins, Combination::Sum);
    let cpu = sum("cpu_seconds", CPU);
    let totals = api::Totals {
        wall_seconds,
        cpu_seconds: cpu,
        cpu_user_seconds: sum("cpu_user_seconds", CPU_USER),
        cpu_system_seconds: sum("cpu_system_seconds", CPU_SYSTEM),
        cores_used: cpu.filter(|_| wall_seconds > 0.0).map(|cpu| cpu / wall_seconds),
        memory_peak_bytes: None,
        io_read_bytes: sum("io_read_bytes", IO_READ),
        io_write_bytes: sum("io_write_bytes", IO_WRITE),
        minor_faults: sum("minor_faults", MINOR_FAULTS),
        major_faults: sum("major_faults", MAJOR_FAULTS),
        voluntary_switches: sum("voluntary_switches", VOLUNTARY),
        involuntary_switches: sum("involuntary_switches", INVOLUNTARY),
        throttled_seconds: sum("throttled_seconds", THROTTLED),
        pressure_cpu_seconds: sum("pressure_cpu_seconds", WAITED_CPU),
        pressure_memory_seconds: sum("pressure_memory_seconds", WAITED_MEMORY),
        pressure_io_seconds: sum("pressure_io_seconds", WAITED_IO),
        unread_seconds: None,
    };
    let memory_peak_bytes = made.total("memory_peak_bytes", MEMORY_PEAK, Combination::Largest);
    let unread_seconds = made.total("unread_seconds", NOT_READ, Combination::Largest);
    let mut totals = api::Totals { memory_peak_bytes, unread_seconds, ..totals };
    // The report of `jobmeter run` overrides: every interface returns the same numbers for its command.
    let report =
        |metric: &str| made.nodes.iter().filter_map(|node| node.most(metric)).reduce(f64::max);
    let reported = totals.take_reported(report);
    if !reported.is_empty() {
        made.origins.retain(|origin| {
            !reported.contains(&&*origin.total) && origin.total != "unread_seconds"
        });
        let origins = reported_origins(&made.nodes, reported, totals.memory_peak_bytes);
        made.origins.extend(origins);
    }
    (totals, made.origins)
}

#[cfg(test)]
mod tests;
