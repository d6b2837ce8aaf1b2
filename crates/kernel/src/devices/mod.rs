//! Accelerators, performance counters, management controllers.
//!
//! - `drm`, `nvml`: accelerators. `perf`, `pmu`: performance counters. `ipmi`: the management controller.

pub mod drm;
pub mod ipmi;
pub mod nvml;
pub mod perf;
pub mod pmu;
