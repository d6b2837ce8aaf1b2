//! Disagreements between schedulers and nodes.

use crate::{QueryContext, QueryEngine, QueryError};
use jobs::{AgentPresence, Disagreement};
use std::collections::{HashMap, HashSet};

impl QueryEngine {
    /// Disagreements between schedulers and nodes about the current jobs. A missing cgroup counts only on a node
    /// with a live agent of its own, or of which nothing was ever received: a power meter, which other agents read,
    /// never has cgroups.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; the query was cancelled.
    pub fn disagreements(
        &self,
        context: &QueryContext,
    ) -> Result<Vec<api::Disagreement>, QueryError> {
        let origins = self.store.origins();
        let agents: HashSet<&str> = origins.iter().map(|origin| origin.origin.as_str()).collect();
        let nodes = self.nodes(context)?.into_iter().filter(|node| node.last_seen.is_some());
        let seen: HashMap<String, bool> = nodes.map(|node| (node.device, node.alive)).collect();
        let presence = |device: &model::DeviceId| match seen.get(device.as_str()) {
            None => AgentPresence::Never,
            Some(true) if agents.contains(device.as_str()) => AgentPresence::Reporting,
            Some(_) => AgentPresence::Unknown,
        };
        let found = self.registry.disagreements(context.now, presence)?;
        Ok(found.into_iter().map(shown).collect())
    }
}

fn shown(found: Disagreement) -> api::Disagreement {
    api::Disagreement {
        cluster: found.key.cluster.to_string(),
        id: found.key.id.get(),
        device: found.device.to_string(),
        difference: found.difference.word().to_owned(),
        since: found.since.seconds(),
        scheduler: found.scheduler,
        node: found.node,
    }
}
