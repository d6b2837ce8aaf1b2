//! Selects the node samples (not attributed to a job) for the answer about a job: those during its runs. Between
//! two runs of a reused ID the node may belong to other jobs.

use model::{DeviceId, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;

/// Sorted, disjoint time ranges, bounds included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeRanges(Arc<[(i64, i64)]>);

/// When node samples of each device are included.
#[derive(Clone, Debug)]
pub(crate) struct NodeRowsFilter {
    /// On the job's devices.
    of: HashMap<DeviceId, TimeRanges>,
    /// On other devices.
    others: TimeRanges,
}

impl TimeRanges {
    fn of(mut spans: Vec<(i64, i64)>, (start, end): (Option<i64>, Option<i64>)) -> Self {
        spans.retain(|(from, to)| from <= to);
        spans.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(spans.len());
        for (from, to) in spans {
            match joined.last_mut() {
                Some((_, last)) if from <= *last => *last = to.max(*last),
                _ => joined.push((from, to)),
            }
        }
        if let (Some((from, _)), Some(start)) = (joined.first_mut(), start) {
            *from = start.min(*from);
        }
        if let (Some((_, to)), Some(end)) = (joined.last_mut(), end) {
            *to = end.max(*to);
        }
        Self(joined.into())
    }

    /// Whether one range contains the whole interval, bounds included.
    pub(crate) fn cover(&self, from: i64, to: i64) -> bool {
        let place = self.0.partition_point(|(_, end)| *end < from);
        self.0.get(place).is_some_and(|(begin, end)| *begin <= from && to <= *end)
    }

    /// Whether a range contains the instant.
    pub(crate) fn have(&self, at: i64) -> bool {
        self.cover(at, at)
    }
}

impl NodeRowsFilter {
    /// Node samples are included at any time.
    pub(crate) fn always() -> Self {
        Self { of: HashMap::new(), others: TimeRanges(Arc::from([(i64::MIN, i64::MAX)])) }
    }

    /// Node samples are included during the job's allocations of a device, and on other devices during its runs.
    /// A given start extends the first range, a given end the last one.
    pub(crate) fn new(
        runs: Vec<(i64, i64)>,
        spans: HashMap<DeviceId, Vec<(i64, i64)>>,
        (start, end): (Option<Timestamp>, Option<Timestamp>),
    ) -> Self {
        let bounds = (start.map(|at| at.0), end.map(|at| at.0));
        let of = spans.into_iter().map(|(device, spans)| (device, TimeRanges::of(spans, bounds)));
        Self { of: of.collect(), others: TimeRanges::of(runs, bounds) }
    }

    /// When rows of a device name are included.
    pub(crate) fn on(&self, device: &DeviceId) -> TimeRanges {
        self.of.get(device).unwrap_or(&self.others).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_touch_are_one_and_bounds_count() {
        let ranges = TimeRanges::of(vec![(40, 50), (10, 20), (20, 25)], (None, None));
        assert_eq!(*ranges.0, [(10, 25), (40, 50)]);
        assert!(ranges.cover(10, 25) && ranges.have(40) && ranges.have(50));
        assert!(!ranges.cover(25, 40) && !ranges.have(26) && !ranges.have(9) && !ranges.have(51));
        let wide = TimeRanges::of(vec![(10, 20), (40, 50)], (Some(5), Some(60)));
        assert_eq!(*wide.0, [(5, 20), (40, 60)]);
        let narrow = TimeRanges::of(vec![(10, 20), (40, 50)], (Some(15), Some(45)));
        assert_eq!(*narrow.0, [(10, 20), (40, 50)], "what is read lies within the bounds anyway");
        assert!(!TimeRanges::of(Vec::new(), (Some(5), Some(60))).have(10), "it never started");
    }
}
