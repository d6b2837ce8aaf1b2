//! The sources `taskstats` and `process` on the recorded machine `testdata/hosts/tasks-v1`.

#![expect(clippy::unwrap_used, reason = "a missing record fails the test")]

use cgroups::{Config, Discovery, Jobs};
use kernel::Root;
use kernel::taskstats::{Counter, recorded};
use model::{DeviceId, Timestamp};
use sources::{Context, Open, Options, Sink};
use std::fs;
use std::path::{Path, PathBuf};

const CPU: &str = "taskstats_cpu_run_virtual_seconds_total";
/// The first tick, in seconds since 1970.
const FIRST_S: i64 = 1_767_706_500;

struct Sample {
    job: Option<i64>,
    metric: String,
    tick: i64,
    start: Option<Timestamp>,
    value: f64,
}

fn host() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hosts/tasks-v1")
}

/// Samples of one source on the recorded machine `tasks-v1` at two ticks.
fn samples(name: &str) -> Vec<Sample> {
    let [first, boot] = [FIRST_S, FIRST_S - 86_400].map(Timestamp::from_seconds);
    let (mut jobs, mut discovery) = (Jobs::default(), Discovery::new(Config::default()));
    let spec = sources::list::find(name).unwrap();
    let options = Options::defaults(spec.options);
    let mut sink = Sink::new(DeviceId::new("tasks-v1").unwrap());
    let mut source = None;
    for tick in [1, 2] {
        let root = Root::recorded(&host().join(tick.to_string())).unwrap();
        let now = first.plus((tick - 1) * 5 * Timestamp::SECOND);
        discovery.update(&root, now, &mut jobs);
        let cx = Context {
            root: &root,
            now,
            boot,
            jobs: &jobs,
            budget_us: 1_000_000,
            is_between: false,
        };
        let source = source.get_or_insert_with(|| {
            (spec.open)(&Open { root: &root, options: &options, boot }).unwrap()
        });
        sink.begin(now);
        source.collect(&cx, &mut sink).unwrap();
    }
    let samples = sink.samples().map(|(entry, at, value)| Sample {
        job: entry.job.as_ref().map(|job| job.id.get()),
        metric: entry.metric.name.to_string(),
        tick: at.since(first) / (5 * Timestamp::SECOND) + 1,
        start: entry.start,
        value,
    });
    samples.collect()
}

/// Processor time of a task at a tick by the recorded answers, in seconds.
fn cpu_of(tick: i64, tid: u32) -> f64 {
    let answer = host().join(format!("{tick}/.jobmeter/taskstats/{tid}.bin"));
    let stats = recorded(&fs::read(answer).unwrap()).unwrap().stats;
    stats.counters.get(Counter::CpuRunVirtual) as f64 / 1e9
}

/// The one sample of a metric of a job at a tick.
fn find<'a>(samples: &'a [Sample], job: i64, metric: &str, tick: i64) -> &'a Sample {
    let is_it = |it: &&Sample| it.job == Some(job) && it.metric == metric && it.tick == tick;
    samples.iter().find(is_it).unwrap()
}

#[test]
fn taskstats_of_a_recorded_machine() {
    let samples = samples("taskstats");
    let value = |job, metric, tick| find(&samples, job, metric, tick).value;
    let start = |job| find(&samples, job, CPU, 2).start;
    let first = Some(Timestamp::from_seconds(FIRST_S));
    // Job 12 is older than the source: it counts from the first reading.
    assert_eq!((start(12), value(12, CPU, 1)), (first, 0.0));
    let living = [4101, 4102, 4103, 4104].map(|tid| cpu_of(2, tid) - cpu_of(1, tid));
    let (cpu, living) = (value(12, CPU, 2), living.iter().sum::<f64>());
    assert!(cpu > living && cpu < living + 0.05, "{cpu} and {living}, and three that ended");
    assert_eq!(value(12, "taskstats_ended_tasks_total", 2), 3.0);
    assert_eq!((value(12, "taskstats_tasks", 1), value(12, "taskstats_tasks", 2)), (6.0, 4.0));
    assert_eq!(value(12, "taskstats_residual_cpu_seconds", 2), 0.003);
    // Job 13 was made at the first tick: its task counts from its start.
    assert_eq!((start(13), value(13, CPU, 1)), (first, cpu_of(1, 4201)));
    assert_eq!(value(13, "taskstats_residual_cpu_seconds", 1), 0.000_05);
    let device = |metric: &str| {
        let mut of_device = samples.iter().filter(|it| it.job.is_none() && it.metric == metric);
        of_device.next_back().unwrap().value
    };
    // The orphan belongs to an unknown parent and cannot be attributed.
    let exits = ["taskstats_exits_total", "taskstats_unattributed_exits_total"].map(device);
    assert_eq!(exits, [4.0, 1.0]);
    // The 30 values of Colmet, the two largest memories, current and ended tasks, the residual,
    // and the processor time by command: one named command, and the rest.
    assert_eq!(samples.iter().filter(|it| it.job == Some(12) && it.tick == 2).count(), 37);
}

#[test]
fn processes_of_a_recorded_machine() {
    let samples = samples("process");
    let value = |metric, tick| find(&samples, 12, metric, tick).value;
    assert_eq!((value("process_count", 1), value("process_count", 2)), (4.0, 2.0));
    assert_eq!(value("process_threads", 1), 6.0);
    assert_eq!(value("process_write_char_bytes_total", 1), 0.0);
    // A process that no reading saw wrote 4 MiB.
    assert!(value("process_write_char_bytes_total", 2) > f64::from(4 << 20));
    let parts = ["process_rss_anon_bytes", "process_rss_file_bytes", "process_rss_shmem_bytes"];
    let parts = parts.map(|part| value(part, 2)).iter().sum::<f64>();
    assert_eq!(parts, value("process_rss_bytes", 2));
    let top = samples.iter().filter(|it| it.metric == "process_top_rss_bytes" && it.tick == 1);
    assert_eq!(top.count(), 5);
}
