//! Gaps: periods in which a source fails to give samples.

use super::Entry;
use delivery::PendingEvents;
use model::{Cause, Timestamp};
use sources::SourceError;

/// Interval between reports of a gap that lasts.
const OUTAGE_REPORT_US: i64 = 60 * Timestamp::SECOND;

/// A period in which a source fails to give samples.
#[derive(Debug)]
pub(super) struct Outage {
    pub(super) from: Timestamp,
    pub(super) cause: Cause,
    pub(super) detail: String,
    reported_us: i64,
}

impl Entry {
    pub(super) fn begin_outage(&mut self, cause: Cause, detail: String, steady_us: i64) {
        // A source that never gave a sample has no gap.
        if let (None, Some(from)) = (&self.outage, self.last) {
            self.outage = Some(Outage { from, cause, detail, reported_us: steady_us });
        }
    }

    /// Reports a lasting gap at intervals, so that the server learns of it early.
    pub(super) fn report_outage(&mut self, at: Timestamp, steady_us: i64, notes: &PendingEvents) {
        if let Some(outage) = &mut self.outage
            && steady_us.saturating_sub(outage.reported_us) >= OUTAGE_REPORT_US
        {
            notes.add(self.spec.name, (outage.from, at), outage.cause, &outage.detail);
            (outage.from, outage.reported_us) = (at, steady_us);
        }
    }

    /// Reports a gap that ends, or about which nothing further will be known.
    pub(crate) fn report_outage_at_end(&mut self, now: Timestamp, notes: &PendingEvents) {
        if let Some(outage) = self.outage.take() {
            notes.add(self.spec.name, (outage.from, now), outage.cause, &outage.detail);
        }
    }
}

pub(super) const fn cause(error: &SourceError) -> Cause {
    match error {
        SourceError::Denied { .. } => Cause::PermissionLost,
        SourceError::Absent(_) | SourceError::Broken(_) => Cause::SourceBroken,
    }
}
