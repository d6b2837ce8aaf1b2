//! The nodes and times of a job that its totals cover.

use crate::reports::job_gaps::{JobEnd, NodeMissed, Readings};
use crate::reports::totals::ByNode;
use model::{DeviceId, Gap, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A node is silent if its last sample is older than this, and older than three of its usual intervals.
const FRESH: i64 = 60 * Timestamp::SECOND;
/// Maximum silent nodes listed.
const SILENT_MAX: usize = 100;

/// The readings of a device for the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) last: i64,
    /// The shortest mean interval between samples of a series.
    pub(crate) distance: i64,
    /// Whether the agent observed the end of the job, or of its last process.
    pub(crate) has_end: bool,
}

/// Sets the times of a job that the totals of its nodes do not include. Returns the last reading, if it is the only
/// bound of the job's end.
pub(crate) fn set_missed(
    by_node: &mut ByNode,
    read: &BTreeMap<String, Read>,
    gaps: &[Gap],
    (span, coverage): ((Timestamp, Timestamp), &api::Coverage),
    job_end: JobEnd,
) -> Option<Timestamp> {
    let mut last = None;
    for (device, read) in read {
        // Without readings of its cgroup, no agent reports that it observed the end.
        let has_ended = job_end.has_ended && by_node.has_cgroup(device);
        let job_end = JobEnd { has_ended, ..job_end };
        let readings = Readings { last: Timestamp(read.last), has_end: read.has_end };
        let gaps = gaps.iter().filter(|gap| gap.device.as_str() == device);
        let is_silent = coverage.silent.iter().any(|node| node.device == *device);
        let (has_end, missed) = (read.has_end, NodeMissed::of(gaps, readings, span, job_end));
        let missed = NodeMissed { has_end, is_silent, ..missed };
        last = last.max(missed.is_stop_unknown.then_some(readings.last));
        by_node.set_missed(device, missed);
    }
    last
}

/// Which nodes have samples until the end of the job.
pub(crate) fn coverage(
    devices: &BTreeSet<DeviceId>,
    read: &BTreeMap<String, Read>,
    (start, end): (Timestamp, Timestamp),
    ended: bool,
) -> api::Coverage {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut coverage = api::Coverage { of: count(devices.len()), ..api::Coverage::default() };
    for device in devices {
        let read = read.get(device.as_str());
        let patience = read.map_or(FRESH, |read| FRESH.max(read.distance.saturating_mul(3)));
        let last = read.map(|read| read.last);
        // A job without a process has no samples.
        let is_over = read.is_some_and(|read| read.has_end);
        let late = !is_over && end.0.saturating_sub(last.unwrap_or(start.0)) > patience;
        if last.is_some() && !late {
            coverage.nodes = coverage.nodes.saturating_add(1);
        } else if (late || ended) && coverage.silent.len() < SILENT_MAX {
            let since = last.map(|at| Timestamp(at).seconds());
            coverage.silent.push(api::SilentNode { device: device.to_string(), since });
        }
    }
    coverage
}
