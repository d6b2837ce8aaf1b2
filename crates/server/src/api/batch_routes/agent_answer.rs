//! The answer to an agent's batches: the acks, the settings that its node has from now on, and the node's jobs.

use crate::app::App;
use crate::common::http_error::HttpError;
use crate::ingest::node_jobs_cache::DeviceJobs;
use model::{DeviceId, Origin};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::{Ack, Answer};

/// Returns the answer to a sender with these origins and with settings of the generation `at`.
pub(super) async fn answer(
    app: &Arc<App>,
    at: Option<u64>,
    acks: Vec<Ack>,
    origins: BTreeSet<Origin>,
) -> Result<Answer, HttpError> {
    let live = app.live();
    let device = origins.first().and_then(|origin| DeviceId::new(origin.as_str()).ok());
    // A user's `jobmeter run` is not an agent: the settings for agents do not apply to it.
    let config =
        device.as_ref().map(|device| app.on_demand.config_for(device, &live.agents, app.now()));
    let generation = config.as_ref().map_or(0, |config| config.generation);
    let settings = match config {
        Some(config) if at != Some(generation) => config.encoded.clone(),
        _ => Vec::new(),
    };
    let DeviceJobs { local, open } = node_jobs(app, &origins).await?;
    let (local_jobs, open_jobs) = (local, open);
    let (acks, server) = (acks, app.registry.identity().to_owned());
    Ok(Answer { acks, generation, settings, local_jobs, open_jobs, server })
}

/// Returns the jobs of the devices that these origins name.
async fn node_jobs(app: &Arc<App>, origins: &BTreeSet<Origin>) -> Result<DeviceJobs, HttpError> {
    let mut jobs = DeviceJobs::default();
    for device in origins.iter().filter_map(|origin| DeviceId::new(origin.as_str()).ok()) {
        let answer_jobs = match app.node_jobs.known(&device) {
            Some(known) => known,
            None => {
                let look_up = move |app: &App| app.node_jobs.look_up(&app.registry, &device);
                // The batches are stored already. A response without the list would withdraw the jobs that were
                // reported to agents before. Instead, the request fails, and the agents retry.
                app.read_registry(look_up).await?.map_err(|error| HttpError::fault(&error))?
            }
        };
        jobs.local.extend(answer_jobs.local);
        jobs.open.extend(answer_jobs.open);
    }
    Ok(jobs)
}
