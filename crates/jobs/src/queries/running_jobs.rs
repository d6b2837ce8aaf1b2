//! Running jobs, with the facts that promotions depend on.

use crate::{Filter, Listed, Registry, RegistryError};
use model::{ClusterId, DeviceId, JobFacts, JobKey, JobState, Timestamp};

/// Time that a scheduler may let a job run beyond its limit: 10 min.
const GRACE_US: i64 = 10 * 60 * Timestamp::SECOND;

/// The facts of a running job that promotions depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningJob {
    /// The job.
    pub key: JobKey,
    /// What its scheduler reports.
    pub facts: JobFacts,
    /// Environment requests that nodes read, each value once.
    pub monitor: Vec<Box<str>>,
    /// The nodes of the job.
    pub nodes: Vec<DeviceId>,
    /// Start of the job, if known.
    pub start: Option<Timestamp>,
    /// Latest possible end of the job, if known.
    pub until: Option<Timestamp>,
}

impl RunningJob {
    /// Collects the facts of a running job from its scheduler and its nodes.
    fn of(listed: Listed) -> Self {
        let Listed { job, devices } = listed;
        let limit = job.facts.requested.wall_seconds.filter(|s| (0.0..1e10).contains(s));
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the line above")]
        let limit_us = limit.map(|seconds| (seconds * 1e6) as i64 + GRACE_US);
        let until = job.start.zip(limit_us).map(|(start, limit)| start.plus(limit));
        Self {
            key: job.key,
            facts: job.facts,
            monitor: Vec::new(),
            nodes: devices,
            start: job.start,
            until,
        }
    }
}

impl Registry {
    /// Returns every running job.
    ///
    /// # Errors
    /// SQLite fails, or the number of running jobs exceeds the registry's row limit.
    pub fn running_jobs(&self) -> Result<Vec<RunningJob>, RegistryError> {
        let filter = Filter { state: Some(JobState::Running), ..Filter::default() };
        let mut running: Vec<_> = self.list(&filter)?.into_iter().map(RunningJob::of).collect();
        let mut requested = self.requested_by_environment()?;
        for job in &mut running {
            let run = job.start.map(|start| (job.key.clone(), start));
            job.monitor = run.and_then(|run| requested.remove(&run)).unwrap_or_default();
        }
        // The user of a job of `jobmeter run` states its node themselves, so only verified nodes count.
        if running.iter().any(|job| job.key.cluster == ClusterId::local()) {
            let verified = self.verified_local()?;
            for job in running.iter_mut().filter(|job| job.key.cluster == ClusterId::local()) {
                job.nodes.retain(|node| verified.contains(&(job.key.id, node.clone())));
            }
        }
        Ok(running)
    }
}
