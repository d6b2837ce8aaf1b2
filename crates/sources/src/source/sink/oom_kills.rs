//! OOM kills of a job, sent to the server beside the samples.

use super::Sink;
use cgroups::JobCgroup;
use model::{JobEvent, OomKill};

/// Maximum number of kills in an event (`OOM_KILLS_MAX` of the wire).
const KILLS_MAX: usize = 64;
/// Maximum number of events waiting to be sealed; further kills appear only in the counter of the job's cgroup.
const EVENTS_MAX: usize = 1024;

impl Sink {
    /// Reports a task of the job that the kernel's OOM killer ended.
    pub fn oom_kill(&mut self, job: &JobCgroup, kill: OomKill) {
        let fits =
            |event: &&mut JobEvent| event.key == job.key && event.oom_kills.len() < KILLS_MAX;
        if let Some(event) = self.events.last_mut().filter(fits) {
            event.oom_kills.push(kill);
        } else if self.events.len() < EVENTS_MAX {
            self.events.push(JobEvent {
                key: job.key.clone(),
                display_id: job.display_id.clone(),
                device: self.device.clone(),
                user: job.user.clone(),
                uid: job.uid,
                start: job.created,
                stop: None,
                monitor: None,
                oom_kills: vec![kill],
            });
        }
    }
}
