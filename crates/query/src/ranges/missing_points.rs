//! Points without a value where samples are missing, so that a plot shows a gap.

/// Number of intervals on each side that determine the usual interval around a point.
const AROUND: usize = 3;
/// Number of usual intervals between two points beyond which a plot shows a gap.
const MISSING_FACTOR: f64 = 2.5;

/// Points of a series, ascending by time.
#[derive(Debug, Default)]
pub(crate) struct Points {
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<Option<f64>>,
    /// Seconds that each value covers; 0 if there is no value.
    pub(crate) seconds: Vec<f64>,
}

impl Points {
    fn push(&mut self, at: i64, value: Option<f64>, seconds: f64) {
        self.times.push(at);
        self.values.push(value);
        self.seconds.push(seconds);
    }
}

/// Adds a point without a value in the middle of each gap. The usual interval is a local one: a series that is
/// read more often for a while shows no gaps where it is read at its normal period.
pub(crate) fn with_missing_points(
    times: &[i64],
    values: &[Option<f64>],
    seconds: &[f64],
    step: i64,
) -> Points {
    let distances: Vec<i64> =
        times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a)).collect();
    let usual = upper_median(&mut distances.clone()).max(step);
    let mut points = Points::default();
    let mut before: Option<(usize, i64)> = None;
    for (place, ((at, value), covers)) in times.iter().zip(values).zip(seconds).enumerate() {
        if let Some((between, before)) = before {
            let distance = at.saturating_sub(before) as f64;
            let is_missing = distance > usual as f64 * MISSING_FACTOR
                && distance > usual_around(&distances, between) as f64 * MISSING_FACTOR;
            if is_missing {
                points.push(before + (at - before) / 2, None, 0.0);
            }
        }
        points.push(*at, *value, *covers);
        before = Some((place, *at));
    }
    points
}

/// The usual interval (median) of the three before a place and the three after it.
fn usual_around(distances: &[i64], place: usize) -> i64 {
    let near = distances.iter().enumerate().skip(place.saturating_sub(AROUND)).take(2 * AROUND + 1);
    let mut others = [0; 2 * AROUND];
    let mut count = 0;
    let near = near.filter(|(at, _)| *at != place && *at <= place + AROUND);
    for (other, (_, distance)) in others.iter_mut().zip(near) {
        *other = *distance;
        count += 1;
    }
    upper_median(others.get_mut(..count).unwrap_or_default())
}

fn upper_median(distances: &mut [i64]) -> i64 {
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_that_was_read_more_often_for_a_while_misses_no_points() {
        let slow = |from: i64| (0..12).map(move |n| from + 2000 * n);
        let fast = (0..50).map(|n| 24_000 + 200 * n);
        let times: Vec<i64> = slow(0).chain(fast).chain(slow(34_000)).collect();
        let values: Vec<_> = times.iter().map(|at| Some(*at as f64)).collect();
        assert_eq!(with_missing_points(&times, &values, &vec![1.0; times.len()], 0).times, times);
        // A gap appears in either part.
        let missing = |at: &&i64| !(26_000..28_000).contains(*at) && !(4000..9000).contains(*at);
        let kept: Vec<i64> = times.iter().filter(missing).copied().collect();
        let (values, covers) = (vec![Some(1.0); kept.len()], vec![1.0; kept.len()]);
        let Points { times: shown, values, .. } = with_missing_points(&kept, &values, &covers, 0);
        let missing_times: Vec<i64> =
            shown.iter().zip(values).filter(|(_, v)| v.is_none()).map(|(at, _)| *at).collect();
        assert_eq!(missing_times, [6000, 26_900]);
    }
}
