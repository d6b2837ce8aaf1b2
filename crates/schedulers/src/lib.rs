//! Clients for schedulers. Each polls its scheduler with few calls and returns [`jobs::JobRecord`]s.

mod error;
mod oar;
mod scheduler;
mod slurm;

pub use error::SchedulerError;
pub use oar::{OarDatabase, OarRest, ParametersError};
pub use scheduler::{Changes, Scheduler};
pub use slurm::{RestAddress, Slurm, SlurmAccess, SlurmCommands, SlurmConfig, SlurmRest};
