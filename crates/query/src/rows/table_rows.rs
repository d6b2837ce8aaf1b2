//! Rows as the tables show them: raw, by device with aliases, by job. The one place where aliases are
//! summed and jobs kept apart; `get_metrics` and SQL both come through here.

use crate::asking::access_filter::Sight;
use crate::rows::alias::{AliasRows, Aliased};
use crate::rows::by_job::JobRows;
use crate::rows::device_rows::{OwnChunks, OwnRows};
use crate::rows::line::Lines;
use crate::rows::merge::MergeRows;
use crate::rows::node_rows_filter::Jobless;
use crate::rows::slices::{Slices, Walk};
use crate::rows::summary::{BUCKET, Summary};
use crate::{AsRate, Asker, QueryError, Questions};
use model::{DeviceId, JobKey, Kind, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use store::{JobSelector, Selector, Snapshot};

/// Which table the rows are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// `metrics`: what was stored.
    Metrics,
    /// `metrics_by_device`: the same without `_device_alias`, and under the name of an alias the sum of
    /// what was measured for it at one instant.
    ByDevice,
    /// `metrics_by_job`: for each job what was counted for it, and what was measured on its devices for
    /// no job while it was there.
    ByJob,
}

/// Which rows.
#[derive(Clone, Debug)]
pub struct RowQuestion {
    /// Of which table.
    pub view: View,
    /// Only of these devices (by alias too, except in [`View::Metrics`]).
    pub devices: Option<BTreeSet<DeviceId>>,
    /// Only of these metrics.
    pub metrics: Option<BTreeSet<Arc<str>>>,
    /// Counted for which job; in [`View::ByJob`], told of which job.
    pub job: JobSelector,
    /// From when, inclusive.
    pub from: Timestamp,
    /// Until when, inclusive.
    pub to: Timestamp,
    /// Five minutes each instead of samples: the largest of a metric whose name ends in `_total`, the mean
    /// of any other. A row stands at the beginning of its five minutes, and has all of them.
    pub summary: bool,
}

/// What rows of one line have in common: everything but time and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The thing measured, or its alias.
    pub device: DeviceId,
    /// Name of the metric.
    pub metric: Arc<str>,
    /// How its values move.
    pub kind: Kind,
    /// Labels as they are printed, with `_job_id`, `_cluster` and `_device_orig` where they apply.
    pub labels: Arc<str>,
    /// The job for which it was counted; in [`View::ByJob`], the job of which the row is told.
    pub job: Option<JobKey>,
    /// In [`View::ByJob`]: when that job came to the device, and when it left.
    pub stay: Option<(Timestamp, Option<Timestamp>)>,
}

/// A counter's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRow {
    /// Of what.
    pub line: Arc<Line>,
    /// The first sample with this start.
    pub at: Timestamp,
    /// When the counter was zero.
    pub start: Timestamp,
}

/// Rows in the order of time.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    /// What the rows are of.
    pub lines: Vec<Arc<Line>>,
    /// Each row's place in `lines`.
    pub places: Vec<u32>,
    /// Each row's instant, in microseconds since 1970.
    pub times: Vec<i64>,
    /// Each row's value.
    pub values: Vec<f64>,
    /// Whether a row has a value; empty: each has.
    pub(crate) valid: Vec<bool>,
}

impl RowBatch {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The line of a row.
    pub fn line(&self, row: usize) -> Option<&Arc<Line>> {
        self.lines.get(usize::try_from(*self.places.get(row)?).ok()?)
    }

    /// Makes room for so many more rows.
    pub(crate) fn reserve(&mut self, rows: usize) {
        self.places.reserve(rows);
        self.times.reserve(rows);
        self.values.reserve(rows);
    }

    /// Appends a row; its place must be one of `lines`.
    pub(crate) fn push(&mut self, place: u32, at: i64, value: f64, valid: bool) {
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

    /// Whether a row has a value.
    pub(crate) fn is_valid(&self, row: usize) -> bool {
        self.valid.get(row).copied().unwrap_or(true)
    }
}

/// Batches of rows from one stage to the next.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RowBatch, QueryError>> + Send>;

/// The rows of a table, batch by batch: each batch in the order of time, the batches in no order. After
/// an error it ends.
pub struct Rows {
    batches: Batches,
    done: bool,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("done", &self.done).finish_non_exhaustive()
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

/// How the rows of `get_metrics` differ from those of the table.
#[derive(Clone, Debug)]
pub(crate) struct Treatment {
    pub(crate) as_rate: AsRate,
    /// When rows that are counted for no job count.
    pub(crate) jobless: Jobless,
}

/// What a question reads: the devices' own samples, and those that are theirs by alias.
pub(crate) struct Reads {
    snapshot: Snapshot,
    pub(crate) own: Selector,
    pub(crate) aliased: Option<Aliased>,
    from: Timestamp,
    to: Timestamp,
    summary: bool,
}

impl Reads {
    /// What a selection reads, in the order of time.
    fn walk(&self, select: &Selector, slice_rows: usize, asker: &Asker) -> Walk {
        let Self { snapshot, from, to, .. } = self;
        if !self.summary {
            return Walk::Samples(snapshot.scan_by_time(select, *from, *to, slice_rows));
        }
        let (span, cancel) = ((*from, *to), asker.cancel.clone());
        let summary = Summary::new(snapshot.clone(), select, span, slice_rows, cancel);
        Walk::Summary(Box::new(summary))
    }

    /// From when until when something of what is read may lie: a bucket reaches beyond its beginning.
    fn reach(&self) -> (Timestamp, Timestamp) {
        (self.from, if self.summary { self.to.plus(BUCKET) } else { self.to })
    }

    /// About how many samples will be read.
    pub(crate) fn estimate(&self) -> Result<u64, QueryError> {
        let own = self.snapshot.estimate_rows(&self.own, self.from, self.to)?;
        let aliased = match &self.aliased {
            Some(aliased) => self.snapshot.estimate_rows(&aliased.select, self.from, self.to)?,
            None => 0,
        };
        Ok(own.saturating_add(aliased))
    }

    /// Whether more than so many samples would be read: counted, as far as need be.
    pub(crate) fn more_than(&self, rows: u64, asker: &Asker) -> Result<bool, QueryError> {
        let mut left = rows;
        let aliased = self.aliased.as_ref().map(|aliased| &aliased.select);
        for select in [Some(&self.own), aliased].into_iter().flatten() {
            for chunk in self.snapshot.scan(select, self.from, self.to) {
                asker.cancel.check()?;
                let count = u64::try_from(chunk?.times.len()).unwrap_or(u64::MAX);
                let Some(rest) = left.checked_sub(count) else { return Ok(true) };
                left = rest;
            }
        }
        Ok(false)
    }
}

impl Questions {
    /// The rows of a table, in no order.
    ///
    /// # Errors
    /// A block's index cannot be read; the registry fails; too many jobs match.
    pub fn rows(&self, question: &RowQuestion, asker: &Asker) -> Result<Rows, QueryError> {
        let batches = if question.view == View::ByJob {
            let Some((inner, jobs)) = JobRows::plan(self, question, asker)? else {
                return Ok(Rows { batches: Box::new(std::iter::empty()), done: false });
            };
            Box::new(jobs.of(self.table(&inner, asker)?))
        } else {
            self.table(question, asker)?
        };
        Ok(Rows { batches, done: false })
    }

    /// Where counters began anew, or told their start for the first time in the interval; ordered by
    /// series, then time. [`RowQuestion::view`] does not matter.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails.
    pub fn counter_starts(
        &self,
        question: &RowQuestion,
        asker: &Asker,
    ) -> Result<Vec<StartRow>, QueryError> {
        let RowQuestion { devices, metrics, job, from, to, .. } = question.clone();
        let select = Selector { devices, metrics, job, labels: Vec::new() };
        let sight = Sight::new(self, asker, (from, to), select.devices.as_ref());
        let mut lines = Lines::new(self, sight, false);
        let mut rows = Vec::new();
        for found in self.store.snapshot().counter_starts(&select, from, to)? {
            if lines.seen(&found.series)?.at(found.at.0)
                && let Some(line) = lines.own(&found.series)?
            {
                rows.push(StartRow { line, at: found.at, start: found.start });
            }
        }
        Ok(rows)
    }

    /// The rows of `metrics` or `metrics_by_device`: series by series, then what is summed for aliases.
    fn table(&self, question: &RowQuestion, asker: &Asker) -> Result<Batches, QueryError> {
        let reads = self.reads(question)?;
        let lines = || {
            let sight = Sight::new(self, asker, reads.reach(), question.devices.as_ref());
            Lines::new(self, sight, question.view != View::Metrics)
        };
        let slices = |select: &Selector| {
            let walk = reads.walk(select, self.settings.slice_rows, asker);
            Slices::new(walk, AsRate::No, asker)
        };
        let own: Batches = if question.summary {
            Box::new(OwnRows::new(slices(&reads.own), lines(), Jobless::always()))
        } else {
            let scan = reads.snapshot.scan(&reads.own, reads.from, reads.to);
            Box::new(OwnChunks::new(scan, lines(), asker.cancel.clone()))
        };
        let Some(aliased) = &reads.aliased else { return Ok(own) };
        let of = aliased.of.clone();
        let always = Jobless::always();
        Ok(Box::new(own.chain(AliasRows::new(slices(&aliased.select), lines(), of, always))))
    }

    /// The rows of `metrics_by_device` in the order of time.
    pub(crate) fn by_time(&self, reads: &Reads, treatment: Treatment, asker: &Asker) -> Batches {
        let lines = || {
            let sight = Sight::new(self, asker, reads.reach(), reads.own.devices.as_ref());
            Lines::new(self, sight, true)
        };
        let slices = |select: &Selector| {
            let walk = reads.walk(select, self.settings.slice_rows, asker);
            Slices::new(walk, treatment.as_rate, asker)
        };
        let own = OwnRows::new(slices(&reads.own), lines(), treatment.jobless.clone());
        let Some(aliased) = reads.aliased.as_ref() else { return Box::new(own) };
        let of = aliased.of.clone();
        let alias = AliasRows::new(slices(&aliased.select), lines(), of, treatment.jobless);
        Box::new(MergeRows::new(Box::new(own), Box::new(alias)))
    }

    /// What a question reads.
    pub(crate) fn reads(&self, question: &RowQuestion) -> Result<Reads, QueryError> {
        let RowQuestion { devices, metrics, job, from, to, view, summary } = question.clone();
        let snapshot = self.store.snapshot();
        let aliased = match view {
            View::Metrics => None,
            _ => Aliased::find(&snapshot, question)?,
        };
        let own = Selector { devices, metrics, job, labels: Vec::new() };
        Ok(Reads { snapshot, own, aliased, from, to, summary })
    }
}
