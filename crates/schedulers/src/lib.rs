//! What schedulers say of their jobs: each is one file that asks in few calls and gives [`jobs::Record`]s.

mod error;
mod scheduler;

pub use error::SchedulerError;
pub use scheduler::{Changes, Scheduler};
