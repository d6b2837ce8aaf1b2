//! Series tables of the batches. Batches share a table until the series change. The wire's limits split the series
//! into several tables.

use crate::batches::seal::Sinks;
use model::{Metric, SeriesEntry, SeriesTable};
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum number of series in one table. The wire accepts twice as many.
const SERIES_MAX: usize = 32_768;
/// Maximum number of metrics in one table. The wire accepts twice as many.
const METRICS_MAX: usize = 2048;
/// Maximum estimated size of one table in bytes. The wire accepts twice as much.
const BYTES_MAX: usize = 4 << 20;

/// Position of a series: its table and entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) table: u32,
    pub(crate) entry: u32,
}

/// The tables, and the positions of each sink's series in them.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) tables: Vec<Arc<SeriesTable>>,
    places: Vec<Vec<TableEntry>>,
}

impl Tables {
    /// Positions of a sink's series.
    pub(crate) fn places(&self, sink: usize) -> &[TableEntry] {
        self.places.get(sink).map_or(&[], Vec::as_slice)
    }

    /// Whether the tables lack the series of a sink that was absent when they were built.
    pub(crate) fn lacks(&self, sink: usize, series: usize) -> bool {
        series > 0 && self.places(sink).is_empty()
    }

    /// Builds the tables of these sinks, without those that are absent.
    pub(crate) fn build(&mut self, sinks: &mut dyn Sinks) {
        // A table is the largest object of an agent. The old one is freed first, and the new one has no spare
        // capacity.
        self.tables.clear();
        self.places.clear();
        let mut series = 0;
        sinks.each(&mut |sink| series += sink.map_or(0, |sink| sink.series()));
        let entries = Vec::with_capacity(series.min(SERIES_MAX));
        let mut making = Making { entries, ..Making::default() };
        sinks.each(&mut |sink| {
            let place = |entry: Option<&SeriesEntry>| {
                entry.map_or_else(TableEntry::default, |entry| making.add(entry))
            };
            self.places.push(sink.map_or_else(Vec::new, |sink| sink.table().map(place).collect()));
        });
        self.tables = making.done();
    }
}

#[derive(Default)]
struct Making {
    done: Vec<Arc<SeriesTable>>,
    entries: Vec<SeriesEntry>,
    /// Addresses of the metrics in the table.
    metrics: HashSet<*const Metric>,
    bytes: usize,
}

impl Making {
    fn add(&mut self, entry: &SeriesEntry) -> TableEntry {
        // Fixed fields of an entry, its labels and, at worst, its own metric.
        let bytes = 64 + entry.labels.as_str().len() + entry.metric.name.len();
        let metric = Arc::as_ptr(&entry.metric);
        let many_metrics = self.metrics.len() >= METRICS_MAX && !self.metrics.contains(&metric);
        if self.entries.len() >= SERIES_MAX || self.bytes + bytes > BYTES_MAX || many_metrics {
            self.close();
        }
        self.metrics.insert(metric);
        self.bytes += bytes;
        self.entries.push(entry.clone());
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        TableEntry { table: number(self.done.len()), entry: number(self.entries.len() - 1) }
    }

    fn close(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.shrink_to_fit();
        self.done.push(Arc::new(SeriesTable { entries }));
        self.metrics.clear();
        self.bytes = 0;
    }

    fn done(mut self) -> Vec<Arc<SeriesTable>> {
        if !self.entries.is_empty() || self.done.is_empty() {
            self.close();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Unit};
    use sources::Sink;

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");

    impl Sinks for Vec<Option<Sink>> {
        fn each(&mut self, show: &mut dyn FnMut(Option<&mut Sink>)) {
            self.iter_mut().for_each(|sink| show(sink.as_mut()));
        }
    }

    fn sink(series: usize) -> Sink {
        let mut sink = Sink::new(DeviceId::new("n").unwrap());
        for i in 0..series {
            sink.of_device().gauge(&LOAD, &[("i", &i.to_string())], 1.0);
        }
        sink
    }

    #[test]
    fn one_table_for_all_sinks_and_the_absent_one_is_left_out() {
        let mut sinks = vec![Some(sink(2)), None, Some(sink(3))];
        let mut tables = Tables::default();
        tables.build(&mut sinks);
        assert_eq!(tables.tables.len(), 1);
        assert_eq!(tables.tables[0].entries.len(), 5);
        assert_eq!(tables.places(2)[0], TableEntry { table: 0, entry: 2 });
        assert!(tables.lacks(1, 4) && !tables.lacks(1, 0) && !tables.lacks(0, 2));
    }

    #[test]
    fn metrics_declared_at_run_time_are_cut_at_their_limit() {
        let mut sink = Sink::new(DeviceId::new("poller").unwrap());
        let pdus = ["pdu-1", "pdu-2"].map(|name| DeviceId::new(name).unwrap());
        for i in 0..=METRICS_MAX {
            let metric = Arc::new(Metric { name: format!("prom_{i}").into(), ..LOAD.clone() });
            pdus.iter().for_each(|pdu| sink.of(pdu).gauge(&metric, &[], 1.0));
        }
        let mut tables = Tables::default();
        tables.build(&mut vec![Some(sink)]);
        let series: Vec<_> = tables.tables.iter().map(|table| table.entries.len()).collect();
        assert_eq!(series, [2 * METRICS_MAX, 2]);
    }

    #[test]
    fn cut_at_the_limit() {
        let mut sinks = vec![Some(sink(SERIES_MAX - 1)), Some(sink(2))];
        let mut tables = Tables::default();
        tables.build(&mut sinks);
        assert_eq!(tables.tables.len(), 2);
        assert_eq!(
            tables.places(1),
            [
                TableEntry { table: 0, entry: u32::try_from(SERIES_MAX - 1).unwrap() },
                TableEntry { table: 1, entry: 0 },
            ]
        );
    }
}
