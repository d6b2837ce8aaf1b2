//! The nodes and times of a job that its totals cover.

use crate::reports::job_gaps::{NodeMissed, Readings};
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

/// Sets the times of a job that the totals of its nodes do not include.
pub(crate) fn set_missed(
    by_node: &mut ByNode,
    read: &BTreeMap<String, Read>,
    gaps: &[Gap],
    (span, coverage): ((Timestamp, Timestamp), &api::Coverage),
) {
    for (device, read) in read {
        let readings = Readings { last: Timestamp(read.last), has_end: read.has_end };
        let gaps = gaps.iter().filter(|gap| gap.device.as_str() == device);
        let is_silent = coverage.silent.iter().any(|node| node.device == *device);
        let (has_end, missed) = (read.has_end, NodeMissed::of(gaps, readings, span));
        let missed = NodeMissed { has_end, is_silent, ..missed };
        by_node.set_missed(device, missed);
    }
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
