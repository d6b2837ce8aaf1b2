//! Which jobs are on this node, looked for in the cgroups.

use crate::known::Directories;
use cgroups::{Config, Discovery, Hierarchy, Jobs};
use kernel::Root;
use model::{DeviceId, JobEvent, JobId, JobKey, Timestamp};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Longest time between two looks, so that a job is seen within a second where nothing is noted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What finds jobs.
#[derive(Debug)]
pub(crate) struct Finder {
    discovery: Discovery,
    mine: Jobs,
    jobs: Arc<Jobs>,
    presence: Duration,
}

/// What a look found.
pub(crate) struct Found {
    pub(crate) finder: Box<Finder>,
    pub(crate) jobs: Arc<Jobs>,
    /// Jobs to be read for the last time: they ended, or their last process did.
    pub(crate) ended: Vec<JobKey>,
    /// Jobs that came or went, to be told to the server.
    pub(crate) events: Vec<JobEvent>,
}

impl Finder {
    /// Looks for jobs in the cgroups, knowing when some of their directories were made.
    pub(crate) fn discovering(config: Config, known: Directories) -> Self {
        let presence = config.presence;
        let mut discovery = Discovery::new(config);
        discovery.recall(known);
        Self { discovery, mine: Jobs::default(), jobs: Arc::default(), presence }
    }

    pub(crate) fn jobs(&self) -> Arc<Jobs> {
        Arc::clone(&self.jobs)
    }

    /// How often to look: version 1 of the cgroups does not tell when a job's last process ends.
    pub(crate) fn every(&self, tick: Duration) -> Duration {
        let only_asked = self.jobs.iter().any(|job| {
            job.populated && job.dirs.iter().all(|dir| dir.hierarchy != Hierarchy::Unified)
        });
        if only_asked { self.presence } else { tick.min(LOOK_EVERY) }
    }

    /// What becomes readable when there is something to look at.
    pub(crate) fn fd(&self) -> Option<OwnedFd> {
        let fd = self.discovery.fd()?;
        match fd.try_clone_to_owned() {
            Ok(fd) => Some(fd),
            Err(e) => {
                log::warn!("jobs are looked for once a second only: {e}");
                None
            }
        }
    }

    /// What the next start should know, and of which state of the jobs it is.
    pub(crate) fn known(&self) -> (u64, Directories) {
        (self.mine.generation(), self.discovery.known().collect())
    }

    /// The users' own jobs that the server registered, by number and user.
    pub(crate) fn set_registered(&mut self, registered: Vec<(JobId, u32)>) {
        self.discovery.set_registered(registered);
    }

    /// Looks.
    pub(crate) fn find(
        mut self: Box<Self>,
        root: &Root,
        device: &DeviceId,
        now: Timestamp,
    ) -> Found {
        let mut events = Vec::new();
        let changes = self.discovery.update(root, now, &mut self.mine);
        for job in &changes.started {
            log::info!("job {job} is here");
            events.extend(event(&self.mine, job, device, None));
        }
        for job in &changes.ended {
            log::info!("job {job} has ended");
            events.extend(event(&self.mine, job, device, Some(now)));
        }
        let mut ended = changes.ended;
        let emptied = changes.emptied.into_iter().filter(|key| !ended.contains(key));
        let emptied: Vec<_> = emptied.collect();
        ended.extend(emptied);
        if self.mine.generation() != self.jobs.generation() {
            self.jobs = Arc::new(self.mine.clone());
        }
        Found { jobs: Arc::clone(&self.jobs), ended, events, finder: self }
    }
}

/// What the server is told of a job that came or went.
fn event(
    jobs: &Jobs,
    key: &JobKey,
    device: &DeviceId,
    stop: Option<Timestamp>,
) -> Option<JobEvent> {
    let job = jobs.get(key)?;
    Some(JobEvent {
        key: job.key.clone(),
        spelling: job.spelling.clone(),
        device: device.clone(),
        user: job.user.clone(),
        uid: job.uid,
        start: job.created,
        stop,
    })
}
