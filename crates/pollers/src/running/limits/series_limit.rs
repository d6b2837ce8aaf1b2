//! A limit of the series of an exporter: one that invents them costs no other device a sample.

use crate::polling::Reading;
use crate::sending::Missing;
use model::{Cause, DeviceId, Timestamp};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// New series of an exporter in one day (UTC). A series of the day before is not new.
const SERIES_MAX: usize = 50_000;

const DAY_US: i64 = 86_400 * Timestamp::SECOND;

/// The series of one exporter, as hashes.
#[derive(Debug, Default)]
pub(crate) struct SeriesLimit {
    hasher: RandomState,
    day: i64,
    series: HashSet<u64>,
    day_before: HashSet<u64>,
    /// The instant of the latest exchange.
    latest: Option<Timestamp>,
    /// Since when series of a device are missing.
    since: BTreeMap<DeviceId, Timestamp>,
}

impl SeriesLimit {
    /// Removes the readings of further series, and of those with a name for which `admit` has no place. Returns the missing
    /// times, with the number of readings.
    pub(crate) fn apply(
        &mut self,
        readings: &mut Vec<Reading>,
        at: Timestamp,
        mut admit: impl FnMut(&Reading) -> bool,
    ) -> Vec<(Missing, u32)> {
        let day = at.0.div_euclid(DAY_US);
        if day != self.day {
            self.day = day;
            self.day_before = std::mem::take(&mut self.series);
        }
        let mut removed: BTreeMap<DeviceId, u32> = BTreeMap::new();
        readings.retain(|one| {
            let has_place = self.has_place(one, &mut admit);
            if !has_place {
                *removed.entry(one.device.clone()).or_default() += 1;
            }
            has_place
        });
        let from = self.latest.replace(at).unwrap_or(at);
        self.since.retain(|device, _| removed.contains_key(device));
        let missing = removed.into_iter().map(|(device, count)| {
            let from = *self.since.entry(device.clone()).or_insert(from);
            let detail = format!(
                "the exporter has more than {SERIES_MAX} new series a day, or more metrics than its share"
            );
            let (source, cause) = ("prometheus".to_owned(), Cause::SeriesRejected);
            (Missing { device, source, span: (from, at), cause, detail }, count)
        });
        // The first exchange has none before it: the next one reports its gap, too.
        missing.filter(|(one, _)| one.span.0 < one.span.1).collect()
    }

    fn has_place(&mut self, one: &Reading, admit: &mut impl FnMut(&Reading) -> bool) -> bool {
        let series = self.hasher.hash_one((&one.device, &one.metric, &one.labels));
        if self.series.contains(&series) {
            return true;
        }
        let is_known = self.day_before.contains(&series);
        let has_place = (is_known || self.series.len() < SERIES_MAX) && admit(one);
        if has_place {
            self.series.insert(series);
        }
        has_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;
    use crate::polling::Exchange;
    use model::Labels;

    fn reading(metric: &str, label: usize) -> Reading {
        let text = format!("- {{name: {metric}, device_id: pdu, url: 'http://pdu/#a'}}");
        let all = entries_of(&text);
        let due: Vec<_> = all.iter().collect();
        let mut exchange = Exchange::new(Timestamp(0), 1);
        let labels = Labels::new([("n", &*label.to_string())]).unwrap();
        exchange.value(0, &due, labels, 1.0);
        exchange.readings.remove(0)
    }

    #[test]
    fn further_series_of_a_day_are_one_growing_gap() {
        let mut limit = SeriesLimit::default();
        let one = reading("load", 0);
        let many = |from: usize, count: usize| -> Vec<Reading> {
            let labelled = |label: usize| Reading {
                labels: Labels::new([("n", &*label.to_string())]).unwrap(),
                ..one.clone()
            };
            (from..from + count).map(labelled).collect()
        };
        let mut read = |from, count, second: i64| {
            let mut readings = many(from, count);
            let missing =
                limit.apply(&mut readings, Timestamp(second * Timestamp::SECOND), |_| true);
            let missing = missing.into_iter().map(|(one, count)| {
                assert_eq!((&*one.source, one.cause), ("prometheus", Cause::SeriesRejected));
                (one.span.0.0 / Timestamp::SECOND, one.span.1.0 / Timestamp::SECOND, count)
            });
            (readings.len(), missing.collect::<Vec<_>>())
        };
        assert_eq!(read(0, SERIES_MAX, 5), (SERIES_MAX, vec![]));
        assert_eq!(read(SERIES_MAX - 1, 3, 10), (1, vec![(5, 10, 2)]));
        assert_eq!(read(SERIES_MAX - 1, 3, 15), (1, vec![(5, 15, 2)]));
        assert_eq!(read(0, 10, 20), (10, vec![]));
        let day = 86_400;
        assert_eq!(read(SERIES_MAX, SERIES_MAX, day), (SERIES_MAX, vec![]), "a new day");
        assert_eq!(read(0, 7, day + 5), (7, vec![]), "series of the day before");
        assert_eq!(read(9 * SERIES_MAX, 1, day + 10), (0, vec![(day + 5, day + 10, 1)]));
    }

    #[test]
    fn further_names_have_no_place() {
        let mut limit = SeriesLimit::default();
        let one = reading("load", 0);
        let mut read = |name: &str, second: i64| {
            let mut readings = vec![Reading { metric: name.to_owned(), ..one.clone() }];
            let admit = |one: &Reading| one.metric == "known";
            limit.apply(&mut readings, Timestamp(second * Timestamp::SECOND), admit);
            readings.len()
        };
        assert_eq!((read("known", 5), read("new", 10), read("known", 86_400)), (1, 0, 1));
    }
}
