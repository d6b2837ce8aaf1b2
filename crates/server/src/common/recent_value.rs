//! A value that is expensive to compute, used again for a time.

use model::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;

/// The latest value, with its time.
#[derive(Debug)]
pub(crate) struct RecentValue<T>(Mutex<Option<(Timestamp, Arc<T>)>>);

impl<T> Default for RecentValue<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> RecentValue<T> {
    /// Returns the latest value if it is younger than `fresh_us`, and computes a new one otherwise. Callers at the same
    /// time wait for one computation.
    pub(crate) fn get<E>(
        &self,
        now: Timestamp,
        fresh_us: i64,
        compute: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut latest = self.0.lock();
        if let Some((at, value)) = &*latest
            && (0..fresh_us).contains(&now.since(*at))
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(compute()?);
        *latest = Some((now, Arc::clone(&value)));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_used_again_for_a_time() {
        let recent = RecentValue::default();
        let at =
            |us: i64, value: i64| *recent.get(Timestamp(us), 10, || Ok::<_, ()>(value)).unwrap();
        assert_eq!([at(100, 1), at(109, 2), at(110, 3)], [1, 1, 3]);
        assert_eq!(at(105, 4), 4, "the clock was set back");
        assert_eq!(recent.get(Timestamp(200), 10, || Err("failed")), Err("failed"));
        assert_eq!(at(114, 5), 4, "a failure replaces nothing");
    }
}
