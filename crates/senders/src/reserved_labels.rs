//! Labels that senders may not set.

use crate::limits::Rejection;
use model::{Origin, SeriesEntry, USER_LABEL};

/// Labels that answers add to a series; a sender that set one could assign a sample to a job.
const RESERVED_LABELS: [&str; 3] = ["_job_id", "_cluster", "_device_orig"];

/// Why samples of a series are rejected for their labels, if they are.
pub fn label_rejection(entry: &SeriesEntry, origin: &Origin) -> Option<String> {
    reserved_label(entry, origin).map(|label| Rejection::Label(label).to_string())
}

/// Returns a label of a series that its sender may not set.
pub(crate) fn reserved_label(entry: &SeriesEntry, origin: &Origin) -> Option<&'static str> {
    // Few series have a label that begins with `_`: only those are parsed.
    if !entry.labels.as_str().contains("\"_") {
        return None;
    }
    let of_users = (!origin.is_user_push()).then_some(USER_LABEL);
    RESERVED_LABELS.into_iter().chain(of_users).find(|label| entry.labels.has(label))
}
