//! The library's functions and structures, as in nvml.h, and their look-up.

use super::LIBRARY;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::NonNull;

pub(super) type Device = *mut c_void;
pub(super) type Get<T> = unsafe extern "C" fn(Device, *mut T) -> c_int;
pub(super) type GetOf<T> = unsafe extern "C" fn(Device, c_int, *mut T) -> c_int;
pub(super) type GetText = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int;
pub(super) type ByIndex = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
pub(super) type SliceByIndex = unsafe extern "C" fn(Device, c_uint, *mut Device) -> c_int;
pub(super) type GetEcc = unsafe extern "C" fn(Device, c_int, c_int, *mut c_ulonglong) -> c_int;
pub(super) type GetFields = unsafe extern "C" fn(Device, c_int, *mut FieldValue) -> c_int;
pub(super) type GetProcesses = unsafe extern "C" fn(Device, *mut c_uint, *mut ProcessInfo) -> c_int;
pub(super) type GetUse =
    unsafe extern "C" fn(Device, *mut ProcessUse, *mut c_uint, c_ulonglong) -> c_int;
pub(super) type GetMig = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_int;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utilization {
    pub(super) gpu: c_uint,
    pub(super) memory: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) version: c_uint,
    pub(super) total: c_ulonglong,
    pub(super) reserved: c_ulonglong,
    pub(super) free: c_ulonglong,
    pub(super) used: c_ulonglong,
}

/// The structure before version 2: its `used` includes reserved memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryBefore {
    pub(super) total: c_ulonglong,
    pub(super) free: c_ulonglong,
    pub(super) used: c_ulonglong,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldValue {
    pub(super) field: c_uint,
    pub(super) scope: c_uint,
    pub(super) timestamp: i64,
    pub(super) latency_us: i64,
    pub(super) kind: c_int,
    pub(super) code: c_int,
    pub(super) value: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessInfo {
    pub(super) pid: c_uint,
    pub(super) memory: c_ulonglong,
    pub(super) gpu_instance: c_uint,
    pub(super) compute_instance: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessUse {
    pub(super) pid: c_uint,
    pub(super) timestamp: c_ulonglong,
    pub(super) sm: c_uint,
    pub(super) memory: c_uint,
    pub(super) encoder: c_uint,
    pub(super) decoder: c_uint,
}

/// The functions. Those that an older driver lacks are `None`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub(super) init: unsafe extern "C" fn() -> c_int,
    pub(super) shutdown: unsafe extern "C" fn() -> c_int,
    pub(super) count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    pub(super) by_index: ByIndex,
    pub(super) uuid: GetText,
    pub(super) name: Option<GetText>,
    pub(super) minor: Option<Get<c_uint>>,
    pub(super) utilization: Option<Get<Utilization>>,
    pub(super) memory: Option<Get<Memory>>,
    pub(super) memory_before: Option<Get<MemoryBefore>>,
    pub(super) power: Option<Get<c_uint>>,
    pub(super) power_limit: Option<Get<c_uint>>,
    pub(super) energy: Option<Get<c_ulonglong>>,
    pub(super) clock: Option<GetOf<c_uint>>,
    pub(super) temperature: Option<GetOf<c_uint>>,
    pub(super) throttle: Option<Get<c_ulonglong>>,
    pub(super) ecc: Option<GetEcc>,
    pub(super) replays: Option<Get<c_uint>>,
    pub(super) link_generation: Option<Get<c_uint>>,
    pub(super) link_width: Option<Get<c_uint>>,
    pub(super) fields: Option<GetFields>,
    pub(super) compute: Option<GetProcesses>,
    pub(super) graphics: Option<GetProcesses>,
    pub(super) used: Option<GetUse>,
    pub(super) mig: Option<GetMig>,
    pub(super) slices_max: Option<Get<c_uint>>,
    pub(super) slice: Option<SliceByIndex>,
    pub(super) slice_number: Option<Get<c_uint>>,
}

/// A loaded library, closed on drop.
#[derive(Debug)]
pub(super) struct Loaded(NonNull<c_void>);

impl Drop for Loaded {
    #[expect(unsafe_code, reason = "dlclose has no safe wrapper")]
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen and is closed once.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

impl Loaded {
    #[expect(unsafe_code, reason = "dlopen has no safe wrapper")]
    pub(super) fn open() -> Option<Self> {
        // SAFETY: the name ends with a zero; the library's initialisers are the driver's own.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self)
    }

    /// A function of the library, if it has it.
    #[expect(unsafe_code, reason = "dlsym has no safe wrapper")]
    fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open and the name ends with a zero.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        // SAFETY: F is a pointer to a function of the type in nvml.h for this name, as written above, and the
        // address is not null.
        (!address.is_null())
            .then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    pub(super) fn functions(&self) -> Option<Functions> {
        Some(Functions {
            init: self.function(c"nvmlInit_v2")?,
            shutdown: self.function(c"nvmlShutdown")?,
            count: self.function(c"nvmlDeviceGetCount_v2")?,
            by_index: self.function(c"nvmlDeviceGetHandleByIndex_v2")?,
            uuid: self.function(c"nvmlDeviceGetUUID")?,
            name: self.function(c"nvmlDeviceGetName"),
            minor: self.function(c"nvmlDeviceGetMinorNumber"),
            utilization: self.function(c"nvmlDeviceGetUtilizationRates"),
            memory: self.function(c"nvmlDeviceGetMemoryInfo_v2"),
            memory_before: self.function(c"nvmlDeviceGetMemoryInfo"),
            power: self.function(c"nvmlDeviceGetPowerUsage"),
            power_limit: self.function(c"nvmlDeviceGetEnforcedPowerLimit"),
            energy: self.function(c"nvmlDeviceGetTotalEnergyConsumption"),
            clock: self.function(c"nvmlDeviceGetClockInfo"),
            temperature: self.function(c"nvmlDeviceGetTemperature"),
            throttle: self.function(c"nvmlDeviceGetCurrentClocksThrottleReasons"),
            ecc: self.function(c"nvmlDeviceGetTotalEccErrors"),
            replays: self.function(c"nvmlDeviceGetPcieReplayCounter"),
            link_generation: self.function(c"nvmlDeviceGetCurrPcieLinkGeneration"),
            link_width: self.function(c"nvmlDeviceGetCurrPcieLinkWidth"),
            fields: self.function(c"nvmlDeviceGetFieldValues"),
            compute: self.function(c"nvmlDeviceGetComputeRunningProcesses_v3"),
            graphics: self.function(c"nvmlDeviceGetGraphicsRunningProcesses_v3"),
            used: self.function(c"nvmlDeviceGetProcessUtilization"),
            mig: self.function(c"nvmlDeviceGetMigMode"),
            slices_max: self.function(c"nvmlDeviceGetMaxMigDeviceCount"),
            slice: self.function(c"nvmlDeviceGetMigDeviceHandleByIndex"),
            slice_number: self.function(c"nvmlDeviceGetGpuInstanceId"),
        })
    }
}
