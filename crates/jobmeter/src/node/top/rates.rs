//! Counters as rates: growth since the previous reading.

use model::{JobKey, Kind, Point, Series, Timestamp, increases};
use sources::Sink;
use std::collections::HashMap;
use std::hash::Hash;

/// The previous readings, by key.
#[derive(Debug)]
pub(super) struct Rates<K> {
    before: HashMap<K, Point>,
    now: HashMap<K, Point>,
    /// Time of the previous readings.
    from: Option<Timestamp>,
    at: Timestamp,
}

impl<K: Eq + Hash> Rates<K> {
    pub(super) fn new() -> Self {
        let (before, now) = (HashMap::new(), HashMap::new());
        Self { before, now, from: None, at: Timestamp(0) }
    }

    /// Begins a round of readings.
    pub(super) fn begin(&mut self, at: Timestamp) {
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.clear();
        self.from = (!self.before.is_empty()).then_some(self.at);
        self.at = at;
    }

    /// Growth of a counter per second. `None` in the first round, and for a new counter that started before the
    /// previous round.
    pub(super) fn rate(&mut self, of: K, value: f64, start: Option<Timestamp>) -> Option<f64> {
        let point = Point { at: self.at, value, start };
        let before = self.before.get(&of).copied();
        self.now.insert(of, point);
        let from = self.from?;
        let seconds = self.at.since(from) as f64 / 1e6;
        let is_known = before.is_some() || start.is_some_and(|start| start >= from);
        (is_known && seconds > 0.0).then(|| increases(before, from, [point]) / seconds)
    }

    /// Drops the readings: after a pause there is no rate.
    pub(super) fn forget(&mut self) {
        self.now.clear();
    }
}

/// Values of sources: gauges unchanged, counters as rates. Series of one metric and job have their sum and their
/// maximum.
#[derive(Debug, Default)]
pub(super) struct Values(HashMap<(String, Option<JobKey>), (f64, f64)>);

impl Values {
    /// Adds a source's samples.
    pub(super) fn add(&mut self, sink: &Sink, rates: &mut Rates<Series>) {
        for (entry, _, value) in sink.samples() {
            let value = match entry.metric.kind {
                Kind::Gauge => Some(value),
                Kind::Counter => rates.rate(entry.series(), value, entry.start),
            };
            let of = (entry.metric.name.to_string(), entry.job.clone());
            if let Some(value) = value {
                let (sum, largest) = self.0.entry(of).or_insert((0.0, value));
                (*sum, *largest) = (*sum + value, largest.max(value));
            }
        }
    }

    /// The value of a metric, of the whole device or of a job.
    pub(super) fn get(&self, metric: &str, job: Option<&JobKey>) -> Option<f64> {
        self.0.get(&(metric.to_owned(), job.cloned())).map(|(sum, _)| *sum)
    }

    /// The maximum value among the device's parts.
    pub(super) fn largest(&self, metric: &str) -> Option<f64> {
        self.0.get(&(metric.to_owned(), None)).map(|(_, largest)| *largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_begin_with_the_second_reading_and_know_new_counters() {
        let second = |n| Timestamp::from_seconds(n);
        let mut rates = Rates::new();
        rates.begin(second(10));
        assert_eq!(rates.rate("a", 100.0, Some(second(1))), None);
        rates.begin(second(12));
        assert_eq!(rates.rate("a", 103.0, Some(second(1))), Some(1.5));
        // Counter b started between the two readings; c is older and was found only now.
        assert_eq!(rates.rate("b", 4.0, Some(second(11))), Some(2.0));
        assert_eq!(rates.rate("c", 4.0, Some(second(1))), None);
        rates.begin(second(14));
        // A different process with a reused PID.
        assert_eq!(rates.rate("a", 1.0, Some(second(13))), Some(0.5));
        rates.forget();
        rates.begin(second(16));
        assert_eq!(rates.rate("a", 9.0, Some(second(13))), None);
    }
}
