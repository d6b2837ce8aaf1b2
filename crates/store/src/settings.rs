//! The limits of the store: everything is bounded, and every reached limit is counted and reported.

use model::Timestamp;
use senders::Limits;
use std::path::PathBuf;
use storage::RetentionLimits;

/// A directory on another file system. It receives samples beyond the limits of the data directory
/// ([`Settings::keep_samples`]), which are otherwise deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// The directory. It must exist, and belongs to this store alone.
    pub dir: PathBuf,
    /// Retention in it.
    pub keep: RetentionLimits,
}

/// The limits and sizes of a store. [`Settings::default`] suits one server on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of frames that wait for the log; further ones are rejected temporarily.
    pub queue_bytes_max: usize,
    /// Most batches that wait for the log.
    pub queue_batches_max: usize,
    /// Most bytes of log on disk; beyond, appends are rejected temporarily ([`storage::DeferReason::LogFull`]).
    pub log_bytes_max: u64,
    /// Size at which a log segment is closed and another begun.
    pub segment_bytes: u64,
    /// Most bytes of samples in memory, those of a block being written included; at half of it a block is written.
    pub head_bytes_max: usize,
    /// Number of samples in memory at which a block is written.
    pub head_samples_max: u64,
    /// Age of the oldest sample in memory (since receipt) at which a block is written.
    pub head_age_us: i64,
    /// Limits of senders.
    pub senders: Limits,
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
    /// Retention of rollups, for each length of window ([`storage::WINDOWS_US`]).
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
            senders: Limits::default(),
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
