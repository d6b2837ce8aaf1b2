//! Time in which tasks ran and waited for a processor, in nanoseconds of the scheduler.
//!
//! Reads `/proc/schedstat` (Linux 2.6.30 in this form, with CONFIG_SCHEDSTATS;
//! Documentation/scheduler/sched-stats.rst), see [`kernel::schedstat`]:
//!
//! ```text
//! version 17
//! cpu0 0 0 0 0 0 0 85467292000 1204560000 91242
//! ```
//!
//! Pressure only shows whether any task waited; this wait is summed over tasks, so it shows how much work
//! waited. It counts since the first reading; a processor that goes offline keeps its counts. The option
//! `cores` adds each single processor.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::cores;
use crate::reading::wrapping::Sum;
use crate::{Context, Every, Open, SampleWriter, Sink, Source, SourceError, SourceSpec};
use kernel::schedstat::{CpuSched, schedstat};
use model::{Metric, Timestamp, Unit};

const PATH: &str = "proc/schedstat";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "schedstat",
    help: "Time in which tasks ran and waited for a processor.",
    reads: &["/proc/schedstat"],
    cost: "one file, which grows with the processors and more strongly with their scheduling domains",
    every: Every::Tick,
    metrics: &[&ALL[0], &ALL[1], &ALL[2], &CORE[0], &CORE[1], &CORE[2]],
    options: &[cores("Also every single processor: three more series per processor.")],
    open,
    ..SourceSpec::DEFAULT
};

/// In the order of the columns.
static ALL: [Metric; 3] = [
    nanos(
        "schedstat_run_seconds_total",
        "Time in which tasks ran, summed over processors, since the first reading.",
    ),
    nanos(
        "schedstat_wait_seconds_total",
        "Time in which tasks were ready to run but waited for a processor, summed over tasks, since the first reading.",
    ),
    Metric::counter(
        "schedstat_slices_total",
        Unit::Count,
        "Time slices of tasks, summed over processors, since the first reading.",
    ),
];

/// In the order of the columns.
static CORE: [Metric; 3] = [
    nanos(
        "schedstat_core_run_seconds_total",
        "The part of schedstat_run_seconds_total of one processor.",
    ),
    nanos(
        "schedstat_core_wait_seconds_total",
        "The part of schedstat_wait_seconds_total of one processor.",
    ),
    Metric::counter(
        "schedstat_core_slices_total",
        Unit::Count,
        "The part of schedstat_slices_total of one processor.",
    ),
];

const fn nanos(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Seconds, help).steps(1_000_000_000)
}

#[derive(Default)]
struct Core {
    label: Box<str>,
    last: [Option<u64>; 3],
    sums: [Sum; 3],
}

struct Schedstat {
    file: TickFile,
    cores_wanted: bool,
    all: [Sum; 3],
    cores: Vec<Core>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let file = match TickFile::open(open.root, PATH) {
        Err(SourceError::Absent(_)) => {
            Err(SourceError::absent("/proc/schedstat: needs a kernel with CONFIG_SCHEDSTATS"))
        }
        other => other,
    };
    Ok(Box::new(Schedstat {
        file: file?,
        cores_wanted: open.options.switch("cores"),
        all: Default::default(),
        cores: Vec::new(),
    }))
}

impl Source for Schedstat {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let Self { file, cores_wanted, all, cores } = self;
        let mut of = out.of_device();
        for cpu in schedstat(file.read()?).map_err(|e| broken(PATH, e))? {
            let cpu = cpu.map_err(|e| broken(PATH, e))?;
            let Some(core) = core_of(cores, cpu.cpu) else { continue };
            core.add(&cpu, all);
            if *cores_wanted {
                push(&CORE, &[("cpu", &core.label)], &mut core.sums, cx.now, &mut of);
            }
        }
        push(&ALL, &[], all, cx.now, &mut of);
        Ok(())
    }
}

impl Core {
    fn add(&mut self, cpu: &CpuSched, all: &mut [Sum; 3]) {
        let columns = [cpu.run_ns, cpu.wait_ns, cpu.slices];
        let places = self.last.iter_mut().zip(&mut self.sums).zip(all).zip(columns);
        for (((last, sum), all), value) in places {
            all.add(&mut { *last }, value, None);
            sum.add(last, value, None);
        }
    }
}

/// The core with this number, which the parser keeps below [`kernel::stat::CPUS_MAX`].
fn core_of(cores: &mut Vec<Core>, number: u32) -> Option<&mut Core> {
    let place = usize::try_from(number).ok()?;
    while cores.len() <= place {
        let label = cores.len().to_string().into_boxed_str();
        cores.push(Core { label, ..Core::default() });
    }
    cores.get_mut(place)
}

fn push(
    metrics: &'static [Metric; 3],
    labels: &[(&str, &str)],
    sums: &mut [Sum; 3],
    now: Timestamp,
    out: &mut SampleWriter<'_>,
) {
    for (metric, sum) in metrics.iter().zip(sums) {
        let (count, start) = sum.total(now);
        out.counter(metric, labels, count as f64 / f64::from(metric.divisor), start);
    }
}
