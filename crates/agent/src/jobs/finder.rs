//! Which jobs are on this node, looked for in the cgroups.

use crate::jobs::cgroup_birth_cache::Directories;
use crate::jobs::job_sightings::Sightings;
use cgroups::{Config, Discovery, Hierarchy, Jobs};
use delivery::WantedJobs;
use kernel::Root;
use model::{DeviceId, JobEvent, JobKey, Timestamp};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Longest time between two looks, so that a job is seen within a second where nothing is noted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long after the start a job that is not seen may still come to light.
const SETTLED_US: i64 = 5 * Timestamp::SECOND;
/// Most jobs remembered whose end was told.
const GONE_MAX: usize = 4096;

/// What finds jobs.
#[derive(Debug)]
pub(crate) struct Finder {
    discovery: Discovery,
    mine: Jobs,
    jobs: Arc<Jobs>,
    presence: Duration,
    /// When jobs were seen last, by this start and earlier ones.
    sightings: Sightings,
    /// When this one looked first.
    begun: Option<Timestamp>,
    /// Jobs from before that are told as ended.
    gone: BTreeSet<JobKey>,
    /// Jobs that are here as far as the server knows; looked at once.
    open: Option<Vec<(JobKey, Timestamp)>>,
}

/// What a look found.
pub(crate) struct Found {
    pub(crate) finder: Box<Finder>,
    pub(crate) jobs: Arc<Jobs>,
    /// Jobs to be read for the last time: they ended, or their last process did.
    pub(crate) ended: Vec<JobKey>,
    /// Jobs that got their first process.
    pub(crate) populated: Vec<JobKey>,
    /// Jobs that came or went, to be told to the server.
    pub(crate) events: Vec<JobEvent>,
}

impl Finder {
    /// Looks for jobs in the cgroups, knowing when some of their directories were made, and when
    /// earlier starts of the agent saw jobs last.
    pub(crate) fn discovering(
        config: Config,
        (known, sightings): (Directories, Sightings),
    ) -> Self {
        let presence = config.presence;
        let mut discovery = Discovery::new(config);
        // Until the server states its identity, no job that carries one is known to be its own.
        discovery.set_server("");
        discovery.recall(known);
        let (mine, jobs) = (Jobs::default(), Arc::default());
        let (gone, open) = (BTreeSet::new(), None);
        Self { discovery, mine, jobs, presence, sightings, begun: None, gone, open }
    }

    pub(crate) fn jobs(&self) -> Arc<Jobs> {
        Arc::clone(&self.jobs)
    }

    /// How often to look. Version 1 of the cgroups does not tell when a job's last process ends: where nobody
    /// else `hears` of ends of tasks, it is asked often.
    pub(crate) fn every(&self, tick: Duration, hears: bool) -> Duration {
        let usual = tick.min(LOOK_EVERY);
        self.presence().filter(|_| !hears).unwrap_or(usual)
    }

    /// How soon to look for the end of jobs that the kernel does not tell of; `None`: there are none.
    pub(crate) fn presence(&self) -> Option<Duration> {
        let only_asked = self.jobs.iter().any(|job| {
            job.populated && job.dirs.iter().all(|dir| dir.hierarchy != Hierarchy::Unified)
        });
        only_asked.then_some(self.presence)
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

    /// What the server says of jobs: the users' own that it registered, and those that are here as far as it
    /// was told.
    pub(crate) fn set_told(&mut self, told: WantedJobs) {
        self.discovery.set_registered(told.local);
        self.discovery.set_server(&told.server);
        self.open = Some(told.open);
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
            // A killed `jobmeter run` leaves its cgroup behind: the job ended before that is noticed.
            let last = changes.last_processes.iter().find(|(of, _)| of == job);
            let stop = last.map_or(now, |(_, at)| *at);
            events.extend(event(&self.mine, job, device, Some(stop)));
            self.note_gone(job);
        }
        self.begun.get_or_insert(now);
        self.sightings.look(&self.mine, now);
        self.tell_gone(device, now, &mut events);
        let mut ended = changes.ended;
        let emptied = changes.emptied.into_iter().filter(|key| !ended.contains(key));
        let emptied: Vec<_> = emptied.collect();
        ended.extend(emptied);
        if self.mine.generation() != self.jobs.generation() {
            self.jobs = Arc::new(self.mine.clone());
        }
        let (jobs, populated) = (Arc::clone(&self.jobs), changes.populated);
        Found { jobs, ended, populated, events, finder: self }
    }
}

impl Finder {
    /// Tells the end of jobs that went while no agent looked: the server knows them, they are not here, and
    /// they were there before this start. They ended at some moment since an earlier start saw them last;
    /// that one is told, as nothing was measured after it.
    fn tell_gone(&mut self, device: &DeviceId, now: Timestamp, events: &mut Vec<JobEvent>) {
        let begun = self.begun.unwrap_or(now);
        if now.since(begun) < SETTLED_US || self.discovery.unresolved() > 0 {
            return;
        }
        let Some(open) = self.open.take() else { return };
        let listed: BTreeSet<JobKey> = open.iter().map(|(key, _)| key.clone()).collect();
        let mut ended = Vec::new();
        for (key, start) in open {
            if start >= begun || self.mine.get(&key).is_some() || self.gone.contains(&key) {
                continue;
            }
            log::info!("job {key} ended while no agent looked");
            self.note_gone(&key);
            let stop = self.sightings.last(&key, start);
            ended.push((key.clone(), stop));
            events.push(JobEvent {
                spelling: key.id.to_string().into(),
                device: device.clone(),
                user: None,
                uid: None,
                start,
                stop: Some(stop),
                monitor: None,
                oom_kills: Vec::new(),
                key,
            });
        }
        self.sightings.settle(&ended, &listed);
    }

    /// Remembers a job of before this start whose end was told, so that an answer that was on its way
    /// does not make it told again.
    fn note_gone(&mut self, key: &JobKey) {
        if self.gone.len() >= GONE_MAX {
            self.gone.pop_first();
        }
        self.gone.insert(key.clone());
    }
}

/// What the server is told of a job that came or went.
pub(crate) fn event(
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
        monitor: None,
        oom_kills: Vec::new(),
    })
}
