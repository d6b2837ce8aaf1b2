//! Load: number of tasks that are ready to run, averaged by the kernel over 1, 5 and 15 minutes.
//!
//! Reads `/proc/loadavg` (any Linux), see [`kernel::loadavg`]. One small file: about 1 µs.

use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::{OpenFile, loadavg::loadavg};
use model::{Metric, Unit};

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "load",
    help: "Number of tasks that are ready to run.",
    reads: &["/proc/loadavg"],
    cost: "one file",
    every: Every::Tick,
    metrics: &[&LOAD_1M, &LOAD_5M, &LOAD_15M, &RUNNABLE, &TASKS],
    open,
    ..SourceSpec::DEFAULT
};

static LOAD_1M: Metric = Metric::gauge(
    "load_1m",
    Unit::Count,
    "Tasks running, waiting for a processor or in uninterruptible sleep, averaged over 1 minute.",
)
.steps(100);
static LOAD_5M: Metric =
    Metric::gauge("load_5m", Unit::Count, "The load averaged over 5 minutes.").steps(100);
static LOAD_15M: Metric =
    Metric::gauge("load_15m", Unit::Count, "The load averaged over 15 minutes.").steps(100);
static RUNNABLE: Metric = Metric::gauge(
    "load_runnable_tasks",
    Unit::Count,
    "Tasks that run or wait for a processor now.",
);
static TASKS: Metric =
    Metric::gauge("load_tasks", Unit::Count, "All tasks of the node, counting every thread.");

struct Load {
    file: OpenFile,
    buf: Vec<u8>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Load { file: open.root.open("proc/loadavg")?, buf: Vec::new() }))
}

impl Source for Load {
    fn collect(&mut self, _: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.file
            .read_single(&mut self.buf)
            .map_err(|e| SourceError::broken(format!("/proc/loadavg: {e}")))?;
        let load =
            loadavg(&self.buf).map_err(|e| SourceError::broken(format!("/proc/loadavg: {e}")))?;
        let mut out = out.of_device();
        for (metric, hundredths) in [&LOAD_1M, &LOAD_5M, &LOAD_15M].into_iter().zip(load.hundredths)
        {
            out.gauge(metric, &[], hundredths as f64 / 100.0);
        }
        out.gauge(&RUNNABLE, &[], load.runnable as f64);
        out.gauge(&TASKS, &[], load.tasks as f64);
        Ok(())
    }
}
