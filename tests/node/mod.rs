//! The agent on one machine: sources, settings, faults.

pub(crate) mod demand;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod faults;
pub(crate) mod formula;
pub(crate) mod golden;
pub(crate) mod ipmi;
pub(crate) mod nvml;
pub(crate) mod restarts;
pub(crate) mod sensors;
