//! Computes a range on several processors: each thread has a part of the devices.

use crate::ranges::range::LimitedSeries;
use crate::{Cancel, QueryError, RangeQuery};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use storage::{Reads, Selector};

/// With fewer devices a range takes one thread.
const DEVICES_MIN: usize = 8;
/// Most threads of one range.
const THREADS_MAX: usize = 4;

/// Additional threads of all queries together; one fewer than processors at most, so that one user's query cannot
/// occupy more of the machine than it has, and queries of others proceed.
static ADDITIONAL: AtomicUsize = AtomicUsize::new(0);

/// Permission for some additional threads.
struct Threads(usize);

impl Threads {
    /// As many as are free, at most `wanted`.
    fn take(wanted: usize) -> Self {
        let max = std::thread::available_parallelism().map_or(0, |processors| processors.get() - 1);
        let mut taken = 0;
        let take = |used: usize| {
            taken = wanted.min(max.saturating_sub(used));
            Some(used + taken)
        };
        match ADDITIONAL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Self(taken),
            Err(_) => Self(0),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        ADDITIONAL.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Computes the series of a range, for parts of its devices at once, and joins them in the order of their devices.
pub(super) fn by_devices<'a>(
    query: &RangeQuery,
    cancel: &Cancel,
    compute: impl Fn(&RangeQuery) -> Result<LimitedSeries<'a>, QueryError> + Sync,
) -> Result<LimitedSeries<'a>, QueryError> {
    let devices = query.select.devices.as_ref().filter(|devices| devices.len() >= DEVICES_MIN);
    let threads = Threads::take(devices.map_or(0, |_| THREADS_MAX - 1));
    let Some(devices) = devices.filter(|_| threads.0 > 0) else { return compute(query) };
    let length = devices.len().div_ceil(threads.0 + 1);
    let devices: Vec<_> = devices.iter().collect();
    let part = |devices: &[&model::DeviceId]| {
        let devices: BTreeSet<_> = devices.iter().map(|device| (*device).clone()).collect();
        RangeQuery { select: Selector { devices: Some(devices), ..query.select.clone() }, ..*query }
    };
    let mut parts = devices.chunks(length).map(part);
    let Some(first) = parts.next() else { return compute(query) };
    let reads = Reads::of_this_thread();
    std::thread::scope(|scope| {
        let (compute, reads) = (&compute, &reads);
        let work = |part: RangeQuery| {
            scope.spawn(move || match reads {
                Some(reads) => reads.during(|| compute(&part)),
                None => compute(&part),
            })
        };
        let later: Vec<_> = parts.map(work).collect();
        let mut shown = compute(&first);
        if shown.is_err() {
            cancel.cancel();
        }
        for thread in later {
            let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            shown = shown.and_then(|mut shown| {
                part.map(|part| {
                    shown.append(part);
                    shown
                })
            });
        }
        shown
    })
}
