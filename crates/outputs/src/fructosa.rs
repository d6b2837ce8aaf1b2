//! Samples as the values of FrUCToSA's sensors, computed by the equivalents in the crate `colmet`. No files and no clocks.
//!
//! A value is computed from the samples of one source and device at one instant. If these are in several portions, it is
//! computed again with each: the receiver replaces the value of an instant. Percentages need the counters of the instant before.

use crate::portion::{Row, rows};
use crate::records::source_of;
use colmet::equivalent::Ours;
use colmet::formula::{Formula, Selector};
use colmet::fructosa::GROUPS;
use model::{DeviceId, Point, SEGMENT_MAX_US, Series, Timestamp, USER_LABEL, increase};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{SeriesInfo, TimeSlice};

/// Most samples that are held: 3 900 nodes with the times of 32 processors.
const HELD_MAX: usize = 2_000_000;
/// A device without samples for longer is forgotten when the limit is reached.
const IDLE_US: i64 = 3600 * Timestamp::SECOND;
/// Sensors with a value for each part of a node, and the labels that name the part.
const PARTS: &[(&str, &[&str])] = &[
    ("NetIFStats", &["interface"]),
    ("SensorsTemperatures", &["chip", "device", "sensor"]),
    ("SensorsFans", &["chip", "device", "sensor"]),
];
/// Sessions of people: a list, as in FrUCToSA.
const LISTS: &[&str] = &["Users"];
/// The key of a sensor that is one number.
const ONE_NUMBER: &str = "value";
/// Divides the labels of a part.
const SEPARATOR: char = '\0';

/// Computes the values.
#[derive(Debug)]
pub(crate) struct Fructosa {
    /// By the name of the source.
    sources: FxHashMap<&'static str, Sensors>,
    metrics: FxHashMap<&'static str, Use>,
    streams: FxHashMap<(DeviceId, &'static str), Stream>,
    held_max: usize,
    newest: i64,
    left_out: u64,
}

/// What a metric is computed for.
#[derive(Debug)]
struct Use {
    source: &'static str,
    /// The labels that name its part.
    labels: Vec<&'static str>,
}

/// The values that are computed from one source.
#[derive(Debug, Default)]
struct Sensors {
    values: Vec<Sensor>,
    needs_growth: bool,
}

/// A value, or one for each part.
#[derive(Debug)]
struct Sensor {
    group: &'static str,
    key: &'static str,
    formula: &'static Formula,
    is_growth: bool,
    part: Part,
}

/// Whether a sensor has parts, and where their names are in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It has none.
    None,
    /// The part is the key.
    IsKey,
    /// The part precedes the key.
    BeforeKey,
}

/// The samples of a source on a device. Late samples beside present ones have a lane of their own.
#[derive(Debug, Default)]
struct Stream {
    newest: Lane,
    late: Option<Lane>,
}

/// An instant, and the one before it if percentages need it.
#[derive(Debug, Default)]
struct Lane {
    now: Instant,
    before: Option<Instant>,
}

#[derive(Debug, Default)]
struct Instant {
    /// In microseconds since 1970.
    at: i64,
    /// Ordered by series.
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    series: Arc<SeriesInfo>,
    value: f64,
    start: i64,
}

/// Sums by metric and part; a metric without parts has one, without a name.
type Sums<'a> = FxHashMap<&'a str, BTreeMap<String, f64>>;

impl Fructosa {
    pub(crate) fn new() -> Self {
        let mut sources: FxHashMap<&'static str, Sensors> = FxHashMap::default();
        let mut metrics = FxHashMap::default();
        for group in GROUPS.iter().filter(|group| !LISTS.contains(&group.name)) {
            let parts = PARTS.iter().find(|(name, _)| *name == group.name);
            let values = group.rows.iter().flat_map(|row| {
                let is_growth = matches!(row.ours, Ours::Grows(_));
                row.ours.formulas().iter().map(move |formula| (row.theirs, is_growth, formula))
            });
            for (key, is_growth, formula) in values {
                let operands = operands(formula);
                let Some(source) = operands.first().map(|(metric, _)| source_of(metric)) else {
                    continue;
                };
                let mut part = if parts.is_some() { Part::BeforeKey } else { Part::None };
                for (metric, label) in operands {
                    let mut labels: Vec<&str> =
                        parts.map(|(_, labels)| labels.to_vec()).unwrap_or_default();
                    if let Some((label, is_each)) = label {
                        labels.push(label);
                        part = if is_each { Part::IsKey } else { part };
                    }
                    metrics.insert(metric, Use { source, labels });
                }
                let sensors = sources.entry(source).or_default();
                sensors.needs_growth |= is_growth;
                sensors.values.push(Sensor { group: group.name, key, formula, is_growth, part });
            }
        }
        let streams = FxHashMap::default();
        Self { sources, metrics, streams, held_max: HELD_MAX, newest: i64::MIN, left_out: 0 }
    }

    /// Adds samples that are ordered by time. `send` receives each value: its path (host, sensor, key), its instant, and
    /// itself.
    pub(crate) fn take(&mut self, samples: &TimeSlice, send: &mut dyn FnMut(&[&str], i64, f64)) {
        let newest = samples.times.last().copied().unwrap_or(i64::MIN);
        self.newest = self.newest.max(newest);
        let mut free = self.free();
        let used: Vec<(Row<'_>, &'static str)> =
            rows(samples).filter_map(|row| Some((row, self.source_of_row(&row)?))).collect();
        let together = |a: &(Row<'_>, &str), b: &(Row<'_>, &str)| {
            let (one, other) = (&a.0.series.series, &b.0.series.series);
            a.1 == b.1 && a.0.at == b.0.at && one.device == other.device
        };
        for of_instant in used.chunk_by(together) {
            let Some((first, source)) = of_instant.first() else { continue };
            let Some(sensors) = self.sources.get(source) else { continue };
            let device = &first.series.series.device;
            let key = (device.clone(), *source);
            if !self.streams.contains_key(&key) {
                let Some(left) = free.checked_sub(of_instant.len()) else {
                    self.left_out += of_instant.len() as u64;
                    continue;
                };
                free = left;
            }
            let stream = self.streams.entry(key).or_default();
            let lane = stream.lane(first.at, sensors.needs_growth);
            for (row, _) in of_instant {
                if row.value.is_finite() {
                    lane.now.put(row);
                } else {
                    self.left_out += 1;
                }
            }
            let host = device.as_str().split('.').next().unwrap_or_default();
            lane.compute(host, sensors, &self.metrics, send);
        }
    }

    /// Values that are no numbers, and samples beyond the limit, since the last call.
    pub(crate) fn left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// How many samples may still be held. Near the limit, devices that are silent for long are forgotten.
    fn free(&mut self) -> usize {
        let held =
            |streams: &FxHashMap<_, Stream>| streams.values().map(Stream::len).sum::<usize>();
        let mut left = self.held_max.saturating_sub(held(&self.streams));
        if left <= self.held_max / 10 {
            let since = self.newest.saturating_sub(IDLE_US);
            self.streams.retain(|_, stream| stream.newest.now.at >= since);
            left = self.held_max.saturating_sub(held(&self.streams));
        }
        left
    }

    /// The source of a sample that a value is computed from. Samples of jobs are none, and those that a user inserted: their
    /// metric has a name of the user's choice.
    fn source_of_row(&self, row: &Row<'_>) -> Option<&'static str> {
        let series = &row.series.series;
        let of = self.metrics.get(&*series.metric)?;
        (series.job.is_none() && !series.labels.has(USER_LABEL)).then_some(of.source)
    }
}

/// The operands of a formula: metric, and the label that selects its series, with whether each value of it is a part.
fn operands(formula: &Formula) -> Vec<(&'static str, Option<(&'static str, bool)>)> {
    const EACH: &str = "each";
    let found = RefCell::new(Vec::new());
    // A formula reads all its operands.
    formula.compute(EACH, &|Selector { metric, label }| {
        found.borrow_mut().push((metric, label.map(|(label, of)| (label, of == EACH))));
        Some(1.0)
    });
    found.into_inner()
}

impl Stream {
    fn len(&self) -> usize {
        self.newest.len() + self.late.as_ref().map_or(0, Lane::len)
    }

    /// The lane for an instant, which is its present one then.
    fn lane(&mut self, at: i64, needs_growth: bool) -> &mut Lane {
        let lane = if at >= self.newest.now.at {
            &mut self.newest
        } else {
            self.late.get_or_insert_default()
        };
        if at != lane.now.at {
            let is_next = (1..=SEGMENT_MAX_US).contains(&at.saturating_sub(lane.now.at));
            let before = std::mem::replace(&mut lane.now, Instant { at, samples: Vec::new() });
            lane.before = (needs_growth && is_next).then_some(before);
        }
        lane
    }
}

impl Lane {
    fn len(&self) -> usize {
        self.now.samples.len() + self.before.as_ref().map_or(0, |before| before.samples.len())
    }

    /// Computes the values of its instant.
    fn compute(
        &self,
        host: &str,
        sensors: &Sensors,
        metrics: &FxHashMap<&'static str, Use>,
        send: &mut dyn FnMut(&[&str], i64, f64),
    ) {
        let values = self.sums(metrics, |sample| Some(sample.value));
        let growths = match sensors.needs_growth {
            true => self.sums(metrics, |sample| self.growth(sample)),
            false => Sums::default(),
        };
        for Sensor { group, key, formula, is_growth, part } in &sensors.values {
            let sums = if *is_growth { &growths } else { &values };
            let value = |part: &str| {
                formula.compute(part, &|Selector { metric, label }| {
                    let part = label.map_or(part, |(_, of)| of);
                    sums.get(&metric)?.get(part).copied()
                })
            };
            let parts = || {
                let first = formula.metrics().first().and_then(|metric| sums.get(metric));
                first.into_iter().flat_map(BTreeMap::keys)
            };
            match part {
                Part::None => {
                    let path = [host, group, key];
                    let length = if *key == ONE_NUMBER { 2 } else { 3 };
                    let path = path.get(..length).unwrap_or(&path);
                    value("").into_iter().for_each(|value| send(path, self.now.at, value));
                }
                Part::IsKey => parts().for_each(|part| {
                    let found = value(part);
                    found
                        .into_iter()
                        .for_each(|found| send(&[host, group, part], self.now.at, found));
                }),
                Part::BeforeKey => parts().for_each(|part| {
                    let mut path = vec![host, *group];
                    path.extend(part.split(SEPARATOR).filter(|label| !label.is_empty()));
                    path.push(key);
                    value(part).into_iter().for_each(|found| send(&path, self.now.at, found));
                }),
            }
        }
    }

    /// Sums of what this returns for each sample.
    fn sums<'a>(
        &'a self,
        metrics: &FxHashMap<&'static str, Use>,
        of: impl Fn(&Sample) -> Option<f64>,
    ) -> Sums<'a> {
        let mut sums = Sums::default();
        for sample in &self.now.samples {
            let Series { metric, labels, .. } = &sample.series.series;
            let Some((used, value)) = metrics.get(&**metric).zip(of(sample)) else { continue };
            let part: Vec<String> =
                used.labels.iter().map(|label| labels.get(label).unwrap_or_default()).collect();
            let part = part.join(&SEPARATOR.to_string());
            *sums.entry(&**metric).or_default().entry(part).or_insert(0.0) += value;
        }
        sums
    }

    /// The growth of a counter since the instant before, or since a start that was observed.
    fn growth(&self, sample: &Sample) -> Option<f64> {
        let now = sample.point(self.now.at);
        let before = self.before.as_ref();
        let before = before.and_then(|before| Some(before.find(&sample.series)?.point(before.at)));
        Some(increase(before.or_else(|| now.zero())?, now).amount)
    }
}

impl Instant {
    fn place(&self, series: &Arc<SeriesInfo>) -> Result<usize, usize> {
        self.samples.binary_search_by(|one| SeriesInfo::order(&one.series, series))
    }

    fn find(&self, series: &Arc<SeriesInfo>) -> Option<&Sample> {
        self.samples.get(self.place(series).ok()?)
    }

    /// Adds a sample. Of two values of one series, the later one counts.
    fn put(&mut self, row: &Row<'_>) {
        let sample = Sample { series: Arc::clone(row.series), value: row.value, start: row.start };
        match self.place(row.series) {
            Ok(place) => {
                if let Some(before) = self.samples.get_mut(place) {
                    *before = sample;
                }
            }
            Err(place) => self.samples.insert(place, sample),
        }
    }
}

impl Sample {
    fn point(&self, at: i64) -> Point {
        let start = Some(self.start).filter(|start| *start != TimeSlice::NO_START).map(Timestamp);
        Point { at: Timestamp(at), value: self.value, start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portion::slice_of;
    use model::{Kind, Labels, Unit};
    use proptest::prelude::*;

    const S: i64 = Timestamp::SECOND;

    /// Metric, its label, second, value.
    type Short = (&'static str, Option<(&'static str, &'static str)>, i64, f64);

    fn slice(samples: &[Short]) -> TimeSlice {
        let infos: Vec<_> = samples
            .iter()
            .map(|(metric, label, ..)| {
                let labels = Labels::new(*label).unwrap();
                let device = DeviceId::new("n1.site").unwrap();
                let series = Series { device, metric: (*metric).into(), job: None, labels };
                Arc::new(SeriesInfo { series, unit: Unit::Count, kind: Kind::Gauge, divisor: 1 })
            })
            .collect();
        slice_of(infos.iter().zip(samples).map(|(series, (_, _, second, value))| Row {
            series,
            at: second * S,
            value: *value,
            start: TimeSlice::NO_START,
        }))
    }

    /// The values of portions as Carbon keeps them: of one path and instant, the last one.
    fn values(fructosa: &mut Fructosa, portions: &[&[Short]]) -> BTreeMap<(String, i64), f64> {
        let mut all = BTreeMap::new();
        for portion in portions {
            fructosa.take(&slice(portion), &mut |path, at, value| {
                all.insert((path.join("/"), at / S), value);
            });
        }
        all
    }

    fn times(second: i64, [user, idle]: [f64; 2]) -> Vec<Short> {
        let others = ["nice", "system", "iowait", "irq", "softirq", "steal"];
        let name = |what: &str| -> &'static str { format!("cpu_{what}_seconds_total").leak() };
        let others = others.map(|what| (name(what), None, second, 0.0));
        let own = [("user", user), ("idle", idle)];
        let own = own.map(|(what, value)| (name(what), None, second, value));
        others.into_iter().chain(own).collect()
    }

    #[test]
    fn every_formula_is_computed_from_one_source() {
        let mut sensors = 0;
        for group in GROUPS.iter().filter(|group| !LISTS.contains(&group.name)) {
            for formula in group.rows.iter().flat_map(|row| row.ours.formulas()) {
                let of: Vec<&str> =
                    operands(formula).into_iter().map(|(metric, _)| metric).collect();
                assert_eq!(of, formula.metrics(), "{}", group.name);
                assert!(of.iter().all(|one| source_of(one) == source_of(of[0])), "{}", group.name);
                sensors += 1;
            }
        }
        let fructosa = Fructosa::new();
        assert_eq!(fructosa.sources.values().map(|of| of.values.len()).sum::<usize>(), sensors);
    }

    #[test]
    fn values_of_sensors() {
        let disk = |name| Some(("disk", name));
        let found = values(
            &mut Fructosa::new(),
            &[&[
                ("uptime_boot_time_seconds", None, 5, 99.0),
                ("disk_reads_total", disk("sda"), 5, 2.0),
                ("disk_reads_total", disk("sdb"), 5, 3.0),
                ("filesystem_available_bytes", Some(("mount", "/")), 5, 7.0),
                ("filesystem_available_bytes", Some(("mount", "/home")), 5, 70.0),
                ("interfaces_mtu_bytes", Some(("interface", "eth0.1")), 5, 1500.0),
                ("users_session_since_seconds", Some(("user", "a")), 5, 1.0),
                ("load_1m", None, 5, 1.0),
            ]],
        );
        let expected = [
            ("n1/BootTime", 99.0),
            ("n1/DiskIOCounters/read_count", 5.0),
            ("n1/DiskUsage/free", 7.0),
            ("n1/NetIFStats/eth0.1/mtu", 1500.0),
        ];
        assert_eq!(found, expected.map(|(path, value)| ((path.to_owned(), 5), value)).into());
    }

    #[test]
    fn percentages_are_growth_since_the_instant_before_and_late_samples_have_a_lane_of_their_own() {
        let mut fructosa = Fructosa::new();
        let user = ("n1/CPUTimesPercent/user".to_owned(), 0);
        let at = |second| (user.0.clone(), second);
        let portions = [
            times(1000, [10.0, 100.0]),
            times(1010, [11.0, 109.0]),
            // The node sends what it kept while the server was down, and what is new.
            times(500, [1.0, 50.0]),
            times(1020, [15.0, 115.0]),
            times(510, [6.0, 55.0]),
            // Its own first sample after an hour.
            times(5000, [100.0, 900.0]),
        ];
        let portions: Vec<&[Short]> = portions.iter().map(Vec::as_slice).collect();
        let mut found = values(&mut fructosa, &portions);
        found.retain(|(path, _), _| *path == user.0);
        assert_eq!(found, [(at(510), 50.0), (at(1010), 10.0), (at(1020), 40.0)].into());
    }

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let mut fructosa = Fructosa { held_max: 1, ..Fructosa::new() };
        let free = ("memory_free_bytes", None, 5, 1.0);
        let found = values(&mut fructosa, &[&[free], &[("disk_reads_total", None, 5, 1.0)]]);
        assert_eq!((found.len(), fructosa.left_out()), (1, 1));
        // An hour later, what is silent is forgotten.
        let found = values(&mut fructosa, &[&[("disk_reads_total", None, 4000, 1.0)]]);
        assert_eq!((found.len(), fructosa.left_out()), (1, 0));
    }

    proptest! {
        #[test]
        fn the_portions_of_an_instant_do_not_matter(cut in 0_usize..24, again: bool) {
            let all: Vec<Short> =
                [1, 2, 3].into_iter().flat_map(|at| times(at, [at as f64, 3.0 * at as f64])).collect();
            let whole = values(&mut Fructosa::new(), &[&all]);
            let (first, rest) = all.split_at(cut);
            // A value that comes twice at one instant counts once.
            let rest = [&first[if again { cut.saturating_sub(1) } else { cut }..], rest].concat();
            prop_assert_eq!(values(&mut Fructosa::new(), &[first, &rest]), whole);
        }
    }
}
