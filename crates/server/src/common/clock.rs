//! The machine's wall clock, taken in this one place.

use model::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the wall clock shows; before 1970 it is 1970.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the one place where the server takes the time")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
