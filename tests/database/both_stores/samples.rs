//! The batches that both servers receive: agents of two nodes with jobs of two users, a poller, meters of another program.

use model::setting::AgentStatus;
use model::{
    Batch, Boot, Cause, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Labels, Metric, OomKill,
    Origin, SeriesEntry, SeriesTable, Tick, Timestamp, Unit,
};
use std::sync::Arc;

/// Users of the jobs.
pub(super) const ALICE: u32 = 54_001;
pub(super) const BOB: u32 = 54_002;

/// Times of the data.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The start of the past samples: a full hour, at least 3 hours ago. Each sample until an hour later is `past`.
    pub(super) past: i64,
    /// The second in which the test began.
    pub(super) now: i64,
}

impl Times {
    pub(super) fn of(now: i64) -> Self {
        Self { past: (now - 3 * 3600).div_euclid(3600) * 3600, now }
    }

    fn at(self, second: f64) -> Timestamp {
        Timestamp::from_seconds(self.past)
            .plus(Timestamp::parse(&format!("{second:.6}")).unwrap().0)
    }
}

/// A series with its samples: seconds after the start of the past samples, and values.
#[derive(Clone)]
struct Series {
    metric: Metric,
    device: &'static str,
    job: Option<(&'static str, i64)>,
    labels: &'static str,
    start: Option<f64>,
    samples: Vec<(f64, f64)>,
}

impl Series {
    fn new(metric: Metric, device: &'static str, samples: Vec<(f64, f64)>) -> Self {
        Self { metric, device, job: None, labels: "{}", start: None, samples }
    }

    fn labels(self, labels: &'static str) -> Self {
        Self { labels, ..self }
    }

    fn job(self, cluster: &'static str, id: i64) -> Self {
        Self { job: Some((cluster, id)), ..self }
    }

    fn since(self, second: f64) -> Self {
        Self { start: Some(second), ..self }
    }
}

fn key(cluster: &str, id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new(cluster).unwrap(), id: JobId::new(id).unwrap() }
}

fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

/// A batch of these series.
fn batch(origin: &str, seq: u64, times: Times, series: &[Series]) -> Batch {
    let mut rows: Vec<(Timestamp, u32, f64)> = Vec::new();
    let mut entries = Vec::new();
    for one in series {
        let place = u32::try_from(entries.len()).unwrap();
        entries.push(SeriesEntry {
            metric: Arc::new(one.metric.clone()),
            device: device(one.device),
            job: one.job.map(|(cluster, id)| key(cluster, id)),
            labels: Labels::from_json(one.labels).unwrap(),
            start: one.start.map(|second| times.at(second)),
        });
        rows.extend(one.samples.iter().map(|(second, value)| (times.at(*second), place, *value)));
    }
    rows.sort_by_key(|row| (row.0, row.1));
    let tick = |rows: &[(Timestamp, u32, f64)]| Tick {
        at: rows[0].0,
        samples: u32::try_from(rows.len()).unwrap(),
    };
    Batch {
        origin: Origin::new(origin).unwrap(),
        boot: Boot([1; 16]),
        seq,
        table: Arc::new(SeriesTable { entries }),
        ticks: rows.chunk_by(|a, b| a.0 == b.0).map(tick).collect(),
        index: rows.iter().map(|row| row.1).collect(),
        values: rows.iter().map(|row| row.2).collect(),
        gaps: Vec::new(),
        jobs: Vec::new(),
    }
}

/// Samples every `step` seconds in a range.
fn every(step: u32, seconds: std::ops::Range<u32>, value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let steps = usize::try_from(step).unwrap();
    seconds.step_by(steps).map(|second| (f64::from(second), value(f64::from(second)))).collect()
}

fn load() -> Metric {
    Metric::gauge("load_1m", Unit::Count, "Load.")
}

fn cpu() -> Metric {
    Metric::counter("cgroup_cpu_seconds_total", Unit::Seconds, "Processor time of the job.")
}

fn received() -> Metric {
    Metric::counter("network_receive_bytes_total", Unit::Bytes, "Bytes received.")
}

/// Power of a wattmeter.
fn power(device: &'static str, labels: &'static str, at: f64) -> Series {
    let metric = Metric::assumed("wattmetre_power_watt").unwrap();
    let samples = every(5, 0..1500, move |second| at + (second / 5.0) % 7.0 + 0.25);
    Series::new(metric, device, samples).labels(labels)
}

fn event(cluster: &str, id: i64, node: &str, uid: u32, times: Times) -> JobEvent {
    JobEvent {
        key: key(cluster, id),
        display_id: id.to_string().into(),
        device: device(node),
        user: Some(if uid == ALICE { "alice" } else { "bob" }.into()),
        uid: Some(uid),
        start: times.at(100.5),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    }
}

fn wave(second: f64) -> f64 {
    (second % 70.0) / 3.0
}

/// A counter that is 0 at a second.
fn grows(from: f64, by: f64) -> impl Fn(f64) -> f64 {
    move |second| (second - from) * by
}

/// Batches of the agents of `n1` and `n2`; one is a duplicate.
fn of_agents(times: Times) -> Vec<Batch> {
    let second = after_restart(times);
    vec![first(times), second.clone(), second, late(times), of_another_node(times)]
}

/// Samples of the node and of two jobs.
fn first(times: Times) -> Batch {
    let mut first = batch(
        "n1",
        0,
        times,
        &[
            Series::new(load(), "n1", every(10, 0..1800, wave)),
            Series::new(received(), "n1", every(10, 0..900, grows(-5.0, 1e3)))
                .labels(r#"{"interface": "eth0"}"#)
                .since(-5.0),
            Series::new(received(), "n1", every(10, 0..900, grows(0.0, 7.0)))
                .labels(r#"{"interface": "eth1"}"#),
            Series::new(cpu(), "n1", every(10, 110..1300, grows(100.5, 1.5)))
                .job("slurm", 1)
                .since(100.5),
            Series::new(cpu(), "n1", every(10, 610..1800, grows(600.25, 0.5)))
                .job("slurm", 2)
                .since(600.25),
        ],
    );
    first.jobs = vec![
        event("slurm", 1, "n1", ALICE, times),
        JobEvent { start: times.at(600.25), ..event("slurm", 2, "n1", BOB, times) },
    ];
    first
}

/// The node starts again: counters begin again. One job ends, the other loses a task.
fn after_restart(times: Times) -> Batch {
    let memory =
        Metric::gauge("cgroup_memory_peak_bytes", Unit::Bytes, "Largest memory of the job.");
    let promoted = Metric::counter("perf_instructions_total", Unit::Count, "Instructions.");
    let mut second = batch(
        "n1",
        1,
        times,
        &[
            Series::new(load(), "n1", every(10, 1800..3600, wave)),
            Series::new(received(), "n1", every(10, 910..1800, grows(905.5, 2e3)))
                .labels(r#"{"interface": "eth0"}"#)
                .since(905.5),
            Series::new(cpu(), "n1", every(10, 1800..3600, grows(600.25, 0.5)))
                .job("slurm", 2)
                .since(600.25),
            Series::new(memory, "n1", every(60, 600..3600, |second| 1e6 + second)).job("slurm", 2),
            Series::new(promoted, "n1", every(10, 1200..1260, grows(0.0, 1e9)))
                .labels(r#"{"cpu": "0"}"#),
        ],
    );
    let kill = OomKill {
        at: times.at(1100.5),
        pid: 4242,
        uid: Some(BOB),
        task: "python3".into(),
        task_bytes: Some(1 << 30),
        limit_bytes: Some(1 << 29),
    };
    second.jobs = vec![
        JobEvent { stop: Some(times.at(1300.75)), ..event("slurm", 1, "n1", ALICE, times) },
        JobEvent {
            start: times.at(600.25),
            oom_kills: vec![kill],
            ..event("slurm", 2, "n1", BOB, times)
        },
    ];
    second.gaps = vec![Gap {
        origin: Origin::new("n1").unwrap(),
        device: device("n1"),
        source: "load".into(),
        from: times.at(1500.5),
        to: times.at(1560.5),
        cause: Cause::MissedTicks,
        detail: "the machine slept".into(),
    }];
    second
}

/// Late samples, repeated instants, and values that are no plain number; a batch before it is missing.
fn late(times: Times) -> Batch {
    let odd = Metric::gauge("odd", Unit::Count, "Odd values.");
    let values =
        vec![(3.0, f64::NAN), (4.0, f64::INFINITY), (5.5, -0.0), (6.000_001, 1e300), (7.0, 1e-7)];
    batch(
        "n1",
        3,
        times,
        &[
            Series::new(load(), "n1", vec![(10.0, 5.0), (15.5, 1.0), (-400.0, 2.0)]),
            Series::new(odd, "n1", values)
                .labels(r#"{"a": [1, {"b": null}], "ü \"": "x\ny", "n": 1.50}"#),
        ],
    )
}

/// Jobs with the same ID in two clusters, and samples until some minutes after now.
fn of_another_node(times: Times) -> Batch {
    let (now, mut live) = (f64::from(i32::try_from(times.now - times.past).unwrap()), Vec::new());
    live.extend((-90..400).map(|second| (now + f64::from(second), 0.5)));
    let mut other = batch(
        "n2",
        0,
        times,
        &[
            Series::new(load(), "n2", [every(30, 0..3600, |second| second), live].concat()),
            Series::new(cpu(), "n2", every(10, 210..900, |second| second)).job("slurm", 7),
            Series::new(cpu(), "n2", every(10, 1010..1500, |second| second)).job("oar", 7),
        ],
    );
    other.jobs = vec![
        JobEvent {
            start: times.at(200.5),
            stop: Some(times.at(900.5)),
            ..event("slurm", 7, "n2", ALICE, times)
        },
        JobEvent {
            start: times.at(1000.5),
            stop: Some(times.at(1500.5)),
            ..event("oar", 7, "n2", BOB, times)
        },
        JobEvent { start: times.at(700.5), ..event("slurm", 2, "n2", BOB, times) },
    ];
    other
}

/// Batches of pollers and meters: the BMC of `n1` that is polled, a PDU that fails, two power supplies of one node with the same
/// instants, and one sample that is too late.
fn of_devices(times: Times) -> Vec<Batch> {
    let now = f64::from(i32::try_from(times.now - times.past).unwrap());
    let polls = |device, labels, success| {
        let success = vec![(now - 2.0, success)];
        let period = vec![(now - 2.0, 3600.0)];
        [
            Series::new(Metric::gauge("poll_success", Unit::Count, "Polls."), device, success)
                .labels(labels),
            Series::new(
                Metric::gauge("poll_period_seconds", Unit::Seconds, "Period."),
                device,
                period,
            )
            .labels(labels),
        ]
    };
    let bmc = r#"{"protocol": "snmp", "target": "snmp://bmc-1:161"}"#;
    let pdu = r#"{"protocol": "snmp", "target": "snmp://pdu-3:161"}"#;
    let temperature = Metric::gauge("bmc_temperature_celsius", Unit::Celsius, "Temperature.");
    let inlet = Series::new(temperature, "bmc-1", every(60, 0..3600, |second| 40.0 + second % 9.0))
        .labels(r#"{"_device_alias": "n1", "sensor": "inlet"}"#);
    let polls = [polls("bmc-1", bmc, 1.0), polls("pdu-3", pdu, 0.0)].concat();
    let mut poller = batch("poller-lab/group-0", 1, times, &polls);
    poller.gaps = vec![Gap {
        origin: poller.origin.clone(),
        device: device("pdu-3"),
        source: "snmp".into(),
        from: times.at(now - 60.0),
        to: times.at(now - 2.0),
        cause: Cause::SourceTimeout,
        detail: "no answer".into(),
    }];
    let week = 8.0 * 86_400.0;
    let late = vec![(-week, 1.0), (100.0, 1.0)];
    vec![
        batch("poller-lab/group-0", 0, times, &[inlet]),
        poller,
        batch(
            "poller-lab/group-1",
            0,
            times,
            &[
                power("pdu-1", r#"{"_device_alias": "n1"}"#, 50.0),
                power("pdu-2", r#"{"_device_alias": "n1"}"#, 60.0),
                power("pdu-2", r#"{"_device_alias": "n2", "outlet": 3}"#, 70.0),
            ],
        ),
        batch("meters", 0, times, &[Series::new(load(), "n9", late)]),
    ]
}

/// A frame of an agent that sends nothing more.
pub(super) fn silent_node(times: Times) -> Vec<u8> {
    let mut body = Vec::new();
    let load = Series::new(load(), "n3", vec![(100.0, 1.0)]);
    wire::Encoder::default().encode(&batch("n3", 0, times, &[load]), &mut body).unwrap();
    body
}

/// Frames of all batches, in one body for each request: those of agents, and those of devices.
pub(super) fn bodies(times: Times) -> [Vec<u8>; 2] {
    [of_agents(times), of_devices(times)].map(|batches| {
        let mut body = Vec::new();
        for batch in &batches {
            wire::Encoder::default().encode(batch, &mut body).unwrap();
        }
        body
    })
}

/// The status of an agent whose next batch may take an hour, so that its node stays alive.
pub(super) fn status(times: Times) -> String {
    wire::encode_status(&AgentStatus {
        now: Timestamp::from_seconds(times.now),
        wait_us: 3600 * Timestamp::SECOND.unsigned_abs(),
        ..AgentStatus::default()
    })
}

/// Records of jobs as a scheduler reports them: one that waits, one that ran twice, one that failed with all that a record may
/// have, a part of an array.
pub(super) fn records(times: Times) -> Vec<String> {
    let at = |second: i64| times.past + second;
    let (first, first_stop, again, again_stop) = (at(10), at(500), at(2000), at(2500));
    let of_alice = r#""cluster": "slurm", "uid": 54001, "user": "alice""#;
    vec![
        format!(
            r#"{{{of_alice}, "id": 3, "submit": {first}, "state": "waiting", "queue": "long", "project": "p1"}}"#
        ),
        format!(
            r#"{{{of_alice}, "id": 4, "start": {first}, "stop": {first_stop}, "state": "ended", "exit_code": 0, "nodes": [{{"device": "n1"}}]}}"#
        ),
        format!(
            r#"{{{of_alice}, "id": 4, "start": {again}, "stop": {again_stop}, "state": "ended", "exit_code": 0, "nodes": [{{"device": "n2"}}]}}"#
        ),
        format!(
            r#"{{"cluster": "slurm", "id": 5, "uid": 54002, "user": "bob", "account": "physics", "project": "p1", "queue": "long",
            "name": "drill", "state": "failed", "state_word": "OUT_OF_MEMORY", "submit": {first}, "start": {first_stop},
            "stop": {again}, "exit_code": 137, "types": ["monitor", "deploy"], "requested": {{"nodes": 2, "cpus": 8, "gpus": 1,
            "memory_bytes": 1073741824, "wall_seconds": 3600}}, "used": {{"cpus": 8, "memory_bytes": 536870912, "cpu_seconds": 77.5}},
            "nodes": [{{"device": "n1", "cpus": 4, "cpu_list": "0-3"}}, {{"device": "n2", "gpus": 1, "gpu_list": "0"}}],
            "steps": [{{"id": "batch", "name": "b", "state_word": "FAILED", "start": {first_stop}, "exit_code": 1}}]}}"#
        ),
        format!(
            r#"{{{of_alice}, "id": 41, "part_of": 40, "array_index": 1, "display_id": "40_1", "start": {first}, "state": "running",
            "nodes": [{{"device": "n[1-2]"}}]}}"#
        ),
    ]
}
