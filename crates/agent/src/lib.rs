//! The agent `jobmeter-agent`: ticks and readings of sources. The command `jobmeter` uses the same code to name the
//! machine and read settings.
//!
//! A sample passes three parts: `sampler` decides when to read a source, `one_reading` reads it, and the crate `delivery`
//! seals, stores and sends the batch.

mod common;
mod jobs;
mod program;
mod reading;
mod sampling;

pub use common::start_error::StartError;
pub use program::main_loop::Reload;
pub use reading::machine::{boot_of, device_of, recorded};
pub use reading::plan::{
    BurstPlan, Plan, SourcePlan, check_here, discovery, load, may_burst, plan, read,
    source_settings, sources,
};

/// Name of the agent's program in `/proc/PID/comm`. It fits the limit of 15 bytes.
pub const PROGRAM: &str = "jobmeter-agent";

use config::AgentConfig;

/// Runs an agent as configured: once, or until SIGTERM or SIGINT.
///
/// # Errors
/// The agent cannot start, or `--once` did not complete.
pub fn begin(config: AgentConfig, reload: Reload) -> Result<(), StartError> {
    // This must precede the second thread.
    kernel::heap::share();
    config::log::set(&config.log, delivery::wall).map_err(|e| StartError::machine("log", &e))?;
    if config.run.once {
        program::once::once(&config)
    } else {
        program::main_loop::run(config, reload)
    }
}

/// Samples as configured until SIGTERM or SIGINT, without a spool and without a server: `output` receives the batches. It must
/// not wait.
///
/// # Errors
/// The agent cannot start.
pub fn sample(
    config: &AgentConfig,
    output: Box<dyn delivery::BatchOutput>,
) -> Result<(), StartError> {
    // This must precede the second thread.
    kernel::heap::share();
    config::log::set(&config.log, delivery::wall).map_err(|e| StartError::machine("log", &e))?;
    program::sampling_alone::run(config, output)
}
