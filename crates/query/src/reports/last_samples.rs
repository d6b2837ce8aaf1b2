//! The last sample of each gauge of a job, which may lie after the job's end.
//!
//! The agent reads a job once more after its last process has ended. The memory is nearly 0 then, and the mean
//! over the job must not include this drop. So the previous value holds until that reading. A gauge that was read only
//! then has no value of the job.

use model::{Point, Timestamp};
use std::collections::BTreeMap;

/// Metrics that count a job's tasks or processes: 0 after the last one has ended.
const TASKS: [&str; 3] = ["cgroup_tasks", "taskstats_tasks", "run_processes"];

/// Parts of the names of gauges that hold for the whole job, whenever they are read.
const OF_WHOLE_JOB: [&str; 7] =
    ["_peak", "_limit", "hiwater", "unread", "_oom_", "run_report_", "taskstats_"];

/// Whether the only sample of a gauge's series, at this time, is a value of the job.
pub(crate) fn is_of_job(metric: &str, at: Timestamp, end: Option<Timestamp>) -> bool {
    end.is_none_or(|end| at < end) || OF_WHOLE_JOB.iter().any(|part| metric.contains(part))
}

/// The last two samples of one series of a gauge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSamples {
    before: Point,
    last: Point,
}

impl LastSamples {
    /// The last two samples, both with a finite value.
    pub(crate) const fn new(before: Point, last: Point) -> Self {
        Self { before, last }
    }

    /// The integral (value × seconds) by the trapezoidal rule.
    pub(crate) fn area(&self) -> f64 {
        (self.before.value + self.last.value) / 2.0 * self.seconds()
    }

    /// The integral with the earlier value held if the job's last process had ended by the last sample.
    pub(crate) fn area_until(&self, end: Option<Timestamp>) -> f64 {
        if end.is_some_and(|end| self.last.at >= end) {
            self.before.value * self.seconds()
        } else {
            self.area()
        }
    }

    fn seconds(&self) -> f64 {
        self.last.at.since(self.before.at) as f64 / 1e6
    }
}

/// The first reading of each device after the last process of the job had ended.
#[derive(Debug, Default)]
pub(crate) struct Ends(BTreeMap<String, Timestamp>);

impl Ends {
    /// Records the last sample of a series.
    pub(crate) fn take(&mut self, device: &str, metric: &str, last: Point) {
        if TASKS.contains(&metric) && last.value == 0.0 {
            let end = self.0.entry(device.to_owned()).or_insert(last.at);
            *end = (*end).min(last.at);
        }
    }

    /// The time of the device's reading after the last process.
    pub(crate) fn of(&self, device: &str) -> Option<Timestamp> {
        self.0.get(device).copied()
    }
}
