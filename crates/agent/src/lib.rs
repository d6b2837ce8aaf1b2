//! The agent: ticks, readings, batches, spool and sending. It is `jobmeter-agent`; the command `jobmeter` names
//! the machine, reads its settings and makes the batches of `jobmeter run` by the same code.
//!
//! The way of a sample: `sampler` decides what is read when, `work` reads it, `seal`
//! makes batches, `keeper` frames, `outbox` and `spool` keep them, `sender` sends them.

mod batches;
mod common;
mod connection;
mod delivery;
mod jobs;
mod program;
mod reading;
mod sampling;

pub use common::clock::wall;
pub use common::start_error::StartError;
pub use connection::endpoints::{PROGRAM, knock, server_asked, spool_dir, stale_record};
pub use connection::http::{Failure, TlsError, tls};
pub use connection::loopback::connector;
pub use delivery::sealed::Batches;
pub use program::main_loop::Reload;
pub use program::stepped::{Sent, Stepped};
pub use reading::machine::{boot_of, device_of, environment, recorded};
pub use reading::plan::{
    BurstPlan, Plan, SourcePlan, check_here, discovery, load, may_burst, plan, read,
    source_settings, sources,
};

use config::AgentConfig;

/// Runs an agent as configured: once, or until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot begin, or not all of the one run was done.
pub fn begin(config: AgentConfig, reload: Reload) -> Result<(), StartError> {
    // Before there is a second thread.
    kernel::heap::share();
    config::log::set(&config.log, wall).map_err(|e| StartError::machine("log", &e))?;
    if config.run.once {
        program::once::once(&config)
    } else {
        program::main_loop::run(config, reload)
    }
}
