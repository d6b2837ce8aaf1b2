//! NVIDIA GPUs and MIG slices: use, memory, power, energy, clocks, temperatures, errors; and their
//! assignment to jobs.
//!
//! Calls the driver's own library, NVML (driver 450 and later), see [`kernel::nvml`]; without a driver the
//! source is absent. A GPU has the labels `gpu`, its index in the driver, and `uuid`, which never changes; a
//! slice also has `slice`.
//!
//! Power and use are the driver's values: on many models a mean over 1 s or less, of which the sensor samples
//! a part. The GPU itself counts energy since the driver was loaded. In this library a value with all bits
//! set means "not known" and gives no sample. Bytes on the PCI link come from the counters of drivers 555 and
//! later, not from NVML's samples of 20 ms, which miss the traffic between them.
//!
//! A GPU belongs to a job in three cases: the job's device cgroup (version 1) permits it, the job's
//! environment names it (`SLURM_JOB_GPUS`, a UUID in `CUDA_VISIBLE_DEVICES`), or a process of the job uses
//! it. `nvidia_job_share_ratio` is 1 divided by the number of such jobs. The job's energy is the GPU's energy
//! times that share.

mod holders;

use crate::{
    Context, Every, Open, PartState, SampleWriter, Sink, Source, SourceError, SourceSpec,
    ValueBounds,
};
use holders::Holders;
use kernel::nvml::{Gpu, Library, Number, NvmlError, REPLY, recorded, text};
use model::{Cause, Metric, Timestamp, Unit};
use std::time::Duration;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "nvidia",
    help: "NVIDIA GPUs: use, memory, power, energy, clocks, temperatures, errors, and their jobs.",
    reads: &["NVML", "/sys/fs/cgroup/devices/*/devices.list", "/proc/PID/environ"],
    cost: "the cost of the driver's library: 9 to 13 ms of processor time for an H200 (driver 580), half of it for its energy counter",
    every: Every::AtLeast(Duration::from_secs(1)),
    metrics: &[
        &USE,
        &MEMORY_USE,
        &MEMORY_SIZE,
        &MEMORY_RESERVED,
        &MEMORY_USED,
        &POWER,
        &POWER_LIMIT,
        &ENERGY,
        &SM_CLOCK,
        &MEMORY_CLOCK,
        &TEMPERATURE,
        &MEMORY_TEMPERATURE,
        &THROTTLED,
        &ECC_CORRECTED,
        &ECC_UNCORRECTED,
        &PCIE_REPLAYS,
        &PCIE_SENT,
        &PCIE_RECEIVED,
        &PCIE_GENERATION,
        &PCIE_LANES,
        &NVLINK_SENT,
        &NVLINK_RECEIVED,
        &NVLINK_FLIT_CRC,
        &NVLINK_DATA_CRC,
        &NVLINK_REPLAYS,
        &NVLINK_RECOVERIES,
        &PROCESSES,
        &JOB_SHARE,
        &JOB_MEMORY,
        &JOB_USE,
        &JOB_PROCESSES,
    ],
    sane: &[
        ValueBounds::of(&USE).within(0.0, 1.0),
        ValueBounds::of(&MEMORY_USE).within(0.0, 1.0),
        // A running GPU uses some power; a card uses less than its slot and plugs can deliver.
        ValueBounds::of(&POWER).within(0.5, 5000.0),
        ValueBounds::of(&POWER_LIMIT).within(0.5, 5000.0),
        ValueBounds::of(&ENERGY).rate(5000.0),
        ValueBounds::of(&SM_CLOCK).within(0.0, 2e10),
        ValueBounds::of(&MEMORY_CLOCK).within(0.0, 1e11),
        ValueBounds::of(&TEMPERATURE).within(-40.0, 150.0),
        ValueBounds::of(&MEMORY_TEMPERATURE).within(-40.0, 150.0),
        // Above the capacity of PCI 7.0 and NVLink 5 in one direction.
        ValueBounds::of(&PCIE_SENT).rate(3e11),
        ValueBounds::of(&PCIE_RECEIVED).rate(3e11),
        ValueBounds::of(&NVLINK_SENT).rate(4e12),
        ValueBounds::of(&NVLINK_RECEIVED).rate(4e12),
        ValueBounds::of(&JOB_USE).within(0.0, 100.0),
    ],
    open,
    ..SourceSpec::DEFAULT
};

static USE: Metric =
    percent("nvidia_use_ratio", "Share of the last second or less in which any kernel ran.");
static MEMORY_USE: Metric = percent(
    "nvidia_memory_use_ratio",
    "Share of the last second or less in which memory was read or written.",
);
static MEMORY_SIZE: Metric = bytes("nvidia_memory_size_bytes", "Memory of the GPU or slice.");
static MEMORY_RESERVED: Metric = bytes(
    "nvidia_memory_reserved_bytes",
    "The part of nvidia_memory_size_bytes that the driver reserves for itself.",
);
static MEMORY_USED: Metric =
    bytes("nvidia_memory_used_bytes", "The part of nvidia_memory_size_bytes that is in use.");
static POWER: Metric =
    Metric::gauge("nvidia_power_watts", Unit::Watts, "Power of the GPU, averaged by its driver.")
        .steps(1000);
static POWER_LIMIT: Metric = Metric::gauge(
    "nvidia_power_limit_watts",
    Unit::Watts,
    "Power above which the GPU lowers its clocks.",
)
.steps(1000);
static ENERGY: Metric = Metric::counter(
    "nvidia_energy_joules_total",
    Unit::Joules,
    "Energy of the GPU since its driver was loaded.",
)
.steps(1000);
static SM_CLOCK: Metric =
    Metric::gauge("nvidia_sm_hertz", Unit::Hertz, "Frequency of the multiprocessors.");
static MEMORY_CLOCK: Metric =
    Metric::gauge("nvidia_memory_hertz", Unit::Hertz, "Frequency of the memory.");
static TEMPERATURE: Metric =
    Metric::gauge("nvidia_temperature_celsius", Unit::Celsius, "Temperature of the chip.");
static MEMORY_TEMPERATURE: Metric =
    Metric::gauge("nvidia_memory_temperature_celsius", Unit::Celsius, "Temperature of the memory.");
static THROTTLED: Metric = Metric::gauge(
    "nvidia_throttled",
    Unit::Count,
    "1 while this reason limits the clocks, else 0; several can apply at once.",
);
static ECC_CORRECTED: Metric = count(
    "nvidia_ecc_corrected_errors_total",
    "Errors of the memory that were corrected, since the driver was loaded.",
);
static ECC_UNCORRECTED: Metric = count(
    "nvidia_ecc_uncorrected_errors_total",
    "Errors of the memory that were not corrected, since the driver was loaded.",
);
static PCIE_REPLAYS: Metric =
    count("nvidia_pcie_replays_total", "Packets that the PCI link retransmitted.");
static PCIE_SENT: Metric =
    bytes_total("nvidia_pcie_sent_bytes_total", "Bytes that the GPU sent over its PCI link.");
static PCIE_RECEIVED: Metric = bytes_total(
    "nvidia_pcie_received_bytes_total",
    "Bytes that the GPU received over its PCI link.",
);
static PCIE_GENERATION: Metric = Metric::gauge(
    "nvidia_pcie_generation",
    Unit::Count,
    "Current generation of the PCI link; many models lower it while idle.",
);
static PCIE_LANES: Metric =
    Metric::gauge("nvidia_pcie_lanes", Unit::Count, "Current lanes of the PCI link.");
static NVLINK_SENT: Metric = bytes_total(
    "nvidia_nvlink_sent_bytes_total",
    "Data that the GPU sent over all its NVLinks, in steps of 1 KiB.",
);
static NVLINK_RECEIVED: Metric = bytes_total(
    "nvidia_nvlink_received_bytes_total",
    "Data that the GPU received over all its NVLinks, in steps of 1 KiB.",
);
static NVLINK_FLIT_CRC: Metric =
    count("nvidia_nvlink_flit_crc_errors_total", "Wrong checksums of flow control on all NVLinks.");
static NVLINK_DATA_CRC: Metric =
    count("nvidia_nvlink_data_crc_errors_total", "Wrong checksums of data on all NVLinks.");
static NVLINK_REPLAYS: Metric =
    count("nvidia_nvlink_replays_total", "Packets that NVLinks retransmitted.");
static NVLINK_RECOVERIES: Metric =
    count("nvidia_nvlink_recoveries_total", "Recoveries of NVLinks by a new link setup.");
static PROCESSES: Metric =
    Metric::gauge("nvidia_processes", Unit::Count, "Processes that use the GPU.");
static JOB_SHARE: Metric = Metric::gauge(
    "nvidia_job_share_ratio",
    Unit::Ratio,
    "The job's share of a GPU: 1 divided by the number of jobs with this GPU.",
);
static JOB_MEMORY: Metric =
    bytes("nvidia_job_memory_bytes", "Memory of a GPU that processes of the job use.");
static JOB_USE: Metric = percent(
    "nvidia_job_sm_ratio",
    "Share of the multiprocessors' time used by processes of the job, in the driver's latest sample.",
);
static JOB_PROCESSES: Metric =
    Metric::gauge("nvidia_job_processes", Unit::Count, "Processes of the job that use a GPU.");

const fn percent(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Ratio, help).steps(100)
}

const fn bytes(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Bytes, help)
}

const fn bytes_total(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Bytes, help)
}

const fn count(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, Unit::Count, help)
}

/// A number of the library, its metric, and its steps per unit.
static NUMBERS: [(Number, &Metric, f64); 24] = [
    (Number::GpuPercent, &USE, 100.0),
    (Number::MemoryPercent, &MEMORY_USE, 100.0),
    (Number::MemoryTotalBytes, &MEMORY_SIZE, 1.0),
    (Number::MemoryReservedBytes, &MEMORY_RESERVED, 1.0),
    (Number::MemoryUsedBytes, &MEMORY_USED, 1.0),
    (Number::PowerMw, &POWER, 1e3),
    (Number::PowerLimitMw, &POWER_LIMIT, 1e3),
    (Number::EnergyMj, &ENERGY, 1e3),
    (Number::Celsius, &TEMPERATURE, 1.0),
    (Number::MemoryCelsius, &MEMORY_TEMPERATURE, 1.0),
    (Number::EccCorrected, &ECC_CORRECTED, 1.0),
    (Number::EccUncorrected, &ECC_UNCORRECTED, 1.0),
    (Number::PcieReplays, &PCIE_REPLAYS, 1.0),
    (Number::SmMhz, &SM_CLOCK, 1e-6),
    (Number::PcieSentBytes, &PCIE_SENT, 1.0),
    (Number::PcieReceivedBytes, &PCIE_RECEIVED, 1.0),
    (Number::PcieGeneration, &PCIE_GENERATION, 1.0),
    (Number::PcieLanes, &PCIE_LANES, 1.0),
    (Number::NvlinkSentKib, &NVLINK_SENT, 1.0 / 1024.0),
    (Number::NvlinkReceivedKib, &NVLINK_RECEIVED, 1.0 / 1024.0),
    (Number::NvlinkFlitCrcErrors, &NVLINK_FLIT_CRC, 1.0),
    (Number::NvlinkDataCrcErrors, &NVLINK_DATA_CRC, 1.0),
    (Number::NvlinkReplays, &NVLINK_REPLAYS, 1.0),
    (Number::NvlinkRecoveries, &NVLINK_RECOVERIES, 1.0),
];

/// The bits of nvml.h's `nvmlClocksThrottleReasons`, in the order of their values.
static REASONS: [&str; 9] = [
    "idle",
    "application_clocks",
    "power_cap",
    "hardware_slowdown",
    "sync_boost",
    "software_thermal",
    "hardware_thermal",
    "power_brake",
    "display_clocks",
];

struct Nvidia {
    /// `None` on a recorded machine.
    library: Option<Library>,
    gpus: Vec<Gpu>,
    labels: Vec<Labels>,
    holders: Holders,
    /// Time of each GPU's last good reading.
    good: Vec<Timestamp>,
    buf: Vec<u8>,
}

/// The labels of a GPU.
#[derive(Debug)]
struct Labels {
    gpu: Box<str>,
    uuid: Box<str>,
    slice: Option<Box<str>>,
}

impl Labels {
    fn of(gpu: &Gpu) -> Self {
        let slice = gpu.slice.map(|slice| slice.to_string().into());
        Self { gpu: gpu.index.to_string().into(), uuid: gpu.uuid.clone(), slice }
    }

    fn with<T>(&self, visit: impl FnOnce(&[(&str, &str)]) -> T) -> T {
        let (gpu, uuid) = (("gpu", &*self.gpu), ("uuid", &*self.uuid));
        match &self.slice {
            Some(slice) => visit(&[gpu, ("slice", slice), uuid]),
            None => visit(&[gpu, uuid]),
        }
    }
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let (mut gpus, mut buf) = (Vec::new(), Vec::new());
    let library = if open.root.is_live() {
        Some(Library::open(&mut gpus).map_err(worded)?)
    } else {
        gpus = recorded(open.root, &mut buf)?;
        None
    };
    if gpus.is_empty() {
        return Err(SourceError::absent("NVML reports no GPU"));
    }
    let labels = gpus.iter().map(Labels::of).collect();
    let good = vec![Timestamp(0); gpus.len()];
    Ok(Box::new(Nvidia { library, gpus, labels, holders: Holders::default(), good, buf }))
}

fn worded(error: NvmlError) -> SourceError {
    match error {
        NvmlError::Absent(why) => SourceError::absent(format!(
            "{why}; needs an NVIDIA GPU and its driver, which includes NVML"
        )),
        NvmlError::Denied(why) => SourceError::denied(why, "read and write access to /dev/nvidia*"),
        NvmlError::Failed(why) => SourceError::broken(why),
    }
}

impl Source for Nvidia {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        match &mut self.library {
            Some(library) => library.read(&mut self.gpus).map_err(worded)?,
            None => self.gpus = recorded(cx.root, &mut self.buf)?,
        }
        if cx.root.is_recording() {
            cx.root.note_reply(REPLY, text(&self.gpus).as_bytes());
        }
        let mut state = PartState::Ok;
        for ((gpu, labels), good) in self.gpus.iter().zip(&self.labels).zip(&mut self.good) {
            if let Some(why) = &gpu.failure {
                let detail = format!("GPU {} {}: {why}", gpu.index, gpu.uuid);
                let from = if good.0 == 0 { cx.now } else { *good };
                out.gap(SPEC.name, from, cx.now, Cause::SourceBroken, &detail);
                state = PartState::Not(SourceError::broken(detail));
            } else {
                *good = cx.now;
            }
            labels.with(|labels| push(gpu, labels, cx.boot, &mut out.of_device()));
        }
        out.part("gpus", state);
        self.holders.update(cx, &self.gpus);
        self.push_jobs(out);
        Ok(())
    }
}

fn push(gpu: &Gpu, labels: &[(&str, &str)], boot: Timestamp, out: &mut SampleWriter<'_>) {
    for (number, metric, per_unit) in &NUMBERS {
        let Some(value) = gpu.get(*number) else { continue };
        let value = value as f64 / per_unit;
        match metric.kind {
            model::Kind::Counter => out.counter(metric, labels, value, boot),
            model::Kind::Gauge => out.gauge(metric, labels, value),
        }
    }
    if let Some(mhz) = gpu.get(Number::MemoryMhz) {
        out.gauge(&MEMORY_CLOCK, labels, mhz as f64 * 1e6);
    }
    if let Some(bits) = gpu.get(Number::Throttle) {
        for (bit, reason) in REASONS.iter().enumerate() {
            let mut of_reason = [("", ""); 4];
            for (place, label) in of_reason.iter_mut().zip(labels) {
                *place = *label;
            }
            if let Some(place) = of_reason.get_mut(labels.len()) {
                *place = ("reason", reason);
            }
            let labels = of_reason.get(..=labels.len()).unwrap_or_default();
            out.gauge(&THROTTLED, labels, if bits >> bit & 1 == 1 { 1.0 } else { 0.0 });
        }
    }
    // The processes of a divided GPU belong to its slices.
    if gpu.lists_processes && gpu.get(Number::Mig) != Some(1) {
        out.gauge(&PROCESSES, labels, gpu.processes.len() as f64);
    }
}

impl Nvidia {
    fn push_jobs(&self, out: &mut Sink) {
        for held in self.holders.held() {
            let (Some(labels), Some(gpu)) = (self.labels.get(held.gpu), self.gpus.get(held.gpu))
            else {
                continue;
            };
            let mut out = out.of_job(held.job);
            labels.with(|labels| {
                out.gauge(&JOB_SHARE, labels, held.share);
                if !gpu.lists_processes {
                    return;
                }
                out.gauge(&JOB_PROCESSES, labels, held.pids.len() as f64);
                let of_job = gpu.processes.iter().filter(|one| held.pids.contains(&one.pid));
                let (mut bytes, mut percent) = (Some(0_u64), None);
                for process in of_job {
                    bytes = bytes.zip(process.memory_bytes).map(|(a, b)| a.saturating_add(b));
                    if let Some(sm) = process.sm_percent {
                        percent = Some(percent.unwrap_or(0) + sm);
                    }
                }
                // If the memory of one process is unknown, the sum of the job is unknown.
                if let Some(bytes) = bytes {
                    out.gauge(&JOB_MEMORY, labels, bytes as f64);
                }
                if let Some(percent) = percent {
                    out.gauge(&JOB_USE, labels, f64::from(percent) / 100.0);
                }
            });
        }
    }
}
