//! What bounds the store: everything has a limit, and reaching it is counted and said.

use model::{Metric, SeriesEntry, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Tells the time: given, never taken, so that tests own it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How long and how much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Most bytes on disk; the oldest goes first.
    pub bytes_max: u64,
    /// What is older goes.
    pub age_us: i64,
}

impl Keep {
    /// All of it, for ever.
    pub const ALL: Self = Self { bytes_max: u64::MAX, age_us: i64::MAX };
}

/// A directory on another file system, to which samples are moved that are too old or too many for the data
/// directory ([`Settings::keep_samples`]), instead of being let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// Where; it must be there, and is ours alone.
    pub dir: PathBuf,
    /// How long and how much is kept in it.
    pub keep: Keep,
}

/// The metrics that the program's own sources produce, with their meaning: no sender gives one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredMetrics {
    all: Arc<BTreeMap<Box<str>, Metric>>,
    run: Option<Arc<RunMetrics>>,
}

/// What `jobmeter run` measures: the names of metrics, and the keys of their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunMetrics {
    /// Names of declared metrics.
    pub names: BTreeSet<Box<str>>,
    /// Keys of labels.
    pub labels: BTreeSet<Box<str>>,
}

impl DeclaredMetrics {
    /// These metrics.
    pub fn new(metrics: impl IntoIterator<Item = Metric>) -> Self {
        let named = |metric: Metric| (Box::from(&*metric.name), metric);
        Self { all: Arc::new(metrics.into_iter().map(named).collect()), run: None }
    }

    /// The same, and of commands of `jobmeter run` only these series.
    #[must_use]
    pub fn with_run(self, run: RunMetrics) -> Self {
        Self { run: Some(Arc::new(run)), ..self }
    }

    /// The declared metric of this name.
    pub fn get(&self, name: &str) -> Option<&Metric> {
        self.all.get(name)
    }

    /// Whether a metric of this name is declared.
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Checks that a series is one that `jobmeter run` measures. Unit and kind are those of every declared metric.
    ///
    /// # Errors
    /// It is another; the text says in what.
    pub(crate) fn check_of_run(&self, entry: &SeriesEntry) -> Result<(), String> {
        let Some(run) = &self.run else { return Ok(()) };
        let name = &*entry.metric.name;
        if !run.names.contains(name) {
            return Err(format!(
                "`jobmeter run` of the server's version measures no metric {name}"
            ));
        }
        let labels = entry.labels.pairs();
        match labels.iter().find(|(key, _)| !run.labels.contains(key.as_str())) {
            Some((key, _)) => Err(format!("`jobmeter run` gives {name} no label `{key}`")),
            None => Ok(()),
        }
    }
}

/// The limits and sizes of a store. [`Settings::default`] suits one server on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of frames that wait for the log; more are refused for now.
    pub queue_bytes_max: usize,
    /// Most batches that wait for the log.
    pub queue_batches_max: usize,
    /// Most bytes of log on disk; at it, appends are refused for now ([`crate::NotNow::LogFull`]).
    pub log_bytes_max: u64,
    /// A log segment that has so many bytes is closed and another begun.
    pub segment_bytes: u64,
    /// Most bytes of samples in memory, those of a block being written included; at half of it a
    /// block is written.
    pub head_bytes_max: usize,
    /// A block is written when so many samples are in memory.
    pub head_samples_max: u64,
    /// A block is written when the oldest sample in memory was received so long ago.
    pub head_age_us: i64,
    /// Most series alive: named by a batch within [`Self::series_idle_us`].
    pub series_max: usize,
    /// Most of them that one origin may have brought.
    pub series_per_origin_max: usize,
    /// Most series of one command of `jobmeter run`. All such commands together have a quarter of
    /// [`Self::series_max`] and of [`Self::origins_max`].
    pub series_per_run_max: usize,
    /// Metrics with a built-in meaning, which need no place in the catalogue.
    pub declared: DeclaredMetrics,
    /// Most other metrics in the catalogue.
    pub metrics_max: usize,
    /// Most of them that one origin names first. All commands of `jobmeter run` count as one origin.
    pub metrics_per_origin_max: usize,
    /// Most origins known at once.
    pub origins_max: usize,
    /// A series without samples for so long is forgotten in memory; its blocks stay.
    pub series_idle_us: i64,
    /// A batch that comes again within so long of its boot's last one is known as a duplicate; longer
    /// than any sender keeps batches.
    pub window_us: i64,
    /// Most boots of an origin in the window.
    pub boots_max: usize,
    /// Most holes in the numbers of a boot; at it the oldest is given up.
    pub holes_max: usize,
    /// A hole in the numbers of a boot counts as a gap when it is so old.
    pub hole_grace_us: i64,
    /// Most gaps kept; at it the origin with the most gaps loses its oldest one, which is counted.
    pub gaps_max: usize,
    /// Most gaps of one origin; at it the origin loses its oldest one.
    pub gaps_per_origin_max: usize,
    /// Most gaps of one command of `jobmeter run`. All such commands together have a quarter of
    /// [`Self::gaps_max`].
    pub gaps_per_run_max: usize,
    /// So many neighbouring blocks of one level are merged into one of the next.
    pub merge_blocks: usize,
    /// Most bytes of a block that others are merged into; one of half of it is merged no more.
    pub block_bytes_max: u64,
    /// Late samples are taken for so long; then the rollups of their time are made for good.
    pub settle_after_us: i64,
    /// In stretches of so long, a multiple of an hour.
    pub settle_step_us: i64,
    /// How long and how much of the samples is kept. Samples that are too many are let go before they are
    /// [`Self::settle_after_us`] old, but for those of the last hours.
    pub keep_samples: Keep,
    /// Where samples go then, if they are not let go.
    pub archive: Option<ArchiveSettings>,
    /// How long and how much is kept of the rollups, of each length of window ([`crate::Store::WINDOWS_US`]).
    pub keep_rollups: [Keep; 2],
    /// Whether blocks are tended as soon as there is something to do; else only by [`crate::Store::tend`].
    pub tends: bool,
    /// Rows of a block's row group.
    pub row_group_rows: usize,
    /// Rows of a page within it.
    pub page_rows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        const MINUTE: i64 = 60 * Timestamp::SECOND;
        const DAY: i64 = 24 * 60 * MINUTE;
        Self {
            queue_bytes_max: 64 << 20,
            queue_batches_max: 16 << 10,
            log_bytes_max: 1 << 30,
            segment_bytes: 64 << 20,
            head_bytes_max: 256 << 20,
            head_samples_max: 16 << 20,
            head_age_us: 30 * MINUTE,
            series_max: 2_000_000,
            series_per_origin_max: 200_000,
            series_per_run_max: 20_000,
            declared: DeclaredMetrics::default(),
            metrics_max: 20_000,
            metrics_per_origin_max: 2_000,
            origins_max: 20_000,
            series_idle_us: 60 * MINUTE,
            window_us: 8 * DAY,
            boots_max: 256,
            holes_max: 4096,
            hole_grace_us: MINUTE,
            gaps_max: 200_000,
            gaps_per_origin_max: 10_000,
            gaps_per_run_max: 64,
            merge_blocks: 8,
            block_bytes_max: 512 << 20,
            settle_after_us: 7 * DAY,
            settle_step_us: DAY,
            keep_samples: Keep::ALL,
            archive: None,
            keep_rollups: [Keep::ALL; 2],
            tends: true,
            row_group_rows: 256 << 10,
            page_rows: 4 << 10,
        }
    }
}
