//! Tables beside the samples that a store shares with people and programs who use its database directly.

use model::{Allocation, Job, JobKey};
use std::collections::BTreeSet;

/// Most rows of other programs in the table of promotions. Further rows are counted.
pub const PROMOTED_ROWS_MAX: usize = 10_000;

/// The jobs that one step replaces in the copy of the registry.
#[derive(Clone, Debug)]
pub struct JobsPart {
    /// The registry, which the copy belongs to.
    pub registry: Box<str>,
    /// The number of the step. It follows that of the step before.
    pub step: i64,
    /// Whether a copy begins with it, so that the number of the step before does not matter.
    pub is_first: bool,
    /// The replaced jobs.
    pub scope: JobsScope,
    /// All runs of these jobs.
    pub runs: Vec<RunRow>,
    /// All allocations of these jobs.
    pub allocations: Vec<Allocation>,
}

/// The jobs that a step replaces.
#[derive(Clone, Debug)]
pub enum JobsScope {
    /// These.
    Keys(Vec<JobKey>),
    /// Those after a job, up to a job, in the order of cluster (by bytes) and ID; `None`: without this bound.
    Range(Option<JobKey>, Option<JobKey>),
}

/// A run of a job, with what is derived from its facts.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// The run.
    pub job: Job,
    /// How it ended, if known: the cause and the detail.
    pub end: Option<(String, String)>,
    /// Number of its tasks that the kernel killed for lack of memory.
    pub oom_kills: i64,
}

/// A row of the table of promotions: the device, and its metrics as a regular expression.
pub type PromotedRow = (Box<str>, Box<str>);

/// The rows of other programs in the table of promotions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherPromotions {
    /// The rows, at most [`PROMOTED_ROWS_MAX`].
    pub rows: BTreeSet<PromotedRow>,
    /// Rows that were not read: beyond the limit, too long, or without an expression.
    pub skipped: u64,
}
