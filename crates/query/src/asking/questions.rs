//! What can be asked, of what, and for whom.

use crate::QueryError;
use crate::asking::access_filter::Sight;
use jiff::tz::TimeZone;
use jobs::{Demand, Filter, Interval, JobName, Listed, Reader, Registry, Sees, Window};
use model::{ClusterId, DeviceId, Gap, Job, JobKey, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Selector, Store};

/// The limits and habits of answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster whose jobs need no `_cluster` label.
    pub default_cluster: ClusterId,
    /// The zone of times without one, and of the times that are printed.
    pub zone: TimeZone,
    /// Most rows of an answer of `get_metrics`; more are refused before the first is sent.
    pub rows_max: u64,
    /// Rows held in memory at once: about 100 bytes each.
    pub slice_rows: usize,
    /// Most series of a range, a list of series or of last values.
    pub series_max: usize,
    /// Most points of a range, all series together.
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

/// Stops a question: shared between the one who waits for its answer and the thread that works on it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the question to end; it answers [`QueryError::Cancelled`] within a slice.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`]: somebody asked to end.
    pub fn check(&self) -> Result<(), QueryError> {
        if self.0.load(Ordering::Relaxed) { Err(QueryError::Cancelled) } else { Ok(()) }
    }
}

/// For whom a question is answered, and when.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Who reads the answer.
    pub reader: Reader,
    /// The time that counts as now.
    pub now: Timestamp,
    /// How the question is stopped.
    pub cancel: Cancel,
    /// Who is told which jobs it reads.
    pub watch: Option<Arc<dyn Watch>>,
    /// Who asks, for the turns of questions: the same text for all that one asks.
    pub whose: Arc<str>,
}

/// Who wants to know which jobs a question reads for one who may read every job's.
pub trait Watch: fmt::Debug + Send + Sync {
    /// It is about this job, which is that user's.
    fn names(&self, job: &JobKey, owner: Option<u32>);
    /// Its answer may tell of this job, or of any.
    fn meets(&self, job: Option<&JobKey>);
}

impl Asker {
    /// An asker with a [`Cancel`] of its own.
    pub fn new(reader: Reader, now: Timestamp) -> Self {
        Self { reader, now, cancel: Cancel::default(), watch: None, whose: Arc::from("") }
    }

    /// The answer may tell of this job.
    pub(crate) fn meets(&self, job: &JobKey) {
        if let Some(watch) = &self.watch {
            watch.meets(Some(job));
        }
    }

    /// The answer may tell of any job.
    pub fn meets_any(&self) {
        if let Some(watch) = &self.watch {
            watch.meets(None);
        }
    }
}

/// Whether counters are shown as they count, or as what they grew by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Values as they were read.
    Raw,
    /// Counters as growth per second, gauges as they are.
    #[default]
    Counters,
}

/// Points of series over time, to plot.
///
/// With a step, the time is cut into steps that begin at whole multiples of it since 1970, and a point
/// stands at the beginning of its step: a gauge's is the mean of its samples in the step; a counter's
/// rate is what it grew by between the readings that end in the step, over the time between these
/// readings, so that it neither jumps when a step holds one reading more nor after a hole. Each such point
/// states these seconds: the sum of rate × seconds is the counter's increase over the range, edge steps
/// included, and ranges that follow each other add up. With [`Rate::Raw`] a counter's point is its last value
/// in the step. The reading before the range is looked for within a day; without one, the first reading
/// counts from the counter's start, where that lies within this day. Where more than 2.5 of the series' usual distances
/// (or steps) lie between two points, a point without a value stands between them.
#[derive(Clone, Debug)]
pub struct RangeQuestion {
    /// Which series.
    pub select: Selector,
    /// From when, inclusive.
    pub from: Timestamp,
    /// Until when, inclusive.
    pub to: Timestamp,
    /// Step in microseconds; 0: every sample as it is.
    pub step_us: i64,
    /// How counters are shown.
    pub rate: Rate,
}

/// The store and the registry, with everything that can be asked of them. Shared between threads; every
/// call may wait for the disk, and works until its answer is complete or cancelled.
#[derive(Clone, Debug)]
pub struct Questions {
    pub(crate) store: Arc<Store>,
    pub(crate) registry: Arc<Registry>,
    /// What was asked of nodes, where somebody asks it.
    pub(crate) demand: Option<Arc<Demand>>,
    pub(crate) settings: Arc<Settings>,
}

impl Questions {
    /// Questions of a store and a registry.
    pub fn new(store: Arc<Store>, registry: Arc<Registry>, settings: Settings) -> Self {
        Self { store, registry, demand: None, settings: Arc::new(settings) }
    }

    /// The same, also of what was asked of nodes.
    #[must_use]
    pub fn with_demand(self, demand: Arc<Demand>) -> Self {
        Self { demand: Some(demand), ..self }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The registry of jobs.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The job that a name means, if this reader may see its newest run: for what is to be done with it.
    ///
    /// # Errors
    /// There is none, there are several, or it is somebody else's.
    pub fn job_key(&self, name: &JobName, asker: &Asker) -> Result<JobKey, QueryError> {
        let key = self.registry.resolve_seen(name, asker.reader)?;
        let sees = self.registry.sees(asker.reader, &key)?;
        self.judged(name, key, sees, asker)
    }

    /// The job that a name means, if this reader may see any run of it: for what is told of it, which is of
    /// the runs that he sees.
    ///
    /// # Errors
    /// There is none, there are several, or each of its runs is somebody else's.
    pub fn job_seen(&self, name: &JobName, asker: &Asker) -> Result<JobKey, QueryError> {
        let key = self.registry.resolve_seen(name, asker.reader)?;
        let sees = self.registry.sees_any(asker.reader, &key)?;
        self.judged(name, key, sees, asker)
    }

    fn judged(
        &self,
        name: &JobName,
        key: JobKey,
        sees: Sees,
        asker: &Asker,
    ) -> Result<JobKey, QueryError> {
        match sees {
            Sees::All => {}
            Sees::Listed => return Err(QueryError::Listed(key)),
            // As if there were none: its status and its words do not say that there is.
            Sees::Nothing => return Err(QueryError::UnknownJob(name.to_string())),
        }
        if let Some(watch) = &asker.watch {
            watch.names(&key, self.registry.owner(&key)?);
        }
        Ok(key)
    }

    /// The jobs that pass a filter, as far as this reader may know of them, the newest first.
    ///
    /// # Errors
    /// The registry fails.
    pub fn listed(&self, filter: &Filter, asker: &Asker) -> Result<Vec<Listed>, QueryError> {
        asker.meets_any();
        Ok(self.registry.list(&Filter { reader: asker.reader, ..filter.clone() })?)
    }

    /// The runs that pass a filter, as far as this reader may know of them, the newest first: all of them.
    ///
    /// # Errors
    /// The registry fails, or there are more than its limit of rows.
    pub fn every_run(&self, filter: &Filter, asker: &Asker) -> Result<Vec<Job>, QueryError> {
        asker.meets_any();
        Ok(self.registry.every_run(&Filter { reader: asker.reader, ..filter.clone() })?)
    }

    /// Where and when jobs were that this reader sees all of.
    ///
    /// # Errors
    /// The registry fails, or there are more than its limit of rows.
    pub fn stays(&self, window: &Window, asker: &Asker) -> Result<Vec<Interval>, QueryError> {
        asker.meets_any();
        Ok(self.registry.intervals(&Window { reader: asker.reader, ..window.clone() })?)
    }

    /// What is missing in an interval, of one device or of all, as far as this reader may know of it.
    ///
    /// # Errors
    /// The registry fails.
    pub fn gaps(
        &self,
        (from, to): (Timestamp, Timestamp),
        device: Option<&DeviceId>,
        asker: &Asker,
    ) -> Result<Vec<Gap>, QueryError> {
        let one = device.map(|device| BTreeSet::from([device.clone()]));
        let mut sight = Sight::new(self, asker, (from, to), one.as_ref());
        let mut gaps = Vec::new();
        for gap in self.store.gaps(from, to, device) {
            gaps.extend(sight.of_gap(gap)?);
        }
        // What was cut may lie outside.
        gaps.retain(|gap| gap.from <= to && gap.to >= from);
        Ok(gaps)
    }
}
