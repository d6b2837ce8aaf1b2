//! The limits of the store: everything is bounded, and every reached limit is counted and reported.

use model::{Metric, SeriesEntry, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Returns the time: an argument, so that tests own it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Retention by age and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Most bytes on disk; the oldest are deleted first.
    pub bytes_max: u64,
    /// Older data is deleted.
    pub age_us: i64,
}

impl RetentionLimits {
    /// Unlimited.
    pub const ALL: Self = Self { bytes_max: u64::MAX, age_us: i64::MAX };
}

/// A directory on another file system. It receives samples beyond the limits of the data directory
/// ([`Settings::keep_samples`]), which are otherwise deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// The directory. It must exist, and belongs to this store alone.
    pub dir: PathBuf,
    /// Retention in it.
    pub keep: RetentionLimits,
}

/// The metrics of the program's own sources, with their meaning: no sender can change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredMetrics {
    all: Arc<BTreeMap<Box<str>, Metric>>,
    run: Option<Arc<RunMetrics>>,
}

/// The metrics and label keys of `jobmeter run`.
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

    /// The same, with these series as the only ones of `jobmeter run`.
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

    /// Checks that `jobmeter run` measures a series. Unit and kind are checked as for every declared metric.
    ///
    /// # Errors
    /// It does not; the text states why.
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
            Some((key, _)) => Err(format!("{name} of `jobmeter run` has no label `{key}`")),
            None => Ok(()),
        }
    }
}

/// The limits and sizes of a store. [`Settings::default`] suits one server on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of frames that wait for the log; further ones are rejected temporarily.
    pub queue_bytes_max: usize,
    /// Most batches that wait for the log.
    pub queue_batches_max: usize,
    /// Most bytes of log on disk; beyond, appends are rejected temporarily ([`crate::DeferReason::LogFull`]).
    pub log_bytes_max: u64,
    /// Size at which a log segment is closed and another begun.
    pub segment_bytes: u64,
    /// Most bytes of samples in memory, those of a block being written included; at half of it a block is written.
    pub head_bytes_max: usize,
    /// Number of samples in memory at which a block is written.
    pub head_samples_max: u64,
    /// Age of the oldest sample in memory (since receipt) at which a block is written.
    pub head_age_us: i64,
    /// Most live series: sent by a batch within [`Self::series_idle_us`].
    pub series_max: usize,
    /// Most of them from one origin.
    pub series_per_origin_max: usize,
    /// Most series of one command of `jobmeter run`. All such commands together have a quarter of
    /// [`Self::series_max`] and of [`Self::origins_max`].
    pub series_per_run_max: usize,
    /// Most series of rows that one user inserts: they appear in the lists of a node that others read, too. They count in
    /// the quarter of commands.
    pub series_per_inserting_user_max: usize,
    /// Metrics with a built-in meaning; the catalogue's limits do not count them.
    pub declared: DeclaredMetrics,
    /// Most other metrics in the catalogue.
    pub metrics_max: usize,
    /// Most of them from one origin. All commands of `jobmeter run` count as one origin.
    pub metrics_per_origin_max: usize,
    /// Most known origins.
    pub origins_max: usize,
    /// A series without samples for this time is dropped from memory; its blocks remain.
    pub series_idle_us: i64,
    /// A batch within this time of its boot's last one is recognised as a duplicate; longer than any sender
    /// keeps batches.
    pub window_us: i64,
    /// Most boots of an origin in the window.
    pub boots_max: usize,
    /// Most holes in the numbers of a boot; beyond, the oldest is given up.
    pub missing_max: usize,
    /// Age at which a hole in the numbers of a boot counts as a gap.
    pub missing_grace_us: i64,
    /// Most gaps stored; beyond, the origin with the most gaps loses its oldest one, which is counted.
    pub gaps_max: usize,
    /// Most gaps of one origin; beyond, it loses its oldest one.
    pub gaps_per_origin_max: usize,
    /// Most gaps of one command of `jobmeter run`. All such commands together have a quarter of
    /// [`Self::gaps_max`].
    pub gaps_per_run_max: usize,
    /// Number of adjacent blocks of one level that are merged into one of the next.
    pub merge_blocks: usize,
    /// Most bytes of a merged block; a block of half of it is merged no more.
    pub block_bytes_max: u64,
    /// How long late samples are accepted; then the rollups of their time become final.
    pub settle_after_us: i64,
    /// Length of the ranges that are settled at a time, a multiple of an hour.
    pub settle_step_us: i64,
    /// Retention of samples. Beyond the size limit, samples are deleted before they are
    /// [`Self::settle_after_us`] old, except those of the last hours.
    pub keep_samples: RetentionLimits,
    /// Receives these samples instead of their deletion.
    pub archive: Option<ArchiveSettings>,
    /// Retention of rollups, for each length of window ([`crate::Store::WINDOWS_US`]).
    pub keep_rollups: [RetentionLimits; 2],
    /// Whether the store maintains its blocks by itself; otherwise only [`crate::Store::maintain`] does.
    pub background_maintenance: bool,
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
            series_per_inserting_user_max: 1_000,
            declared: DeclaredMetrics::default(),
            metrics_max: 20_000,
            metrics_per_origin_max: 2_000,
            origins_max: 20_000,
            series_idle_us: 60 * MINUTE,
            window_us: 8 * DAY,
            boots_max: 256,
            missing_max: 4096,
            missing_grace_us: MINUTE,
            gaps_max: 200_000,
            gaps_per_origin_max: 10_000,
            gaps_per_run_max: 64,
            merge_blocks: 8,
            block_bytes_max: 512 << 20,
            settle_after_us: 7 * DAY,
            settle_step_us: DAY,
            keep_samples: RetentionLimits::ALL,
            archive: None,
            keep_rollups: [RetentionLimits::ALL; 2],
            background_maintenance: true,
            row_group_rows: 256 << 10,
            page_rows: 4 << 10,
        }
    }
}
