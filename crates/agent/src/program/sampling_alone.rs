//! Sampling without delivery: a caller takes the batches. No spool, no server, no settings of a server.

use crate::common::start_error::StartError;
use crate::jobs::job_sightings::Sightings;
use crate::program::signals::{Signal, Signals};
use crate::reading::plan::plan;
use crate::sampling::context::AgentContext;
use crate::sampling::reader_thread::Sampling;
use config::AgentConfig;
use delivery::{BatchOutput, MachineClock};
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep of the main thread. It also reports repeated log lines.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Grace period for a reading under way at shutdown.
const LAST_READING: Duration = Duration::from_secs(1);

/// Samples until SIGTERM or SIGINT. `output` receives each batch in the reading thread, so it must not wait.
///
/// # Errors
/// The agent cannot start.
pub(crate) fn run(config: &AgentConfig, output: Box<dyn BatchOutput>) -> Result<(), StartError> {
    let signals = Signals::new().map_err(|e| StartError::machine("signals", &e))?;
    // Panics of sources are caught.
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    let context = AgentContext::open(config)?;
    let mut plan = plan(config, None).map_err(StartError::Machine)?;
    plan.agent_metrics = None;
    let known = (Vec::new(), Sightings::default());
    let sampler = context.sampler(config, Arc::new(MachineClock), &plan, output, known)?;
    let sampling = Sampling::start(sampler).map_err(|e| StartError::machine("reading", &e))?;
    loop {
        let wait = sampling.watch(LOOK_EVERY);
        if signals.wait(wait) == Some(Signal::End) {
            break;
        }
        config::log::report_repeated();
    }
    sampling.end(LAST_READING);
    // A hung reading thread still owns the processes that it started.
    kernel::child_program::kill_all();
    Ok(())
}
