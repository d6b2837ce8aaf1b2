//! Reasons why an agent does not run.

use config::ConfigErrors;
use delivery::DeliveryError;

/// Reason why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The samples could not be sent or stored.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The machine lacks something that the agent needs. The text states the cause and the remedy.
    #[error("{0}")]
    Machine(String),
}

impl StartError {
    pub(crate) fn machine(what: &str, why: &dyn std::fmt::Display) -> Self {
        Self::Machine(format!("{what}: {why}"))
    }
}
