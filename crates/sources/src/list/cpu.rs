//! Processors: time by mode, interrupts, context switches and forks.
//!
//! Reads `/proc/stat` (any Linux; Documentation/filesystems/proc.rst, section 1.7), see [`kernel::stat`]:
//!
//! ```text
//! cpu  4084 27488 4868 166074 781 0 67 78 5 6
//! cpu0 1617 13528 2016 84361 144 0 10 26 2 3
//! ```
//!
//! The ten columns of a line are ten metrics in seconds, under the kernel's own names but for the last two:
//!
//! | column | metric | column | metric |
//! |---|---|---|---|
//! | user | `cpu_user_seconds_total` | irq | `cpu_irq_seconds_total` |
//! | nice | `cpu_nice_seconds_total` | softirq | `cpu_softirq_seconds_total` |
//! | system | `cpu_system_seconds_total` | steal | `cpu_steal_seconds_total` |
//! | idle | `cpu_idle_seconds_total` | guest | `cpu_user_guest_seconds_total`, contained in user |
//! | iowait | `cpu_iowait_seconds_total` | guest_nice | `cpu_nice_guest_seconds_total`, contained in nice |
//!
//! The first eight add up to the time of all processors; the last two are contained in `user` and `nice`.
//! Single processors have separate metrics, `cpu_core_…`, with the label `cpu`.
//!
//! The kernel lets `idle` and `iowait` fall by up to the length of a sleep (same document: "the value of
//! iowait field in /proc/stat will decrease in certain conditions"). A falling counter would look like a
//! reset, so the source holds these two at their highest value until the kernel passes it.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::cores;
use crate::source::sink::SampleWriter;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::stat::{CpuTimes, SOFTIRQS, Stat, stat, user_hz};
use model::{Metric, Timestamp, Unit};

const PATH: &str = "proc/stat";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "cpu",
    help: "Time of the processors by mode, interrupts, context switches and forks.",
    reads: &["/proc/stat"],
    cost: "about 4 µs on 2 virtual cores, Linux 6.18; grows with the processors",
    every: Every::Tick,
    metrics: &[
        &TIMES[0],
        &TIMES[1],
        &TIMES[2],
        &TIMES[3],
        &TIMES[4],
        &TIMES[5],
        &TIMES[6],
        &TIMES[7],
        &TIMES[8],
        &TIMES[9],
        &CORE_TIMES[0],
        &CORE_TIMES[1],
        &CORE_TIMES[2],
        &CORE_TIMES[3],
        &CORE_TIMES[4],
        &CORE_TIMES[5],
        &CORE_TIMES[6],
        &CORE_TIMES[7],
        &CORE_TIMES[8],
        &CORE_TIMES[9],
        &ONLINE,
        &CONTEXT_SWITCHES,
        &INTERRUPTS,
        &SOFT_INTERRUPTS,
        &FORKS,
        &RUNNING,
        &BLOCKED,
    ],
    options: &[cores("Also every single processor: ten more series per processor.")],
    open,
    ..SourceSpec::DEFAULT
};

/// In the order of the columns.
static TIMES: [Metric; 10] = [
    seconds(
        "cpu_user_seconds_total",
        "Time of all processors in user mode, including guests, excluding lowered priorities.",
    ),
    seconds(
        "cpu_nice_seconds_total",
        "Time of all processors in user mode at a lowered priority, including guests.",
    ),
    seconds(
        "cpu_system_seconds_total",
        "Time of all processors in the kernel, excluding interrupts.",
    ),
    seconds("cpu_idle_seconds_total", "Idle time of all processors."),
    seconds(
        "cpu_iowait_seconds_total",
        "Idle time of all processors while one of their tasks waited for a disk; approximate, as a waiting task belongs to no processor.",
    ),
    seconds("cpu_irq_seconds_total", "Time of all processors in interrupts."),
    seconds("cpu_softirq_seconds_total", "Time of all processors in soft interrupts."),
    seconds(
        "cpu_steal_seconds_total",
        "Time in which processors of this virtual machine were ready to run but the host ran something else.",
    ),
    seconds(
        "cpu_user_guest_seconds_total",
        "The part of cpu_user_seconds_total that ran virtual machines.",
    ),
    seconds(
        "cpu_nice_guest_seconds_total",
        "The part of cpu_nice_seconds_total that ran virtual machines.",
    ),
];

/// In the order of the columns.
static CORE_TIMES: [Metric; 10] = [
    seconds(
        "cpu_core_user_seconds_total",
        "Time of this processor in user mode, including guests, excluding lowered priorities.",
    ),
    seconds(
        "cpu_core_nice_seconds_total",
        "Time of this processor in user mode at a lowered priority, including guests.",
    ),
    seconds(
        "cpu_core_system_seconds_total",
        "Time of this processor in the kernel, excluding interrupts.",
    ),
    seconds("cpu_core_idle_seconds_total", "Idle time of this processor."),
    seconds(
        "cpu_core_iowait_seconds_total",
        "Idle time of this processor while one of its tasks waited for a disk; approximate, as a waiting task belongs to no processor.",
    ),
    seconds("cpu_core_irq_seconds_total", "Time of this processor in interrupts."),
    seconds("cpu_core_softirq_seconds_total", "Time of this processor in soft interrupts."),
    seconds(
        "cpu_core_steal_seconds_total",
        "Time in which this processor of a virtual machine was ready to run but the host ran something else.",
    ),
    seconds(
        "cpu_core_user_guest_seconds_total",
        "The part of cpu_core_user_seconds_total that ran virtual machines.",
    ),
    seconds(
        "cpu_core_nice_guest_seconds_total",
        "The part of cpu_core_nice_seconds_total that ran virtual machines.",
    ),
];

static ONLINE: Metric = Metric::gauge("cpu_online", Unit::Count, "Online processors.");
static CONTEXT_SWITCHES: Metric = Metric::counter(
    "cpu_context_switches_total",
    Unit::Count,
    "Switches of a processor from one task to another.",
);
static INTERRUPTS: Metric =
    Metric::counter("cpu_interrupts_total", Unit::Count, "Interrupts served.");
static SOFT_INTERRUPTS: Metric = Metric::counter(
    "cpu_soft_interrupts_total",
    Unit::Count,
    "Soft interrupts served, by kind; the kernel's counter wraps at 2^32, which the source `softirqs` handles.",
);
static FORKS: Metric =
    Metric::counter("cpu_forks_total", Unit::Count, "Processes and threads created.");
static RUNNING: Metric =
    Metric::gauge("cpu_running_tasks", Unit::Count, "Tasks that run or wait for a processor now.");
static BLOCKED: Metric =
    Metric::gauge("cpu_blocked_tasks", Unit::Count, "Tasks that wait for a disk now.");

const fn seconds(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Seconds, help).steps(100)
}

struct Cpu {
    file: TickFile,
    hz: f64,
    cores_wanted: bool,
    all: HighestSeen,
    /// By processor number.
    cores: Vec<Core>,
    read_at: Option<Timestamp>,
}

struct Core {
    label: Box<str>,
    held: HighestSeen,
}

/// Highest values seen of the columns that the kernel lets fall.
#[derive(Default)]
struct HighestSeen {
    idle: u64,
    iowait: u64,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Cpu {
        file: TickFile::open(open.root, PATH)?,
        hz: user_hz(open.root) as f64,
        cores_wanted: open.options.switch("cores"),
        all: HighestSeen::default(),
        cores: Vec::new(),
        read_at: None,
    }))
}

impl Source for Cpu {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        if self.read_at.is_some_and(|read_at| cx.boot > read_at) {
            self.all = HighestSeen::default();
            self.cores.clear();
        }
        let Self { file, hz, cores_wanted, all, cores, read_at } = self;
        let mut out = out.of_device();
        let parsed = stat(file.read_single()?, |number, times| {
            if *cores_wanted && let Some(core) = core_of(cores, number) {
                let labels = [("cpu", &*core.label)];
                push_times(&CORE_TIMES, &labels, &core.held.hold(times), *hz, cx.boot, &mut out);
            }
        })
        .map_err(|e| broken(PATH, e))?;
        push_times(&TIMES, &[], &all.hold(&parsed.all), *hz, cx.boot, &mut out);
        push_events(&parsed, cx.boot, &mut out);
        *read_at = Some(cx.now);
        Ok(())
    }
}

impl HighestSeen {
    fn hold(&mut self, now: &CpuTimes) -> CpuTimes {
        self.idle = self.idle.max(now.idle);
        self.iowait = self.iowait.max(now.iowait.unwrap_or(0));
        CpuTimes { idle: self.idle, iowait: now.iowait.map(|_| self.iowait), ..*now }
    }
}

/// The core with this number, which the parser keeps below [`kernel::stat::CPUS_MAX`].
fn core_of(cores: &mut Vec<Core>, number: u32) -> Option<&mut Core> {
    let place = usize::try_from(number).ok()?;
    while cores.len() <= place {
        let label = cores.len().to_string().into_boxed_str();
        cores.push(Core { label, held: HighestSeen::default() });
    }
    cores.get_mut(place)
}

fn push_times(
    metrics: &'static [Metric; 10],
    labels: &[(&str, &str)],
    times: &CpuTimes,
    hz: f64,
    boot: Timestamp,
    out: &mut SampleWriter<'_>,
) {
    let columns = [
        Some(times.user),
        Some(times.nice),
        Some(times.system),
        Some(times.idle),
        times.iowait,
        times.irq,
        times.softirq,
        times.steal,
        times.guest,
        times.guest_nice,
    ];
    for (metric, ticks) in metrics.iter().zip(columns) {
        if let Some(ticks) = ticks {
            out.counter(metric, labels, ticks as f64 / hz, boot);
        }
    }
}

fn push_events(stat: &Stat, boot: Timestamp, out: &mut SampleWriter<'_>) {
    out.gauge(&ONLINE, &[], f64::from(stat.online));
    for (metric, count) in [
        (&CONTEXT_SWITCHES, stat.context_switches),
        (&INTERRUPTS, stat.interrupts),
        (&FORKS, stat.forks),
    ] {
        if let Some(count) = count {
            out.counter(metric, &[], count as f64, boot);
        }
    }
    for (metric, tasks) in [(&RUNNING, stat.running), (&BLOCKED, stat.blocked)] {
        if let Some(tasks) = tasks {
            out.gauge(metric, &[], tasks as f64);
        }
    }
    if let Some(counts) = stat.softirqs {
        for (kind, count) in SOFTIRQS.iter().zip(counts) {
            out.counter(&SOFT_INTERRUPTS, &[("kind", kind)], count as f64, boot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_iowait_are_held_until_the_kernel_passes_them() {
        let mut held = HighestSeen::default();
        let mut read = |idle, iowait| {
            let now = CpuTimes { idle, iowait: Some(iowait), ..CpuTimes::default() };
            let shown = held.hold(&now);
            (shown.idle, shown.iowait.unwrap())
        };
        assert_eq!(read(100, 50), (100, 50));
        assert_eq!(read(140, 45), (140, 50));
        assert_eq!(read(139, 51), (140, 51));
        assert_eq!(read(200, 60), (200, 60));
    }

    #[test]
    fn a_kernel_without_iowait_gets_none() {
        let times = CpuTimes { idle: 1, iowait: None, ..CpuTimes::default() };
        assert_eq!(HighestSeen::default().hold(&times).iowait, None);
    }
}
