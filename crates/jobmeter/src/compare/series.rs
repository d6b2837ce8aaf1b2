//! The samples of a side by series, with a bound.

use anyhow::bail;
use model::{Point, Timestamp, increase};
use std::collections::BTreeMap;

/// Most samples of a side: 16 bytes of memory for each.
pub(super) const SAMPLES_MAX: usize = 10_000_000;
/// Most series of a side.
const SERIES_MAX: usize = 500_000;

/// A series as it is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) device: String,
    pub(super) metric: String,
    pub(super) job: Option<String>,
    /// `name=value`, with commas between them.
    pub(super) labels: String,
}

/// A value at an instant, in microseconds since 1970.
pub(super) type Sample = (i64, f64);

/// The samples of a series of a side, which is a part of one that is compared: the other side has only their sum.
#[derive(Debug, Default)]
struct Part {
    samples: Vec<Sample>,
    grows: bool,
}

/// The growth between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Segment {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) grown: f64,
}

/// A series of a side.
#[derive(Debug, Default)]
pub(super) struct Series {
    /// For each part, its samples in the order of time, each instant once.
    pub(super) parts: Vec<Vec<Sample>>,
}

/// All samples of a side.
#[derive(Debug)]
pub(super) struct Samples {
    series: BTreeMap<Key, BTreeMap<String, Part>>,
    parts: usize,
    samples: usize,
    samples_max: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self { series: BTreeMap::new(), parts: 0, samples: 0, samples_max: SAMPLES_MAX }
    }
}

impl Samples {
    /// Adds a sample; they may come in any order.
    ///
    /// # Errors
    /// There are too many samples or series.
    pub(super) fn add(
        &mut self,
        key: Key,
        part: String,
        at: i64,
        value: f64,
        grows: bool,
    ) -> anyhow::Result<()> {
        if self.samples >= self.samples_max || self.parts >= SERIES_MAX {
            bail!(
                "more than {} samples or {SERIES_MAX} series; compare a shorter time, or select with --device, --metric or --job",
                self.samples_max
            );
        }
        let parts = self.series.entry(key).or_default();
        let before = parts.len();
        let part = parts.entry(part).or_default();
        part.samples.push((at, value));
        part.grows = grows;
        self.samples += 1;
        self.parts += parts.len() - before;
        Ok(())
    }

    /// The series in the order of their keys.
    pub(super) fn finish(self) -> BTreeMap<Key, Series> {
        let series = |parts: BTreeMap<String, Part>| Series {
            parts: parts.into_values().map(ordered).collect(),
        };
        self.series.into_iter().map(|(key, parts)| (key, series(parts))).collect()
    }

    /// A series with samples of jobs with this number of two clusters: their sum means nothing.
    pub(super) fn of_two_clusters(&self) -> Option<&Key> {
        let cluster = |part: &String| part.split('\0').nth(1).map(str::to_owned);
        let mut all = self.series.iter().filter(|(key, _)| key.job.is_some());
        let found = all.find(|(_, parts)| {
            let mut clusters = parts.keys().map(cluster);
            let first = clusters.next();
            clusters.any(|other| Some(other) != first)
        });
        found.map(|(key, _)| key)
    }
}

/// Samples in the order of time. Of two at one instant, the one that came last counts. Growths become their sum.
fn ordered(part: Part) -> Vec<Sample> {
    let Part { mut samples, grows } = part;
    samples.sort_by_key(|(at, _)| *at);
    let mut out: Vec<Sample> = Vec::with_capacity(samples.len());
    for sample in samples {
        match out.last_mut() {
            Some(last) if last.0 == sample.0 => *last = sample,
            _ => out.push(sample),
        }
    }
    if grows {
        let mut sum = 0.0;
        for (_, value) in &mut out {
            sum += *value;
            *value = sum;
        }
    }
    out
}

impl Series {
    /// The growth of the sum of the parts. Between samples that are further apart than `gap`, nothing is known.
    pub(super) fn segments(&self, gap: i64) -> Vec<Segment> {
        let mut parts: Vec<Vec<Segment>> =
            self.parts.iter().map(|samples| segments(samples, gap)).collect();
        match parts.len() {
            1 => parts.pop().unwrap_or_default(),
            _ => merged(&parts),
        }
    }

    /// When its first and its last sample are.
    pub(super) fn life(&self) -> Option<(i64, i64)> {
        let at = |sample: Option<&Sample>| sample.map(|(at, _)| *at);
        let first = self.parts.iter().filter_map(|part| at(part.first())).min()?;
        Some((first, self.parts.iter().filter_map(|part| at(part.last())).max()?))
    }
}

fn segments(samples: &[Sample], gap: i64) -> Vec<Segment> {
    let point = |(at, value): Sample| Point { at: Timestamp(at), value, start: None };
    let pairs = samples.windows(2).filter_map(|pair| match pair {
        [one, two] if two.0.saturating_sub(one.0) <= gap => {
            let grown = increase(point(*one), point(*two)).amount;
            Some(Segment { from: one.0, to: two.0, grown })
        }
        _ => None,
    });
    pairs.collect()
}

/// The sum of several lists: between two ends, the rates are added.
fn merged(parts: &[Vec<Segment>]) -> Vec<Segment> {
    let mut ends: Vec<i64> = parts.iter().flatten().flat_map(|it| [it.from, it.to]).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut sums: Vec<Option<f64>> = vec![None; ends.len().saturating_sub(1)];
    for segment in parts.iter().flatten() {
        let first = ends.partition_point(|end| *end < segment.from);
        let rate = segment.grown / (segment.to - segment.from) as f64;
        let (sums, ends) = (sums.get_mut(first..), ends.get(first..).unwrap_or_default());
        for (sum, pair) in sums.into_iter().flatten().zip(ends.windows(2)) {
            let [from, to] = pair else { break };
            if *from >= segment.to {
                break;
            }
            *sum = Some(sum.unwrap_or(0.0) + rate * (to - from) as f64);
        }
    }
    let pairs = sums.into_iter().zip(ends.windows(2)).filter_map(|(sum, pair)| match pair {
        [from, to] => Some(Segment { from: *from, to: *to, grown: sum? }),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(job: Option<&str>) -> Key {
        let job = job.map(str::to_owned);
        Key { device: "n".into(), metric: "m_total".into(), job, labels: String::new() }
    }

    fn series(parts: &[&[Sample]]) -> Series {
        Series { parts: parts.iter().map(|part| part.to_vec()).collect() }
    }

    fn sum(segments: &[Segment]) -> f64 {
        segments.iter().map(|segment| segment.grown).sum()
    }

    #[test]
    fn growth_survives_a_restart_and_ends_at_a_gap() {
        let found = series(&[&[(0, 5.0), (10, 8.0), (20, 2.0), (100, 50.0), (110, 51.0)]]);
        let of = |from, to, grown| Segment { from, to, grown };
        assert_eq!(found.segments(20), [of(0, 10, 3.0), of(10, 20, 2.0), of(100, 110, 1.0)]);
        assert_eq!(found.life(), Some((0, 110)));
        assert_eq!(series(&[]).segments(20), []);
        assert_eq!(series(&[&[(1, 1.0)]]).segments(20), []);
    }

    #[test]
    fn the_sum_of_parts_grows_with_each() {
        let found = series(&[&[(0, 0.0), (10, 10.0)], &[(5, 100.0), (15, 120.0)]]).segments(20);
        let of = |from, to, grown| Segment { from, to, grown };
        assert_eq!(found, [of(0, 5, 5.0), of(5, 10, 15.0), of(10, 15, 10.0)]);
    }

    #[test]
    fn growths_become_a_counter_whatever_their_order() {
        let mut samples = Samples::default();
        for (at, value) in [(20, 3.0), (10, 5.0), (30, 4.0), (20, 7.0)] {
            samples.add(key(None), String::new(), at, value, true).unwrap();
        }
        let all = samples.finish();
        assert_eq!(all[&key(None)].parts, [[(10, 5.0), (20, 12.0), (30, 16.0)]]);
    }

    #[test]
    fn too_many_samples_are_an_error() {
        let mut samples = Samples { samples_max: 2, ..Samples::default() };
        let mut add = |at| samples.add(key(None), String::new(), at, 0.0, false);
        assert!(add(1).is_ok() && add(2).is_ok());
        assert!(add(3).unwrap_err().to_string().contains("more than 2 samples"));
    }

    #[test]
    fn one_number_of_two_clusters_is_found() {
        let mut samples = Samples::default();
        for (job, cluster) in [("7", "a"), ("8", "b"), ("8", "b")] {
            samples.add(key(Some(job)), format!("n\0{cluster}\0x"), 1, 0.0, false).unwrap();
        }
        assert_eq!(samples.of_two_clusters(), None);
        samples.add(key(Some("7")), "n\0b\0".into(), 1, 0.0, false).unwrap();
        assert_eq!(samples.of_two_clusters(), Some(&key(Some("7"))));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_between_parts(
            parts in prop::collection::vec(prop::collection::btree_map(0_i64..200, 0_u32..999, 0..30), 0..4),
            gap in 1_i64..250,
        ) {
            let parts: Vec<Vec<Sample>> = parts
                .iter()
                .map(|part| part.iter().map(|(at, value)| (*at, f64::from(*value))).collect())
                .collect();
            let single: f64 = parts.iter().map(|part| sum(&segments(part, gap))).sum();
            let found = Series { parts }.segments(gap);
            prop_assert!((sum(&found) - single).abs() < 1e-6);
            prop_assert!(found.iter().all(|it| it.from < it.to && it.grown >= 0.0));
            prop_assert!(found.windows(2).all(|pair| pair[0].to <= pair[1].from));
        }
    }
}
