//! Kernel release and version, number of possible processors, and whether the kernel is tainted.
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
//! The kernel's names are labels of a metric that is 1. The boot time is `uptime_boot_time_seconds`; the
//! number of online processors is `cpu_online`. These values rarely change, so the source reads them once a
//! minute.

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
    help: "Kernel release and version, number of processors, and whether the kernel is tainted.",
    reads: &["/proc/sys/kernel/{osrelease,version,tainted}", "/sys/devices/system/cpu/present"],
    cost: "about 1 µs on 2 virtual cores, Linux 6.18, once a minute",
    every: Every::AtLeast(Duration::from_secs(60)),
    metrics: &[&KERNEL, &TAINTED_BITS, &CPUS],
    open,
    ..SourceSpec::DEFAULT
};

static KERNEL: Metric = Metric::gauge(
    "boot_kernel",
    Unit::Count,
    "1, with the kernel's release and version in its labels.",
);
static TAINTED_BITS: Metric = Metric::gauge(
    "boot_kernel_tainted",
    Unit::Count,
    "Taint flags of the kernel, one bit each: 1 proprietary module, 128 survived crash (oops), 512 warning.",
);
static CPUS: Metric =
    Metric::gauge("boot_cpus", Unit::Count, "Processors present, online or offline.");

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
        let bits = bits.ok_or_else(|| broken(TAINTED, "it is not a number"))?;
        out.gauge(&TAINTED_BITS, &[], bits as f64);
        if let Some(file) = &mut self.cpus {
            let cpus = cpus_in(file.read()?).map_err(|e| broken(PRESENT, e))?;
            out.gauge(&CPUS, &[], cpus as f64);
        }
        Ok(())
    }
}
