//! The sampling context: the machine, its device name, and state that all parts of the agent share.

use crate::common::start_error::StartError;
use crate::jobs::cgroup_birth_cache::Directories;
use crate::jobs::finder::Finder;
use crate::jobs::job_sightings::Sightings;
use crate::reading::agent_metrics::AgentMetrics;
use crate::reading::machine::{device_of, machine, recorded};
use crate::reading::plan::{Plan, discovery};
use crate::sampling::sampler::Sampler;
use config::AgentConfig;
use delivery::{BatchOutput, Clock, Counters, PendingEvents, Printer, Sealer, draw_boot};
use kernel::Root;
use model::{Boot, DeviceId, Origin};
use std::sync::Arc;

/// The machine, and the agent's start on it.
#[derive(Debug)]
pub(crate) struct AgentContext {
    pub(crate) root: Root,
    pub(crate) device: DeviceId,
    origin: Origin,
    pub(crate) boot: Boot,
    pub(crate) notes: Arc<PendingEvents>,
    pub(crate) counters: Arc<Counters>,
}

impl AgentContext {
    /// Opens the machine that the configuration names, by default the live one.
    ///
    /// # Errors
    /// The machine does not exist, has no name, or provides no random numbers.
    pub(crate) fn open(config: &AgentConfig) -> Result<Self, StartError> {
        let root = match config.run.root.first() {
            Some(first) => recorded(first)?,
            None => Root::live().map_err(|e| StartError::machine("root", &e))?,
        };
        let device = match &config.sampling.device {
            Some(device) => device.clone(),
            None => device_of(&root)?,
        };
        let origin = Origin::new(device.as_str()).map_err(|e| StartError::machine("device", &e))?;
        let notes = Arc::new(PendingEvents::new(origin.clone(), device.clone()));
        let counters = Arc::new(Counters::default());
        Ok(Self { root, device, origin, boot: draw_boot()?, notes, counters })
    }

    /// Creates the sampler with this clock and plan. It passes sealed batches to the outlet. `known` holds creation
    /// times of job cgroups, and the times when earlier starts last saw jobs.
    ///
    /// # Errors
    /// The settings for finding jobs are invalid.
    pub(crate) fn sampler(
        &self,
        config: &AgentConfig,
        clock: Arc<dyn Clock>,
        plan: &Plan,
        outlet: Box<dyn BatchOutput>,
        known: (Directories, Sightings),
    ) -> Result<Sampler, StartError> {
        let now = clock.wall();
        let printer = config.run.print.then(|| Printer::new(Box::new(std::io::stdout())));
        let notes = Arc::clone(&self.notes);
        let sealer = Sealer::new(self.origin.clone(), self.boot, notes, outlet, printer);
        let agent_metrics = AgentMetrics::new(self.device.clone(), Arc::clone(&self.counters), now);
        let finder = Finder::discovering(discovery(config).map_err(StartError::Machine)?, known);
        Ok(Sampler::new(
            clock,
            machine(self.root.clone(), now),
            plan,
            finder,
            agent_metrics,
            sealer,
        ))
    }
}
