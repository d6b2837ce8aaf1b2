//! Uptime: time since boot, boot time, and idle time of the processors.
//!
//! Reads `/proc/uptime` (any Linux; proc_uptime(5)), see [`kernel::uptime`]:
//!
//! ```text
//! 1019.91 1660.75
//! ```

use crate::reading::file::{TickFile, broken};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::uptime::uptime;
use model::{Metric, Timestamp, Unit};

const PATH: &str = "proc/uptime";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "uptime",
    help: "Time since boot, boot time, and idle time of the processors.",
    reads: &["/proc/uptime"],
    cost: "about 1 µs on 2 virtual cores, Linux 6.18",
    every: Every::Tick,
    metrics: &[&UP, &IDLE, &BOOT],
    open,
    ..SourceSpec::DEFAULT
};

static UP: Metric =
    Metric::gauge("uptime_seconds", Unit::Seconds, "Time since boot, including sleep.").steps(100);
static IDLE: Metric = Metric::counter(
    "uptime_idle_seconds_total",
    Unit::Seconds,
    "Idle time of the processors, summed.",
)
.steps(100);
static BOOT: Metric = Metric::gauge(
    "uptime_boot_time_seconds",
    Unit::Seconds,
    "Boot time of the machine, in seconds since 1970: the start of its counters.",
);

struct Uptime {
    file: TickFile,
    /// The highest idle time seen: the kernel lets it fall by up to the length of a sleep, like the
    /// `idle` of `/proc/stat`.
    idle: u64,
    read_at: Option<Timestamp>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Uptime { file: TickFile::open(open.root, PATH)?, idle: 0, read_at: None }))
}

impl Source for Uptime {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let times = uptime(self.file.read_single()?).map_err(|e| broken(PATH, e))?;
        let rebooted = self.read_at.is_some_and(|read_at| cx.boot > read_at);
        self.idle = if rebooted { 0 } else { self.idle }.max(times.idle_hundredths);
        self.read_at = Some(cx.now);
        let mut out = out.of_device();
        out.gauge(&UP, &[], times.up_hundredths as f64 / 100.0);
        out.counter(&IDLE, &[], self.idle as f64 / 100.0, cx.boot);
        out.gauge(&BOOT, &[], cx.boot.seconds());
        Ok(())
    }
}
