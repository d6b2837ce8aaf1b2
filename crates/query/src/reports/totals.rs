//! Totals of a job: for each node the largest value that an origin verifies (decision 0024).

mod notes;

use crate::reports::job_gaps::{Missed, NodeMissed};
use model::{Job, Kind, Timestamp};
use notes::{cores_origin, note, reported_origins, wall_origin};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use notes::is_at_least;

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

/// A later origin wins only if its value exceeds the earlier one by this factor. Smaller differences are two
/// readings of one value.
const SAME: f64 = 1.001;

/// Exit accounting misses tasks if the cgroup counted so many seconds more than its tasks, plus so many per ended task
/// (0.12 ms were measured at most), plus this part of the whole.
const UNSEEN_SECONDS_MIN: f64 = 0.02;
const EXIT_SECONDS: f64 = 0.0005;
const UNSEEN_PART: f64 = 0.01;

/// The job's processor time as verified by its cgroup and its tasks.
const JOB_CPU: &str = "taskstats_job_cpu_seconds_total";
const CGROUP_CPU: &str = "cgroup_cpu_seconds_total";
const CANCELLED: &str = "taskstats_cancelled_write_bytes_total";
/// Processor time of the cgroup that the job's tasks do not account for.
const RESIDUAL: &str = "taskstats_residual_cpu_seconds";
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

    /// Whether a node read the job's cgroup.
    pub(crate) fn has_cgroup(&self, device: &str) -> bool {
        self.0.get(device).is_some_and(|node| node.grew(CGROUP_CPU).is_some())
    }

    /// Sets the times that the totals of a node with metrics do not include.
    pub(crate) fn set_missed(&mut self, device: &str, missed: NodeMissed) {
        if let Some(node) = self.0.get_mut(device) {
            node.missed = missed;
        }
    }
}

/// Facts of a job that bound its totals.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobBounds {
    wall_seconds: f64,
    /// The end of the job is only its last sign of life.
    is_last_sign: bool,
    /// The nodes without recent samples, and since when, as text.
    silent: Option<String>,
}

impl JobBounds {
    pub(crate) fn of(
        job: &Job,
        (start, stop): (Timestamp, Timestamp),
        coverage: &api::Coverage,
    ) -> Self {
        let time = |at: f64| Timestamp::parse(&format!("{at:.0}")).unwrap_or_default().to_string();
        Self {
            wall_seconds: stop.since(start).max(0) as f64 / 1e6,
            is_last_sign: job.facts.state_word.as_deref() == Some(jobs::SILENT),
            silent: (!coverage.silent.is_empty()).then(|| coverage.silent_text(time)),
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

    /// Processor time of tasks that exit accounting missed, if it is more than what the kernel charges to the cgroup
    /// after it accounts for a task.
    fn unseen_seconds(&self) -> Option<f64> {
        let ended = self.grew("taskstats_ended_tasks_total").unwrap_or(0.0);
        let cpu_seconds = self.grew(CGROUP_CPU).unwrap_or(0.0);
        let usual = UNSEEN_SECONDS_MIN + EXIT_SECONDS * ended + UNSEEN_PART * cpu_seconds;
        self.most(RESIDUAL).filter(|seconds| *seconds > usual)
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
// Statics, because they are compared by address.
type Origins = &'static [(&'static str, Reading)];

static CPU: Origins = &[
    (CGROUP, |node| {
        let split = node.both("cgroup_cpu_user_seconds_total", "cgroup_cpu_system_seconds_total");
        node.grew(CGROUP_CPU).or(split)
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
static CPU_USER: Origins = &[
    (CGROUP, |node| node.grew("cgroup_cpu_user_seconds_total")),
    (EXITS, |node| node.grew("taskstats_cpu_user_seconds_total")),
    (RUN, |node| node.grew("run_cpu_user_seconds_total")),
];
static CPU_SYSTEM: Origins = &[
    (CGROUP, |node| node.grew("cgroup_cpu_system_seconds_total")),
    (EXITS, |node| node.grew("taskstats_cpu_system_seconds_total")),
    (RUN, |node| node.grew("run_cpu_system_seconds_total")),
];
static MEMORY_PEAK: Origins = &[
    (CGROUP, |node| node.some(CHARGED).or(node.some("cgroup_memory_bytes"))),
    (KILL, |node| node.some(AT_LIMIT)),
    (KILLED, |node| node.some(KILLED_PART)),
    (EXITS, |node| node.some("taskstats_hiwater_rss_bytes")),
    (RUN, |node| node.some("run_memory_resident_bytes")),
];
/// Peak memory if the charged memory is known completely.
static MEMORY_CHARGED: Origins =
    &[(CGROUP, |node| node.some(CHARGED)), (KILL, |node| node.some(AT_LIMIT))];
/// Metrics of [`CPU`], [`MEMORY_PEAK`], their notes, and the corresponding reports of `jobmeter run`.
pub(crate) const USAGE_METRICS: [&str; 25] = [
    "run_report_wall_seconds",
    "run_report_cpu_seconds",
    "run_report_memory_peak_bytes",
    CGROUP_CPU,
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
static IO_READ: Origins = &[
    (CGROUP, |node| node.grew("cgroup_io_read_bytes_total")),
    (EXITS, |node| node.grew("taskstats_read_bytes_total")),
    (RUN, |node| node.grew("run_io_read_bytes_total")),
];
static IO_WRITE: Origins = &[
    (CGROUP, |node| node.grew("cgroup_io_write_bytes_total")),
    (EXITS, |node| node.without("taskstats_write_bytes_total", CANCELLED)),
    (RUN, |node| node.grew("run_io_write_bytes_total")),
];
static MINOR_FAULTS: Origins = &[
    // The kernel's count of faults includes the major ones.
    (CGROUP, |node| {
        let major = node.grew("cgroup_page_faults_major_total")?;
        node.grew("cgroup_page_faults_total").map(|all| (all - major).max(0.0))
    }),
    (EXITS, |node| node.grew("taskstats_minor_faults_total")),
];
static MAJOR_FAULTS: Origins = &[
    (CGROUP, |node| node.grew("cgroup_page_faults_major_total")),
    (EXITS, |node| node.grew("taskstats_major_faults_total")),
];
static VOLUNTARY: Origins = &[(EXITS, |node| node.grew("taskstats_voluntary_switches_total"))];
static INVOLUNTARY: Origins = &[(EXITS, |node| node.grew("taskstats_involuntary_switches_total"))];
static THROTTLED: Origins = &[(CGROUP, |node| node.grew("cgroup_cpu_throttled_seconds_total"))];
static WAITED_CPU: Origins =
    &[(CGROUP, |node| node.grew("cgroup_pressure_cpu_some_seconds_total"))];
static WAITED_MEMORY: Origins =
    &[(CGROUP, |node| node.grew("cgroup_pressure_memory_some_seconds_total"))];
static WAITED_IO: Origins = &[(CGROUP, |node| node.grew("cgroup_pressure_io_some_seconds_total"))];
static NOT_READ: Origins = &[(CGROUP, |node| {
    let end = node.missed.end.and_then(Missed::unread_seconds);
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
    /// For transfers, faults and switches: processor time of tasks that are missing.
    unseen_seconds: Option<f64>,
    /// For written bytes: the note on cancelled writes.
    cancelled: Option<&'static str>,
    /// A time that the value does not include.
    gap: Option<Missed>,
    /// The node has no recent samples, and the value may grow.
    is_silent: bool,
    /// No reading followed the job's last process.
    is_open: bool,
}

fn node_total(origins: Origins, node: &Node) -> Option<NodeTotal> {
    let unread = node.most(UNREAD).is_some_and(|seconds| seconds > 0.0);
    // The cgroup then has all of the job's processor time, and none of processes before they joined or after they
    // left. Exit accounting gives a moved process to one job.
    let is_read_to_end = node.most(UNREAD) == Some(0.0);
    // Charged memory is comparable with a limit. A task's resident memory includes pages charged to other
    // cgroups.
    let charged = node.some(AT_LIMIT).or(node.some(CHARGED).filter(|_| !unread));
    let is_peak = std::ptr::eq(origins, MEMORY_PEAK);
    let is_charged = is_peak && charged.is_some();
    let is_cpu = std::ptr::eq(origins, CPU);
    let mut best: Option<NodeTotal> = None;
    let mut is_end_covered = false;
    for (origin, reading) in if is_charged { MEMORY_CHARGED } else { origins } {
        let Some(value) = reading(node).filter(|value| value.is_finite()) else { continue };
        if is_cpu && *origin == EXITS && is_read_to_end && best.is_some() {
            continue;
        }
        // Exit accounting has no processor time after the kernel accounted for a task, so it never covers the end.
        let may_cover = match *origin {
            CGROUP | KILLED => false,
            EXITS => !is_cpu,
            _ => true,
        };
        is_end_covered |= may_cover && best.is_none_or(|best| value * SAME >= best.value);
        if best.is_none_or(|best| value > best.value * SAME) {
            best = Some(NodeTotal {
                origin,
                value,
                missed: false,
                unread_seconds: None,
                unseen_seconds: None,
                cancelled: None,
                gap: None,
                is_silent: node.missed.is_silent && *origin != KILL,
                is_open: !node.missed.has_end && *origin != KILL,
            });
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
        missed: match node_total.origin {
            CGROUP => is_missed && !is_end_covered,
            // No reading of the cgroup shows whether a task is missing here. Peak memory has the note `largest task`.
            EXITS => unread && !is_peak && (is_cpu || node.grew(CGROUP_CPU).is_none()),
            _ => false,
        },
        unread_seconds,
        unseen_seconds: node
            .unseen_seconds()
            .filter(|_| node_total.origin == EXITS && !is_cpu && !is_peak),
        cancelled: node.cancelled(node_total.origin).filter(|_| is_write),
        gap: node.missed(origins, node_total.origin),
        ..node_total
    })
}

/// Totals during their computation, and the origin of each.
struct Totals<'a> {
    nodes: Vec<&'a Node>,
    job: &'a JobBounds,
    origins: Vec<api::TotalOrigin>,
}

impl Totals<'_> {
    fn total(&mut self, name: &str, origins: Origins, join: Combination) -> Option<f64> {
        let mut values: Vec<NodeTotal> =
            self.nodes.iter().filter_map(|node| node_total(origins, node)).collect();
        let nodes = u32::try_from(values.len()).unwrap_or(u32::MAX);
        if join == Combination::Largest {
            values.sort_by(|a, b| b.value.total_cmp(&a.value));
            // A silent node may have more by now.
            let is_silent = values.iter().any(|node_total| node_total.is_silent);
            values.truncate(1);
            values.iter_mut().for_each(|largest| largest.is_silent = is_silent);
        }
        let total = values.iter().map(|node_total| node_total.value).reduce(|a, b| a + b)?;
        let used: BTreeSet<&str> = values.iter().map(|node_total| node_total.origin).collect();
        let note = note(origins, &values, self.job);
        let (total_of, origins) = (name.to_owned(), used.into_iter().map(str::to_owned).collect());
        self.origins.push(api::TotalOrigin { total: total_of, origins, note, nodes });
        Some(total)
    }
}

/// Usage of a job, and the origin of each value. `None`: no origin has the value.
pub(crate) fn totals(by_node: &ByNode, job: &JobBounds) -> (api::Totals, Vec<api::TotalOrigin>) {
    let wall_seconds = job.wall_seconds;
    let mut made = Totals { nodes: by_node.0.values().collect(), job, origins: Vec::new() };
    made.origins.extend(wall_origin(&made.nodes, job));
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
    let is_bound = |origin: &api::TotalOrigin| origin.total == "cpu_seconds" && is_at_least(origin);
    if !made.origins.iter().any(is_bound) {
        limit_split(&mut totals);
    }
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
    made.origins.extend(cores_origin(&made.origins).filter(|_| totals.cores_used.is_some()));
    (totals, made.origins)
}

/// Scales user and system time to the processor time that they exceed: they may be counted in timer ticks, which hit a
/// short job too often. The kernel scales those of a task in the same way (`cputime_adjust`, kernel/sched/cputime.c,
/// Linux 6.18).
fn limit_split(totals: &mut api::Totals) {
    let (user, system) = (&mut totals.cpu_user_seconds, &mut totals.cpu_system_seconds);
    if let (Some(cpu), Some(user), Some(system)) = (totals.cpu_seconds, user, system)
        && *user + *system > cpu
    {
        let scale = cpu / (*user + *system);
        (*user, *system) = (*user * scale, *system * scale);
    }
}

#[cfg(test)]
mod tests;
