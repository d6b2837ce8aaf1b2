//! Rows of the tables: raw, by device with aliases, by job. `get_metrics` and SQL both use this module, which
//! alone sums aliases and keeps jobs apart.

use crate::engine::access_filter::{AccessFilter, ListedAs};
use crate::rows::alias::{AliasRows, Aliased};
use crate::rows::by_job::JobRows;
use crate::rows::device_rows::{DeviceChunks, DeviceRows};
use crate::rows::line_cache::LineCache;
use crate::rows::merge::MergeRows;
use crate::rows::node_rows_filter::NodeRowsFilter;
use crate::rows::slices::{SliceSource, Slices};
use crate::rows::summary::{BUCKET, Summary};
use crate::{AsRate, QueryContext, QueryEngine, QueryError};
use model::{DeviceId, JobKey, Kind, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use storage::{JobSelector, Selector, Snapshot};

/// The table of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// `metrics`: stored samples.
    Metrics,
    /// `metrics_by_device`: samples without `_device_alias`, and for each alias the sum of its samples at one
    /// instant.
    ByDevice,
    /// `metrics_by_job`: for each job the samples attributed to it, and the node samples of its devices during
    /// its allocation.
    ByJob,
}

/// Query for rows of a table.
#[derive(Clone, Debug)]
pub struct RowQuery {
    /// The table.
    pub view: View,
    /// Devices (also by alias, except in [`View::Metrics`]); `None`: all.
    pub devices: Option<BTreeSet<DeviceId>>,
    /// Metrics; `None`: all.
    pub metrics: Option<BTreeSet<Arc<str>>>,
    /// The job to which samples are attributed; in [`View::ByJob`], the job of the rows.
    pub job: JobSelector,
    /// Start of the time range, inclusive.
    pub from: Timestamp,
    /// End of the time range, inclusive.
    pub to: Timestamp,
    /// Returns 5 min aggregates instead of samples: the maximum of metrics named `*_total`, the mean of the
    /// others. A row carries the start of its 5 min, and covers all of them.
    pub summary: bool,
}

/// The common fields of rows of one series: all except time and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The measured device, or its alias.
    pub device: DeviceId,
    /// Metric name.
    pub metric: Arc<str>,
    /// Counter or gauge.
    pub kind: Kind,
    /// Printed labels, with `_job_id`, `_cluster` and `_device_orig` where they apply.
    pub labels: Arc<str>,
    /// The job to which samples are attributed; in [`View::ByJob`], the job of the row.
    pub job: Option<JobKey>,
    /// In [`View::ByJob`]: start and end of the job's allocation of the device.
    pub allocation: Option<(Timestamp, Option<Timestamp>)>,
}

/// A counter's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRow {
    /// The series.
    pub line: Arc<Line>,
    /// The first sample with this start.
    pub at: Timestamp,
    /// When the counter was zero.
    pub start: Timestamp,
}

/// Rows ascending by time.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    /// The lines of the rows.
    pub lines: Vec<Arc<Line>>,
    /// Each row's index in `lines`.
    pub places: Vec<u32>,
    /// Each row's instant, in microseconds since 1970.
    pub times: Vec<i64>,
    /// Each row's value.
    pub values: Vec<f64>,
    /// Whether each row has a value; empty: all have one.
    pub(crate) valid: Vec<bool>,
}

impl RowBatch {
    /// A batch without rows, with space for this many rows of these lines.
    pub fn of_lines(lines: Vec<Arc<Line>>, rows: usize) -> Self {
        let mut batch = Self { lines, ..Self::default() };
        batch.reserve(rows);
        batch
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether the batch has no rows.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The line of a row.
    pub fn line(&self, row: usize) -> Option<&Arc<Line>> {
        self.lines.get(usize::try_from(*self.places.get(row)?).ok()?)
    }

    /// Reserves capacity for more rows.
    pub(crate) fn reserve(&mut self, rows: usize) {
        self.places.reserve(rows);
        self.times.reserve(rows);
        self.values.reserve(rows);
    }

    /// Appends a row; its place must be an index of `lines`.
    pub fn push(&mut self, place: u32, at: i64, value: f64, valid: bool) {
        if !valid && self.valid.is_empty() {
            self.valid.resize(self.times.len(), true);
        }
        if !valid || !self.valid.is_empty() {
            self.valid.push(valid);
        }
        self.places.push(place);
        self.times.push(at);
        self.values.push(value);
    }

    /// Whether a row may have no value.
    pub const fn has_nulls(&self) -> bool {
        !self.valid.is_empty()
    }

    /// Whether a row has a value.
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.get(row).copied().unwrap_or(true)
    }
}

/// Row batches between two stages.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RowBatch, QueryError>> + Send>;

/// The rows of a table in batches: rows in a batch ascend by time, batches have no order. After an error the
/// iteration ends.
pub struct Rows {
    batches: Batches,
    done: bool,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Rows {
    pub(crate) const fn new(batches: Batches) -> Self {
        Self { batches, done: false }
    }
}

impl Iterator for Rows {
    type Item = Result<RowBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.batches.next();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Options of `get_metrics` beyond those of the table.
#[derive(Clone, Debug)]
pub(crate) struct GetMetricsOptions {
    pub(crate) as_rate: AsRate,
    /// When node samples (not attributed to a job) are included.
    pub(crate) node_rows: NodeRowsFilter,
}

/// The data that a query reads: samples of the devices, and samples that are theirs by alias.
pub(crate) struct Reads {
    snapshot: Arc<dyn Snapshot>,
    pub(crate) own: Selector,
    pub(crate) aliased: Option<Aliased>,
    from: Timestamp,
    to: Timestamp,
    summary: bool,
}

impl Reads {
    /// Reads a selection, ascending by time. `lead`: aggregates begin one earlier.
    fn walk(
        &self,
        select: &Selector,
        snapshot: &Arc<dyn Snapshot>,
        slice_rows: usize,
        lead: bool,
        context: &QueryContext,
    ) -> SliceSource {
        let Self { from, to, .. } = self;
        if !self.summary {
            let samples = snapshot.scan_by_time(select, *from, *to, slice_rows);
            return SliceSource::Samples(samples);
        }
        let from = if lead { from.plus(-BUCKET) } else { *from };
        let (span, cancel) = ((from, *to), context.cancel.clone());
        let summary = Summary::new(Arc::clone(snapshot), select, span, slice_rows, cancel);
        SliceSource::Summary(Box::new(summary))
    }

    /// Time range of the data to read: a bucket extends beyond its start.
    fn reach(&self) -> (Timestamp, Timestamp) {
        (self.from, if self.summary { self.to.plus(BUCKET) } else { self.to })
    }

    /// Estimated number of samples to read.
    pub(crate) fn estimate(&self) -> Result<u64, QueryError> {
        let own = self.snapshot.estimate_rows(&self.own, self.from, self.to)?;
        let aliased = match &self.aliased {
            Some(aliased) => self.snapshot.estimate_rows(&aliased.select, self.from, self.to)?,
            None => 0,
        };
        Ok(own.saturating_add(aliased))
    }

    /// Whether the query would read more samples than `rows`; stops counting at the limit.
    pub(crate) fn more_than(&self, rows: u64, context: &QueryContext) -> Result<bool, QueryError> {
        let mut left = rows;
        let aliased = self.aliased.as_ref().map(|aliased| &aliased.select);
        for select in [Some(&self.own), aliased].into_iter().flatten() {
            for chunk in self.snapshot.scan(select, self.from, self.to) {
                context.cancel.check()?;
                let count = u64::try_from(chunk?.times.len()).unwrap_or(u64::MAX);
                let Some(rest) = left.checked_sub(count) else { return Ok(true) };
                left = rest;
            }
        }
        Ok(false)
    }
}

impl QueryEngine {
    /// The rows of a table, in no order.
    ///
    /// # Errors
    /// A block's index cannot be read; the registry fails; too many jobs match.
    pub fn rows(&self, query: &RowQuery, context: &QueryContext) -> Result<Rows, QueryError> {
        let batches = if query.view == View::ByJob {
            let Some((inner, jobs)) = JobRows::plan(self, query, context)? else {
                return Ok(Rows::new(Box::new(std::iter::empty())));
            };
            Box::new(jobs.of(self.table(&inner, context)?))
        } else {
            self.table(query, context)?
        };
        Ok(Rows::new(batches))
    }

    /// Times at which counters restarted, or first reported their start in the interval; by series, then time.
    /// [`RowQuery::view`] is ignored.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails.
    pub fn counter_starts(
        &self,
        query: &RowQuery,
        context: &QueryContext,
    ) -> Result<Vec<StartRow>, QueryError> {
        let RowQuery { devices, metrics, job, from, to, .. } = query.clone();
        let select = Selector { devices, metrics, job, labels: Vec::new() };
        let access = AccessFilter::new(self, context, (from, to), select.devices.as_ref());
        let snapshot =
            access.limit(&self.store.snapshot_until(context.cancel.flag()), ListedAs::Device);
        let mut lines = LineCache::new(self, access, false);
        let mut rows = Vec::new();
        for found in snapshot.counter_starts(&select, from, to)? {
            if lines.seen(&found.series)?.at(found.at.0)
                && let Some(line) = lines.own(&found.series)?
            {
                rows.push(StartRow { line, at: found.at, start: found.start });
            }
        }
        Ok(rows)
    }

    /// Rows of `metrics` or `metrics_by_device`: series by series, then the sums of aliases.
    fn table(&self, query: &RowQuery, context: &QueryContext) -> Result<Batches, QueryError> {
        let reads = self.reads(query, context)?;
        let access = AccessFilter::new(self, context, reads.reach(), query.devices.as_ref());
        let lines = || LineCache::new(self, access.clone(), query.view != View::Metrics);
        let slices = |select: &Selector, listed| {
            let snapshot = access.limit(&reads.snapshot, listed);
            let walk = reads.walk(select, &snapshot, self.settings.slice_rows, false, context);
            Slices::new(walk, AsRate::No, reads.from, context)
        };
        let own: Batches = if query.summary {
            let slices = slices(&reads.own, ListedAs::Device);
            Box::new(DeviceRows::new(slices, lines(), NodeRowsFilter::always()))
        } else {
            let snapshot = access.limit(&reads.snapshot, ListedAs::Device);
            let scan = snapshot.scan(&reads.own, reads.from, reads.to);
            Box::new(DeviceChunks::new(scan, lines(), context.cancel.clone()))
        };
        let Some(aliased) = &reads.aliased else { return Ok(own) };
        let of = aliased.of.clone();
        let always = NodeRowsFilter::always();
        let slices = slices(&aliased.select, ListedAs::Alias);
        Ok(Box::new(own.chain(AliasRows::new(slices, lines(), of, always))))
    }

    /// Rows of `metrics_by_device`, ascending by time.
    pub(crate) fn by_time(
        &self,
        reads: &Reads,
        treatment: GetMetricsOptions,
        context: &QueryContext,
    ) -> Batches {
        let access = AccessFilter::new(self, context, reads.reach(), reads.own.devices.as_ref());
        let lines = || LineCache::new(self, access.clone(), true);
        let slices = |select: &Selector, listed| {
            let lead = treatment.as_rate != AsRate::No;
            let snapshot = access.limit(&reads.snapshot, listed);
            let walk = reads.walk(select, &snapshot, self.settings.slice_rows, lead, context);
            Slices::new(walk, treatment.as_rate, reads.from, context)
        };
        let own = slices(&reads.own, ListedAs::Device);
        let own = DeviceRows::new(own, lines(), treatment.node_rows.clone());
        let Some(aliased) = reads.aliased.as_ref() else { return Box::new(own) };
        let of = aliased.of.clone();
        let slices = slices(&aliased.select, ListedAs::Alias);
        let alias = AliasRows::new(slices, lines(), of, treatment.node_rows);
        Box::new(MergeRows::new(Box::new(own), Box::new(alias)))
    }

    /// The data that a query reads.
    pub(crate) fn reads(
        &self,
        query: &RowQuery,
        context: &QueryContext,
    ) -> Result<Reads, QueryError> {
        let RowQuery { devices, metrics, job, from, to, view, summary } = query.clone();
        let snapshot = self.store.snapshot_until(context.cancel.flag());
        let aliased = match view {
            View::Metrics => None,
            _ => Aliased::find(&*snapshot, query)?,
        };
        let own = Selector { devices, metrics, job, labels: Vec::new() };
        Ok(Reads { snapshot, own, aliased, from, to, summary })
    }
}
