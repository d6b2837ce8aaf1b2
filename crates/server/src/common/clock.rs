//! The machine's wall clock. Only this module reads it.

use model::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the wall-clock time; times before 1970 become 1970.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the one place where the server takes the time")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
