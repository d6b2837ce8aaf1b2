//! A rule about values: what it watches, when it fires, and what that brings about.

use jobs::{Latch, StableHash};
use model::{NodeList, Series};
use std::sync::Arc;

/// A rule about values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct When {
    /// Its name.
    pub(crate) name: Box<str>,
    /// The metric that is watched; of a counter, its growth per second.
    pub(crate) metric: Box<str>,
    /// With these labels.
    pub(crate) labels: Vec<(Box<str>, Box<str>)>,
    /// Of these nodes; `None`: of all.
    pub(crate) nodes: Option<NodeList>,
    /// What is counted for jobs, and not what is for none.
    pub(crate) jobs: bool,
    /// What is too much or too little.
    pub(crate) beyond: Beyond,
    /// A value no further than this ends it.
    pub(crate) back: f64,
    /// For how long it must be so.
    pub(crate) lasts_us: i64,
    /// The source whose burst is flushed.
    pub(crate) flush: Option<Box<str>>,
    /// The metrics that are promoted, as a regular expression that was checked.
    pub(crate) promote: Option<Box<str>>,
    /// For how long.
    pub(crate) promote_us: i64,
    /// So long after it fired on a node it does not fire there again.
    pub(crate) again_us: i64,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Beyond {
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
}

impl When {
    pub(super) fn is_beyond(&self, value: f64) -> bool {
        match self.beyond {
            Beyond::Above(bound) => value > bound,
            Beyond::Below(bound) => value < bound,
        }
    }

    pub(super) fn is_back(&self, value: f64) -> bool {
        match self.beyond {
            Beyond::Above(_) => value <= self.back,
            Beyond::Below(_) => value >= self.back,
        }
    }

    pub(super) fn watches(&self, entry: &model::SeriesEntry) -> bool {
        let has =
            |(key, value): &(Box<str>, Box<str>)| entry.labels.get(key) == Some((**value).into());
        *entry.metric.name == *self.metric
            && entry.job.is_some() == self.jobs
            && self.nodes.as_ref().is_none_or(|nodes| nodes.has(entry.device.as_str()))
            && self.labels.iter().all(has)
    }

    /// That it has fired on a series, which was not back since.
    pub(super) fn latch(&self, series: &Arc<Series>) -> Latch {
        Latch { rule: self.name.clone(), digest: self.digest(), series: Arc::clone(series) }
    }

    /// When it fires, as a number: what it brings about may be another.
    pub(super) fn digest(&self) -> i64 {
        let (which, bound) = match self.beyond {
            Beyond::Above(bound) => (0, bound),
            Beyond::Below(bound) => (1, bound),
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

    /// By whom it is that something was asked of nodes.
    pub(crate) fn by(&self) -> String {
        format!("rule {}", self.name)
    }
}
