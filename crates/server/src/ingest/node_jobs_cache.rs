//! Caches the jobs of each device, which every ack reports: they change rarely, and acks are frequent.

use jobs::{Registry, RegistryError, Window};
use model::{DeviceId, JobId, JobKey, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of cached devices.
const DEVICES_MAX: usize = 100_000;
/// Age of the set of devices with jobs at which it is read again.
const BUSY_AGE_MAX_US: i64 = 5 * Timestamp::SECOND;

/// Jobs that an ack reports to the device's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceJobs {
    /// Running registered local jobs, with the user ID of their owner.
    pub(crate) local: Vec<(JobId, u32)>,
    /// Other jobs without a reported end, with the time since when they are on the device.
    pub(crate) open: Vec<(JobKey, Timestamp)>,
}

/// A cache of the registry's jobs by device.
#[derive(Debug, Default)]
pub(crate) struct NodeJobsCache {
    known: Mutex<CachedJobs>,
    /// The devices with jobs, and when they were read.
    busy: Mutex<Option<(Timestamp, Arc<HashSet<DeviceId>>)>>,
}

#[derive(Debug, Default)]
struct CachedJobs {
    /// Incremented with each change, so that a result read before a change is not cached after it.
    changes: u64,
    jobs: HashMap<DeviceId, DeviceJobs>,
}

impl NodeJobsCache {
    /// Returns the jobs of a device, if cached.
    pub(crate) fn known(&self, device: &DeviceId) -> Option<DeviceJobs> {
        self.lock().jobs.get(device).cloned()
    }

    /// Queries the registry and caches the result. May wait for the disk.
    pub(crate) fn look_up(
        &self,
        registry: &Registry,
        device: &DeviceId,
    ) -> Result<DeviceJobs, RegistryError> {
        let before = self.lock().changes;
        let (local, open) = (registry.local_jobs_of(device)?, registry.open_jobs_of(device)?);
        let jobs = DeviceJobs { local, open };
        let mut known = self.lock();
        if known.changes == before {
            if known.jobs.len() >= DEVICES_MAX {
                known.jobs.clear();
            }
            known.jobs.insert(device.clone(), jobs.clone());
        }
        Ok(jobs)
    }

    /// Returns the devices with verified jobs that have not ended, as they were within the latest seconds. One query serves all
    /// pollers. May wait for the disk.
    pub(crate) fn busy(
        &self,
        registry: &Registry,
        now: Timestamp,
    ) -> Result<Arc<HashSet<DeviceId>>, RegistryError> {
        let mut busy = self.busy.lock();
        if let Some((read, devices)) = &*busy
            && (0..BUSY_AGE_MAX_US).contains(&now.since(*read))
        {
            return Ok(Arc::clone(devices));
        }
        // Users name any device of their own jobs.
        let allocations = registry.verified(&Window { from: Some(now), ..Window::default() })?;
        let open = allocations.into_iter().filter(|one| one.stop.is_none());
        let devices: Arc<HashSet<DeviceId>> = Arc::new(open.map(|one| one.device).collect());
        *busy = Some((now, Arc::clone(&devices)));
        Ok(devices)
    }

    /// Returns how often the registry has changed since the server started.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Invalidates the cache after a change of the registry.
    pub(crate) fn changed(&self) {
        let mut known = self.lock();
        known.changes += 1;
        known.jobs.clear();
    }

    fn lock(&self) -> MutexGuard<'_, CachedJobs> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::{Limits, Registration};

    #[test]
    fn a_device_that_a_user_names_is_busy_once_its_job_is_verified() {
        let dir = tempfile::tempdir().unwrap();
        let registry =
            Registry::open(&dir.path().join("jobs"), Limits::default(), jobs::Users::default)
                .unwrap();
        let mut start = crate::now().plus(-10 * Timestamp::SECOND);
        for (device, is_verified) in [("pdu-1", false), ("n1", true)] {
            let device = DeviceId::new(device).unwrap();
            let job = Registration { uid: 7, user: None, name: None, device, start, is_verified };
            registry.register_local(&job).unwrap();
            start = start.plus(1);
        }
        let busy = NodeJobsCache::default().busy(&registry, crate::now()).unwrap();
        assert_eq!(*busy, [DeviceId::new("n1").unwrap()].into());
    }

    #[test]
    fn remembered_until_something_changes() {
        let dir = tempfile::tempdir().unwrap();
        let open =
            Registry::open(&dir.path().join("jobs"), Limits::default(), jobs::Users::default);
        let (registry, jobs, device) =
            (open.unwrap(), NodeJobsCache::default(), DeviceId::new("n1").unwrap());
        assert_eq!(jobs.known(&device), None);
        assert_eq!(jobs.look_up(&registry, &device).unwrap(), DeviceJobs::default());
        assert_eq!(jobs.known(&device), Some(DeviceJobs::default()));
        let start = crate::now();
        let job = Registration {
            uid: 7,
            user: None,
            name: None,
            device: device.clone(),
            start,
            is_verified: false,
        };
        let key = registry.register_local(&job).unwrap();
        jobs.changed();
        assert_eq!(jobs.known(&device), None);
        let want = DeviceJobs { local: vec![(key.id, 7)], open: Vec::new() };
        assert_eq!(jobs.look_up(&registry, &device).unwrap(), want);
        assert_eq!(jobs.known(&device), Some(want));
    }
}
