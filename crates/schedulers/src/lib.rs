//! Clients for schedulers. Each polls its scheduler with few calls and returns [`jobs::JobRecord`]s.

mod database_address;
mod error;
mod http;
mod loopback;
mod nodetime;
mod oar;
mod read_only_database;
mod scheduler;
mod slurm;
mod tls;

pub use database_address::{ConnectError, DatabaseAddress, ParametersError};
pub use error::SchedulerError;
pub use http::Endpoint;
pub use nodetime::{Nodetime, ViewName, ViewNameError};
pub use oar::{OarDatabase, OarRest};
pub use scheduler::{Changes, Scheduler};
pub use slurm::{Slurm, SlurmAccess, SlurmCommands, SlurmConfig, SlurmRest};
pub use tls::{Tls, TlsError};
