//! AMD GPUs: use and memory of each GPU, and use by each job. Power, temperatures and fans of the same chip
//! (`amdgpu`) are in source `hwmon`.
//!
//! Reads `/sys/class/drm/cardN/device/` (driver amdgpu; Documentation/gpu/amdgpu/driver-misc.rst,
//! Documentation/gpu/amdgpu/thermal.rst; Linux 4.19 and later):
//!
//! ```text
//! vendor                0x1002
//! gpu_busy_percent      87
//! mem_busy_percent      41
//! mem_info_vram_total   68702699520
//! mem_info_vram_used    10854400
//! mem_info_gtt_total    270369538048
//! mem_info_gtt_used     14290944
//! ```
//!
//! A GPU has two labels: `gpu`, its card, and `pci`, its PCI address, which is also its name in `hwmon`. GTT
//! is memory of the machine that the GPU can reach. A file that a model or a driver lacks gives no sample.
//! Reading a sleeping GPU wakes it on some models.
//!
//! Use by a job's processes comes from two drivers, see [`users`]. The DRM driver reports memory and engine
//! time of processes that draw or compute through the kernel's queues. The compute driver (ROCm) reports its
//! own processes. Both may contain memory allocated by ROCm, so do not add them. A job's counters start with
//! the job; for a job older than the agent, they start when the agent starts.

mod users;

use crate::reading::values::{Values, Walk};
use crate::{
    Context, Every, Open, SampleWriter, Sink, Source, SourceError, SourceSpec, ValueBounds,
};
use kernel::drm::kfd_node;
use model::{Metric, Timestamp, Unit};
use std::time::Duration;
use users::{Used, Users};

const DIR: &str = "sys/class/drm";
const AMD: &str = "0x1002";
const KFD_NODES: &str = "sys/class/kfd/kfd/topology/nodes";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "amdgpu",
    help: "AMD GPUs: use and memory of each GPU, and use by each job.",
    reads: &[
        "/sys/class/drm/card*/device/{vendor,uevent,gpu_busy_percent,mem_busy_percent}",
        "/sys/class/drm/card*/device/mem_info_{vram,gtt}_{total,used}",
        "/proc/PID/fdinfo/*",
        "/sys/class/kfd/kfd/topology/nodes/*/{gpu_id,properties}",
        "/sys/class/kfd/kfd/proc/PID/{vram_*,sdma_*,stats_*/cu_occupancy}",
    ],
    cost: "some microseconds a file; twice a minute the same for each file that a process of a job has open",
    every: Every::AtLeast(Duration::from_secs(1)),
    metrics: &[
        &USE,
        &MEMORY_USE,
        &MEMORY_SIZE,
        &MEMORY_USED,
        &GTT_SIZE,
        &GTT_USED,
        &JOB_PROCESSES,
        &JOB_MEMORY,
        &JOB_GTT,
        &JOB_ENGINE,
        &JOB_KFD_MEMORY,
        &JOB_COMPUTE_UNITS,
        &JOB_SDMA,
    ],
    sane: &[ValueBounds::of(&USE).within(0.0, 1.0), ValueBounds::of(&MEMORY_USE).within(0.0, 1.0)],
    open,
    ..SourceSpec::DEFAULT
};

static USE: Metric = percent(
    "amdgpu_use_ratio",
    "Share of time in which the GPU's shaders worked, as reported by its firmware.",
);
static MEMORY_USE: Metric = percent(
    "amdgpu_memory_use_ratio",
    "Share of time in which the GPU's memory was read or written.",
);
static MEMORY_SIZE: Metric = bytes("amdgpu_memory_size_bytes", "Memory of the GPU.");
static MEMORY_USED: Metric =
    bytes("amdgpu_memory_used_bytes", "The part of amdgpu_memory_size_bytes that is in use.");
static GTT_SIZE: Metric =
    bytes("amdgpu_gtt_size_bytes", "Memory of the node that the GPU can reach.");
static GTT_USED: Metric =
    bytes("amdgpu_gtt_used_bytes", "The part of amdgpu_gtt_size_bytes that is in use.");
static JOB_PROCESSES: Metric =
    Metric::gauge("amdgpu_job_processes", Unit::Count, "Processes of the job that use a GPU.");
static JOB_MEMORY: Metric = bytes(
    "amdgpu_job_memory_bytes",
    "Memory of a GPU that the job allocated through the DRM driver.",
);
static JOB_GTT: Metric = bytes(
    "amdgpu_job_gtt_bytes",
    "Memory of the node that the job made reachable for a GPU through the DRM driver.",
);
static JOB_ENGINE: Metric = Metric::counter(
    "amdgpu_job_engine_seconds_total",
    Unit::Seconds,
    "Time that engines of a kind worked for the job through the kernel's queues; parallel engines can exceed elapsed time.",
)
.steps(1_000_000_000);
static JOB_KFD_MEMORY: Metric = bytes(
    "amdgpu_job_kfd_memory_bytes",
    "Memory of a GPU that the job allocated through AMD's compute driver (ROCm).",
);
static JOB_COMPUTE_UNITS: Metric = Metric::gauge(
    "amdgpu_job_compute_units",
    Unit::Count,
    "Compute units that the job occupies now through AMD's compute driver (ROCm).",
);
static JOB_SDMA: Metric = Metric::counter(
    "amdgpu_job_sdma_seconds_total",
    Unit::Seconds,
    "Time that a GPU's copy engines worked for the job through AMD's compute driver (ROCm).",
)
.steps(1_000_000);

const fn percent(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Ratio, help).steps(100)
}

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Bytes, help)
}

/// A GPU's file, its metric, and its steps per unit.
static FILES: [(&str, &Metric, f64); 6] = [
    ("gpu_busy_percent", &USE, 100.0),
    ("mem_busy_percent", &MEMORY_USE, 100.0),
    ("mem_info_vram_total", &MEMORY_SIZE, 1.0),
    ("mem_info_vram_used", &MEMORY_USED, 1.0),
    ("mem_info_gtt_total", &GTT_SIZE, 1.0),
    ("mem_info_gtt_used", &GTT_USED, 1.0),
];

/// Maximum number of GPUs of a node.
const CARDS_MAX: usize = 256;

/// An AMD GPU.
#[derive(Debug)]
struct Card {
    gpu: Box<str>,
    /// PCI address.
    pci: Box<str>,
    /// `gpu_id` in the compute driver.
    kfd: Option<u32>,
}

#[derive(Debug, Default)]
struct Amdgpu {
    files: Values,
    /// Every card ever found: an index stays valid.
    cards: Vec<Card>,
    users: Users,
}

fn open(_: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Amdgpu::default()))
}

impl Source for Amdgpu {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/class/drm: no GPU of AMD with the driver amdgpu";
        let cards = &mut self.cards;
        self.files.look(cx.root, cx.now, absent, |found| walk(found, cards))?;
        let mut of = out.of_device();
        let read = self.files.each(|file, number| file.gauge(&mut of, number));
        let gpus = read.state("gpus", out);
        let state = self.users.look(cx, &self.cards);
        self.push_jobs(out);
        out.part("jobs", state);
        gpus
    }
}

fn walk(walk: &mut Walk<'_, ()>, cards: &mut Vec<Card>) {
    for card in walk.names(DIR) {
        // `card0-DP-1` is a connector of `card0`.
        let is_card =
            |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        if !card.strip_prefix("card").is_some_and(is_card) {
            continue;
        }
        let device = format!("{DIR}/{card}/device");
        if walk.text(&format!("{device}/vendor")).as_deref() != Some(AMD) {
            continue;
        }
        let pci = pci_address(walk, &device).unwrap_or_default();
        let labels = [("gpu", &*card), ("pci", &*pci)];
        let labels = labels.get(..if pci.is_empty() { 1 } else { 2 }).unwrap_or_default();
        for (file, metric, per_unit) in FILES {
            walk.file(&format!("{device}/{file}"), metric, labels, per_unit, ());
        }
        let is_known = cards.iter().any(|known| *known.gpu == *card && *known.pci == *pci);
        if !is_known && !pci.is_empty() && cards.len() < CARDS_MAX {
            cards.push(Card { gpu: card.into(), pci: pci.into(), kfd: None });
        }
    }
    for node in walk.names(KFD_NODES) {
        let id = walk.text(&format!("{KFD_NODES}/{node}/gpu_id"));
        // A processor is also a node; its ID is 0.
        let Some(id) = id.and_then(|id| id.parse().ok()).filter(|id| *id != 0) else { continue };
        let properties = walk.text(&format!("{KFD_NODES}/{node}/properties"));
        let Some(Ok(place)) = properties.map(|text| kfd_node(format!("{text}\n").as_bytes()))
        else {
            continue;
        };
        let pci = place.pci();
        cards.iter_mut().filter(|card| *card.pci == *pci).for_each(|card| card.kfd = Some(id));
    }
}

/// PCI address of a card: from `uevent`, else from the target of the device's link.
fn pci_address(walk: &mut Walk<'_, ()>, device: &str) -> Option<String> {
    let uevent = walk.text(&format!("{device}/uevent")).unwrap_or_default();
    let address = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
    address.map(str::to_owned).or_else(|| walk.link(device))
}

impl Amdgpu {
    fn push_jobs(&self, out: &mut Sink) {
        for user in self.users.users() {
            let mut out = out.of_job(&user.job);
            for used in &user.used {
                if let Some(card) = self.cards.get(used.card) {
                    self.push(used, card, user.is_whole, user.start, &mut out);
                }
            }
        }
    }

    fn push(
        &self,
        used: &Used,
        card: &Card,
        is_whole: bool,
        start: Timestamp,
        out: &mut SampleWriter<'_>,
    ) {
        let labels = [("gpu", &*card.gpu), ("pci", &*card.pci)];
        if is_whole {
            out.gauge(&JOB_PROCESSES, &labels, f64::from(used.processes));
            for (metric, value) in [
                (&JOB_MEMORY, used.vram_bytes),
                (&JOB_GTT, used.gtt_bytes),
                (&JOB_KFD_MEMORY, used.kfd_bytes),
                (&JOB_COMPUTE_UNITS, used.compute_units),
            ] {
                if let Some(value) = value {
                    out.gauge(metric, &labels, value as f64);
                }
            }
        }
        for (place, nanos) in used.engines.iter().enumerate() {
            if let Some(nanos) = nanos {
                let engine = ("engine", self.users.engine(place));
                let labels = [engine, labels[0], labels[1]];
                out.counter(&JOB_ENGINE, &labels, *nanos as f64 / 1e9, start);
            }
        }
        if let Some(sdma_us) = used.sdma_us {
            out.counter(&JOB_SDMA, &labels, sdma_us as f64 / 1e6, start);
        }
    }
}
