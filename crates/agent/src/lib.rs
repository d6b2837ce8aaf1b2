//! The agent: ticks and readings. It is `jobmeter-agent`; the command `jobmeter` names the machine and reads its
//! settings by the same code.
//!
//! The way of a sample: `sampler` decides what is read when, `work` reads it, and the crate `delivery` seals, keeps
//! and sends it.

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

/// The agent's program, as the kernel shows it in `/proc/PID/comm`: shorter than the 15 bytes there.
pub const PROGRAM: &str = "jobmeter-agent";

use config::AgentConfig;

/// Runs an agent as configured: once, or until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot begin, or not all of the one run was done.
pub fn begin(config: AgentConfig, reload: Reload) -> Result<(), StartError> {
    // Before there is a second thread.
    kernel::heap::share();
    config::log::set(&config.log, delivery::wall).map_err(|e| StartError::machine("log", &e))?;
    if config.run.once {
        program::once::once(&config)
    } else {
        program::main_loop::run(config, reload)
    }
}
