//! What opening a data directory found and did.

use model::{JobEvent, Timestamp};
use std::collections::VecDeque;
use std::path::PathBuf;

/// What opening a data directory found and did, to be said once at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Batches read again from the log.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// How long it took, in microseconds.
    pub took_us: i64,
    /// Log segments that ended within a record, and were cut: what a crash leaves. Nothing in the part
    /// that went had been acknowledged.
    pub cut: Vec<Cut>,
    /// Log segments that were damaged in the middle, and set aside.
    pub damaged: Vec<Damage>,
    /// The archive, if it is not there now.
    pub archive_away: Option<PathBuf>,
    /// Files in the archive that the manifest does not name. They are left: another backup may name them.
    pub archive_strays: Vec<PathBuf>,
    /// Files of unfinished work that were removed.
    pub removed: Vec<PathBuf>,
    /// What batches of the log told of jobs, and when they were received: whoever keeps jobs may not have
    /// heard of it before a crash.
    pub jobs: VecDeque<(Timestamp, Vec<JobEvent>)>,
    /// Events that found no room there; the oldest go first.
    pub jobs_dropped: u64,
}

/// A torn tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub path: PathBuf,
    /// Its length now; 0 when nothing was left and it is gone.
    pub length: u64,
    /// Bytes that went.
    pub bytes: u64,
}

/// A damaged place in the log. What could be read around it was kept, and is in a block by now; the
/// batches that stood there show as gaps of cause "log damaged" where their numbers are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where the segment lies now, as it was found.
    pub path: PathBuf,
    /// Where in it the damage begins.
    pub at: u64,
    /// How many bytes could not be read.
    pub bytes: u64,
    /// When the last good record before it was received, if there is one in the segment.
    pub from: Option<Timestamp>,
    /// When the first good record after it was received.
    pub to: Option<Timestamp>,
}
