//! What can be asked, of what, and for whom.

use crate::QueryError;
use jiff::tz::TimeZone;
use jobs::{JobName, Reader, Registry};
use model::{ClusterId, JobKey, Timestamp};
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
}

impl Asker {
    /// An asker with a [`Cancel`] of its own.
    pub fn new(reader: Reader, now: Timestamp) -> Self {
        Self { reader, now, cancel: Cancel::default() }
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
/// readings, so that it neither jumps when a step holds one reading more nor after a hole. With
/// [`Rate::Raw`] a counter's point is its last value in the step. The first reading of a counter that
/// began within the range counts from its start. Where more than 2.5 of the series' usual distances
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
    pub(crate) settings: Arc<Settings>,
}

impl Questions {
    /// Questions of a store and a registry.
    pub fn new(store: Arc<Store>, registry: Arc<Registry>, settings: Settings) -> Self {
        Self { store, registry, settings: Arc::new(settings) }
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

    /// The job that a name means, if this reader may see it.
    ///
    /// # Errors
    /// There is none, there are several, or it is somebody else's.
    pub fn job_key(&self, name: &JobName, asker: &Asker) -> Result<JobKey, QueryError> {
        let key = self.registry.resolve(name)?;
        let owner = self.registry.owner(&key)?;
        if asker.reader.may_see(owner) { Ok(key) } else { Err(QueryError::Denied(key)) }
    }
}
