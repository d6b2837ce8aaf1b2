//! Query types, settings, and the reader of an answer.

use crate::QueryError;
use crate::engine::access_filter::AccessFilter;
use crate::engine::entry_errors::EntryErrors;
use control::DemandStore;
use jiff::tz::TimeZone;
use jobs::{AccessLevel, Filter, Interval, JobName, Listed, Reader, Registry, Window};
use model::{ClusterId, DeviceId, Gap, Job, JobKey, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::{Selector, Storage};

/// Limits and defaults of answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster whose jobs need no `_cluster` label.
    pub default_cluster: ClusterId,
    /// Time zone of times without an offset, and of printed times.
    pub zone: TimeZone,
    /// Maximum rows of a `get_metrics` answer. A larger answer is rejected before its first row is sent.
    pub rows_max: u64,
    /// Rows in memory at once; a row takes about 100 bytes.
    pub slice_rows: usize,
    /// Maximum series of a range, of a list of series or of a list of last values.
    pub series_max: usize,
    /// Maximum points of a range, all series together.
    pub points_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_cluster: ClusterId::local(),
            zone: TimeZone::UTC,
            rows_max: 10_000_000,
            slice_rows: 128 << 10,
            series_max: 2_000,
            points_max: 500_000,
        }
    }
}

/// Cancels a query. The client that waits and the thread that computes share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Whether it was cancelled, for the store.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Cancels the query, which returns [`QueryError::Cancelled`] within one slice.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the query was cancelled.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`]: the query was cancelled.
    pub fn check(&self) -> Result<(), QueryError> {
        if self.0.load(Ordering::Relaxed) { Err(QueryError::Cancelled) } else { Ok(()) }
    }
}

/// The reader of an answer, with the current time and a way to cancel.
#[derive(Clone, Debug)]
pub struct QueryContext {
    /// The reader, who limits what is visible.
    pub reader: Reader,
    /// The time that counts as "now".
    pub now: Timestamp,
    /// Cancels the query.
    pub cancel: Cancel,
    /// Receives the jobs that the query reads, for the audit log.
    pub watch: Option<Arc<dyn ReadObserver>>,
    /// Whether the reader may learn when and on which nodes any job ran, as an unidentified caller may.
    pub job_nodes: bool,
    /// Client key for fair scheduling of queries: the same text for all queries of one client.
    pub user_key: Arc<str>,
}

/// Receives the jobs that a query reads when its reader may read other users' jobs.
pub trait ReadObserver: fmt::Debug + Send + Sync {
    /// The query names this job of this owner.
    fn names(&self, job: &JobKey, owner: Option<u32>);
    /// The answer may contain data of this job; `None`: of any job.
    fn meets(&self, job: Option<&JobKey>);
}

impl QueryContext {
    /// A reader with a new [`Cancel`].
    pub fn new(reader: Reader, now: Timestamp) -> Self {
        let (cancel, user_key) = (Cancel::default(), Arc::from(""));
        Self { reader, now, cancel, watch: None, job_nodes: false, user_key }
    }

    /// Records that the answer may contain data of this job.
    pub(crate) fn meets(&self, job: &JobKey) {
        if let Some(watch) = &self.watch {
            watch.meets(Some(job));
        }
    }

    /// Records that the answer may contain data of any job.
    pub fn meets_any(&self) {
        if let Some(watch) = &self.watch {
            watch.meets(None);
        }
    }
}

/// Whether counters appear as raw values or as rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Raw values.
    Raw,
    /// Counters as growth per second, gauges unchanged.
    #[default]
    Counters,
}

/// Query for points of series over time, to plot.
///
/// With a step, time is divided into steps that begin at whole multiples of the step since 1970. A point carries
/// the time at which its step begins:
///
/// - A gauge's point is the mean of its samples in the step.
/// - A counter's rate is its growth between the readings that end in the step, over the time between these
///   readings. So the rate does not jump when a step has one reading more, nor after a gap.
/// - With [`Rate::Raw`] a counter's point is its last value in the step.
///
/// Each rate states its seconds. The sum of rate × seconds is the counter's increase over the range, edge steps
/// included. Adjacent ranges add up.
///
/// The reading before the range is searched within one day. Without one, the first reading counts from the
/// counter's start if that lies within this day. A point without a value separates two points that are more than
/// 2.5 usual intervals of the series (or steps) apart.
#[derive(Clone, Debug)]
pub struct RangeQuery {
    /// Selected series.
    pub select: Selector,
    /// Start of the range, inclusive.
    pub from: Timestamp,
    /// End of the range, inclusive.
    pub to: Timestamp,
    /// Step in microseconds; 0: every sample unchanged.
    pub step_us: i64,
    /// Whether counters appear as rates.
    pub rate: Rate,
}

/// The store and the registry, with every query on them. Shared between threads. A call may block on disk I/O;
/// it runs until its answer is complete or cancelled.
#[derive(Clone, Debug)]
pub struct QueryEngine {
    pub(crate) store: Arc<dyn Storage>,
    pub(crate) registry: Arc<Registry>,
    /// Promotions, setting overrides and on-demand requests, if the server has them.
    pub(crate) demand: Option<Arc<DemandStore>>,
    pub(crate) settings: Arc<Settings>,
    /// What pollers report of their description files.
    pub(crate) entry_errors: Arc<EntryErrors>,
}

impl QueryEngine {
    /// Queries of a store and a registry.
    pub fn new(store: Arc<dyn Storage>, registry: Arc<Registry>, settings: Settings) -> Self {
        let (settings, entry_errors) = (Arc::new(settings), Arc::default());
        Self { store, registry, demand: None, settings, entry_errors }
    }

    /// Adds promotions, setting overrides and on-demand requests to the queries.
    #[must_use]
    pub fn with_demand(self, demand: Arc<DemandStore>) -> Self {
        Self { demand: Some(demand), ..self }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The errors in description files that pollers report.
    pub fn entry_errors(&self) -> &EntryErrors {
        &self.entry_errors
    }

    /// The registry of jobs.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The store.
    pub fn store(&self) -> &dyn Storage {
        &*self.store
    }

    /// Resolves a job name for an operation on the job. The reader must be permitted to see its newest run.
    ///
    /// # Errors
    /// No job or several jobs match, or the job belongs to another user.
    pub fn job_key(&self, name: &JobName, context: &QueryContext) -> Result<JobKey, QueryError> {
        let key = self.registry.resolve_seen(name, context.reader)?;
        let sees = self.registry.sees(context.reader, &key)?;
        self.judged(name, key, sees, context)
    }

    /// Resolves a job name for reading. The reader must be permitted to see at least one run of it, and reads
    /// only visible runs.
    ///
    /// # Errors
    /// No job or several jobs match, or every run belongs to another user.
    pub fn job_seen(&self, name: &JobName, context: &QueryContext) -> Result<JobKey, QueryError> {
        let key = self.registry.resolve_seen(name, context.reader)?;
        let sees = self.registry.sees_any(context.reader, &key)?;
        self.judged(name, key, sees, context)
    }

    /// Resolves a job name for a query of the nodes that the job had: any job, if the reader may learn them.
    ///
    /// # Errors
    /// As [`Self::job_seen`].
    pub(crate) fn job_on_nodes(
        &self,
        name: &JobName,
        context: &QueryContext,
    ) -> Result<JobKey, QueryError> {
        match self.job_seen(name, context) {
            Err(_) if context.job_nodes => Ok(self.registry.resolve(name)?),
            found => found,
        }
    }

    fn judged(
        &self,
        name: &JobName,
        key: JobKey,
        sees: AccessLevel,
        context: &QueryContext,
    ) -> Result<JobKey, QueryError> {
        match sees {
            AccessLevel::All => {}
            AccessLevel::Listed => return Err(QueryError::Listed(key)),
            // As for a missing job: status and message must not reveal that the job exists.
            AccessLevel::Nothing => return Err(QueryError::UnknownJob(name.to_string())),
        }
        if let Some(watch) = &context.watch {
            watch.names(&key, self.registry.owner(&key)?);
        }
        Ok(key)
    }

    /// Jobs that pass a filter and are visible to this reader, newest first.
    ///
    /// # Errors
    /// The registry fails.
    pub fn listed(
        &self,
        filter: &Filter,
        context: &QueryContext,
    ) -> Result<Vec<Listed>, QueryError> {
        context.meets_any();
        Ok(self.registry.list(&Filter { reader: context.reader, ..filter.clone() })?)
    }

    /// All runs that pass a filter and are visible to this reader, newest first.
    ///
    /// # Errors
    /// The registry fails, or there are more rows than its limit.
    pub fn every_run(
        &self,
        filter: &Filter,
        context: &QueryContext,
    ) -> Result<Vec<Job>, QueryError> {
        context.meets_any();
        Ok(self.registry.every_run(&Filter { reader: context.reader, ..filter.clone() })?)
    }

    /// Allocations of jobs that are entirely visible to this reader.
    ///
    /// # Errors
    /// The registry fails, or there are more rows than its limit.
    pub fn allocations(
        &self,
        window: &Window,
        context: &QueryContext,
    ) -> Result<Vec<Interval>, QueryError> {
        context.meets_any();
        Ok(self.registry.intervals(&Window { reader: context.reader, ..window.clone() })?)
    }

    /// Allocations of which the reader may learn device and times, without shares: of all jobs, if they may learn them.
    ///
    /// # Errors
    /// The registry fails, or there are more rows than its limit.
    pub fn node_times(
        &self,
        window: &Window,
        context: &QueryContext,
    ) -> Result<Vec<Interval>, QueryError> {
        if !context.job_nodes {
            return self.allocations(window, context);
        }
        let reader = Reader::Everything;
        context.meets_any();
        Ok(self.registry.intervals(&Window {
            reader,
            uid: None,
            shares: false,
            ..window.clone()
        })?)
    }

    /// Gaps in an interval, of one device or of all, as far as they are visible to this reader.
    ///
    /// # Errors
    /// The registry fails.
    pub fn gaps(
        &self,
        (from, to): (Timestamp, Timestamp),
        device: Option<&DeviceId>,
        context: &QueryContext,
    ) -> Result<Vec<Gap>, QueryError> {
        let one = device.map(|device| BTreeSet::from([device.clone()]));
        let access = AccessFilter::new(self, context, (from, to), one.as_ref());
        let mut gaps = Vec::new();
        for gap in self.store.gaps(from, to, device) {
            gaps.extend(access.of_gap(gap)?);
        }
        // A gap cut to its visible parts may lie outside the interval.
        gaps.retain(|gap| gap.from <= to && gap.to >= from);
        Ok(gaps)
    }
}
