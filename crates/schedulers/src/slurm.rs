//! Slurm, by its REST service where there is one, else by its programs. Each round asks the controller once
//! for everything that it knows, and the accounting for what ended: never job by job.
//!
//! What each version answers is read by the fields that are there; which paths of slurmrestd and which
//! options of the programs there are is found by asking. Made after Slurm's own documents
//! (<https://slurm.schedmd.com/rest_api.html>, `squeue(1)`, `sacct(1)`, `scontrol(1)`) and real answers of
//! 22.05 (`testdata/schedulers`).

mod account;
mod answer;
mod ask;
mod commands;
mod details;
mod job;
mod json;
mod known;
mod lines;
mod rest;
mod state;
mod told;
mod tres;

#[cfg(test)]
mod tests;

pub use commands::SlurmCommands;
pub use rest::{RestAddress, SlurmRest};

use crate::{Changes, Scheduler, SchedulerError};
use answer::Answer;
use ask::Ask;
use async_trait::async_trait;
use jobs::Record;
use known::{KnownJobs, Teller};
use model::{ClusterId, Timestamp};
use std::time::Duration;
use told::{AnsweredJob, Refusals};

/// How often the accounting is asked, and how often while the accounting of a job is awaited.
const ACCOUNTING_US: i64 = 60 * Timestamp::SECOND;
const AWAITED_US: i64 = 10 * Timestamp::SECOND;
/// How far back the accounting is asked again for what it told: clocks differ, and slurmdbd gets what ended
/// later than it ended.
const OVERLAP_US: i64 = 600 * Timestamp::SECOND;
/// Most that the accounting is asked for at once, and how far back a job is looked for that it has not told.
const DAY_US: i64 = 86_400 * Timestamp::SECOND;

/// How a Slurm is asked.
#[derive(Clone, Debug)]
pub struct SlurmConfig {
    /// The name that its jobs bear.
    pub cluster: ClusterId,
    /// By which way.
    pub access: SlurmAccess,
    /// Longest time of one call.
    pub time_max: Duration,
    /// Longest answer of one call, in bytes. A running job takes about 3.5 KB.
    pub answer_bytes_max: u64,
}

/// By which way a Slurm is asked.
#[derive(Clone, Debug)]
pub enum SlurmAccess {
    /// Its REST service.
    Rest(SlurmRest),
    /// Its programs.
    Commands(SlurmCommands),
}

/// A Slurm that is asked.
#[derive(Debug)]
pub struct Slurm {
    cluster: ClusterId,
    ask: Ask,
    known: KnownJobs,
    accounting: Accounting,
    /// Slurm's own name of the cluster, once a job of the controller told it.
    name: Box<str>,
    /// What changed and was not given yet: a round may fail, or be given up, between two calls.
    changed: Changed,
}

/// How far the accounting was asked.
#[derive(Debug, Default)]
struct Accounting {
    /// Up to when.
    until: Option<Timestamp>,
    /// When it was last asked.
    asked: Option<Timestamp>,
    /// What it last refused with.
    refusal: Option<String>,
}

impl Slurm {
    /// A Slurm that has not been asked yet.
    pub fn new(config: SlurmConfig) -> Self {
        let SlurmConfig { cluster, access, time_max, answer_bytes_max } = config;
        let ask = Ask::new(cluster.clone(), access, time_max, answer_bytes_max);
        Self {
            cluster,
            ask,
            known: KnownJobs::default(),
            accounting: Accounting::default(),
            name: Box::default(),
            changed: Changed::default(),
        }
    }

    /// What the controller knows: everything that is not over, and what ended within its `MinJobAge`.
    async fn ask_controller(&mut self, now: Timestamp) -> Result<(), SchedulerError> {
        let changes = &mut self.changed;
        let answer = self.ask.controller(&mut changes.refusals).await?;
        if answer.is_unchanged {
            return Ok(());
        }
        self.known.begin_round();
        for told in answer.jobs {
            if self.name.is_empty() {
                self.name.clone_from(&told.whose);
            }
            changes.records.extend(self.known.take(told, Teller::Controller, now));
        }
        self.known.end_round(now);
        self.ask.keep(answer.last_update);
        if self.ask.has_details() && self.known.wants_details() {
            match self.ask.details(&mut changes.refusals).await {
                Ok(details) => changes.records.extend(self.known.take_details(details)),
                // The jobs are known without it; the next round asks again.
                Err(error) => changes.refusals.add(error.to_string()),
            }
        }
        Ok(())
    }

    /// What the accounting tells of jobs that ended.
    async fn ask_accounting(&mut self, from: Timestamp, now: Timestamp) {
        self.changed.has_more = false;
        let Some((start, end)) = self.accounting.window(from, now, self.known.awaited()) else {
            return;
        };
        self.accounting.asked = Some(now);
        match self.ask.accounting(start, end, &mut self.changed.refusals).await {
            Ok(None) => self.accounting.until = Some(end),
            Ok(Some(Answer { jobs, .. })) => {
                self.accounting.refusal = None;
                self.accounting.until = Some(end.max(self.accounting.until.unwrap_or(end)));
                self.changed.has_more = end < now;
                for told in self.of_this_cluster(jobs) {
                    let changed = self.known.take(told, Teller::Accounting, now);
                    self.changed.records.extend(changed);
                }
            }
            Err(error) => {
                let what = format!("accounting: {error}");
                if self.accounting.refusal.as_ref() != Some(&what) {
                    log::warn!("{}: {what}", self.cluster);
                }
                self.changed.refusals.add(what.clone());
                self.accounting.refusal = Some(what);
            }
        }
    }

    /// One accounting may be that of several clusters. Which is ours, the controller's jobs say; before it
    /// has one, that is known only where all are of one.
    fn of_this_cluster(&self, mut jobs: Vec<AnsweredJob>) -> Vec<AnsweredJob> {
        let name = if self.name.is_empty() {
            let first = jobs.first().map(|told| told.whose.clone()).unwrap_or_default();
            if jobs.iter().any(|told| told.whose != first) {
                return Vec::new();
            }
            first
        } else {
            self.name.clone()
        };
        jobs.retain(|told| told.whose.is_empty() || told.whose == name);
        jobs
    }
}

#[async_trait]
impl Scheduler for Slurm {
    fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    async fn changes(
        &mut self,
        from: Timestamp,
        now: Timestamp,
    ) -> Result<Changes, SchedulerError> {
        self.ask_controller(now).await?;
        self.ask_accounting(from, now).await;
        let mut changed = std::mem::take(&mut self.changed);
        if self.known.left_out > 0 {
            let count = std::mem::take(&mut self.known.left_out);
            changed
                .refusals
                .add(format!("{count} jobs are told at each round, since too many are"));
        }
        Ok(Changes {
            records: changed.records,
            has_more: changed.has_more,
            refused: changed.refusals.done(),
            calls: self.ask.take_calls(),
        })
    }
}

/// What a round gathers; of a job that is told twice, the later record is the true one.
#[derive(Debug, Default)]
struct Changed {
    records: Vec<Record>,
    has_more: bool,
    refusals: Refusals,
}

impl Accounting {
    /// From when to when the accounting is asked now, if it is.
    fn window(
        &self,
        from: Timestamp,
        now: Timestamp,
        awaited: Option<Timestamp>,
    ) -> Option<(Timestamp, Timestamp)> {
        let until = self.until.unwrap_or(from);
        let is_behind = self.asked.is_some_and(|asked| until < asked);
        let pause = match (&self.refusal, awaited) {
            (None, _) if is_behind => 0,
            // What does not come soon comes late.
            (None, Some(end)) if now.since(end) < OVERLAP_US => AWAITED_US,
            _ => ACCOUNTING_US,
        };
        if self.asked.is_some_and(|asked| (0..pause).contains(&now.since(asked))) {
            return None;
        }
        let overlap = if self.until.is_some() { until.plus(-OVERLAP_US) } else { until };
        let oldest = now.plus(-DAY_US).min(overlap);
        let start = awaited.map_or(overlap, |awaited| awaited.clamp(oldest, overlap));
        let end = now.min(until.plus(DAY_US));
        (start < end).then_some((start, end))
    }
}
