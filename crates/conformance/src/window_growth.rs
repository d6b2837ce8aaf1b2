//! Growth of a counter by window of time (decision 0031): the single rule for ranges and for rates of
//! `get_metrics` with `summary`.

use model::{Point, SEGMENT_MAX_US, Timestamp, increase};
use std::collections::BTreeMap;

/// The growth in each window with growth, and the seconds that it covers, by the window's start in microseconds. The
/// points are all readings of one counter in the order of time.
///
/// Growth is counted between two readings, and belongs to the window of the later one. The first reading counts from
/// the counter's start if that is at most 10 min earlier. What was counted before the counter was observed belongs to
/// no window.
pub fn window_growth(points: &[Point], window_us: i64) -> BTreeMap<i64, (f64, f64)> {
    let mut windows = BTreeMap::new();
    let mut before: Option<Point> = None;
    for point in points {
        let start = point.start.filter(|start| point.at.since(*start) <= SEGMENT_MAX_US);
        let zero = start.map(|start| Point { at: start, value: 0.0, start: Some(start) });
        if let Some(before) = before.or(zero).filter(|before| before.at < point.at) {
            let start = point.at.0.div_euclid(window_us).saturating_mul(window_us);
            let (amount, seconds) = windows.entry(start).or_insert((0.0, 0.0));
            *amount += increase(before, *point).amount;
            *seconds += Timestamp(point.at.since(before.at)).seconds();
        }
        before = Some(*point);
    }
    windows
}
