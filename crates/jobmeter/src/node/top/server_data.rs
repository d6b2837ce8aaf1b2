//! Requests to a server for `top`: nodes, running jobs, and recent usage of those on the screen.

use super::local_readings::BUSY;
use crate::client::http_client::{Client, path};
use std::collections::{BTreeMap, HashMap};

/// The view of a server's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// All jobs.
    Jobs,
    /// Jobs on this node, with their usage there.
    JobsOn(String),
    /// All nodes.
    Nodes,
    /// Nodes of this job, with its usage there.
    NodesOf(String),
}

/// Usage of a job, a node or both; `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) cpu: Option<f64>,
    pub(super) memory: Option<f64>,
    pub(super) read: Option<f64>,
    pub(super) written: Option<f64>,
    pub(super) tasks: Option<f64>,
    /// Transfers of the tasks, for a job whose cgroup counts none.
    pub(super) read_of_tasks: Option<f64>,
    pub(super) written_of_tasks: Option<f64>,
}

impl Usage {
    pub(super) fn read(&self) -> Option<f64> {
        self.read.or(self.read_of_tasks)
    }

    pub(super) fn written(&self) -> Option<f64> {
        self.written.or(self.written_of_tasks)
    }
}

/// Key of a usage: the job's key (empty for the node itself) and the node.
pub(super) type Pair = (String, String);

/// The data from the server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) health: api::Health,
    pub(super) nodes: Vec<api::Node>,
    /// Running jobs.
    pub(super) jobs: Vec<api::Job>,
    pub(super) usage: HashMap<Pair, Usage>,
    /// Nodes that were not queried, or only in part, because of the limits.
    pub(super) nodes_left_out: usize,
}

const JOB_METRICS: [&str; 7] = [
    "taskstats_read_bytes_total",
    "taskstats_write_bytes_total",
    "cgroup_cpu_seconds_total",
    "cgroup_memory_bytes",
    "cgroup_io_read_bytes_total",
    "cgroup_io_write_bytes_total",
    "cgroup_tasks",
];
/// Transfer metrics of a node. The list of nodes contains its memory and its number of jobs.
const NODE_METRICS: [&str; 2] = ["vmstat_paged_in_bytes_total", "vmstat_paged_out_bytes_total"];
/// Maximum number of jobs on the screen.
const JOBS_MAX: u64 = 10_000;
/// Typical number of series of a job on a node; some metrics have one per disk.
const SERIES_OF_JOB: usize = 9;
/// Maximum series per request; a server returns at most 2000.
const SERIES_MAX: usize = 1500;
/// Maximum bytes of node names per request; a URL may have 64 KiB.
const NAMES_BYTES_MAX: usize = 16 << 10;
/// Maximum number of series requests per refresh, which limits the load on the server.
const QUESTIONS_MAX: usize = 16;
/// Maximum age of a shown value, in reading periods of its node, with a minimum and a maximum in seconds.
const READINGS: f64 = 3.0;
const WINDOW_SECONDS: (f64, f64) = (60.0, 300.0);
/// Step of the queries in seconds: readings within it are aggregated.
const STEP_SECONDS: f64 = 5.0;

/// The key of a job on the screen.
pub(super) fn key_of(job: &api::Job) -> String {
    format!("{}:{}", job.cluster, job.id)
}

/// Requests all data of a view.
pub(super) fn fetch(client: &Client, view: &View) -> anyhow::Result<Answer> {
    let health: api::Health = client.get("/api/v1/health")?;
    let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    let running = ("state", Some("running".to_owned()));
    let limit = ("limit", Some(JOBS_MAX.to_string()));
    let jobs: Vec<api::Job> = client.get(&path("/api/v1/jobs", &[running, limit]))?;
    let wanted_series = wanted_series(view, &nodes, &jobs);
    let periods: HashMap<&str, f64> =
        nodes.iter().filter_map(|node| Some((&*node.device, node.period_seconds?))).collect();
    let (mut usage, mut nodes_left_out, mut questions) = (HashMap::new(), 0, 0);
    let mut pieces = pieces(&wanted_series);
    while let Some(mut piece) = pieces.pop() {
        questions += 1;
        if questions > QUESTIONS_MAX {
            nodes_left_out += piece.len();
            continue;
        }
        let range = range(client, view, &piece, health.now - window(&piece, &nodes))?;
        if range.truncated && piece.len() > 1 {
            let rest = piece.split_off(piece.len() / 2);
            pieces.extend([rest, piece]);
            continue;
        }
        nodes_left_out += usize::from(range.truncated);
        add(&range, health.now, &periods, &mut usage);
    }
    Ok(Answer { health, nodes, jobs, usage, nodes_left_out })
}

/// The nodes whose series are requested, with their expected number of series.
fn wanted_series<'a>(
    view: &'a View,
    nodes: &'a [api::Node],
    jobs: &'a [api::Job],
) -> BTreeMap<&'a str, usize> {
    let mut wanted_series = BTreeMap::new();
    match view {
        View::Nodes => {
            let alive = nodes.iter().filter(|node| node.alive);
            wanted_series
                .extend(alive.map(|node| (&*node.device, BUSY.len() + NODE_METRICS.len())));
        }
        View::Jobs | View::JobsOn(_) | View::NodesOf(_) => {
            for job in jobs.iter().filter(|job| concerns(view, job)) {
                for device in job.devices.iter().filter(|device| concerns_node(view, device)) {
                    *wanted_series.entry(&**device).or_insert(0) += SERIES_OF_JOB;
                }
            }
        }
    }
    wanted_series
}

/// Whether a view includes this job.
pub(super) fn concerns(view: &View, job: &api::Job) -> bool {
    match view {
        View::Jobs | View::Nodes => true,
        View::JobsOn(device) => job.devices.contains(device),
        View::NodesOf(key) => key_of(job) == *key,
    }
}

/// Whether a view includes this node.
pub(super) fn concerns_node(view: &View, device: &str) -> bool {
    !matches!(view, View::JobsOn(only) if only != device)
}

/// Groups of nodes per request; the first groups come last.
fn pieces<'a>(wanted_series: &BTreeMap<&'a str, usize>) -> Vec<Vec<&'a str>> {
    let mut pieces: Vec<Vec<&str>> = Vec::new();
    let (mut series, mut bytes) = (usize::MAX, 0);
    for (device, of_device) in wanted_series {
        series = series.saturating_add(*of_device);
        // Percent-encoded, a byte takes at most three.
        bytes += 3 * device.len() + 3;
        match pieces.last_mut() {
            Some(piece) if series <= SERIES_MAX && bytes <= NAMES_BYTES_MAX => piece.push(device),
            _ => {
                pieces.push(vec![device]);
                (series, bytes) = (*of_device, 3 * device.len() + 3);
            }
        }
    }
    pieces.reverse();
    pieces
}

/// Time range of the query for the latest readings of these nodes, in seconds.
fn window(piece: &[&str], nodes: &[api::Node]) -> f64 {
    let of_piece = nodes.iter().filter(|node| piece.contains(&&*node.device));
    let slowest = of_piece.filter_map(|node| node.period_seconds).fold(0.0, f64::max);
    (READINGS * slowest).clamp(WINDOW_SECONDS.0, WINDOW_SECONDS.1)
}

fn range(client: &Client, view: &View, devices: &[&str], start: f64) -> anyhow::Result<api::Range> {
    let metrics = match view {
        View::Nodes => [&BUSY[..], &NODE_METRICS].concat(),
        View::Jobs | View::JobsOn(_) | View::NodesOf(_) => JOB_METRICS.to_vec(),
    };
    let job = match view {
        View::Nodes => Some("none".to_owned()),
        View::NodesOf(key) => Some(key.clone()),
        View::Jobs | View::JobsOn(_) => None,
    };
    client.get(&path(
        "/api/v1/range",
        &[
            ("device", Some(devices.join(","))),
            ("metric", Some(metrics.join(","))),
            ("job", job),
            ("start", Some(format!("{start:.6}"))),
            ("step", Some(format!("{STEP_SECONDS}s"))),
            ("rate", Some("true".to_owned())),
        ],
    ))
}

/// The latest value of a series, unless newer ones are overdue: a few periods of its node have passed. A rate over a
/// longer time, of a source that is read less often, is valid for as long as that time.
fn latest(line: &api::RangeSeries, now: f64, period: f64) -> Option<f64> {
    let place = line.values.iter().rposition(Option::is_some)?;
    let covered = line.seconds.get(place).copied().unwrap_or(0.0);
    let age_max = (READINGS * period).max(covered).max(STEP_SECONDS) + STEP_SECONDS;
    let end = line.times.get(place)? + STEP_SECONDS;
    line.values.get(place).copied().flatten().filter(|_| now - end <= age_max)
}

/// Adds the latest value of each series to its usage.
fn add(
    range: &api::Range,
    now: f64,
    periods: &HashMap<&str, f64>,
    usage: &mut HashMap<Pair, Usage>,
) {
    for line in &range.series {
        let series = &line.series;
        let period = periods.get(&*series.device).copied().unwrap_or(0.0);
        let Some(value) = latest(line, now, period) else { continue };
        let key = match (&series.cluster, series.job) {
            (Some(cluster), Some(job)) => format!("{cluster}:{job}"),
            _ => String::new(),
        };
        let usage = usage.entry((key, series.device.clone())).or_default();
        let part = match &*series.metric {
            "cgroup_memory_bytes" => &mut usage.memory,
            "cgroup_io_read_bytes_total" | "vmstat_paged_in_bytes_total" => &mut usage.read,
            "cgroup_io_write_bytes_total" | "vmstat_paged_out_bytes_total" => &mut usage.written,
            "cgroup_tasks" => &mut usage.tasks,
            "taskstats_read_bytes_total" => &mut usage.read_of_tasks,
            "taskstats_write_bytes_total" => &mut usage.written_of_tasks,
            _ => &mut usage.cpu,
        };
        *part = Some(part.unwrap_or(0.0) + value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(metric: &str, job: Option<i64>, values: &[Option<f64>]) -> api::RangeSeries {
        let series = api::SeriesInfo {
            device: "n1".to_owned(),
            metric: metric.to_owned(),
            cluster: job.map(|_| "slurm".to_owned()),
            job,
            labels: BTreeMap::new(),
            unit: String::new(),
            kind: String::new(),
        };
        let times = (0_u8..).map(f64::from).take(values.len()).collect();
        let (value_unit, help) = (String::new(), String::new());
        let (values, seconds) = (values.to_vec(), Vec::new());
        api::RangeSeries { series, value_unit, help, times, values, seconds, totals: None }
    }

    #[test]
    fn parts_are_summed_and_the_newest_number_counts() {
        let range = api::Range {
            start: 0.0,
            end: 1.0,
            step_seconds: 5.0,
            rollup_seconds: 0.0,
            series: vec![
                line("cpu_user_seconds_total", None, &[Some(1.0), Some(0.5)]),
                line("cpu_system_seconds_total", None, &[Some(0.25)]),
                line("cgroup_io_read_bytes_total", Some(7), &[Some(8.0), Some(2.0), None]),
                line("cgroup_io_read_bytes_total", Some(7), &[Some(1.0)]),
                line("cgroup_tasks", Some(7), &[None]),
                line("taskstats_read_bytes_total", Some(7), &[Some(9.0)]),
                line("taskstats_write_bytes_total", Some(7), &[Some(4.0)]),
            ],
            gaps: Vec::new(),
            truncated: false,
        };
        let mut usage = HashMap::new();
        add(&range, 5.0, &HashMap::new(), &mut usage);
        let of = |key: &str| usage[&(key.to_owned(), "n1".to_owned())];
        assert_eq!(of(""), Usage { cpu: Some(0.75), ..Usage::default() });
        let job = of("slurm:7");
        assert_eq!(
            (job.read(), job.written()),
            (Some(3.0), Some(4.0)),
            "the cgroup's, else the tasks'"
        );
    }

    #[test]
    fn a_value_is_shown_until_the_next_one_is_overdue() {
        let read = |seconds: f64, now, period| {
            let mut of = line("cgroup_io_read_bytes_total", Some(7), &[Some(1.0), Some(8.0), None]);
            (of.times, of.seconds) = (vec![0.0, 5.0, 10.0], vec![5.0, seconds, 0.0]);
            latest(&of, now, period)
        };
        assert_eq!(read(5.0, 18.0, 1.0), Some(8.0));
        assert_eq!(read(5.0, 21.0, 1.0), None, "the node reads every second");
        assert_eq!(read(5.0, 21.0, 5.0), Some(8.0));
        // A mean of 30 s, as of a source that is read every 30 s.
        assert_eq!((read(30.0, 44.0, 1.0), read(30.0, 46.0, 1.0)), (Some(8.0), None));
    }

    #[test]
    fn queries_have_space_for_their_answers_and_names() {
        let names: Vec<String> = (0..1000).map(|n| format!("node-{n:04}")).collect();
        let wanted_series = |series| names.iter().map(|name| (&**name, series)).collect();
        let sizes = |series| -> Vec<usize> {
            pieces(&wanted_series(series)).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(7), [144, 214, 214, 214, 214]);
        assert_eq!(sizes(1), [454, 546], "by the length of names");
        assert!(sizes(5000).iter().all(|size| *size == 1));
        let all: Vec<&str> = pieces(&wanted_series(7)).into_iter().rev().flatten().collect();
        assert_eq!(all, names);
    }
}
