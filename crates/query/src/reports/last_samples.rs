//! The last sample of each gauge of a job, which may lie after the job's end.
//!
//! The agent reads a job once more when its last process has ended: its memory is nearly 0 then. A mean over the job
//! must not go down to that value. So the value before it holds until that reading.

use model::{Point, Timestamp};
use std::collections::BTreeMap;

/// Metrics with the number of a job's tasks or processes: 0 after the last one ended.
const TASKS: [&str; 3] = ["cgroup_tasks", "taskstats_tasks", "run_processes"];

/// The last two samples of one series of a gauge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSamples {
    before: Point,
    last: Point,
}

impl LastSamples {
    /// The two samples. The value of the last one is finite, as is that of the one before.
    pub(crate) const fn new(before: Point, last: Point) -> Self {
        Self { before, last }
    }

    /// Value times seconds by a trapezoid.
    pub(crate) fn area(&self) -> f64 {
        (self.before.value + self.last.value) / 2.0 * self.seconds()
    }

    /// The same, with the earlier value held if the job's last process had ended at the last sample.
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

/// When a device was read after the last process of the job had ended.
#[derive(Debug, Default)]
pub(crate) struct Ends(BTreeMap<String, Timestamp>);

impl Ends {
    /// Notes the last sample of a series.
    pub(crate) fn take(&mut self, device: &str, metric: &str, last: Point) {
        if TASKS.contains(&metric) && last.value == 0.0 {
            let end = self.0.entry(device.to_owned()).or_insert(last.at);
            *end = (*end).min(last.at);
        }
    }

    /// When the device was read after the last process.
    pub(crate) fn of(&self, device: &str) -> Option<Timestamp> {
        self.0.get(device).copied()
    }
}
