//! NVIDIA's management library: each GPU and MIG slice (NVML API reference, driver 450 and later).
//!
//! The library `libnvidia-ml.so.1` comes with the driver, and is loaded at run time. On a recorded machine
//! `.jobmeter/nvml` contains its answers, numbers in the library's own units:
//!
//! ```text
//! gpu 0 GPU-2f1c… NVIDIA H200
//! minor 0
//! power_mw 71234
//! process 4711 1073741824 35
//! slice 1 MIG-77aa… MIG 1g.18gb
//! memory_used_bytes 14680064
//! ```

mod library;

pub use library::Library;

use crate::parse::{Fields, ParseError, number, whole_lines};
use crate::{ReadError, Root};
use std::borrow::Cow;
use std::fmt;

/// The file of a recorded machine's answers.
pub const REPLY: &str = ".jobmeter/nvml";
/// Most GPUs and slices of a node.
pub const GPUS_MAX: usize = 256;
/// Most processes per GPU.
pub const PROCESSES_MAX: usize = 4096;

/// A number of a GPU, in the library's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Number {
    /// The number in its device file's name, `/dev/nvidia3`.
    Minor,
    /// Percent of the last sampling interval (1 s or less) in which a kernel ran.
    GpuPercent,
    /// Percent of it in which memory was read or written.
    MemoryPercent,
    /// Memory.
    MemoryTotalBytes,
    /// Memory reserved by the driver.
    MemoryReservedBytes,
    /// Memory in use.
    MemoryUsedBytes,
    /// Current power, or the mean of the last second, depending on the model.
    PowerMw,
    /// The enforced power limit.
    PowerLimitMw,
    /// Energy since the driver was loaded.
    EnergyMj,
    /// Frequency of the multiprocessors.
    SmMhz,
    /// Frequency of the memory.
    MemoryMhz,
    /// Temperature of the chip.
    Celsius,
    /// Temperature of the memory.
    MemoryCelsius,
    /// Why the clocks are not higher: a bit set.
    Throttle,
    /// Corrected errors since the driver was loaded.
    EccCorrected,
    /// Uncorrected errors.
    EccUncorrected,
    /// Packets that the PCI link retransmitted.
    PcieReplays,
    /// 1 if the GPU is divided into slices.
    Mig,
    /// Bytes that it sent over the PCI link.
    PcieSentBytes,
    /// Bytes that it received.
    PcieReceivedBytes,
    /// The PCI link's current generation; it may be lowered while idle.
    PcieGeneration,
    /// The PCI link's current lanes.
    PcieLanes,
    /// Data that it sent over all its NVLinks.
    NvlinkSentKib,
    /// Data that it received.
    NvlinkReceivedKib,
    /// Checksum errors of NVLink's flow control.
    NvlinkFlitCrcErrors,
    /// Checksum errors of NVLink's data.
    NvlinkDataCrcErrors,
    /// Packets that an NVLink retransmitted.
    NvlinkReplays,
    /// Times that an NVLink was re-established.
    NvlinkRecoveries,
}

/// Number of numbers.
pub const NUMBERS: usize = 28;

/// Their names in a recorded answer, in order.
const NAMES: [(&str, Number); NUMBERS] = [
    ("minor", Number::Minor),
    ("gpu_percent", Number::GpuPercent),
    ("memory_percent", Number::MemoryPercent),
    ("memory_total_bytes", Number::MemoryTotalBytes),
    ("memory_reserved_bytes", Number::MemoryReservedBytes),
    ("memory_used_bytes", Number::MemoryUsedBytes),
    ("power_mw", Number::PowerMw),
    ("power_limit_mw", Number::PowerLimitMw),
    ("energy_mj", Number::EnergyMj),
    ("sm_mhz", Number::SmMhz),
    ("memory_mhz", Number::MemoryMhz),
    ("celsius", Number::Celsius),
    ("memory_celsius", Number::MemoryCelsius),
    ("throttle", Number::Throttle),
    ("ecc_corrected", Number::EccCorrected),
    ("ecc_uncorrected", Number::EccUncorrected),
    ("pcie_replays", Number::PcieReplays),
    ("mig", Number::Mig),
    ("pcie_sent_bytes", Number::PcieSentBytes),
    ("pcie_received_bytes", Number::PcieReceivedBytes),
    ("pcie_generation", Number::PcieGeneration),
    ("pcie_lanes", Number::PcieLanes),
    ("nvlink_sent_kib", Number::NvlinkSentKib),
    ("nvlink_received_kib", Number::NvlinkReceivedKib),
    ("nvlink_flit_crc_errors", Number::NvlinkFlitCrcErrors),
    ("nvlink_data_crc_errors", Number::NvlinkDataCrcErrors),
    ("nvlink_replays", Number::NvlinkReplays),
    ("nvlink_recoveries", Number::NvlinkRecoveries),
];

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its process ID.
    pub pid: u32,
    /// Its memory on the GPU, if the driver knows it.
    pub memory_bytes: Option<u64>,
    /// Percent of the time in which its kernels ran, at the driver's last sample.
    pub sm_percent: Option<u32>,
}

/// A GPU, or a slice of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its index among the GPUs; for a slice, that of its GPU.
    pub index: u32,
    /// For a slice: its number within the GPU.
    pub slice: Option<u32>,
    /// `GPU-…` or `MIG-…`, which never changes.
    pub uuid: Box<str>,
    /// Its model.
    pub name: Box<str>,
    numbers: [Option<u64>; NUMBERS],
    /// The processes that compute or draw on it. For a divided GPU this includes those of its slices.
    pub processes: Vec<GpuProcess>,
    /// Whether the list of processes is complete.
    pub lists_processes: bool,
    /// Why it could not be queried, if so.
    pub failure: Option<Cow<'static, str>>,
}

impl Gpu {
    /// A number, if the library reported it.
    pub fn get(&self, number: Number) -> Option<u64> {
        self.numbers.get(number as usize).copied().flatten()
    }

    fn set(&mut self, number: Number, value: Option<u64>) {
        if let Some(place) = self.numbers.get_mut(number as usize) {
            *place = value;
        }
    }
}

/// Why the library gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvmlError {
    /// There is no library, or no driver.
    #[error("{0}")]
    Absent(String),
    /// The driver is not accessible.
    #[error("{0}")]
    Denied(String),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

/// Reads a recorded answer.
///
/// # Errors
/// It is missing or damaged.
pub fn recorded(root: &Root, buf: &mut Vec<u8>) -> Result<Vec<Gpu>, ReadError> {
    root.read(REPLY, buf)?;
    parse(buf).map_err(|why| ReadError::Failed { path: format!("/{REPLY}"), why: why.to_string() })
}

/// Parses the text of an answer. Unknown keys are skipped.
///
/// # Errors
/// A line is truncated, or lacks a number.
pub fn parse(text: &[u8]) -> Result<Vec<Gpu>, ParseError> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for line in whole_lines(text)? {
        let mut fields = Fields::of(line);
        let key = fields.word()?;
        if key == b"gpu" || key == b"slice" {
            let index = small(fields.number()?, line)?;
            let uuid = String::from_utf8_lossy(fields.word()?).into_owned().into();
            let name = String::from_utf8_lossy(fields.rest().trim_ascii()).into_owned().into();
            let above = gpus.last().map_or(0, |gpu| gpu.index);
            let (index, slice) = if key == b"gpu" { (index, None) } else { (above, Some(index)) };
            if gpus.len() >= GPUS_MAX {
                return Err(ParseError::at(line));
            }
            gpus.push(Gpu { index, slice, uuid, name, lists_processes: true, ..Gpu::default() });
            continue;
        }
        let gpu = gpus.last_mut().ok_or_else(|| ParseError::at(line))?;
        if key == b"process" {
            let pid = small(fields.number()?, line)?;
            let memory_bytes = number(fields.word()?);
            let sm_percent = number(fields.word()?).and_then(|percent| u32::try_from(percent).ok());
            gpu.processes.push(GpuProcess { pid, memory_bytes, sm_percent });
        } else if key == b"trouble" {
            let why = String::from_utf8_lossy(fields.rest().trim_ascii()).into_owned();
            (gpu.failure, gpu.lists_processes) = (Some(why.into()), false);
        } else if key == b"processes_unknown" {
            gpu.lists_processes = false;
        } else if let Some((_, number)) = NAMES.iter().find(|(name, _)| name.as_bytes() == key) {
            gpu.set(*number, Some(fields.number()?));
        }
    }
    Ok(gpus)
}

fn small(number: u64, line: &[u8]) -> Result<u32, ParseError> {
    u32::try_from(number).map_err(|_| ParseError::at(line))
}

/// The text of an answer.
pub fn text(gpus: &[Gpu]) -> String {
    gpus.iter().map(ToString::to_string).collect()
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slice {
            None => writeln!(f, "gpu {} {} {}", self.index, self.uuid, self.name)?,
            Some(slice) => writeln!(f, "slice {slice} {} {}", self.uuid, self.name)?,
        }
        for (name, number) in NAMES {
            if let Some(value) = self.get(number) {
                writeln!(f, "{name} {value}")?;
            }
        }
        match &self.failure {
            Some(why) => writeln!(f, "trouble {why}")?,
            None if !self.lists_processes => writeln!(f, "processes_unknown")?,
            None => {}
        }
        for GpuProcess { pid, memory_bytes, sm_percent } in &self.processes {
            let memory = memory_bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
            let sm = sm_percent.map_or("-".to_owned(), |percent| percent.to_string());
            writeln!(f, "process {pid} {memory} {sm}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_round_trip() {
        for (place, (_, number)) in NAMES.iter().enumerate() {
            assert_eq!(*number as usize, place);
        }
        let (uuid, name) = ("GPU-1".into(), "NVIDIA H200".into());
        let mut gpu = Gpu { uuid, name, lists_processes: true, ..Gpu::default() };
        gpu.set(Number::PowerMw, Some(71_234));
        gpu.processes = vec![
            GpuProcess { pid: 7, memory_bytes: Some(1 << 30), sm_percent: Some(35) },
            GpuProcess { pid: 8, memory_bytes: None, sm_percent: None },
        ];
        let mut slice = gpu.clone();
        (slice.slice, slice.uuid) = (Some(3), "MIG-1".into());
        let failure = Some("the GPU is lost: it fell off the bus".into());
        let other = Gpu { index: 1, failure, lists_processes: false, ..gpu.clone() };
        let unknown = Gpu { index: 2, lists_processes: false, ..gpu.clone() };
        let gpus = vec![gpu, slice, other, unknown];
        let text = text(&gpus);
        assert_eq!(parse(text.as_bytes()).as_ref(), Ok(&gpus));
        assert!(parse(b"power_mw 3\n").is_err() && parse(b"gpu 0 GPU-1 x\npower_mw -1\n").is_err());
        assert_eq!(parse(b"gpu 0 GPU-1 x\nnew_key 3\n").unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes).ok();
        }

        #[test]
        fn no_words_panic(words in "(gpu|slice|process|power_mw|[0-9]{1,20}|-|\n| ){0,40}") {
            parse(words.as_bytes()).ok();
        }
    }
}
