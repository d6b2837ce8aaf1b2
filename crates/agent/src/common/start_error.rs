//! Why an agent does not run.

use config::ConfigErrors;

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// Something of the machine is not as it must be: what, and what to do.
    #[error("{0}")]
    Machine(String),
}

impl StartError {
    pub(crate) fn machine(what: &str, why: &dyn std::fmt::Display) -> Self {
        Self::Machine(format!("{what}: {why}"))
    }
}
