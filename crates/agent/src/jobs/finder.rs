//! Finds the jobs of this node by their cgroups.

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

/// Longest time between two searches. Without inotify events a job is found within 1 s.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time after the start within which existing jobs may still be found.
const SETTLED_US: i64 = 5 * Timestamp::SECOND;
/// Maximum number of remembered jobs with a reported end.
const GONE_MAX: usize = 4096;

/// Finds jobs and reports their starts and ends.
#[derive(Debug)]
pub(crate) struct Finder {
    discovery: Discovery,
    mine: Jobs,
    jobs: Arc<Jobs>,
    presence: Duration,
    /// Times when this start and earlier ones last saw jobs.
    sightings: Sightings,
    /// Time of this start's first search.
    begun: Option<Timestamp>,
    /// Jobs whose end was already reported.
    gone: BTreeSet<JobKey>,
    /// Jobs that the server lists as running here. The agent compares the list once.
    open: Option<Vec<(JobKey, Timestamp)>>,
}

/// The result of a search.
pub(crate) struct Found {
    pub(crate) finder: Box<Finder>,
    pub(crate) jobs: Arc<Jobs>,
    /// Jobs that need a last reading: they ended, or their last process did.
    pub(crate) ended: Vec<JobKey>,
    /// Jobs that got their first process.
    pub(crate) populated: Vec<JobKey>,
    /// Starts and ends of jobs, to be sent to the server.
    pub(crate) events: Vec<JobEvent>,
}

impl Finder {
    /// Creates a finder that searches the cgroups. `known` holds creation times of cgroup directories, `sightings`
    /// the times when earlier starts last saw jobs.
    pub(crate) fn discovering(
        config: Config,
        (known, sightings): (Directories, Sightings),
    ) -> Self {
        let presence = config.presence;
        let mut discovery = Discovery::new(config);
        // Until the server states its identity, no job that names a server is recognized as its own.
        discovery.set_server("");
        discovery.restore_creation_times(known);
        let (mine, jobs) = (Jobs::default(), Arc::default());
        let (gone, open) = (BTreeSet::new(), None);
        Self { discovery, mine, jobs, presence, sightings, begun: None, gone, open }
    }

    pub(crate) fn jobs(&self) -> Arc<Jobs> {
        Arc::clone(&self.jobs)
    }

    /// Interval between searches. cgroup v1 does not report the end of a job's last process. Unless a source
    /// `hears` of ends of tasks, the agent polls such jobs often.
    pub(crate) fn every(&self, tick: Duration, has_events: bool) -> Duration {
        let usual = tick.min(LOOK_EVERY);
        self.presence().filter(|_| !has_events).unwrap_or(usual)
    }

    /// Poll interval for jobs whose end the kernel does not report. Returns `None` if there are no such jobs.
    pub(crate) fn presence(&self) -> Option<Duration> {
        let only_requested = self.jobs.iter().any(|job| {
            job.populated && job.dirs.iter().all(|dir| dir.hierarchy != Hierarchy::Unified)
        });
        only_requested.then_some(self.presence)
    }

    /// File descriptor that becomes readable when a watched directory changes.
    pub(crate) fn fd(&self) -> Option<OwnedFd> {
        let fd = self.discovery.fd()?;
        match fd.try_clone_to_owned() {
            Ok(fd) => Some(fd),
            Err(e) => {
                log::warn!(
                    "cannot watch cgroups; the agent searches for jobs once per second: \
                            {e}"
                );
                None
            }
        }
    }

    /// Creation times for the next start, with their generation.
    pub(crate) fn known(&self) -> (u64, Directories) {
        (self.mine.generation(), self.discovery.known().collect())
    }

    /// Applies the server's lists: registered local jobs and jobs that it lists as running here.
    pub(crate) fn set_wanted_jobs(&mut self, wanted: WantedJobs) {
        self.discovery.set_registered(wanted.local);
        self.discovery.set_server(&wanted.server);
        self.open = Some(wanted.open);
    }

    /// Searches for jobs that started or ended.
    pub(crate) fn find(
        mut self: Box<Self>,
        root: &Root,
        device: &DeviceId,
        now: Timestamp,
    ) -> Found {
        let mut events = Vec::new();
        let changes = self.discovery.update(root, now, &mut self.mine);
        for job in &changes.started {
            log::info!("found job {job}");
            events.extend(event(&self.mine, job, device, None));
        }
        for job in &changes.ended {
            log::info!("job {job} has ended");
            // A killed `jobmeter run` leaves its cgroup behind. Its job ended at the last process, before this
            // search.
            let last = changes.last_processes.iter().find(|(of, _)| of == job);
            let stop = last.map_or(now, |(_, at)| *at);
            events.extend(event(&self.mine, job, device, Some(stop)));
            self.note_gone(job);
        }
        self.begun.get_or_insert(now);
        self.sightings.look(&self.mine, now);
        self.report_ended(device, now, &mut events);
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
    /// Reports jobs that ended while no agent ran. The server lists them, they started before the agent, and the
    /// finder does not see them. Their true end is unknown. The report states the last time an earlier start saw
    /// them, because nothing was measured later.
    fn report_ended(&mut self, device: &DeviceId, now: Timestamp, events: &mut Vec<JobEvent>) {
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
            log::info!("job {key} ended while no agent was running");
            self.note_gone(&key);
            let stop = self.sightings.last(&key, start);
            ended.push((key.clone(), stop));
            events.push(JobEvent {
                display_id: key.id.to_string().into(),
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

    /// Remembers a reported end, so that an acknowledgement under way does not make the agent report it again.
    fn note_gone(&mut self, key: &JobKey) {
        if self.gone.len() >= GONE_MAX {
            self.gone.pop_first();
        }
        self.gone.insert(key.clone());
    }
}

/// Event for the server about a job that started or ended.
pub(crate) fn event(
    jobs: &Jobs,
    key: &JobKey,
    device: &DeviceId,
    stop: Option<Timestamp>,
) -> Option<JobEvent> {
    let job = jobs.get(key)?;
    Some(JobEvent {
        key: job.key.clone(),
        display_id: job.display_id.clone(),
        device: device.clone(),
        user: job.user.clone(),
        uid: job.uid,
        start: job.created,
        stop,
        monitor: None,
        oom_kills: Vec::new(),
    })
}
