//! Why an agent does not run.

use config::ConfigErrors;
use delivery::DeliveryError;

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// What was sampled could not be sent or kept.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// Something of the machine is not as it must be: what, and what to do.
    #[error("{0}")]
    Machine(String),
}

impl StartError {
    pub(crate) fn machine(what: &str, why: &dyn std::fmt::Display) -> Self {
        Self::Machine(format!("{what}: {why}"))
    }
}
