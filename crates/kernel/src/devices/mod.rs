//! Accelerators, performance counters, management controllers.

pub mod drm;
pub mod ipmi;
pub mod nvml;
pub mod perf;
pub mod pmu;
