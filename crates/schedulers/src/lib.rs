//! What schedulers say of their jobs: each is one file that asks in few calls and gives [`jobs::Record`]s.

mod error;
mod oar;
mod scheduler;
mod slurm;

pub use error::SchedulerError;
pub use oar::{OarDatabase, OarRest, ParametersError};
pub use scheduler::{Changes, Scheduler};
pub use slurm::{RestAddress, Slurm, SlurmAccess, SlurmCommands, SlurmConfig, SlurmRest};
