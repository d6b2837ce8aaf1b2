//! `metrics_by_job`: each job with the samples attributed to it, and with the node samples of its devices during
//! its allocation. Samples attributed to other jobs are never included.

use crate::common::time::SLACK;
use crate::rows::table_rows::Batches;
use crate::{Line, QueryContext, QueryEngine, QueryError, RowBatch, RowQuery, View};
use jobs::{Interval, Window};
use model::{DeviceId, JobKey};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use storage::JobSelector;

/// Maximum number of jobs to look up one by one; for more jobs, the query reads all allocations.
const QUERIED_ONE_BY_ONE: usize = 64;

/// The jobs of an answer, and the conversion of device rows to job rows.
#[derive(Debug)]
pub(crate) struct JobRows {
    /// Allocations per device, ascending by start.
    allocations: HashMap<DeviceId, Vec<Interval>>,
    jobs: JobSelector,
    from: i64,
    to: i64,
}

impl JobRows {
    /// Plans what to read and how to convert it; `None`: no job matches.
    pub(crate) fn plan(
        engine: &QueryEngine,
        query: &RowQuery,
        context: &QueryContext,
    ) -> Result<Option<(RowQuery, Self)>, QueryError> {
        let (jobs, keys) = match &query.job {
            JobSelector::None => return Ok(None),
            JobSelector::Is(key) | JobSelector::NoneOrIs(key) => {
                (JobSelector::Is(key.clone()), Some(BTreeSet::from([key.clone()])))
            }
            JobSelector::Any | JobSelector::Some => (JobSelector::Some, None),
            JobSelector::OneOf(keys) => (JobSelector::OneOf(keys.clone()), Some(keys.clone())),
        };
        let one = keys.as_ref().filter(|keys| keys.len() == 1).and_then(BTreeSet::first).cloned();
        let only = query.devices.as_ref().filter(|devices| devices.len() == 1);
        let window = |job: Option<JobKey>| Window {
            job,
            device: only.and_then(|devices| devices.first().cloned()),
            from: Some(query.from.plus(-SLACK)),
            to: Some(query.to.plus(SLACK)),
            ..Window::default()
        };
        let keys_wanted: Vec<Option<JobKey>> = match keys {
            Some(keys) if keys.len() <= QUERIED_ONE_BY_ONE => keys.into_iter().map(Some).collect(),
            _ => vec![None],
        };
        let mut allocations: HashMap<DeviceId, Vec<Interval>> = HashMap::new();
        for job in keys_wanted {
            for allocation in engine.node_times(&window(job), context)? {
                let here = query.devices.as_ref().is_none_or(|of| of.contains(&allocation.device));
                if here && jobs.matches(Some(&allocation.key)) {
                    allocations.entry(allocation.device.clone()).or_default().push(allocation);
                }
            }
        }
        for allocations in allocations.values_mut() {
            allocations.sort_by(|a, b| (a.start, &a.key).cmp(&(b.start, &b.key)));
        }
        if allocations.is_empty() {
            return Ok(None);
        }
        let devices: BTreeSet<DeviceId> = allocations.keys().cloned().collect();
        let inner = RowQuery {
            view: View::ByDevice,
            devices: Some(devices),
            job: one.map_or(JobSelector::Any, JobSelector::NoneOrIs),
            ..query.clone()
        };
        let (from, to) = (query.from.0, query.to.0);
        Ok(Some((inner, Self { allocations, jobs, from, to })))
    }

    /// Converts rows of devices to rows of jobs.
    pub(crate) fn of(self, batches: Batches) -> impl Iterator<Item = Result<RowBatch, QueryError>> {
        batches.map(move |batch| Ok(self.convert(&batch?)))
    }

    fn convert(&self, batch: &RowBatch) -> RowBatch {
        let mut converted = RowBatch::default();
        // For each line: the matching allocations on its device, and the index of their output line once it
        // exists.
        let mut lines: Vec<Vec<(Option<&Interval>, Option<u32>)>> =
            batch.lines.iter().map(|line| self.slots(line)).collect();
        for (row, (place, at)) in batch.places.iter().zip(&batch.times).enumerate() {
            let place = usize::try_from(*place).unwrap_or(usize::MAX);
            let (Some(line), Some(slots)) = (batch.lines.get(place), lines.get_mut(place)) else {
                continue;
            };
            let value = batch.values.get(row).copied().unwrap_or(f64::NAN);
            if line.job.is_some() {
                let best = best(slots.as_slice(), *at);
                if let Some(slot) = slots.get_mut(best) {
                    let to = place_of(&mut converted, line, slot);
                    converted.push(to, *at, value, true);
                }
                continue;
            }
            for slot in slots
                .iter_mut()
                .filter(|slot| slot.0.is_some_and(|allocation| during(allocation, *at)))
            {
                let to = place_of(&mut converted, line, slot);
                converted.push(to, *at, value, true);
            }
        }
        converted
    }

    fn slots(&self, line: &Line) -> Vec<(Option<&Interval>, Option<u32>)> {
        let allocations = self.allocations.get(&line.device).map(Vec::as_slice).unwrap_or_default();
        let near = |allocation: &&Interval| {
            allocation.start.0 <= self.to && allocation.stop.is_none_or(|stop| stop.0 >= self.from)
        };
        let Some(job) = &line.job else {
            return allocations
                .iter()
                .filter(near)
                .map(|allocation| (Some(allocation), None))
                .collect();
        };
        if !self.jobs.matches(Some(job)) {
            return Vec::new();
        }
        let own: Vec<_> =
            allocations.iter().filter(|allocation| allocation.key == *job).map(Some).collect();
        // The job has samples on a device without a known allocation: its row has no allocation.
        let own = if own.is_empty() { vec![None] } else { own };
        own.into_iter().map(|allocation| (allocation, None)).collect()
    }
}

/// Whether the instant lies within the allocation, bounds excluded.
fn during(allocation: &Interval, at: i64) -> bool {
    allocation.start.0 < at && allocation.stop.is_none_or(|stop| at < stop.0)
}

/// The allocation of a job for a sample attributed to it: the enclosing one, otherwise the nearest.
fn best(allocations: &[(Option<&Interval>, Option<u32>)], at: i64) -> usize {
    let distance = |allocation: &Option<&Interval>| {
        let Some(allocation) = allocation else { return 0 };
        let after = allocation.stop.map_or(0, |stop| at.saturating_sub(stop.0));
        allocation.start.0.saturating_sub(at).max(after).max(0)
    };
    let places = allocations.iter().enumerate();
    places.min_by_key(|(_, (allocation, _))| distance(allocation)).map_or(0, |(place, _)| place)
}

/// The index of the output line for one allocation.
fn place_of(
    converted: &mut RowBatch,
    line: &Line,
    slot: &mut (Option<&Interval>, Option<u32>),
) -> u32 {
    if let Some(place) = slot.1 {
        return place;
    }
    let place = u32::try_from(converted.lines.len()).unwrap_or(u32::MAX);
    let job: Option<JobKey> =
        slot.0.map(|allocation| allocation.key.clone()).or_else(|| line.job.clone());
    let allocation = slot.0.map(|allocation| (allocation.start, allocation.stop));
    converted.lines.push(Arc::new(Line { job, allocation, ..line.clone() }));
    slot.1 = Some(place);
    place
}
