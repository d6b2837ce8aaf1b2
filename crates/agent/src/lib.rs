//! The agent: ticks, readings, batches, spool and sending. It is `jobmeter-agent`; the command `jobmeter` names
//! the machine, reads its settings and makes the batches of `jobmeter run` by the same code.
//!
//! The way of a sample: `sampler` decides what is read when, `work` reads it, `seal`
//! makes batches, `keeper` frames, `outbox` and `spool` keep them, `sender` sends them.

mod accounting;
mod backoff;
mod burst;
mod change;
mod clock;
mod connect;
mod dispatch;
mod entry;
mod files;
mod finder;
mod frames;
mod http;
mod keeper;
mod kept;
mod known;
mod loopback;
mod machine;
mod notes;
mod once;
mod outbox;
mod own;
mod pace;
mod parts;
mod plan;
mod print;
mod program;
mod queue;
mod queues;
mod refused;
mod resolve;
mod sampler;
mod sampling;
mod schedule;
mod seal;
mod sealed;
mod sender;
mod signals;
mod site;
mod spool;
mod standing;
mod start_error;
mod stepped;
mod tables;
mod threads;
mod unread;
mod waiter;
mod wishes;
mod work;

pub use clock::wall;
pub use http::{Failure, TlsError, tls};
pub use loopback::connector;
pub use machine::{boot_of, device_of, environment, recorded};
pub use plan::{
    BurstPlan, Plan, SourcePlan, check_here, discovery, load, may_burst, plan, read,
    source_settings, sources,
};
pub use program::Reload;
pub use sealed::Batches;
pub use standing::{PROGRAM, knock, server_asked, spool_dir, stale_record};
pub use start_error::StartError;
pub use stepped::{Sent, Stepped};

use config::AgentConfig;

/// Runs an agent as configured: once, or until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot begin, or not all of the one run was done.
pub fn begin(config: AgentConfig, reload: Reload) -> Result<(), StartError> {
    // Before there is a second thread.
    kernel::heap::share();
    config::log::set(&config.log, wall).map_err(|e| StartError::machine("log", &e))?;
    if config.run.once { once::once(&config) } else { program::run(config, reload) }
}
