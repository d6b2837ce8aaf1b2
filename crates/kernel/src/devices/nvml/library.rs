//! The library itself, loaded at run time. Functions that a driver lacks are skipped.

mod functions;

use functions::*;

use super::{GPUS_MAX, Gpu, GpuProcess, Number, NvmlError, PROCESSES_MAX};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::ptr::null_mut;

const LIBRARY: &CStr = c"libnvidia-ml.so.1";

// Return codes (nvml.h, nvmlReturn_enum).
const SUCCESS: c_int = 0;
const UNINITIALIZED: c_int = 1;
const INVALID: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const DRIVER_NOT_LOADED: c_int = 9;
const NO_FUNCTION: c_int = 13;
const GPU_IS_LOST: c_int = 15;
const RESET_REQUIRED: c_int = 16;
const VERSION_MISMATCH: c_int = 18;
const OTHER_VERSION: c_int = 25;

/// Longest name and UUID, with the terminating zero (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`).
const TEXT_BYTES: usize = 96;
/// `NVML_FI_DEV_MEMORY_TEMP`.
const FIELD_MEMORY_TEMPERATURE: c_uint = 82;
// `NVML_FI_DEV_NVLINK_…_COUNT_TOTAL`, `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_…`, `NVML_FI_DEV_PCIE_COUNT_…_BYTES`.
const FIELD_NVLINK_FLIT_CRC: c_uint = 38;
const FIELD_NVLINK_DATA_CRC: c_uint = 45;
const FIELD_NVLINK_REPLAYS: c_uint = 52;
const FIELD_NVLINK_RECOVERIES: c_uint = 59;
const FIELD_NVLINK_SENT: c_uint = 138;
const FIELD_NVLINK_RECEIVED: c_uint = 139;
const FIELD_PCIE_SENT: c_uint = 197;
const FIELD_PCIE_RECEIVED: c_uint = 198;
/// All links together.
const SCOPE_ALL: c_uint = c_uint::MAX;
// `nvmlValueType_t`.
const TYPE_UNSIGNED_INT: c_int = 1;
const TYPE_UNSIGNED_LONG: c_int = 2;
const TYPE_UNSIGNED_LONG_LONG: c_int = 3;
const CLOCK_SM: c_int = 1;
const CLOCK_MEMORY: c_int = 2;
/// `nvmlMemory_v2_t`: its size, and version 2 above.
const MEMORY_VERSION: c_uint = 40 | 2 << 24;

/// A GPU's handle, with cached facts.
#[derive(Debug)]
struct Handle {
    device: Device,
    /// The numbers that it does not support.
    lacks: [bool; super::NUMBERS],
    /// Time of the driver's last sample of its processes, by its own clock.
    looked: c_ulonglong,
}

/// The library, with the GPUs it knows.
#[derive(Debug)]
pub struct Library {
    functions: Functions,
    handles: Vec<Handle>,
    processes: Vec<ProcessInfo>,
    uses: Vec<ProcessUse>,
    _loaded: Loaded,
}

// SAFETY: NVML may be called from any thread (NVML API reference, "Thread Safety"); a handle is a number of
// its own memory that lives as long as the library is initialised.
#[expect(unsafe_code, reason = "handles are raw pointers")]
unsafe impl Send for Library {}

/// Calls a function of the library.
macro_rules! call {
    ($function:expr $(, $argument:expr)*) => {{
        // SAFETY: the library is loaded and initialised; devices are its own handles; every pointer is to a
        // value of the type in nvml.h, alive during the call, and as long as the count beside it states.
        #[expect(unsafe_code, reason = "a function of a C library")]
        let code = unsafe { ($function)($($argument),*) };
        code
    }};
}

impl Library {
    /// Loads the driver's library and finds the GPUs in bus order, each followed by its slices.
    ///
    /// # Errors
    /// There is no library or driver, it is not accessible, or it fails.
    pub fn open(gpus: &mut Vec<Gpu>) -> Result<Self, NvmlError> {
        let absent = |why: &str| NvmlError::Absent(format!("{}: {why}", LIBRARY.to_string_lossy()));
        let loaded = Loaded::open().ok_or_else(|| absent("not there"))?;
        let functions = loaded.functions().ok_or_else(|| absent("older than driver 450"))?;
        done("nvmlInit_v2", call!(functions.init))?;
        let (handles, processes, uses) = (Vec::new(), Vec::new(), Vec::new());
        let mut library = Self { functions, handles, processes, uses, _loaded: loaded };
        gpus.clear();
        library.find(gpus)?;
        Ok(library)
    }

    fn find(&mut self, gpus: &mut Vec<Gpu>) -> Result<(), NvmlError> {
        let mut count = 0;
        done("nvmlDeviceGetCount_v2", call!(self.functions.count, &raw mut count))?;
        for index in 0..count {
            let mut device = null_mut();
            let code = call!(self.functions.by_index, index, &raw mut device);
            if code != SUCCESS {
                // A GPU that fell off the bus is reported, and does not affect the others.
                let lost = Gpu { index, failure: Some(error_text(code).into()), ..Gpu::default() };
                self.add(gpus, null_mut(), lost);
                continue;
            }
            self.add(gpus, device, Gpu { index, ..Gpu::default() });
            self.find_slices(gpus, device, index);
        }
        Ok(())
    }

    fn find_slices(&mut self, gpus: &mut Vec<Gpu>, device: Device, index: u32) {
        let (mut now, mut later) = (0, 0);
        let Some(mig) = self.functions.mig else { return };
        if call!(mig, device, &raw mut now, &raw mut later) != SUCCESS || now == 0 {
            return;
        }
        let (Some(most), Some(by_index)) = (self.functions.slices_max, self.functions.slice) else {
            return;
        };
        for place in 0..get(Some(most), device).unwrap_or(0) {
            let mut slice = null_mut();
            // Indexes without a slice stay empty.
            if call!(by_index, device, place, &raw mut slice) == SUCCESS {
                let number = get(self.functions.slice_number, slice).unwrap_or(place);
                let slice_of = Gpu { index, slice: Some(number), ..Gpu::default() };
                self.add(gpus, slice, slice_of);
            }
        }
    }

    fn add(&mut self, gpus: &mut Vec<Gpu>, device: Device, mut gpu: Gpu) {
        if gpus.len() >= GPUS_MAX {
            return;
        }
        if !device.is_null() {
            gpu.uuid = text(Some(self.functions.uuid), device);
            gpu.name = text(self.functions.name, device);
        }
        gpus.push(gpu);
        self.handles.push(Handle { device, lacks: [false; super::NUMBERS], looked: 0 });
    }

    /// Reads every GPU and slice. One that fails carries the error, and does not affect the others.
    ///
    /// # Errors
    /// The driver was unloaded, or another one loaded: reopen the library.
    pub fn read(&mut self, gpus: &mut [Gpu]) -> Result<(), NvmlError> {
        for place in 0..self.handles.len() {
            let Some(gpu) = gpus.get_mut(place) else { break };
            gpu.numbers = [None; super::NUMBERS];
            gpu.processes.clear();
            gpu.lists_processes = false;
            let Some(Handle { device, .. }) = self.handles.get(place) else { break };
            let device = *device;
            if device.is_null() {
                continue;
            }
            gpu.failure = None;
            for (_, number) in super::NAMES {
                match self.number(place, number) {
                    Ok(value) => gpu.set(number, value),
                    Err(code @ (UNINITIALIZED | DRIVER_NOT_LOADED | VERSION_MISMATCH)) => {
                        return Err(error("reading", code));
                    }
                    Err(code) => {
                        gpu.failure = Some(error_text(code).into());
                        // A lost GPU answers nothing, and each query may be slow.
                        if matches!(code, GPU_IS_LOST | RESET_REQUIRED) {
                            break;
                        }
                    }
                }
            }
            if gpu.failure.is_none() {
                self.processes_of(place, device, gpu);
            }
        }
        Ok(())
    }

    /// A number of a GPU; `None` if it lacks it, now or permanently.
    fn number(&mut self, place: usize, number: Number) -> Result<Option<u64>, c_int> {
        let Some(handle) = self.handles.get_mut(place) else { return Ok(None) };
        let lacks = handle.lacks.get_mut(number as usize);
        let Some(lacks) = lacks.filter(|lacks| !**lacks) else { return Ok(None) };
        match query(&self.functions, handle.device, number) {
            Ok(value) => Ok(value),
            // A slice, or a driver of another age, may not support the query.
            Err(NOT_SUPPORTED | NO_PERMISSION | INVALID | NO_FUNCTION | OTHER_VERSION) => {
                *lacks = true;
                Ok(None)
            }
            Err(NOT_FOUND) => Ok(None),
            Err(code) => Err(code),
        }
    }

    fn processes_of(&mut self, place: usize, device: Device, gpu: &mut Gpu) {
        for function in [self.functions.compute, self.functions.graphics].into_iter().flatten() {
            let Some(count) = self.list(function, device) else { continue };
            gpu.lists_processes = true;
            for found in self.processes.iter().take(count) {
                // All bits set mean "unknown".
                let memory_bytes = Some(found.memory).filter(|bytes| *bytes != u64::MAX);
                if !gpu.processes.iter().any(|known| known.pid == found.pid) {
                    let pid = found.pid;
                    gpu.processes.push(GpuProcess { pid, memory_bytes, sm_percent: None });
                }
            }
        }
        if let (Some(used), false) = (self.functions.used, gpu.processes.is_empty()) {
            self.use_of(used, place, device, gpu);
        }
    }

    /// Fills the list of processes; returns their number.
    fn list(&mut self, function: GetProcesses, device: Device) -> Option<usize> {
        const FIRST: usize = 64;
        self.processes.resize(self.processes.len().max(FIRST), ProcessInfo::default());
        loop {
            let capacity = self.processes.len();
            let mut count = c_uint::try_from(capacity).ok()?;
            let code = call!(function, device, &raw mut count, self.processes.as_mut_ptr());
            match code {
                SUCCESS => return Some(usize::try_from(count).ok()?.min(capacity)),
                INSUFFICIENT_SIZE if capacity < PROCESSES_MAX => {
                    self.processes.resize(2 * capacity, ProcessInfo::default());
                }
                _ => return None,
            }
        }
    }

    /// Adds the usage of each process since the driver was last queried: the newest of its samples.
    fn use_of(&mut self, function: GetUse, place: usize, device: Device, gpu: &mut Gpu) {
        const LOOKS: usize = 1024;
        self.uses.resize(LOOKS, ProcessUse::default());
        let Some(handle) = self.handles.get_mut(place) else { return };
        let Ok(mut count) = c_uint::try_from(LOOKS) else { return };
        let uses = self.uses.as_mut_ptr();
        if call!(function, device, uses, &raw mut count, handle.looked) != SUCCESS {
            return;
        }
        let count = usize::try_from(count).unwrap_or(0).min(LOOKS);
        let since = handle.looked;
        // The newest sample comes last, and wins.
        if let Some(uses) = self.uses.get_mut(..count) {
            uses.sort_unstable_by_key(|found| found.timestamp);
        }
        for found in self.uses.iter().take(count).filter(|found| found.timestamp > since) {
            handle.looked = handle.looked.max(found.timestamp);
            let of = gpu.processes.iter_mut().find(|process| process.pid == found.pid);
            if let Some(process) = of.filter(|_| found.sm <= 100) {
                process.sm_percent = Some(found.sm);
            }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // Its result changes nothing.
        call!(self.functions.shutdown);
    }
}

/// Queries one number.
fn query(functions: &Functions, device: Device, number: Number) -> Result<Option<u64>, c_int> {
    let known = |value: c_uint| Some(value).filter(|value| *value != c_uint::MAX).map(u64::from);
    let wide = |value: c_ulonglong| Some(value).filter(|value| *value != c_ulonglong::MAX);
    let of = |function: Option<GetOf<c_uint>>, which: c_int| {
        let (function, mut value) = (function.ok_or(NOT_SUPPORTED)?, 0);
        checked(call!(function, device, which, &raw mut value)).map(|()| known(value))
    };
    let ecc = |kind: c_int| {
        let (function, mut value) = (functions.ecc.ok_or(NOT_SUPPORTED)?, 0);
        // 0: those since the driver was loaded.
        checked(call!(function, device, kind, 0, &raw mut value)).map(|()| wide(value))
    };
    match number {
        Number::Minor => get(functions.minor, device).map(known),
        Number::GpuPercent => get(functions.utilization, device).map(|of| known(of.gpu)),
        Number::MemoryPercent => get(functions.utilization, device).map(|of| known(of.memory)),
        Number::MemoryTotalBytes => memory(functions, device).map(|of| wide(of.total)),
        Number::MemoryReservedBytes if functions.memory.is_none() => Err(NOT_SUPPORTED),
        Number::MemoryReservedBytes => memory(functions, device).map(|of| wide(of.reserved)),
        Number::MemoryUsedBytes => memory(functions, device).map(|of| wide(of.used)),
        Number::PowerMw => get(functions.power, device).map(known),
        Number::PowerLimitMw => get(functions.power_limit, device).map(known),
        Number::EnergyMj => get(functions.energy, device).map(wide),
        Number::SmMhz => of(functions.clock, CLOCK_SM),
        Number::MemoryMhz => of(functions.clock, CLOCK_MEMORY),
        Number::Celsius => of(functions.temperature, 0),
        Number::MemoryCelsius => memory_temperature(functions, device),
        Number::Throttle => get(functions.throttle, device).map(wide),
        Number::EccCorrected => ecc(0),
        Number::EccUncorrected => ecc(1),
        Number::PcieReplays => get(functions.replays, device).map(known),
        Number::Mig => {
            let (mut now, mut later) = (0, 0);
            let mig = functions.mig.ok_or(NOT_SUPPORTED)?;
            checked(call!(mig, device, &raw mut now, &raw mut later)).map(|()| known(now))
        }
        Number::PcieGeneration => few(functions.link_generation, device, 15),
        Number::PcieLanes => few(functions.link_width, device, 64),
        // 32 bits would wrap within less than a second.
        Number::PcieSentBytes => wide_field(functions, device, FIELD_PCIE_SENT, 0),
        Number::PcieReceivedBytes => wide_field(functions, device, FIELD_PCIE_RECEIVED, 0),
        Number::NvlinkSentKib => wide_field(functions, device, FIELD_NVLINK_SENT, SCOPE_ALL),
        Number::NvlinkReceivedKib => {
            wide_field(functions, device, FIELD_NVLINK_RECEIVED, SCOPE_ALL)
        }
        Number::NvlinkFlitCrcErrors => field(functions, device, FIELD_NVLINK_FLIT_CRC, 0),
        Number::NvlinkDataCrcErrors => field(functions, device, FIELD_NVLINK_DATA_CRC, 0),
        Number::NvlinkReplays => field(functions, device, FIELD_NVLINK_REPLAYS, 0),
        Number::NvlinkRecoveries => field(functions, device, FIELD_NVLINK_RECOVERIES, 0),
    }
}

/// A number from 1 to `most`; any other means "unknown".
fn few(function: Option<Get<c_uint>>, device: Device, most: c_uint) -> Result<Option<u64>, c_int> {
    let value = get(function, device)?;
    Ok(Some(value).filter(|value| (1..=most).contains(value)).map(u64::from))
}

fn field_value(
    functions: &Functions,
    device: Device,
    field: c_uint,
    scope: c_uint,
) -> Result<FieldValue, c_int> {
    let function = functions.fields.ok_or(NOT_SUPPORTED)?;
    let mut value = FieldValue { field, scope, ..FieldValue::default() };
    checked(call!(function, device, 1, &raw mut value))?;
    checked(value.code)?;
    Ok(value)
}

/// A non-negative integer field.
fn field(
    functions: &Functions,
    device: Device,
    field: c_uint,
    scope: c_uint,
) -> Result<Option<u64>, c_int> {
    let found = field_value(functions, device, field, scope)?;
    let (value, most) = match found.kind {
        TYPE_UNSIGNED_INT => (found.value & u64::from(u32::MAX), u64::from(u32::MAX)),
        TYPE_UNSIGNED_LONG | TYPE_UNSIGNED_LONG_LONG => (found.value, u64::MAX),
        _ => return Err(NOT_SUPPORTED),
    };
    Ok(Some(value).filter(|value| *value != most))
}

/// A field of 64 bits.
fn wide_field(
    functions: &Functions,
    device: Device,
    field: c_uint,
    scope: c_uint,
) -> Result<Option<u64>, c_int> {
    let found = field_value(functions, device, field, scope)?;
    match found.kind {
        TYPE_UNSIGNED_LONG | TYPE_UNSIGNED_LONG_LONG => {
            Ok(Some(found.value).filter(|value| *value != u64::MAX))
        }
        _ => Err(NOT_SUPPORTED),
    }
}

fn memory(functions: &Functions, device: Device) -> Result<Memory, c_int> {
    if let Some(function) = functions.memory {
        let mut memory = Memory { version: MEMORY_VERSION, ..Memory::default() };
        return checked(call!(function, device, &raw mut memory)).map(|()| memory);
    }
    let MemoryBefore { total, free, used } = get(functions.memory_before, device)?;
    Ok(Memory { version: 0, total, reserved: 0, free, used })
}

fn memory_temperature(functions: &Functions, device: Device) -> Result<Option<u64>, c_int> {
    let value = field_value(functions, device, FIELD_MEMORY_TEMPERATURE, 0)?;
    // The union contains an unsigned int; models without the sensor answer 0.
    let celsius = value.value & u64::from(u32::MAX);
    Ok(Some(celsius).filter(|celsius| (1..=200).contains(celsius)))
}

fn get<T: Default>(function: Option<Get<T>>, device: Device) -> Result<T, c_int> {
    let mut value = T::default();
    let function = function.ok_or(NOT_SUPPORTED)?;
    checked(call!(function, device, &raw mut value)).map(|()| value)
}

fn text(function: Option<GetText>, device: Device) -> Box<str> {
    let mut bytes: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
    let Some(function) = function else { return Box::default() };
    let capacity = c_uint::try_from(TEXT_BYTES - 1).unwrap_or(0);
    if call!(function, device, bytes.as_mut_ptr(), capacity) != SUCCESS {
        return Box::default();
    }
    let bytes: Vec<u8> =
        bytes.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned().into()
}

const fn checked(code: c_int) -> Result<(), c_int> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

fn done(what: &str, code: c_int) -> Result<(), NvmlError> {
    checked(code).map_err(|code| error(what, code))
}

fn error(what: &str, code: c_int) -> NvmlError {
    let text = format!("{}: {what}: {} (code {code})", LIBRARY.to_string_lossy(), error_text(code));
    match code {
        UNINITIALIZED | DRIVER_NOT_LOADED => NvmlError::Absent(text),
        NO_PERMISSION => NvmlError::Denied(text),
        _ => NvmlError::Failed(text),
    }
}

/// The library's own error texts would need another call that may hang.
const fn error_text(code: c_int) -> &'static str {
    match code {
        UNINITIALIZED => "the driver was unloaded",
        NO_PERMISSION => "permission denied",
        DRIVER_NOT_LOADED => "no driver is loaded",
        10 => "the driver did not respond in time",
        11 => "an interrupt of the GPU is unavailable",
        GPU_IS_LOST => "the GPU is lost: it fell off the bus",
        RESET_REQUIRED => "the GPU must be reset",
        17 => "the operating system closed the GPU",
        VERSION_MISMATCH => "the library and the driver are of two versions",
        _ => "an error of the driver",
    }
}
