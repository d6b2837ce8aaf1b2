//! All hosts in their groups: each host keeps its group over restarts.

use super::host::Host;
use super::jobs::job_event;
use super::saved_hosts::{self, SavedEnd, SavedHost, SavedJob};
use crate::sending::{CompleteUntil, Group, GroupStart, earlier_groups, spool_folder};
use config::PollerConfig;
use delivery::{Clock, DeliveryError};
use model::{DeviceId, JobEvent, JobKey, NameError, Origin, Timestamp};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Hosts of a list, which may have stars, and of loopback without a list.
const LISTED_MAX: usize = 16_384;
const UNLISTED_MAX: usize = 4096;
/// Hosts of a group: with the listener itself, the first one has 64 devices.
const GROUP_HOSTS: usize = 63;
/// Name of the file beside the spools.
const FILE: &str = "hosts";
/// Ends of jobs that the file has: until they are in the spool, with reserve.
const ENDED_US: i64 = 60 * Timestamp::SECOND;
const ENDED_MAX: usize = 65_536;
/// A host of which the latest record is older than this holds back no other host of its group at a kill.
const LAGGING_US: i64 = 60 * Timestamp::SECOND;
/// The file of such hosts is written at most in this interval of their instants.
const LAGGING_STEP_US: i64 = 10 * Timestamp::SECOND;

/// Why a listener does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The cluster's name is too long for the names of groups.
    #[error("colmet.cluster: {0}")]
    Name(#[from] NameError),
    /// A group cannot start.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
}

/// The hosts.
#[derive(Debug)]
pub(super) struct Hosts<'a> {
    config: &'a PollerConfig,
    clock: &'a Arc<dyn Clock>,
    /// The name of the listener.
    pub(super) poller: DeviceId,
    folder: Option<PathBuf>,
    pub(super) list: Vec<Host>,
    places: HashMap<String, usize>,
    pub(super) groups: Vec<Group>,
    /// Hosts of each group.
    counts: Vec<usize>,
    groups_at_start: usize,
    /// Whether hosts that are not in the file may have been known: an earlier start has left spools and no file.
    is_unknown: bool,
    /// Ends of jobs, and when they were found.
    ended: VecDeque<(Timestamp, JobEvent)>,
}

impl<'a> Hosts<'a> {
    /// Opens the groups of the hosts of an earlier start. Appends what must be reported again.
    pub(super) fn open(
        config: &'a PollerConfig,
        clock: &'a Arc<dyn Clock>,
        events: &mut Vec<JobEvent>,
    ) -> Result<Self, HostsError> {
        let settings = &config.colmet;
        let name = format!("colmet-{}", settings.cluster);
        let poller = DeviceId::new(&name)?;
        let folder = spool_folder(config, &name, Some(&name))?;
        let file = folder.as_ref().map(|folder| folder.join(FILE));
        let saved = file.as_deref().and_then(|path| saved_hosts::read(path, &poller));
        let earlier_groups = folder.as_deref().map_or(0, earlier_groups);
        let mut hosts = Self {
            config,
            clock,
            poller,
            list: Vec::new(),
            places: HashMap::new(),
            groups: Vec::new(),
            counts: Vec::new(),
            groups_at_start: earlier_groups.max(1),
            folder,
            is_unknown: saved.is_none() && earlier_groups > 0,
            ended: VecDeque::new(),
        };
        for saved in saved.unwrap_or_default() {
            hosts.restore(&saved, events);
        }
        for number in 0..hosts.groups_at_start {
            hosts.open_group(number)?;
        }
        Ok(hosts)
    }

    /// Restores a host of an earlier start, if it may still send.
    fn restore(&mut self, saved: &SavedHost, events: &mut Vec<JobEvent>) {
        if !self.is_listed(&saved.device) || self.list.len() >= LISTED_MAX {
            return;
        }
        let cluster = &self.config.colmet.cluster;
        for SavedEnd { id, start, stop } in &saved.ended {
            let key = JobKey { cluster: cluster.clone(), id: *id };
            let event = job_event(&key, &saved.device, *start, Some(*stop));
            self.ended.push_back((self.clock.wall(), event.clone()));
            events.push(event);
        }
        let mut saved = saved.clone();
        // The number is from a file: one group beyond those that are known.
        saved.group = saved.group.min(self.groups_at_start);
        self.groups_at_start = self.groups_at_start.max(saved.group + 1);
        let host = Host::restored(&saved, cluster, self.clock.steady_us());
        self.add(host);
    }

    fn add(&mut self, host: Host) -> usize {
        self.counts.resize(self.counts.len().max(host.group + 1), 0);
        if let Some(count) = self.counts.get_mut(host.group) {
            *count += 1;
        }
        let place = self.list.len();
        self.places.insert(host.device.to_string(), place);
        self.list.push(host);
        place
    }

    fn is_listed(&self, device: &DeviceId) -> bool {
        self.config.colmet.hosts.as_ref().is_none_or(|list| list.has(device.as_str()))
    }

    /// The place of a host that is known.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Whether a host may send, if there is space for it.
    pub(super) fn admits(&self, device: &DeviceId) -> Admission {
        let max = if self.config.colmet.hosts.is_some() { LISTED_MAX } else { UNLISTED_MAX };
        match (self.is_listed(device), self.list.len() < max) {
            (false, _) => Admission::Foreign,
            (true, false) => Admission::TooMany,
            (true, true) => Admission::Good,
        }
    }

    /// Adds a host to a group, which may be a new one.
    pub(super) fn add_new(&mut self, device: DeviceId) -> Result<usize, HostsError> {
        let free = self.counts.iter().position(|count| *count < GROUP_HOSTS);
        let number = free.unwrap_or(self.counts.len());
        let place = self.add(Host::new(device.clone(), number, self.clock.steady_us()));
        match self.groups.get(number) {
            Some(group) => group.add_device(device),
            None => self.open_group(number)?,
        }
        Ok(place)
    }

    fn open_group(&mut self, number: usize) -> Result<(), HostsError> {
        let of_group = self.list.iter().filter(|host| host.group == number);
        let mut devices: Vec<DeviceId> = of_group.map(|host| host.device.clone()).collect();
        devices.extend((number == 0).then(|| self.poller.clone()));
        let folder = self.folder.as_ref().map(|dir| dir.join(format!("group-{number}")));
        self.groups.push(Group::start(GroupStart {
            config: self.config,
            origin: Origin::of_poller_group(&self.poller, number)?,
            poller: &self.poller,
            devices,
            folder: folder.as_deref(),
            clock: self.clock,
            groups: self.groups_at_start.max(number + 1),
            input_down: Some("the listener did not run"),
        })?);
        Ok(())
    }

    /// A host with its group.
    pub(super) fn with_group(&mut self, place: usize) -> Option<(&mut Host, &mut Group)> {
        let host = self.list.get_mut(place)?;
        let group = self.groups.get_mut(host.group)?;
        Some((host, group))
    }

    /// Since when gaps of a host are known that sends for the first time.
    pub(super) fn known_since(&self, host: &Host, at: Timestamp) -> Timestamp {
        if self.is_unknown || host.is_restored { Timestamp(0) } else { at }
    }

    /// Remembers ends of jobs until they are in the spool.
    pub(super) fn remember_ended(&mut self, events: Vec<JobEvent>, now: Timestamp) {
        self.ended.extend(events.into_iter().map(|event| (now, event)));
        let is_old = |found: Timestamp| !(0..ENDED_US).contains(&now.since(found));
        while self.ended.len() > ENDED_MAX
            || self.ended.front().is_some_and(|(found, _)| is_old(*found))
        {
            self.ended.pop_front();
        }
    }

    /// Writes the file for the next start.
    pub(super) fn save(&self) -> std::io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut ended: HashMap<&str, Vec<SavedEnd>> = HashMap::new();
        for (_, event) in &self.ended {
            let (id, start) = (event.key.id, event.start);
            let of_host = ended.entry(event.device.as_str()).or_default();
            of_host.extend(event.stop.map(|stop| SavedEnd { id, start, stop }));
        }
        let saved = |host: &Host| {
            let jobs = host.jobs.running.values().map(|job| SavedJob {
                id: job.key.id,
                start: job.start,
                is_rebased: job.is_rebased(),
            });
            SavedHost {
                device: host.device.clone(),
                group: host.group,
                has_agent: host.has_agent,
                period_us: host.period_us().unwrap_or(0),
                latest: host.latest().unwrap_or_default(),
                jobs: jobs.collect(),
                ended: ended.remove(host.device.as_str()).unwrap_or_default(),
            }
        };
        let hosts: Vec<SavedHost> = self.list.iter().map(saved).collect();
        saved_hosts::write(&folder.join(FILE), &self.poller, &hosts)
    }

    /// Reports jobs.
    pub(super) fn put_jobs(&self, events: Vec<JobEvent>) {
        for event in events {
            let host = self.place(event.device.as_str()).and_then(|place| self.list.get(place));
            if let Some(group) = host.and_then(|host| self.groups.get(host.group)) {
                group.put_job(event);
            }
        }
    }

    /// Passes the samples on.
    pub(super) fn seal(&mut self, now: Timestamp) {
        for host in &self.list {
            let Some(group) = self.groups.get_mut(host.group) else { continue };
            let until = match host.until() {
                Some(until) if now.since(until) > LAGGING_US => {
                    let at = Timestamp(until.0 - until.0.rem_euclid(LAGGING_STEP_US));
                    Some(CompleteUntil { at, is_failing: true })
                }
                Some(at) => Some(CompleteUntil { at, is_failing: host.is_silent(now) }),
                // Nothing of it is stored since the start.
                None => group
                    .kept_until(&host.device)
                    .filter(|_| host.is_restored)
                    .or(host.held_since)
                    .map(|at| CompleteUntil { at, is_failing: true }),
            };
            group.set_complete(&host.device, 0, until);
        }
        self.groups.iter_mut().for_each(Group::seal);
    }

    /// Samples that are not sealed, of the group that has most of them.
    pub(super) fn unsealed(&self) -> usize {
        self.groups.iter().map(Group::unsealed).max().unwrap_or(0)
    }

    /// Whether a group can take no more.
    pub(super) fn is_full(&self) -> bool {
        self.groups.iter().any(Group::is_full)
    }

    /// Ends the groups, together: each waits a moment for the server. Returns how many samples are lost.
    pub(super) fn end(self) -> u64 {
        std::thread::scope(|scope| {
            let ends: Vec<_> =
                self.groups.into_iter().map(|group| scope.spawn(move || group.end())).collect();
            // The thread of a group that panics has ended the program.
            ends.into_iter().map(|end| end.join().unwrap_or(0)).sum()
        })
    }
}

/// Whether a host may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Good,
    /// It is not in the list.
    Foreign,
    TooMany,
}
