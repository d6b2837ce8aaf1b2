//! Records of the batches of an agent, for a sender without a store.

use crate::portion::{Row, slice_of};
use crate::records::layout::Layout;
use crate::records::taking::Records;
use colmet::record::Record;
use model::{Batch, SeriesTable, Timestamp};
use std::sync::Arc;
use storage::{SeriesInfo, TimeSlice};

/// Makes Colmet's records of an agent's batches.
///
/// A batch has all samples of its ticks, so every instant is complete at the end of its batch.
#[derive(Debug)]
pub struct NodeRecords {
    records: Records,
    /// The series of the last batch. Agents share a table between batches while it is unchanged.
    table: Option<(Arc<SeriesTable>, Vec<Arc<SeriesInfo>>)>,
}

impl NodeRecords {
    /// No batch yet.
    pub fn new(layout: Layout) -> Self {
        Self { records: Records::new(layout), table: None }
    }

    /// The records of a batch, ordered by instant.
    pub fn of_batch(&mut self, batch: &Batch) -> Vec<Record> {
        let Some(last) = batch.ticks.iter().map(|tick| tick.at).max() else { return Vec::new() };
        let samples = self.samples(batch);
        let (mut records, _) = self.records.take(&samples, None, last);
        let none = slice_of(std::iter::empty());
        records.extend(self.records.take(&none, Some(last.plus(1)), last).0);
        records
    }

    fn samples(&mut self, batch: &Batch) -> TimeSlice {
        let series = match self.table.take() {
            Some((table, series)) if Arc::ptr_eq(&table, &batch.table) => series,
            _ => batch.table.entries.iter().map(info).collect(),
        };
        let mut numbers = batch.index.iter().zip(&batch.values);
        let mut rows = Vec::with_capacity(batch.index.len());
        for tick in &batch.ticks {
            for (place, value) in numbers.by_ref().take(tick.samples as usize) {
                let place = *place as usize;
                if let (Some(series), Some(entry)) =
                    (series.get(place), batch.table.entries.get(place))
                {
                    let start = entry.start.map_or(TimeSlice::NO_START, |Timestamp(start)| start);
                    rows.push(Row { series, at: tick.at.0, value: *value, start });
                }
            }
        }
        let samples = slice_of(rows.into_iter());
        self.table = Some((Arc::clone(&batch.table), series));
        samples
    }
}

fn info(entry: &model::SeriesEntry) -> Arc<SeriesInfo> {
    let metric = &entry.metric;
    Arc::new(SeriesInfo {
        series: entry.series(),
        unit: metric.unit,
        kind: metric.kind,
        divisor: metric.divisor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use conformance::{S, Sender, Spec, T0, spec};
    use model::ClusterId;

    #[test]
    fn each_instant_of_a_batch_has_its_records() {
        let layout = Layout::new(ClusterId::new("oar").unwrap(), "site", Vec::new());
        let mut records = NodeRecords::new(layout);
        let mut sender = Sender::new("n1", 1);
        let job = |metric| Spec { job: Some(7), ..spec("n1", metric) };
        let mut of = |ticks: &[i64]| {
            let each = ticks.iter().flat_map(|tick| {
                let at = T0 + tick * S;
                [
                    (spec("n1", "cpu_forks_total"), at, *tick as f64),
                    (job("taskstats_cpu_delays_total"), at, 2.0),
                ]
            });
            let batch = sender.batch(&each.collect::<Vec<_>>());
            let made = records.of_batch(&batch);
            let show = |record: &Record| {
                let second = (record.at.0 - T0) / S;
                let jobs = record.get("involved_jobs").cloned();
                (second, record.host.clone(), record.job, record.backend.word, jobs)
            };
            made.iter().map(show).collect::<Vec<_>>()
        };
        let jobs = Some(colmet::record::Value::Text("[7]".into()));
        let expected = |second| {
            let host = || "n1.site".to_owned();
            [(second, host(), 0, "procstats", jobs.clone()), (second, host(), 7, "taskstats", None)]
        };
        let sorted = |mut all: Vec<_>| {
            all.sort_by_key(|(second, _, job, ..): &(i64, String, u64, &str, _)| (*second, *job));
            all
        };
        assert_eq!(sorted(of(&[1])), expected(1));
        assert_eq!(sorted(of(&[2, 3])), [expected(2), expected(3)].concat());
        assert_eq!(of(&[]), []);
    }
}
