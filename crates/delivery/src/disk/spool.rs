//! The spool: frames on disk that the server has not acknowledged.
//!
//! ```text
//! DIR/lock                       held by the agent that writes here
//! DIR/kept                       how far everything is acknowledged or in the spool: see `durable_watermark.rs`
//! DIR/known                      when the directories of jobs were made: see `cgroup_birth_cache.rs` of crate `agent`
//! DIR/000000000017-1767706500000000.jmb
//! DIR/rejected/                   what the server rejected permanently: see `rejected_batches.rs`
//! ```
//!
//! A segment `NUMBER-TIME.jmb` is a plain sequence of wire frames. `NUMBER` increases across all starts of the
//! agent. `TIME` is the time of the oldest sample in microseconds since 1970. The agent appends to one segment at a
//! time, and truncates it after a failed write.
//!
//! The agent sends the oldest segment first. It removes a segment once the server has all of it. After a restart it
//! sends a partly sent segment from its beginning, and the server recognizes duplicates.
//!
//! A write survives a crash of the agent. It survives a crash of the node only with `spool_sync`. Damaged frames,
//! and those that do not fit or are too old, become gaps.

mod segment;

use crate::batches::frames::{self, Span};
use crate::batches::pending_gaps_and_job_events::PendingEvents;
use crate::common::counters::Counters;
use model::{Cause, Timestamp};
use rustix::fs::{FlockOperation, flock};
pub(crate) use segment::Piece;
use segment::Segment;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Size at which a segment is closed and the next one started.
const SEGMENT_BYTES: u64 = 512 << 10;
/// Maximum number of remembered frames that the server acknowledged while they were being spooled.
const DONE_MAX: usize = 4096;

/// Limits of the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpoolLimits {
    /// Maximum size in bytes. The oldest segment is deleted first.
    pub(crate) bytes_max: u64,
    /// Maximum age of a sample in microseconds.
    pub(crate) age_max_us: i64,
    /// Whether each write is synced to the disk.
    pub(crate) sync: bool,
}

/// Position of a frame in the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpoolPosition {
    segment: u64,
    offset: u64,
}

/// The spool.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    limits: SpoolLimits,
    /// Lock on the folder, held by one agent at a time.
    _lock: File,
    /// Segments, oldest first. The last one is open for writing if `writing` is set.
    segments: VecDeque<Segment>,
    writing: Option<File>,
    next_number: u64,
    /// Spooled frames that the server already has.
    done: HashSet<SpoolPosition>,
    notes: Arc<PendingEvents>,
    counters: Arc<Counters>,
}

impl Spool {
    /// Opens a spool with the segments of earlier starts. Creates the folder if necessary.
    ///
    /// # Errors
    /// The folder cannot be created, read or locked.
    pub(crate) fn open(
        dir: &Path,
        limits: SpoolLimits,
        notes: Arc<PendingEvents>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        kernel::trust::make_own_folder(dir, 0o700)?;
        let lock = File::options().create(true).append(true).mode(0o600).open(dir.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => {
                io::Error::other("another program writes there; end it, or set another `spool`")
            }
            e => e.into(),
        })?;
        let mut segments: Vec<Segment> = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            if let Some(segment) = Segment::found(&entry?)? {
                segments.push(segment);
            }
        }
        segments.sort_by_key(|segment| segment.number);
        let spool = Self {
            dir: dir.to_owned(),
            limits,
            _lock: lock,
            next_number: segments.last().map_or(0, |last| last.number + 1),
            segments: segments.into(),
            writing: None,
            done: HashSet::new(),
            notes,
            counters,
        };
        spool.publish_counters();
        Ok(spool)
    }

    /// Folder of the spool.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Changes the limits.
    pub(crate) const fn set_limits(&mut self, limits: SpoolLimits) {
        self.limits = limits;
    }

    /// Total size of all segments in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Time of the oldest sample, if there is any.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.segments.front().map(|segment| segment.first)
    }

    /// Appends a frame. If the spool is full, the oldest segment becomes a gap.
    ///
    /// # Errors
    /// The disk fails, or it is full and the spool has no segment left to remove.
    pub(crate) fn append(&mut self, frame: &[u8], span: Span) -> io::Result<SpoolPosition> {
        let bytes = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        while self.bytes().saturating_add(bytes) > self.limits.bytes_max
            && !self.segments.is_empty()
        {
            self.drop_oldest("the spool is full");
        }
        let mut spot = self.write(frame, span);
        while let Err(e) = &spot
            && e.kind() == io::ErrorKind::StorageFull
            && !self.segments.is_empty()
        {
            self.drop_oldest("the disk is full");
            spot = self.write(frame, span);
        }
        self.publish_counters();
        spot
    }

    fn write(&mut self, frame: &[u8], span: Span) -> io::Result<SpoolPosition> {
        let closed_at = SEGMENT_BYTES.min(self.limits.bytes_max / 4);
        if self.segments.back().is_none_or(|last| last.bytes >= closed_at) {
            self.writing = None;
        }
        let file = match self.writing.take() {
            Some(file) => file,
            None => self.begin_segment(span)?,
        };
        let Some(last) = self.segments.back_mut() else {
            return Err(io::Error::other("the segment that is being written has disappeared"));
        };
        let spot = SpoolPosition { segment: last.number, offset: last.bytes };
        last.append(&file, frame, span, self.limits.sync)?;
        self.writing = Some(file);
        Ok(spot)
    }

    fn begin_segment(&mut self, span: Span) -> io::Result<File> {
        let segment = Segment::new(self.next_number, span.first);
        let path = self.dir.join(segment.name());
        let file = File::options().create_new(true).append(true).mode(0o600).open(path)?;
        if self.limits.sync {
            File::open(&self.dir)?.sync_all()?;
        }
        self.next_number += 1;
        self.segments.push_back(segment);
        Ok(file)
    }

    /// Returns the next frames to send, oldest first, about `bytes` in total. Damaged parts become gaps.
    pub(crate) fn next(&mut self, bytes: usize) -> Option<Piece> {
        loop {
            let piece = self.read_oldest(bytes)?;
            match piece {
                Some(piece) if !piece.frames.is_empty() => return Some(piece),
                Some(piece) => self.forget(piece.segment, piece.end),
                None => self.remove_oldest(),
            }
        }
    }

    /// Reads on in the oldest segment. Returns `None` without a segment, `Some(None)` at its end.
    fn read_oldest(&mut self, bytes: usize) -> Option<Option<Piece>> {
        let next_first = self.segments.get(1).map(|next| next.first);
        let oldest = self.segments.front_mut()?;
        let (number, done) = (oldest.number, &self.done);
        let is_done = |offset| done.contains(&SpoolPosition { segment: number, offset });
        let (piece, damage) = match oldest.read(&self.dir, bytes, is_done) {
            Ok(read) => read,
            Err(e) => {
                log::error!("spool segment {} cannot be read: {e}", oldest.name());
                (None, Some(oldest.rest()))
            }
        };
        if let Some((from, to)) = damage {
            let to = to.or(next_first).unwrap_or(oldest.last()).max(from.plus(1));
            let what = "a segment of the spool was damaged, or its end was not written";
            log::warn!("{what}: between {from} and {to}");
            self.notes.add("", (from, to), Cause::SpoolDamaged, what);
        }
        Some(piece)
    }

    /// Marks a segment as sent up to `end`, and removes it if nothing is left. The server has the frames or rejected
    /// them permanently.
    pub(crate) fn forget(&mut self, segment: u64, end: u64) {
        let Some(oldest) = self.segments.front_mut().filter(|oldest| oldest.number == segment)
        else {
            return;
        };
        oldest.sent = oldest.sent.max(end);
        let sent = oldest.sent;
        self.done.retain(|spot| spot.segment != segment || spot.offset >= sent);
        if oldest.is_read() {
            self.remove_oldest();
        }
        self.publish_counters();
    }

    /// Marks a frame that was spooled while it was being sent, and that the server has.
    pub(crate) fn mark_done(&mut self, spot: SpoolPosition) {
        // Frames above the limit are sent again, and the server recognizes the duplicate.
        if self.done.len() < DONE_MAX {
            self.done.insert(spot);
        }
    }

    /// Removes segments that are too old.
    pub(crate) fn drop_aged(&mut self, now: Timestamp) {
        let oldest_kept = now.plus(-self.limits.age_max_us);
        while self.segments.front().is_some_and(|oldest| oldest.last() < oldest_kept) {
            self.drop_oldest("older than `spool_age_max`");
        }
        self.publish_counters();
    }

    /// Removes the oldest segment. Its unsent samples become a gap, and its unsent gaps are noted again.
    fn drop_oldest(&mut self, why: &str) {
        let Some(number) = self.segments.front().map(|oldest| oldest.number) else { return };
        let mut lost: Option<Span> = None;
        let mut samples = 0;
        while let Some(Some(piece)) = self.read_oldest(usize::MAX) {
            for frame in piece.frames() {
                let Some(inside) = frames::inside(frame) else { continue };
                samples += inside.samples;
                lost = match (lost, inside.span) {
                    (Some(a), Some(b)) => Some(a.and(b)),
                    (a, b) => a.or(b),
                };
                self.notes.put_all(inside.gaps, inside.jobs);
            }
            match self.segments.front_mut().filter(|oldest| oldest.number == number) {
                Some(oldest) => oldest.sent = piece.end,
                None => break,
            }
        }
        if let Some(lost) = lost {
            log::error!("{samples} samples lost, from {} to {}: {why}", lost.first, lost.last);
            self.notes.add("", lost.outside(), Cause::SpoolFull, why);
        }
        self.counters.dropped_samples.fetch_add(samples, Ordering::Relaxed);
        self.remove_oldest();
    }

    fn remove_oldest(&mut self) {
        let Some(oldest) = self.segments.pop_front() else { return };
        if self.segments.is_empty() {
            self.writing = None;
        }
        self.done.retain(|spot| spot.segment != oldest.number);
        if let Err(e) = std::fs::remove_file(self.dir.join(oldest.name()))
            && e.kind() != io::ErrorKind::NotFound
        {
            log::error!("spool segment {} cannot be removed: {e}", oldest.name());
        }
        self.publish_counters();
    }

    fn publish_counters(&self) {
        let count = u64::try_from(self.segments.len()).unwrap_or(u64::MAX);
        self.counters.spool_bytes.store(self.bytes(), Ordering::Relaxed);
        self.counters.spool_segments.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
