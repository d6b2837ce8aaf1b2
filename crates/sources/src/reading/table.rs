//! Files of names and numbers, such as `/proc/meminfo`: maps names to metrics.

use crate::{SampleWriter, Sink};
use hashbrown::HashMap;
use model::{Kind, Metric, Timestamp, Unit};
use rustc_hash::FxBuildHasher;

/// A metric and the kernel's names; its value is the sum of their numbers.
#[derive(Debug)]
pub(crate) struct Row {
    /// Several where the kernel counts the quantity in parts, or renamed it.
    pub(crate) names: &'static [&'static str],
    pub(crate) metric: Metric,
}

/// The metrics of the rows, for a source's declaration.
#[expect(clippy::indexing_slicing, reason = "below N, and evaluated at compile time")]
pub(crate) const fn metrics<const N: usize>(rows: &'static [Row; N]) -> [&'static Metric; N] {
    let mut metrics = [&rows[0].metric; N];
    let mut place = 0;
    while place < N {
        metrics[place] = &rows[place].metric;
        place += 1;
    }
    metrics
}

/// The rows of a file during a reading.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    places: HashMap<&'static [u8], usize, FxBuildHasher>,
}

/// A row and its value, if the file contains one.
#[derive(Debug)]
pub(crate) struct Slot {
    metric: &'static Metric,
    value: Option<u64>,
}

impl Table {
    pub(crate) fn new(rows: &'static [Row]) -> Self {
        let slots = rows.iter().map(|row| Slot { metric: &row.metric, value: None }).collect();
        let mut places = HashMap::default();
        for (place, row) in rows.iter().enumerate() {
            places.extend(row.names.iter().map(|name| (name.as_bytes(), place)));
        }
        Self { slots, places }
    }

    /// Begins a reading.
    pub(crate) fn begin(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.value = None);
    }

    /// The row of a name, if any.
    pub(crate) fn row(&mut self, name: &[u8]) -> Option<&mut Slot> {
        self.slots.get_mut(*self.places.get(name)?)
    }

    /// Pushes every value of the file.
    pub(crate) fn push(&self, boot: Timestamp, out: &mut Sink) {
        self.push_of(&mut out.of_device(), &[], boot);
    }

    /// Pushes every value of the file with these labels.
    pub(crate) fn push_of(
        &self,
        out: &mut SampleWriter<'_>,
        labels: &[(&str, &str)],
        start: Timestamp,
    ) {
        for slot in &self.slots {
            let Some(value) = slot.value else { continue };
            match slot.metric.kind {
                Kind::Counter => out.counter(slot.metric, labels, value as f64, start),
                Kind::Gauge => out.gauge(slot.metric, labels, value as f64),
            }
        }
    }
}

impl Slot {
    pub(crate) const fn unit(&self) -> Unit {
        self.metric.unit
    }

    /// Adds a number to the value.
    pub(crate) fn add(&mut self, number: u64) {
        self.value = Some(self.value.unwrap_or(0).saturating_add(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::DeviceId;

    static ROWS: [Row; 3] = [
        Row { names: &["a"], metric: Metric::gauge("x_a", Unit::Count, "") },
        Row { names: &["b_1", "b_2"], metric: Metric::counter("x_b_total", Unit::Count, "") },
        Row { names: &["c"], metric: Metric::gauge("x_c", Unit::Count, "") },
    ];

    #[test]
    fn parts_are_summed_and_missing_values_remain_missing() {
        assert_eq!(metrics(&ROWS).map(|metric| &*metric.name), ["x_a", "x_b_total", "x_c"]);
        let mut table = Table::new(&ROWS);
        let mut out = Sink::new(DeviceId::new("n").unwrap());
        for round in [1, 2] {
            table.begin();
            for (name, number) in [("b_1", 1), ("a", 7 * round), ("b_2", 2)] {
                table.row(name.as_bytes()).unwrap().add(number);
            }
            assert!(table.row(b"b").is_none());
        }
        table.push(Timestamp(5), &mut out);
        let samples: Vec<_> =
            out.samples().map(|(entry, _, v)| (&*entry.metric.name, entry.start, v)).collect();
        assert_eq!(samples, [("x_a", None, 14.0), ("x_b_total", Some(Timestamp(5)), 3.0)]);
    }
}
