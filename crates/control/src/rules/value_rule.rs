//! Value rules: the series they watch, when they fire, and their actions.

use jobs::{Latch, StableHash};
use model::{DeviceId, NodeList, Series};
use std::sync::Arc;

/// A value rule.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRule {
    /// Name of the rule.
    pub name: Box<str>,
    /// The watched metric; for a counter, its increase per second.
    pub metric: Box<str>,
    /// Labels that a series must have.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// Nodes and devices to watch; `None` means all.
    pub nodes: Option<NodeList>,
    /// Whether the rule watches samples attributed to jobs (`true`) or node samples (`false`).
    pub jobs: bool,
    /// The bound that a value must cross.
    pub beyond: Threshold,
    /// The value that resets the rule.
    pub back: f64,
    /// Time for which the value must be beyond the bound, in µs.
    pub lasts_us: i64,
    /// The source whose burst is flushed.
    pub flush: Option<Box<str>>,
    /// A validated regular expression of the metrics to promote.
    pub promote: Option<Box<str>>,
    /// Duration of the promotion, in µs.
    pub promote_us: i64,
    /// Minimum time between two firings on the same node, in µs.
    pub again_us: i64,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Fires on values above the bound.
    Above(f64),
    /// Fires on values below the bound.
    Below(f64),
}

impl ValueRule {
    pub(super) fn is_beyond(&self, value: f64) -> bool {
        match self.beyond {
            Threshold::Above(bound) => value > bound,
            Threshold::Below(bound) => value < bound,
        }
    }

    pub(super) fn is_back(&self, value: f64) -> bool {
        match self.beyond {
            Threshold::Above(_) => value <= self.back,
            Threshold::Below(_) => value >= self.back,
        }
    }

    /// Whether it measures a series, on whichever node.
    pub(super) fn measures(&self, entry: &model::SeriesEntry) -> bool {
        let has =
            |(key, value): &(Box<str>, Box<str>)| entry.labels.get(key) == Some((**value).into());
        *entry.metric.name == *self.metric
            && entry.job.is_some() == self.jobs
            && self.labels.iter().all(has)
    }

    /// Returns the nodes on which it acts because of a device: all of `nodes`, if it watches the device, else those of
    /// them that it watches; `None` if there is none.
    pub(super) fn watched(
        &self,
        device: &DeviceId,
        mut nodes: Vec<DeviceId>,
    ) -> Option<Arc<[DeviceId]>> {
        if let Some(watched) = self.nodes.as_ref().filter(|list| !list.has(device.as_str())) {
            nodes.retain(|node| watched.has(node.as_str()));
        }
        (!nodes.is_empty()).then(|| nodes.into())
    }

    /// Returns a latch: the rule fired on this series and has not been reset since.
    pub(super) fn latch(&self, series: &Arc<Series>) -> Latch {
        Latch { rule: self.name.clone(), digest: self.digest(), series: Arc::clone(series) }
    }

    /// Hashes the condition of the rule, without its name, nodes and actions.
    pub(super) fn digest(&self) -> i64 {
        let (which, bound) = match self.beyond {
            Threshold::Above(bound) => (0, bound),
            Threshold::Below(bound) => (1, bound),
        };
        let mut hash = StableHash::default();
        hash.bytes(self.metric.as_bytes()).number(self.labels.len() as u64);
        for (key, value) in &self.labels {
            hash.bytes(key.as_bytes()).bytes(value.as_bytes());
        }
        hash.number(u64::from(self.jobs)).number(self.lasts_us.cast_unsigned());
        hash.number(which).number(bound.to_bits()).number(self.back.to_bits());
        hash.finish().cast_signed()
    }

    /// Returns the author name of the rule's actions.
    pub fn by(&self) -> String {
        format!("rule {}", self.name)
    }
}
