//! What is known of the jobs that are not over, or were told to be over a short time ago. The controller and
//! the accounting tell different things of one job, and later answers less than earlier ones: each answer is
//! laid over what is known, so that what the registry gets is whole, and gets it only when it changed.

use super::told::AnsweredJob;
use jobs::{NodeShare, Record, Resources};
use model::Timestamp;
use std::collections::HashMap;

/// Most jobs that are known at once: twenty times the largest that was measured. More are told at each round.
const JOBS_MAX: usize = 200_000;
/// How long a job that is over, and whose accounting came, is known: twice as long as the accounting is asked
/// again for what it told already.
const ENDED_US: i64 = 1200 * Timestamp::SECOND;
/// How long the accounting of a job is waited for.
const AWAITED_US: i64 = 86_400 * Timestamp::SECOND;

/// Who tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Teller {
    Controller,
    Accounting,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    /// When it was first told to be over, or was no longer told.
    ended: Option<Timestamp>,
    is_accounted: bool,
    is_detailed: bool,
    /// The last of the controller's lists that it stood in.
    round: u64,
}

/// The jobs by number and time of submission.
#[derive(Debug, Default)]
pub(super) struct KnownJobs {
    jobs: HashMap<(i64, Timestamp), Entry>,
    round: u64,
    /// Jobs that were not kept, since too many are.
    pub(super) left_out: u64,
}

impl KnownJobs {
    /// The controller begins to tell all that it knows.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Takes what is told of a job, and gives it whole if that changed anything.
    pub(super) fn take(
        &mut self,
        told: AnsweredJob,
        teller: Teller,
        now: Timestamp,
    ) -> Option<Record> {
        let key = (told.record.key.id.get(), told.record.submit);
        let round = self.round;
        if let Some(entry) = self.jobs.get_mut(&key) {
            let record = over(told.record, &entry.record, teller, entry.is_accounted);
            let has_changed = record != entry.record;
            entry.record = record;
            entry.note(teller, round, now);
            return has_changed.then(|| entry.record.clone());
        }
        let record = told.record;
        if self.jobs.len() >= JOBS_MAX {
            self.left_out += 1;
            return Some(record);
        }
        let mut entry =
            Entry { record, ended: None, is_accounted: false, is_detailed: false, round };
        entry.note(teller, round, now);
        let record = entry.record.clone();
        self.jobs.insert(key, entry);
        Some(record)
    }

    /// Whether a job runs whose cores are not known, and were not asked for.
    pub(super) fn wants_details(&self) -> bool {
        let wants = |entry: &Entry| {
            !entry.is_detailed && entry.record.start.is_some() && !entry.record.state.is_over()
        };
        self.jobs.values().any(wants)
    }

    /// Takes the cores of running jobs by number, and gives the jobs that this changed.
    pub(super) fn take_details(
        &mut self,
        mut details: HashMap<i64, Vec<NodeShare>>,
    ) -> Vec<Record> {
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

    /// The controller told all that it knows: what it no longer tells is over, how, the accounting says.
    pub(super) fn end_round(&mut self, now: Timestamp) {
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

    /// The earliest end of a job whose accounting is awaited.
    pub(super) fn awaited(&self) -> Option<Timestamp> {
        let entries = self.jobs.values().filter(|entry| !entry.is_accounted);
        entries.filter_map(|entry| Some(entry.record.stop.unwrap_or(entry.ended?))).min()
    }

    /// How many jobs are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }
}

impl Entry {
    fn note(&mut self, teller: Teller, round: u64, now: Timestamp) {
        let is_over = self.record.state.is_over();
        match teller {
            Teller::Controller => self.round = round,
            Teller::Accounting => self.is_accounted |= is_over,
        }
        self.ended = if is_over { self.ended.or(Some(now)) } else { None };
    }
}

/// What is told now over what was known. What the accounting told of a job that is over stands: the
/// controller only adds to it.
fn over(told: Record, known: &Record, teller: Teller, is_accounted: bool) -> Record {
    if teller == Teller::Controller && is_accounted {
        return laid(known.clone(), &told);
    }
    laid(told, known)
}

/// A record, with what it does not tell from another of the same job.
fn laid(mut told: Record, known: &Record) -> Record {
    if told.spelling.is_empty() {
        told.spelling.clone_from(&known.spelling);
    }
    keep(&mut told.part_of, &known.part_of);
    keep(&mut told.array_index, &known.array_index);
    keep(&mut told.user, &known.user);
    keep(&mut told.uid, &known.uid);
    keep(&mut told.account, &known.account);
    keep(&mut told.name, &known.name);
    keep(&mut told.queue, &known.queue);
    let has_run = told.state != model::JobState::Waiting;
    if has_run && !told.nodes.is_empty() {
        keep(&mut told.start, &known.start);
    }
    if told.state.is_over() {
        keep(&mut told.stop, &known.stop);
        keep(&mut told.exit_code, &known.exit_code);
    }
    if told.types.is_empty() {
        told.types.clone_from(&known.types);
    }
    // No limit of time is an answer too: while Slurm plans a job without one, it tells a year.
    let wall_seconds = told.requested.wall_seconds;
    fill(&mut told.requested, &known.requested);
    told.requested.wall_seconds = wall_seconds;
    fill(&mut told.used, &known.used);
    if has_run && told.nodes.is_empty() {
        told.nodes.clone_from(&known.nodes);
    } else {
        fill_nodes(&mut told.nodes, &known.nodes);
    }
    if told.steps.is_empty() {
        told.steps.clone_from(&known.steps);
    }
    told
}

fn keep<T: Clone>(told: &mut Option<T>, known: &Option<T>) {
    if told.is_none() {
        told.clone_from(known);
    }
}

fn fill(told: &mut Resources, known: &Resources) {
    keep(&mut told.nodes, &known.nodes);
    keep(&mut told.cpus, &known.cpus);
    keep(&mut told.gpus, &known.gpus);
    keep(&mut told.memory_bytes, &known.memory_bytes);
    keep(&mut told.wall_seconds, &known.wall_seconds);
    keep(&mut told.cpu_seconds, &known.cpu_seconds);
}

/// What is known of each node, where nothing newer is told of it.
fn fill_nodes(told: &mut [NodeShare], known: &[NodeShare]) {
    let by_device: HashMap<_, _> = known.iter().map(|share| (&share.device, share)).collect();
    for share in told {
        let Some(before) = by_device.get(&share.device) else { continue };
        keep(&mut share.cpus, &before.cpus);
        keep(&mut share.gpus, &before.gpus);
        keep(&mut share.memory_bytes, &before.memory_bytes);
        if share.cpu_list.is_empty() {
            share.cpu_list.clone_from(&before.cpu_list);
        }
        if share.gpu_list.is_empty() {
            share.gpu_list.clone_from(&before.gpu_list);
        }
    }
}
