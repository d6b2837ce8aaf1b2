//! What kernel runs, for how many processors, and whether it has been marked.
//!
//! Reads `/proc/sys/kernel/{osrelease,version,tainted}` (any Linux; Documentation/admin-guide/sysctl/kernel.rst,
//! tainted-kernels.rst) and `/sys/devices/system/cpu/present` (Linux 2.6.24;
//! Documentation/admin-guide/cputopology.rst):
//!
//! ```text
//! osrelease  6.1.0-28-amd64
//! version    #1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1 (2024-11-22)
//! tainted    4097
//! present    0-127
//! ```
//!
//! The kernel's names are labels of a metric that is 1. When the machine booted is `uptime_boot_time_seconds`, how
//! many processors are on line is `cpu_online`. Little of this ever changes, so that it is seldom read.

use crate::reading::file::{TickFile, broken};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::cpulist::cpus_in;
use kernel::parse::number;
use model::{Metric, Unit};
use std::time::Duration;

const RELEASE: &str = "proc/sys/kernel/osrelease";
const VERSION: &str = "proc/sys/kernel/version";
const TAINTED: &str = "proc/sys/kernel/tainted";
const PRESENT: &str = "sys/devices/system/cpu/present";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "boot",
    help: "What kernel runs, for how many processors, and whether it has been marked.",
    reads: &["/proc/sys/kernel/{osrelease,version,tainted}", "/sys/devices/system/cpu/present"],
    cost: "about 1 µs on 2 virtual cores, Linux 6.18, once a minute",
    every: Every::AtLeast(Duration::from_secs(60)),
    metrics: &[&KERNEL, &TAINTED_BITS, &CPUS],
    sane: &[],
    options: &[],
    open,
};

static KERNEL: Metric = Metric::gauge(
    "boot_kernel",
    Unit::Count,
    "1, with the kernel's release and version in its labels.",
);
static TAINTED_BITS: Metric = Metric::gauge(
    "boot_kernel_tainted",
    Unit::Count,
    "Marks of the kernel, a bit each: 1 a module with another licence, 512 a warning, 128 a crash it survived.",
);
static CPUS: Metric =
    Metric::gauge("boot_cpus", Unit::Count, "Processors that are there, on line or not.");

struct Boot {
    release: String,
    version: String,
    tainted: TickFile,
    /// Absent on architectures without hot plug.
    cpus: Option<TickFile>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let cpus = match TickFile::open(open.root, PRESENT) {
        Err(SourceError::Absent(_)) => None,
        file => Some(file?),
    };
    Ok(Box::new(Boot {
        release: open.root.read_text(RELEASE)?,
        version: open.root.read_text(VERSION)?,
        tainted: TickFile::open(open.root, TAINTED)?,
        cpus,
    }))
}

impl Source for Boot {
    fn collect(&mut self, _: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let mut out = out.of_device();
        let labels = [("release", &*self.release), ("version", &*self.version)];
        out.gauge(&KERNEL, &labels, 1.0);
        let bits = number(self.tainted.read()?.trim_ascii());
        let bits = bits.ok_or_else(|| broken(TAINTED, "it is no number"))?;
        out.gauge(&TAINTED_BITS, &[], bits as f64);
        if let Some(file) = &mut self.cpus {
            let cpus = cpus_in(file.read()?).map_err(|e| broken(PRESENT, e))?;
            out.gauge(&CPUS, &[], cpus as f64);
        }
        Ok(())
    }
}
