//! Gaps: periods in which a source fails to give samples.

use super::Entry;
use delivery::Notes;
use model::{Cause, Timestamp};
use sources::SourceError;

/// Interval between reports of a gap that lasts.
const HOLE_TOLD_US: i64 = 60 * Timestamp::SECOND;

/// A period in which a source fails to give samples.
#[derive(Debug)]
pub(super) struct Hole {
    pub(super) from: Timestamp,
    pub(super) cause: Cause,
    pub(super) detail: String,
    told_us: i64,
}

impl Entry {
    pub(super) fn open_hole(&mut self, cause: Cause, detail: String, steady_us: i64) {
        // A source that never gave a sample has no gap.
        if let (None, Some(from)) = (&self.hole, self.last) {
            self.hole = Some(Hole { from, cause, detail, told_us: steady_us });
        }
    }

    /// Reports a lasting gap at intervals, so that the server learns of it early.
    pub(super) fn tell_hole(&mut self, at: Timestamp, steady_us: i64, notes: &Notes) {
        if let Some(hole) = &mut self.hole
            && steady_us.saturating_sub(hole.told_us) >= HOLE_TOLD_US
        {
            notes.add(self.spec.name, (hole.from, at), hole.cause, &hole.detail);
            (hole.from, hole.told_us) = (at, steady_us);
        }
    }

    /// Reports a gap that ends, or about which nothing further will be known.
    pub(crate) fn tell_hole_at_end(&mut self, now: Timestamp, notes: &Notes) {
        if let Some(hole) = self.hole.take() {
            notes.add(self.spec.name, (hole.from, now), hole.cause, &hole.detail);
        }
    }
}

pub(super) const fn cause(error: &SourceError) -> Cause {
    match error {
        SourceError::Denied { .. } => Cause::PermissionLost,
        SourceError::Absent(_) | SourceError::Broken(_) => Cause::SourceBroken,
    }
}
