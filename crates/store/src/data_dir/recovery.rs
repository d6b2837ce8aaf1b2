//! The result of opening a data directory.

use model::{JobEvent, Timestamp};
use std::collections::VecDeque;
use std::path::PathBuf;

/// What opening a data directory found and repaired, reported once at startup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Batches replayed from the log.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Duration, in microseconds.
    pub took_us: i64,
    /// Log segments that ended within a record, and were truncated: the usual result of a crash. Nothing in
    /// the removed part had been acknowledged.
    pub cut: Vec<Cut>,
    /// Log segments that were damaged in the middle, and moved to quarantine.
    pub damaged: Vec<Damage>,
    /// The archive, if it is unavailable.
    pub archive_unavailable: Option<PathBuf>,
    /// Files in the archive that the manifest does not list. They are left: another backup may list them.
    pub archive_strays: Vec<PathBuf>,
    /// Removed files of unfinished work.
    pub removed: Vec<PathBuf>,
    /// Job events in the log's batches, with their times of receipt: the job registry may have missed them
    /// before a crash.
    pub jobs: VecDeque<(Timestamp, Vec<JobEvent>)>,
    /// Events dropped beyond the limit, oldest first.
    pub jobs_dropped: u64,
}

/// A torn tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub path: PathBuf,
    /// Its new length; 0 if nothing was left and it was removed.
    pub length: u64,
    /// Bytes removed.
    pub bytes: u64,
}

/// A damaged place in the log. The readable records around it are in a block by now.
/// The lost batches become gaps with the cause "log damaged" where their numbers are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// New path of the segment, unchanged.
    pub path: PathBuf,
    /// Offset of the damage.
    pub at: u64,
    /// Number of unreadable bytes.
    pub bytes: u64,
    /// Time of receipt of the last good record before it in the segment, if any.
    pub from: Option<Timestamp>,
    /// Time of receipt of the first good record after it.
    pub to: Option<Timestamp>,
}
