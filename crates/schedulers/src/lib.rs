//! Clients for schedulers. Each polls its scheduler with few calls and returns [`jobs::JobRecord`]s.

mod error;
mod http;
mod loopback;
mod oar;
mod scheduler;
mod slurm;
mod tls;

pub use error::SchedulerError;
pub use http::Endpoint;
pub use oar::{OarDatabase, OarRest, ParametersError};
pub use scheduler::{Changes, Scheduler};
pub use slurm::{Slurm, SlurmAccess, SlurmCommands, SlurmConfig, SlurmRest};
pub use tls::{Tls, TlsError};
