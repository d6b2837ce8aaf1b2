//! Slurm, polled through its REST service if there is one, else through its programs.
//! Each round queries the controller once for all its jobs, and the accounting for ended jobs: never job by job.
//!
//! Fields are optional, so that one reader suits the answers of all versions. Probing finds which paths of
//! slurmrestd and which options of the programs exist.
//! Written after Slurm's own documents (<https://slurm.schedmd.com/rest_api.html>, `squeue(1)`, `sacct(1)`,
//! `scontrol(1)`) and real answers of 22.05 (`testdata/schedulers`).

mod accounting;
mod answer;
mod client;
mod commands;
mod details;
mod job;
mod job_cache;
mod json;
mod lines;
mod parsed_job;
mod rest;
mod state;
mod tres;

#[cfg(test)]
mod tests;

pub use commands::SlurmCommands;
pub use rest::SlurmRest;

use crate::{Changes, Scheduler, SchedulerError};
use answer::Answer;
use async_trait::async_trait;
use client::SlurmClient;
use job_cache::{JobCache, Reporter};
use jobs::JobRecord;
use model::{ClusterId, Timestamp};
use parsed_job::{ParseErrors, ParsedJob};
use std::time::Duration;

/// Interval between accounting queries, and the shorter one while a job's accounting is awaited.
const ACCOUNTING_US: i64 = 60 * Timestamp::SECOND;
const AWAITED_US: i64 = 10 * Timestamp::SECOND;
/// Overlap of successive accounting queries. Clocks differ, and slurmdbd receives ended jobs with a delay.
const OVERLAP_US: i64 = 600 * Timestamp::SECOND;
/// Longest interval of one accounting query, and how far back the poller searches for a job that the accounting lacks.
const DAY_US: i64 = 86_400 * Timestamp::SECOND;

/// How to poll a Slurm.
#[derive(Clone, Debug)]
pub struct SlurmConfig {
    /// The cluster of its jobs' keys.
    pub cluster: ClusterId,
    /// REST or programs.
    pub access: SlurmAccess,
    /// Longest time of one call.
    pub time_max: Duration,
    /// Longest answer of one call, in bytes. A running job takes about 3.5 KB.
    pub answer_bytes_max: u64,
}

/// How to reach a Slurm.
#[derive(Clone, Debug)]
pub enum SlurmAccess {
    /// Its REST service.
    Rest(SlurmRest),
    /// Its programs.
    Commands(SlurmCommands),
}

/// A Slurm that jobmeter polls.
#[derive(Debug)]
pub struct Slurm {
    cluster: ClusterId,
    client: SlurmClient,
    cache: JobCache,
    accounting: Accounting,
    /// Slurm's own name of the cluster, from the first job of the controller.
    name: Box<str>,
    /// Changes not yet returned: a round may fail or be cancelled between two calls.
    changed: Changed,
}

/// Progress of the accounting queries.
#[derive(Debug, Default)]
struct Accounting {
    /// End of the last queried interval.
    until: Option<Timestamp>,
    /// Time of the last query.
    last_poll: Option<Timestamp>,
    /// The last error.
    rejection: Option<String>,
}

impl Slurm {
    /// A Slurm before its first poll.
    pub fn new(config: SlurmConfig) -> Self {
        let SlurmConfig { cluster, access, time_max, answer_bytes_max } = config;
        let client = SlurmClient::new(cluster.clone(), access, time_max, answer_bytes_max);
        Self {
            cluster,
            client,
            cache: JobCache::default(),
            accounting: Accounting::default(),
            name: Box::default(),
            changed: Changed::default(),
        }
    }

    /// Polls the controller: jobs that are not over, and jobs that ended within its `MinJobAge`.
    async fn poll_controller(&mut self, now: Timestamp) -> Result<(), SchedulerError> {
        let changes = &mut self.changed;
        let answer = self.client.controller(&mut changes.parse_errors).await?;
        if answer.is_unchanged {
            return Ok(());
        }
        self.cache.begin_list();
        for job in answer.jobs {
            if self.name.is_empty() {
                self.name.clone_from(&job.cluster_name);
            }
            changes.records.extend(self.cache.take(job, Reporter::Controller, now));
        }
        self.cache.end_list(now);
        self.client.keep(answer.last_update);
        if self.client.has_details() && self.cache.wants_details() {
            match self.client.details(&mut changes.parse_errors).await {
                Ok(details) => changes.records.extend(self.cache.take_details(details)),
                // The jobs are known without their cores; the next round tries again.
                Err(error) => changes.parse_errors.add(error.to_string()),
            }
        }
        Ok(())
    }

    /// Polls the accounting for ended jobs.
    async fn poll_accounting(&mut self, from: Timestamp, now: Timestamp) {
        self.changed.has_more = false;
        let Some((start, end)) = self.accounting.window(from, now, self.cache.awaited()) else {
            return;
        };
        self.accounting.last_poll = Some(now);
        match self.client.accounting(start, end, &mut self.changed.parse_errors).await {
            Ok(None) => self.accounting.until = Some(end),
            Ok(Some(Answer { jobs, .. })) => {
                self.accounting.rejection = None;
                self.accounting.until = Some(end.max(self.accounting.until.unwrap_or(end)));
                self.changed.has_more = end < now;
                for job in self.of_this_cluster(jobs) {
                    let changed = self.cache.take(job, Reporter::Accounting, now);
                    self.changed.records.extend(changed);
                }
            }
            Err(error) => {
                let what = format!("accounting: {error}");
                if self.accounting.rejection.as_ref() != Some(&what) {
                    log::warn!("{}: {what}", self.cluster);
                }
                self.changed.parse_errors.add(what.clone());
                self.accounting.rejection = Some(what);
            }
        }
    }

    /// Selects the jobs of this cluster: one accounting may serve several.
    /// The controller's jobs give the cluster's name. Before its first job, jobs are accepted only if all are
    /// of one cluster.
    fn of_this_cluster(&self, mut jobs: Vec<ParsedJob>) -> Vec<ParsedJob> {
        let name = if self.name.is_empty() {
            let first = jobs.first().map(|job| job.cluster_name.clone()).unwrap_or_default();
            if jobs.iter().any(|job| job.cluster_name != first) {
                return Vec::new();
            }
            first
        } else {
            self.name.clone()
        };
        jobs.retain(|job| job.cluster_name.is_empty() || job.cluster_name == name);
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
        self.poll_controller(now).await?;
        self.poll_accounting(from, now).await;
        let mut changed = std::mem::take(&mut self.changed);
        if self.cache.left_out > 0 {
            let count = std::mem::take(&mut self.cache.left_out);
            changed.parse_errors.add(format!("too many jobs: {count} are reported at each round"));
        }
        Ok(Changes {
            records: changed.records,
            has_more: changed.has_more,
            rejected: changed.parse_errors.done(),
            calls: self.client.take_calls(),
        })
    }
}

/// What a round gathers. If a job appears twice, the later record is valid.
#[derive(Debug, Default)]
struct Changed {
    records: Vec<JobRecord>,
    has_more: bool,
    parse_errors: ParseErrors,
}

impl Accounting {
    /// The interval to query now, if a query is due.
    fn window(
        &self,
        from: Timestamp,
        now: Timestamp,
        awaited: Option<Timestamp>,
    ) -> Option<(Timestamp, Timestamp)> {
        let until = self.until.unwrap_or(from);
        let is_behind = self.last_poll.is_some_and(|poll| until < poll);
        let pause = match (&self.rejection, awaited) {
            (None, _) if is_behind => 0,
            // Accounting that does not arrive soon arrives late.
            (None, Some(end)) if now.since(end) < OVERLAP_US => AWAITED_US,
            _ => ACCOUNTING_US,
        };
        if self.last_poll.is_some_and(|poll| (0..pause).contains(&now.since(poll))) {
            return None;
        }
        let overlap = if self.until.is_some() { until.plus(-OVERLAP_US) } else { until };
        let oldest = now.plus(-DAY_US).min(overlap);
        let start = awaited.map_or(overlap, |awaited| awaited.clamp(oldest, overlap));
        let end = now.min(until.plus(DAY_US));
        (start < end).then_some((start, end))
    }
}
