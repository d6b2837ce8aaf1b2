//! The samples of a series around a gap of its device: whether one of them is missing in it.

/// Samples on each side that determine the usual distance: three distances.
const AROUND: usize = 4;

/// The instants of a series around a gap, in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct GapSamples {
    /// The latest ones before it, and the first ones after it, ascending.
    before: Vec<i64>,
    after: Vec<i64>,
    /// The longest distance of two neighbours with a part of the gap between them.
    longest: i64,
}

impl GapSamples {
    /// Takes the next instants of the series, ascending; `previous` is the one before them.
    pub(crate) fn take(&mut self, (from, to): (i64, i64), times: &[i64], previous: Option<i64>) {
        let begin = times.partition_point(|at| *at <= from);
        let end = times.partition_point(|at| *at < to).max(begin);
        let near = begin.saturating_sub(AROUND)..begin;
        self.before.extend(times.get(near).into_iter().flatten());
        self.before.drain(..self.before.len().saturating_sub(AROUND));
        let free = AROUND.saturating_sub(self.after.len());
        self.after.extend(times.iter().skip(end).take(free));
        let first = previous.zip(times.first().copied());
        let around = times.iter().zip(times.iter().skip(1));
        let around = around.skip(begin.saturating_sub(1)).take(end + 1 - begin);
        let pairs = first.into_iter().chain(around.map(|(one, next)| (*one, *next)));
        let over = pairs.filter(|(one, next)| *one < to && *next > from);
        let longest = over.map(|(one, next)| next.saturating_sub(one)).max();
        self.longest = self.longest.max(longest.unwrap_or(0));
    }

    /// Whether a sample is missing in the gap. None is if the gap is shorter than the usual distance of the samples around
    /// it, and none of their distances over the gap is longer than usual. `step` is the error of the instants.
    pub(crate) fn is_missing(&self, (from, to): (i64, i64), step: i64) -> bool {
        let distances = |times: &[i64]| -> Vec<i64> {
            times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a)).collect()
        };
        let mut usual = [distances(&self.before), distances(&self.after)].concat();
        usual.sort_unstable();
        let Some(usual) = usual.get(usual.len() / 2).copied() else { return true };
        let has_both = !self.before.is_empty() && !self.after.is_empty();
        let is_short = to.saturating_sub(from) < usual.saturating_sub(step);
        !has_both || !is_short || self.longest.saturating_mul(2) > usual.saturating_mul(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_missing(gap: (i64, i64), parts: &[&[i64]]) -> bool {
        let (mut samples, mut previous) = (GapSamples::default(), None);
        for part in parts {
            samples.take(gap, part, previous);
            previous = part.last().copied();
        }
        samples.is_missing(gap, 0)
    }

    #[test]
    fn a_gap_shorter_than_the_period_misses_a_sample_only_if_two_are_further_apart() {
        let all: Vec<i64> = (0..10).map(|n| 60 * n).collect();
        for gap in [(241, 299), (240, 299), (270, 310), (241, 300)] {
            for split in 0..10 {
                let (one, other) = all.split_at(split);
                assert!(!is_missing(gap, &[one, other]), "{gap:?} {split}");
            }
        }
        let without_300: Vec<i64> = all.iter().copied().filter(|at| *at != 300).collect();
        for split in 0..9 {
            let (one, other) = without_300.split_at(split);
            assert!(is_missing((270, 310), &[one, other]), "{split}");
        }
    }

    #[test]
    fn a_gap_of_a_period_or_at_an_end_of_the_samples_is_shown() {
        let all: Vec<i64> = (0..10).map(|n| 60 * n).collect();
        assert!(is_missing((240, 300), &[&all]), "every second sample may be missing");
        assert!(is_missing((541, 550), &[&all]));
        assert!(is_missing((-30, -10), &[&all]));
        assert!(is_missing((241, 299), &[&[240], &[300]]), "no usual distance");
        // The period was shorter at the time of the gap.
        let fast: Vec<i64> = (0..10).map(|n| 10 * n).chain((13..20).map(|n| 10 * n)).collect();
        let slow: Vec<i64> = (4..20).map(|n| 60 * n).collect();
        assert!(is_missing((90, 130), &[&fast, &slow]));
    }
}
