//! What is kept between portions: the samples of instants that may still grow, and what later records need of earlier ones.

use crate::records::columns::opens;
use colmet::backends::Backend;
use colmet::record::NO_JOB;
use model::{Point, Timestamp, increase};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The period of a source until two of its instants are known.
const ASSUMED_PERIOD_US: i64 = 60 * Timestamp::SECOND;
/// A value older than this many periods of its source is none.
const RECENT_PERIODS: i64 = 3;
/// An agent without samples of a backend for longer does not report it.
const AGENT_SILENT_US: i64 = 600 * Timestamp::SECOND;

/// A number that is written as its bits: a counter that was read back one bit larger would seem to have been reset.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(into = "u64", from = "u64")]
pub(super) struct Exact(pub(super) f64);

impl From<u64> for Exact {
    fn from(bits: u64) -> Self {
        Self(f64::from_bits(bits))
    }
}

impl From<Exact> for u64 {
    fn from(exact: Exact) -> Self {
        exact.0.to_bits()
    }
}

/// Bounds what is held.
#[derive(Debug)]
pub(super) struct HeldLimit {
    pub(super) left: usize,
    /// Samples for which there was none.
    pub(super) rejected: u64,
}

impl HeldLimit {
    /// Whether one more number may be held.
    pub(super) fn take(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            self.rejected += 1;
            return false;
        };
        self.left = left;
        true
    }
}

/// A device.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Host {
    /// The newest instant of the output when a sample of the device came last.
    pub(super) touched: i64,
    /// The instant of the last sample of each job, and when it was touched.
    jobs: BTreeMap<u64, (i64, i64)>,
    /// By the backend's name.
    pub(super) streams: BTreeMap<Box<str>, Stream>,
}

/// The records of a backend on a device, and of its jobs there.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stream {
    /// The instant that may still get samples.
    pub(super) open: Option<i64>,
    /// The jobs with samples at this instant.
    pub(super) jobs: BTreeSet<u64>,
    /// Of each source, when it reports.
    rhythms: BTreeMap<Box<str>, Rhythm>,
    /// The node ([`NO_JOB`]) or the jobs.
    pub(super) of: BTreeMap<u64, Entity>,
}

/// The values of the node or of a job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Entity {
    touched: i64,
    /// By what is summed.
    pub(super) sums: BTreeMap<Box<str>, Sum>,
    /// The newest sample of each counter that records have as growth.
    counters: BTreeMap<Box<str>, Reading>,
}

/// The last instant of a sum, and the value of each series there: of two values of one series, the later one counts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sum {
    pub(super) at: i64,
    /// By a hash of the series.
    parts: Vec<(u64, Exact)>,
}

impl Sum {
    pub(super) fn value(&self) -> f64 {
        self.parts.iter().map(|(_, value)| value.0).sum()
    }

    fn set(&mut self, at: i64, (series, value): (u64, f64), limit: &mut HeldLimit) {
        if self.at != at {
            self.at = at;
            self.parts.clear();
        }
        if let Some((_, before)) = self.parts.iter_mut().find(|(of, _)| *of == series) {
            *before = Exact(value);
        } else if self.parts.is_empty() || limit.take() {
            self.parts.push((series, Exact(value)));
        }
    }
}

/// A sample of a counter.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Reading {
    at: i64,
    value: Exact,
    start: Option<i64>,
}

/// When a source reports.
#[derive(Debug, Serialize, Deserialize)]
struct Rhythm {
    /// The first instant since a long silence.
    since: i64,
    /// The last one.
    at: i64,
    /// The last two distances between instants. The shorter one is the period: after a gap, one of them is too long.
    distances: [i64; 2],
}

impl Host {
    /// Notes that a job has a sample at an instant.
    pub(super) fn see_job(&mut self, job: u64, at: i64, limit: &mut HeldLimit) {
        let now = (at, self.touched);
        match self.jobs.get_mut(&job) {
            Some(seen) if *seen == now => return,
            Some(seen) => *seen = now,
            None if limit.take() => drop(self.jobs.insert(job, now)),
            None => return,
        }
        for stream in self.streams.values_mut() {
            if stream.open == Some(at) && stream.of.contains_key(&NO_JOB) {
                stream.jobs.insert(job);
            }
        }
    }

    /// The jobs with a sample at an instant.
    pub(super) fn jobs_at(&self, at: i64) -> BTreeSet<u64> {
        self.jobs.iter().filter(|(_, (seen, _))| *seen == at).map(|(job, _)| *job).collect()
    }

    /// Forgets jobs that were not touched since.
    pub(super) fn forget_jobs(&mut self, since: i64) {
        self.jobs.retain(|_, (_, touched)| *touched >= since);
        for stream in self.streams.values_mut() {
            let open = stream.open;
            let is_open = |entity: &Entity| entity.sums.values().any(|sum| Some(sum.at) == open);
            stream.of.retain(|_, entity| entity.touched >= since || is_open(entity));
        }
    }

    /// Forgets all jobs: they are of another cluster.
    pub(super) fn forget_all_jobs(&mut self) {
        self.jobs.clear();
        for stream in self.streams.values_mut() {
            stream.jobs.clear();
            stream.of.retain(|job, _| *job == NO_JOB);
        }
    }

    /// How many numbers are held of it.
    pub(super) fn size(&self) -> usize {
        let entities = self.streams.values().flat_map(|stream| stream.of.values());
        let each = entities.map(|entity| {
            let parts = entity.sums.values().map(|sum| sum.parts.len().max(1));
            1 + parts.sum::<usize>() + entity.counters.len()
        });
        1 + self.jobs.len() + each.sum::<usize>()
    }
}

impl Stream {
    /// Notes an instant of a source.
    pub(super) fn see(&mut self, source: &str, at: i64) {
        match self.rhythms.get_mut(source) {
            Some(rhythm) => rhythm.see(at),
            None => {
                let rhythm = Rhythm { since: at, at, distances: [ASSUMED_PERIOD_US; 2] };
                self.rhythms.insert(source.into(), rhythm);
            }
        }
    }

    /// Whether a value of a source is recent at an instant.
    pub(super) fn is_recent(&self, source: &str, value_at: i64, at: i64) -> bool {
        let limit = self.rhythms.get(source).map_or(0, Rhythm::limit);
        (0..=limit).contains(&at.saturating_sub(value_at))
    }

    /// Whether the node's own agent reports this backend around an instant.
    pub(super) fn has_agent(&self, at: i64) -> bool {
        let reports = |rhythm: &Rhythm| {
            at >= rhythm.since.saturating_sub(AGENT_SILENT_US)
                && at <= rhythm.at.saturating_add(AGENT_SILENT_US)
        };
        self.rhythms.values().any(reports)
    }

    /// The node or a job, unless the limit is reached.
    pub(super) fn entity(
        &mut self,
        job: u64,
        now: i64,
        limit: &mut HeldLimit,
    ) -> Option<&mut Entity> {
        if !self.of.contains_key(&job) && !limit.take() {
            return None;
        }
        let entity = self.of.entry(job).or_default();
        entity.touched = now;
        Some(entity)
    }
}

impl Rhythm {
    fn see(&mut self, at: i64) {
        // Late samples say nothing about the period.
        if at > self.at {
            let [last, _] = self.distances;
            let distance = at.saturating_sub(self.at);
            if distance > AGENT_SILENT_US {
                self.since = at;
            }
            (self.at, self.distances) = (at, [distance, last]);
        }
    }

    fn limit(&self) -> i64 {
        let [last, before] = self.distances;
        last.min(before).saturating_mul(RECENT_PERIODS)
    }
}

impl Entity {
    /// Sets the value of a series in a sum of its instant.
    pub(super) fn add(&mut self, key: &str, at: i64, part: (u64, f64), limit: &mut HeldLimit) {
        match self.sums.get_mut(key) {
            Some(sum) => sum.set(at, part, limit),
            None if limit.take() => {
                let mut sum = Sum { at, parts: Vec::new() };
                sum.set(at, part, limit);
                self.sums.insert(key.into(), sum);
            }
            None => {}
        }
    }

    /// Ends an instant: its values are in a record, so that a sample that comes later still does not repeat them.
    pub(super) fn end(&mut self, backend: &Backend, at: i64) {
        for (key, sum) in &mut self.sums {
            if sum.at == at && opens(backend, key) {
                sum.at = i64::MIN;
            }
        }
    }

    /// The growth of a counter up to a sample: since its previous one, or since a start of which the counter was observed.
    /// `None` for a late sample: a later record already has this growth.
    pub(super) fn growth(
        &mut self,
        series: &str,
        point: Point,
        limit: &mut HeldLimit,
    ) -> Option<f64> {
        let Point { at, value, start } = point;
        let reading = Reading { at: at.0, value: Exact(value), start: start.map(|start| start.0) };
        match self.counters.get_mut(series) {
            Some(before) if before.at >= at.0 => None,
            Some(before) => {
                let before = std::mem::replace(before, reading);
                let (at, start) = (Timestamp(before.at), before.start.map(Timestamp));
                Some(increase(Point { at, value: before.value.0, start }, point).amount)
            }
            None => {
                if limit.take() {
                    self.counters.insert(series.into(), reading);
                }
                Some(increase(point.zero()?, point).amount)
            }
        }
    }
}
