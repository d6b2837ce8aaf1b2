//! `metrics_by_job`: each job with the samples attributed to it, and with the node samples of its devices during
//! its allocation. Samples attributed to other jobs are never included.

use crate::common::time::SLACK;
use crate::rows::table_rows::Batches;
use crate::{Asker, Line, QueryError, Questions, RowBatch, RowQuestion, View};
use jobs::{Interval, Window};
use model::{DeviceId, JobKey};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use store::JobSelector;

/// Maximum number of jobs to look up one by one; for more jobs, the query reads all allocations.
const ASKED_ONE_BY_ONE: usize = 64;

/// The jobs of an answer, and the conversion of device rows to job rows.
#[derive(Debug)]
pub(crate) struct JobRows {
    /// Allocations per device, ascending by start.
    stays: HashMap<DeviceId, Vec<Interval>>,
    jobs: JobSelector,
    from: i64,
    to: i64,
}

impl JobRows {
    /// Plans what to read and how to convert it; `None`: no job matches.
    pub(crate) fn plan(
        questions: &Questions,
        question: &RowQuestion,
        asker: &Asker,
    ) -> Result<Option<(RowQuestion, Self)>, QueryError> {
        let (jobs, keys) = match &question.job {
            JobSelector::None => return Ok(None),
            JobSelector::Is(key) | JobSelector::NoneOrIs(key) => {
                (JobSelector::Is(key.clone()), Some(BTreeSet::from([key.clone()])))
            }
            JobSelector::Any | JobSelector::Some => (JobSelector::Some, None),
            JobSelector::OneOf(keys) => (JobSelector::OneOf(keys.clone()), Some(keys.clone())),
        };
        let one = keys.as_ref().filter(|keys| keys.len() == 1).and_then(BTreeSet::first).cloned();
        let only = question.devices.as_ref().filter(|devices| devices.len() == 1);
        let window = |job: Option<JobKey>| Window {
            job,
            device: only.and_then(|devices| devices.first().cloned()),
            from: Some(question.from.plus(-SLACK)),
            to: Some(question.to.plus(SLACK)),
            ..Window::default()
        };
        let asked: Vec<Option<JobKey>> = match keys {
            Some(keys) if keys.len() <= ASKED_ONE_BY_ONE => keys.into_iter().map(Some).collect(),
            _ => vec![None],
        };
        let mut stays: HashMap<DeviceId, Vec<Interval>> = HashMap::new();
        for job in asked {
            for stay in questions.stays(&window(job), asker)? {
                let here = question.devices.as_ref().is_none_or(|of| of.contains(&stay.device));
                if here && jobs.matches(Some(&stay.key)) {
                    stays.entry(stay.device.clone()).or_default().push(stay);
                }
            }
        }
        for stays in stays.values_mut() {
            stays.sort_by(|a, b| (a.start, &a.key).cmp(&(b.start, &b.key)));
        }
        if stays.is_empty() {
            return Ok(None);
        }
        let devices: BTreeSet<DeviceId> = stays.keys().cloned().collect();
        let inner = RowQuestion {
            view: View::ByDevice,
            devices: Some(devices),
            job: one.map_or(JobSelector::Any, JobSelector::NoneOrIs),
            ..question.clone()
        };
        let (from, to) = (question.from.0, question.to.0);
        Ok(Some((inner, Self { stays, jobs, from, to })))
    }

    /// Converts rows of devices to rows of jobs.
    pub(crate) fn of(self, batches: Batches) -> impl Iterator<Item = Result<RowBatch, QueryError>> {
        batches.map(move |batch| Ok(self.tell(&batch?)))
    }

    fn tell(&self, batch: &RowBatch) -> RowBatch {
        let mut told = RowBatch::default();
        // For each line: the matching allocations on its device, and the index of their output line once it
        // exists.
        let mut lines: Vec<Vec<(Option<&Interval>, Option<u32>)>> =
            batch.lines.iter().map(|line| self.meant(line)).collect();
        for (row, (place, at)) in batch.places.iter().zip(&batch.times).enumerate() {
            let place = usize::try_from(*place).unwrap_or(usize::MAX);
            let (Some(line), Some(meant)) = (batch.lines.get(place), lines.get_mut(place)) else {
                continue;
            };
            let value = batch.values.get(row).copied().unwrap_or(f64::NAN);
            if line.job.is_some() {
                let best = best(meant.as_slice(), *at);
                if let Some(slot) = meant.get_mut(best) {
                    let to = place_of(&mut told, line, slot);
                    told.push(to, *at, value, true);
                }
                continue;
            }
            for slot in meant.iter_mut().filter(|slot| slot.0.is_some_and(|stay| during(stay, *at)))
            {
                let to = place_of(&mut told, line, slot);
                told.push(to, *at, value, true);
            }
        }
        told
    }

    fn meant(&self, line: &Line) -> Vec<(Option<&Interval>, Option<u32>)> {
        let stays = self.stays.get(&line.device).map(Vec::as_slice).unwrap_or_default();
        let near = |stay: &&Interval| {
            stay.start.0 <= self.to && stay.stop.is_none_or(|stop| stop.0 >= self.from)
        };
        let Some(job) = &line.job else {
            return stays.iter().filter(near).map(|stay| (Some(stay), None)).collect();
        };
        if !self.jobs.matches(Some(job)) {
            return Vec::new();
        }
        let own: Vec<_> = stays.iter().filter(|stay| stay.key == *job).map(Some).collect();
        // The job has samples on a device without a known allocation: its row has no allocation.
        let own = if own.is_empty() { vec![None] } else { own };
        own.into_iter().map(|stay| (stay, None)).collect()
    }
}

/// Whether the instant lies within the allocation, bounds excluded.
fn during(stay: &Interval, at: i64) -> bool {
    stay.start.0 < at && stay.stop.is_none_or(|stop| at < stop.0)
}

/// The allocation of a job for a sample attributed to it: the enclosing one, otherwise the nearest.
fn best(stays: &[(Option<&Interval>, Option<u32>)], at: i64) -> usize {
    let distance = |stay: &Option<&Interval>| {
        let Some(stay) = stay else { return 0 };
        let after = stay.stop.map_or(0, |stop| at.saturating_sub(stop.0));
        stay.start.0.saturating_sub(at).max(after).max(0)
    };
    let places = stays.iter().enumerate();
    places.min_by_key(|(_, (stay, _))| distance(stay)).map_or(0, |(place, _)| place)
}

/// The index of the output line for one allocation.
fn place_of(told: &mut RowBatch, line: &Line, slot: &mut (Option<&Interval>, Option<u32>)) -> u32 {
    if let Some(place) = slot.1 {
        return place;
    }
    let place = u32::try_from(told.lines.len()).unwrap_or(u32::MAX);
    let job: Option<JobKey> = slot.0.map(|stay| stay.key.clone()).or_else(|| line.job.clone());
    let stay = slot.0.map(|stay| (stay.start, stay.stop));
    told.lines.push(Arc::new(Line { job, stay, ..line.clone() }));
    slot.1 = Some(place);
    place
}
