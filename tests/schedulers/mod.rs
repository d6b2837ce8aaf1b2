//! Real schedulers, and jobs that scripts report.

pub(crate) mod job_reports;
pub(crate) mod oar;
pub(crate) mod restart_orders;
pub(crate) mod slurm;
