//! Cache of the jobs that are not over or ended recently.
//! The controller and the accounting report different parts of a job, and later answers less than earlier ones.
//! The cache merges each answer into the job. The registry receives complete records, and only when they changed.

use super::parsed_job::ParsedJob;
use jobs::{JobRecord, NodeShare};
use model::Timestamp;
use std::collections::HashMap;

/// Most cached jobs: 20 times the largest number measured. Jobs beyond are reported at each round.
const JOBS_MAX: usize = 200_000;
/// How long a completed job with accounting stays in the cache: twice the overlap of accounting queries.
const ENDED_US: i64 = 1200 * Timestamp::SECOND;
/// How long the cache waits for a job's accounting.
const AWAITED_US: i64 = 86_400 * Timestamp::SECOND;

/// The source of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reporter {
    Controller,
    Accounting,
}

#[derive(Debug)]
struct Entry {
    record: JobRecord,
    /// When the job was first reported as over, or was first missing.
    ended: Option<Timestamp>,
    is_accounted: bool,
    is_detailed: bool,
    /// The last of the controller's lists that contained it.
    round: u64,
}

/// Jobs by ID and time of submission.
#[derive(Debug, Default)]
pub(super) struct JobCache {
    jobs: HashMap<(i64, Timestamp), Entry>,
    round: u64,
    /// Jobs that were not cached because the cache is full.
    pub(super) left_out: u64,
}

impl JobCache {
    /// Begins a full list of the controller.
    pub(super) fn begin_list(&mut self) {
        self.round += 1;
    }

    /// Merges a report of a job. Returns the merged record if it changed.
    pub(super) fn take(
        &mut self,
        newer: ParsedJob,
        reporter: Reporter,
        now: Timestamp,
    ) -> Option<JobRecord> {
        let key = (newer.record.key.id.get(), newer.record.submit);
        let round = self.round;
        if let Some(entry) = self.jobs.get_mut(&key) {
            let record = merge_report(newer.record, &entry.record, reporter, entry.is_accounted);
            let has_changed = record != entry.record;
            entry.record = record;
            entry.note(reporter, round, now);
            return has_changed.then(|| entry.record.clone());
        }
        let record = newer.record;
        if self.jobs.len() >= JOBS_MAX {
            self.left_out += 1;
            return Some(record);
        }
        let mut entry =
            Entry { record, ended: None, is_accounted: false, is_detailed: false, round };
        entry.note(reporter, round, now);
        let record = entry.record.clone();
        self.jobs.insert(key, entry);
        Some(record)
    }

    /// Whether a running job lacks cores that were not queried yet.
    pub(super) fn wants_details(&self) -> bool {
        let wants = |entry: &Entry| {
            !entry.is_detailed && entry.record.start.is_some() && !entry.record.state.is_over()
        };
        self.jobs.values().any(wants)
    }

    /// Merges the cores of running jobs, by job ID. Returns the changed jobs.
    pub(super) fn take_details(
        &mut self,
        mut details: HashMap<i64, Vec<NodeShare>>,
    ) -> Vec<JobRecord> {
        let mut changed = Vec::new();
        for ((id, _), entry) in &mut self.jobs {
            if entry.record.state.is_over() || entry.record.start.is_none() {
                continue;
            }
            entry.is_detailed = true;
            let Some(shares) = details.remove(id) else { continue };
            let before = entry.record.nodes.clone();
            fill_nodes(&mut entry.record.nodes, &shares);
            if entry.record.nodes != before {
                changed.push(entry.record.clone());
            }
        }
        changed
    }

    /// Ends a full list of the controller. Jobs missing from it are over; the accounting reports how they ended.
    pub(super) fn end_list(&mut self, now: Timestamp) {
        for entry in self.jobs.values_mut() {
            if entry.round != self.round && entry.ended.is_none() {
                entry.ended = Some(now);
            }
        }
        self.jobs.retain(|_, entry| {
            let limit = if entry.is_accounted { ENDED_US } else { AWAITED_US };
            entry.ended.is_none_or(|ended| entry.round == self.round || now.since(ended) < limit)
        });
    }

    /// The earliest end of a job that lacks its accounting.
    pub(super) fn awaited(&self) -> Option<Timestamp> {
        let entries = self.jobs.values().filter(|entry| !entry.is_accounted);
        entries.filter_map(|entry| Some(entry.record.stop.unwrap_or(entry.ended?))).min()
    }

    /// Number of cached jobs.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }
}

impl Entry {
    fn note(&mut self, reporter: Reporter, round: u64, now: Timestamp) {
        let is_over = self.record.state.is_over();
        match reporter {
            Reporter::Controller => self.round = round,
            Reporter::Accounting => self.is_accounted |= is_over,
        }
        self.ended = if is_over { self.ended.or(Some(now)) } else { None };
    }
}

/// Merges a new report into the known record. The accounting's values of a completed job win; the controller
/// only adds to them.
fn merge_report(
    newer: JobRecord,
    known: &JobRecord,
    reporter: Reporter,
    is_accounted: bool,
) -> JobRecord {
    if reporter == Reporter::Controller && is_accounted {
        return merge(known.clone(), &newer);
    }
    merge(newer, known)
}

/// A record, completed from another record of the same job.
fn merge(mut newer: JobRecord, known: &JobRecord) -> JobRecord {
    if newer.display_id.is_empty() {
        newer.display_id.clone_from(&known.display_id);
    }
    let has_run = newer.state != model::JobState::Waiting;
    if has_run && !newer.nodes.is_empty() {
        fill_option(&mut newer.start, &known.start);
    }
    let is_over = newer.state.is_over();
    if is_over {
        fill_option(&mut newer.stop, &known.stop);
    }
    // A missing time limit is an answer too: while Slurm plans a job without one, it reports a year.
    let wall_seconds = newer.facts.requested.wall_seconds;
    newer.facts = newer.facts.or(known.facts.clone());
    newer.facts.requested.wall_seconds = wall_seconds;
    newer.facts.exit_code = newer.facts.exit_code.filter(|_| is_over);
    if has_run && newer.nodes.is_empty() {
        newer.nodes.clone_from(&known.nodes);
    } else {
        fill_nodes(&mut newer.nodes, &known.nodes);
    }
    if newer.steps.is_empty() {
        newer.steps.clone_from(&known.steps);
    }
    newer
}

fn fill_option<T: Clone>(newer: &mut Option<T>, known: &Option<T>) {
    if newer.is_none() {
        newer.clone_from(known);
    }
}

/// Completes each node from the known shares.
fn fill_nodes(newer: &mut [NodeShare], known: &[NodeShare]) {
    let by_device: HashMap<_, _> = known.iter().map(|share| (&share.device, share)).collect();
    for share in newer {
        let Some(before) = by_device.get(&share.device) else { continue };
        fill_option(&mut share.cpus, &before.cpus);
        fill_option(&mut share.gpus, &before.gpus);
        fill_option(&mut share.memory_bytes, &before.memory_bytes);
        if share.cpu_list.is_empty() {
            share.cpu_list.clone_from(&before.cpu_list);
        }
        if share.gpu_list.is_empty() {
            share.gpu_list.clone_from(&before.gpu_list);
        }
    }
}
