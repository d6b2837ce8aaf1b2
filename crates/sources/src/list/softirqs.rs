//! Soft interrupts: work of the kernel after interrupts, by kind; optionally by processor.
//!
//! Reads `/proc/softirqs` (Linux 2.6.31; Documentation/filesystems/proc.rst, section 1.2), see
//! [`kernel::softirqs`]:
//!
//! ```text
//!                     CPU0       CPU1
//!        TIMER:     963129    1081135
//!       NET_RX:    2217169    1760867
//! ```
//!
//! If one processor serves all soft interrupts of a kind, it limits the network or the disks: the option
//! `cores` shows it. The kernel's 32-bit counters wrap one processor at a time; the metrics count since the
//! first reading and handle every wrap. `cpu_soft_interrupts_total` is cheaper, but cannot handle them: hence
//! this separate source.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::cores;
use crate::reading::wrapping::Sum;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::softirqs::softirqs;
use model::{Metric, Timestamp, Unit};

const PATH: &str = "proc/softirqs";
/// Range at which a processor's counter wraps.
const ROUND: u64 = 1 << 32;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "softirqs",
    help: "Soft interrupts by kind, optionally by processor, with wraps of the kernel's counters handled; `cpu` reports the raw counters.",
    reads: &["/proc/softirqs"],
    cost: "about 3 µs on 2 virtual cores, Linux 6.18; grows with the processors, 10 numbers each",
    every: Every::Tick,
    metrics: &[&ALL, &CORE],
    options: &[cores("Also every single processor: ten more series per processor.")],
    open,
    ..SourceSpec::DEFAULT
};

static ALL: Metric = Metric::counter(
    "softirqs_served_total",
    Unit::Count,
    "Soft interrupts of a kind on all processors, since the first reading.",
);
static CORE: Metric = Metric::counter(
    "softirqs_core_served_total",
    Unit::Count,
    "The part of softirqs_served_total of one processor.",
);

struct Softirqs {
    file: TickFile,
    cores_wanted: bool,
    kinds: Vec<OfKind>,
    cpus: Vec<Box<str>>,
}

/// State of a kind.
struct OfKind {
    name: Box<[u8]>,
    label: Box<str>,
    all: Sum,
    cores: Vec<(Sum, Option<u64>)>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Softirqs {
        file: TickFile::open(open.root, PATH)?,
        cores_wanted: open.options.switch("cores"),
        kinds: Vec::new(),
        cpus: Vec::new(),
    }))
}

impl Source for Softirqs {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let Self { file, kinds, cpus, cores_wanted } = self;
        for (place, kind) in softirqs(file.read_single()?).map_err(|e| broken(PATH, e))?.enumerate()
        {
            let mut kind = kind.map_err(|e| broken(PATH, e))?;
            if kinds.get(place).is_none_or(|known| *known.name != *kind.name) {
                // The kinds of a kernel do not change; those of another kernel start again.
                kinds.truncate(place);
                kinds.push(OfKind::new(kind.name));
            }
            let Some(known) = kinds.get_mut(place) else { continue };
            for (cpu, count) in kind.by_ref().enumerate() {
                known.add(cpu, count.map_err(|e| broken(PATH, e))?);
            }
            while cpus.len() < known.cores.len() {
                cpus.push(cpus.len().to_string().into());
            }
            known.push(cx.now, if *cores_wanted { cpus } else { &[] }, out);
        }
        Ok(())
    }
}

impl OfKind {
    fn new(name: &[u8]) -> Self {
        let label = String::from_utf8_lossy(name).to_ascii_lowercase().into_boxed_str();
        Self { name: name.into(), label, all: Sum::default(), cores: Vec::new() }
    }

    fn add(&mut self, cpu: usize, count: u64) {
        if self.cores.len() <= cpu {
            self.cores.resize_with(cpu + 1, Default::default);
        }
        if let Some((sum, last)) = self.cores.get_mut(cpu) {
            self.all.add(&mut { *last }, count, Some(ROUND));
            sum.add(last, count, Some(ROUND));
        }
    }

    fn push(&mut self, now: Timestamp, cpus: &[Box<str>], out: &mut Sink) {
        let mut out = out.of_device();
        let (count, start) = self.all.total(now);
        out.counter(&ALL, &[("kind", &self.label)], count as f64, start);
        for (cpu, (sum, _)) in cpus.iter().zip(&mut self.cores) {
            let (count, start) = sum.total(now);
            out.counter(&CORE, &[("kind", &self.label), ("cpu", cpu)], count as f64, start);
        }
    }
}
