//! The sink receives a source's samples.

mod agent_side;
mod lost;
mod oom_kills;
mod parts;
mod ring;
mod series_ref;
mod sink_counts;

pub use agent_side::SinkPosition;
pub use parts::PartState;
pub use ring::RingLimits;
pub use series_ref::MetricRef;
pub use sink_counts::SinkCounts;

use crate::SourceSpec;
use crate::source::value_bounds::{ValueBounds, Verdict, Watch};
use hashbrown::HashTable;
use model::{
    Cause, DeviceId, Gap, JobEvent, JobKey, Labels, Metric, Origin, SeriesEntry, Tick, Timestamp,
};
use series_ref::{LabelsRef, SeriesRef};
use std::sync::Arc;

/// Maximum number of live series of a source; samples of further series are counted and become a gap.
pub const SERIES_PER_SOURCE_MAX: usize = 100_000;

/// Number of seals after which a series without a sample is removed.
const IDLE_SEALS_MAX: u32 = 120;
/// The same for series of an ended job: they get no more samples, unless the job's directory is used again.
const ENDED_SEALS_MAX: u32 = 1;

/// Buffer for the samples of one source; they are drained when a batch is sealed.
///
/// Looking up a known series costs one hash and allocates nothing. A tick with the same series as the
/// previous tick allocates nothing.
#[derive(Debug)]
pub struct Sink {
    device: DeviceId,
    now: Timestamp,
    /// The time of the samples before those of `now`.
    before: Timestamp,
    known: Vec<Option<KnownSeries>>,
    free: Vec<u32>,
    find: HashTable<u32>,
    metrics: Vec<(&'static Metric, Arc<Metric>)>,
    ticks: Vec<Tick>,
    index: Vec<u32>,
    values: Vec<f64>,
    gaps: Vec<Gap>,
    events: Vec<JobEvent>,
    parts: Vec<(&'static str, PartState)>,
    /// The source's name, and the bounds of its metrics.
    source: &'static str,
    sane: &'static [ValueBounds],
    counts: SinkCounts,
    table_changed: bool,
    /// Metrics that are switched off.
    off: Arc<[&'static Metric]>,
    ring: Option<ring::Ring>,
    kept_cut: u64,
}

/// Labels as a source pushed them.
type LabelPairs = Box<[(Box<str>, Box<str>)]>;

#[derive(Debug)]
struct KnownSeries {
    entry: SeriesEntry,
    /// `None`: its metric was declared at run time.
    of_source: Option<&'static Metric>,
    /// `None`: the labels of the entry were ready.
    pairs: Option<LabelPairs>,
    hash: u64,
    idle_seals: u32,
    idle_seals_max: u32,
    /// In a box: most series have none, and they are many.
    watch: Option<Box<Watch>>,
}

/// Adds samples of the device or of one job.
#[derive(Debug)]
pub struct SampleWriter<'a> {
    sink: &'a mut Sink,
    /// `None`: the sink's own.
    device: Option<&'a DeviceId>,
    job: Option<&'a JobKey>,
}

impl SampleWriter<'_> {
    /// Adds the value of a gauge.
    pub fn gauge<'m>(
        &mut self,
        metric: impl Into<MetricRef<'m>>,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.push(metric.into(), labels, None, value);
    }

    /// Adds the value of a counter that was zero at `start`.
    pub fn counter<'m>(
        &mut self,
        metric: impl Into<MetricRef<'m>>,
        labels: &[(&str, &str)],
        value: f64,
        start: Timestamp,
    ) {
        self.push(metric.into(), labels, Some(start), value);
    }

    /// Adds a value that a device reported. NaN and infinities are values, too: a device may report them.
    pub fn reported(
        &mut self,
        metric: &Arc<Metric>,
        labels: &Labels,
        start: Option<Timestamp>,
        value: f64,
    ) {
        let (device, job, labels) = (self.device, self.job, LabelsRef::Ready(labels));
        let series = SeriesRef { metric: metric.into(), device, job, labels };
        if let Some(place) = self.sink.place(&series, start) {
            self.sink.append(place, value);
        }
    }

    /// Reports that samples of `source` between two instants are missing.
    pub fn gap(
        &mut self,
        source: &str,
        (from, to): (Timestamp, Timestamp),
        cause: Cause,
        detail: &str,
    ) {
        let device = self.device.unwrap_or(&self.sink.device).clone();
        let Ok(origin) = Origin::new(device.as_str()) else { return };
        let (source, detail) = (source.into(), detail.into());
        self.sink.gaps.push(Gap { origin, device, source, from, to, cause, detail });
    }

    fn push(
        &mut self,
        metric: MetricRef<'_>,
        labels: &[(&str, &str)],
        start: Option<Timestamp>,
        value: f64,
    ) {
        let (device, job, labels) = (self.device, self.job, LabelsRef::Pairs(labels));
        self.sink.push(&SeriesRef { metric, device, job, labels }, start, value);
    }
}

impl Sink {
    /// An empty sink for the samples of a device.
    pub fn new(device: DeviceId) -> Self {
        Self {
            device,
            now: Timestamp(0),
            before: Timestamp(0),
            known: Vec::new(),
            free: Vec::new(),
            find: HashTable::new(),
            metrics: Vec::new(),
            ticks: Vec::new(),
            index: Vec::new(),
            values: Vec::new(),
            gaps: Vec::new(),
            events: Vec::new(),
            parts: Vec::new(),
            source: "",
            sane: &[],
            counts: SinkCounts::default(),
            table_changed: false,
            off: Arc::default(),
            ring: None,
            kept_cut: 0,
        }
    }

    /// An empty sink for a source's samples of a device; it rejects impossible values.
    pub fn of_source(spec: &SourceSpec, device: DeviceId) -> Self {
        Self { source: spec.name, sane: spec.sane, ..Self::new(device) }
    }

    /// Drops the samples of these metrics from now on.
    pub fn set_off(&mut self, off: &Arc<[&'static Metric]>) {
        if !Arc::ptr_eq(&self.off, off) {
            self.off = Arc::clone(off);
        }
    }

    /// Sets the time of the following samples.
    pub fn begin(&mut self, now: Timestamp) {
        if now != self.now {
            self.before = self.now;
        }
        self.now = now;
    }

    /// The device of the samples.
    pub const fn device(&self) -> &DeviceId {
        &self.device
    }

    /// Adds samples of the whole device.
    pub const fn of_device(&mut self) -> SampleWriter<'_> {
        SampleWriter { sink: self, device: None, job: None }
    }

    /// Samples of a whole device, whichever it is.
    pub fn of<'a>(&'a mut self, device: &'a DeviceId) -> SampleWriter<'a> {
        let device = Some(device).filter(|device| **device != self.device);
        SampleWriter { sink: self, device, job: None }
    }

    /// Adds samples of one job.
    pub const fn of_job<'a>(&'a mut self, job: &'a JobKey) -> SampleWriter<'a> {
        SampleWriter { sink: self, device: None, job: Some(job) }
    }

    /// Records that samples of `source` between two times are missing.
    pub fn gap(
        &mut self,
        source: &str,
        from: Timestamp,
        to: Timestamp,
        cause: Cause,
        detail: &str,
    ) {
        self.of_device().gap(source, (from, to), cause, detail);
    }

    /// Counts of rejected values since the start.
    pub const fn counts(&self) -> SinkCounts {
        self.counts
    }

    /// Samples not drained yet.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no samples wait to be drained.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Live series.
    pub fn series(&self) -> usize {
        self.find.len()
    }

    /// The samples not drained yet, in the order of pushing.
    pub fn samples(&self) -> impl Iterator<Item = (&SeriesEntry, Timestamp, f64)> {
        let instants = self.ticks.iter().flat_map(|tick| {
            std::iter::repeat_n(tick.at, usize::try_from(tick.samples).unwrap_or(usize::MAX))
        });
        self.index.iter().zip(instants).zip(&self.values).filter_map(|((place, at), value)| {
            let known = self.known.get(usize::try_from(*place).ok()?)?.as_ref()?;
            Some((&known.entry, at, *value))
        })
    }

    fn push(&mut self, series: &SeriesRef<'_>, start: Option<Timestamp>, value: f64) {
        if self.off.iter().any(|off| std::ptr::eq(*off, &*series.metric)) {
            return;
        }
        if !value.is_finite() {
            self.counts.nonsense += 1;
            return;
        }
        let Some(place) = self.place(series, start) else { return };
        if let Some(place) = self.check(place, series, value) {
            self.append(place, value);
        }
    }

    fn append(&mut self, place: u32, value: f64) {
        self.index.push(place);
        self.values.push(value);
        match self.ticks.last_mut() {
            Some(tick) if tick.at == self.now => tick.samples += 1,
            _ => self.ticks.push(Tick { at: self.now, samples: 1 }),
        }
    }

    /// Checks a value: the series under which to store it, or `None` if it is rejected.
    fn check(&mut self, place: u32, series: &SeriesRef<'_>, value: f64) -> Option<u32> {
        let known = self.known.get_mut(usize::try_from(place).ok()?)?.as_mut()?;
        known.idle_seals_max = IDLE_SEALS_MAX;
        let Some(watch) = &mut known.watch else { return Some(place) };
        // The state of `watch` must outlive rejected samples and samples stored under another start.
        known.idle_seals = 0;
        match watch.judge(self.now, value) {
            Verdict::Good => Some(place),
            Verdict::Since(start) => self.place(series, Some(start)),
            Verdict::Rejected(why, report) => {
                self.counts.implausible += 1;
                if let Some(from) = report {
                    let (name, labels) = (&series.metric.name, &known.entry.labels);
                    let detail = format!("{name}{labels}: {value} {why}");
                    let (source, span) = (self.source, (from, self.now));
                    let mut of = SampleWriter { sink: self, device: series.device, job: None };
                    of.gap(source, span, Cause::SourceBroken, &detail);
                }
                None
            }
        }
    }

    /// The place of a series in the table: found again, or new.
    fn place(&mut self, series: &SeriesRef<'_>, start: Option<Timestamp>) -> Option<u32> {
        let hash = series.hash(start);
        let (known, device) = (&self.known, &self.device);
        let is_it = |place: &u32| {
            let known = usize::try_from(*place).ok().and_then(|place| known.get(place));
            known.and_then(Option::as_ref).is_some_and(|known| series.is(known, start, device))
        };
        if let Some(place) = self.find.find(hash, is_it).copied() {
            return Some(place);
        }
        self.add(series, start, hash)
    }

    /// The definition that all series of a metric share.
    fn shared(&mut self, metric: MetricRef<'_>) -> Arc<Metric> {
        let metric = match metric {
            MetricRef::Declared(metric) => return Arc::clone(metric),
            MetricRef::Static(metric) => metric,
        };
        if let Some((_, shared)) = self.metrics.iter().find(|(it, _)| std::ptr::eq(*it, metric)) {
            return Arc::clone(shared);
        }
        let shared = Arc::new(metric.clone());
        self.metrics.push((metric, Arc::clone(&shared)));
        shared
    }

    fn add(&mut self, series: &SeriesRef<'_>, start: Option<Timestamp>, hash: u64) -> Option<u32> {
        let SeriesRef { metric, device, job, labels } = *series;
        if self.find.len() >= SERIES_PER_SOURCE_MAX {
            self.reject_series(device);
            return None;
        }
        let (labels, pairs) = match labels {
            LabelsRef::Ready(labels) => (labels.clone(), None),
            LabelsRef::Pairs(pairs) => {
                let Ok(labels) = Labels::new(pairs.iter().copied()) else {
                    self.counts.labels_rejected += 1;
                    return None;
                };
                (labels, Some(pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()))
            }
        };
        let shared = self.shared(metric);
        let (device, job) = (device.unwrap_or(&self.device).clone(), job.cloned());
        let entry = SeriesEntry { metric: shared, device, job, labels, start };
        let of_source = match metric {
            MetricRef::Static(metric) => Some(metric),
            MetricRef::Declared(_) => None,
        };
        let sane =
            self.sane.iter().find(|sane| of_source.is_some_and(|it| std::ptr::eq(sane.metric, it)));
        let watch = sane.map(|sane| Box::new(Watch::new(sane)));
        let idle_seals_max = IDLE_SEALS_MAX;
        let known = Some(KnownSeries {
            entry,
            of_source,
            pairs,
            hash,
            idle_seals: 0,
            idle_seals_max,
            watch,
        });
        let place = match self.free.pop() {
            Some(place) => {
                *self.known.get_mut(usize::try_from(place).ok()?)? = known;
                place
            }
            None => {
                self.known.push(known);
                u32::try_from(self.known.len() - 1).ok()?
            }
        };
        let all = &self.known;
        let rehash = |place: &u32| {
            let known = usize::try_from(*place).ok().and_then(|place| all.get(place));
            known.and_then(Option::as_ref).map_or(0, |known| known.hash)
        };
        self.find.insert_unique(hash, place, rehash);
        self.table_changed = true;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClusterId, JobId, Unit};

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");
    static CPU: Metric = Metric::counter("cpu_seconds_total", Unit::Seconds, "");

    fn sink() -> Sink {
        Sink::new(DeviceId::new("n1").unwrap())
    }

    #[test]
    fn a_series_is_found_again() {
        let mut sink = sink();
        let job = JobKey { cluster: ClusterId::local(), id: JobId::new(7).unwrap() };
        for at in [1, 2] {
            sink.begin(Timestamp(at));
            sink.of_device().gauge(&LOAD, &[], 0.5);
            sink.of_job(&job).counter(&CPU, &[("cpu", "0")], 1.5, Timestamp(0));
            sink.of_job(&job).counter(&CPU, &[("cpu", "1")], 1.5, Timestamp(0));
        }
        assert_eq!((sink.series(), sink.len()), (3, 6));
        let (ticks, index, _) = sink.columns();
        assert_eq!(ticks.len(), 2);
        assert_eq!(index, [0, 1, 2, 0, 1, 2]);
        let last = sink.samples().last().unwrap();
        assert_eq!(last.0.labels.as_str(), r#"{"cpu": "1"}"#);
        assert_eq!((last.0.job.clone(), last.1), (Some(job), Timestamp(2)));
    }

    #[test]
    fn nonsense_is_counted_and_not_kept() {
        let mut sink = sink();
        sink.of_device().gauge(&LOAD, &[], f64::NAN);
        sink.of_device().gauge(&LOAD, &[("", "x")], 1.0);
        assert!(sink.is_empty());
        assert_eq!((sink.counts().nonsense, sink.counts().labels_rejected), (1, 1));
    }

    #[test]
    fn series_of_an_ended_job_are_removed_after_a_seal_unless_the_job_has_samples_again() {
        let mut sink = sink();
        let jobs =
            [7, 8, 9].map(|id| JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() });
        for job in &jobs {
            sink.of_job(job).counter(&CPU, &[], 1.5, Timestamp(0));
        }
        sink.forget_soon(&jobs[..2]);
        sink.sealed();
        assert_eq!(sink.series(), 3, "the batch with the last samples still needs the series");
        // The second one's directory has tasks again.
        sink.of_job(&jobs[1]).counter(&CPU, &[], 2.5, Timestamp(0));
        sink.sealed();
        assert_eq!(sink.series(), 2);
        sink.sealed();
        assert_eq!(sink.series(), 2);
    }

    #[test]
    fn a_metric_that_is_off_adds_nothing_until_it_is_on_again() {
        let mut sink = sink();
        sink.set_off(&Arc::from([&LOAD]));
        sink.of_device().gauge(&LOAD, &[], f64::NAN);
        sink.of_device().counter(&CPU, &[], 1.0, Timestamp(0));
        assert_eq!((sink.len(), sink.series(), sink.counts().all()), (1, 1, 0));
        sink.set_off(&Arc::default());
        sink.of_device().gauge(&LOAD, &[], 1.0);
        assert_eq!(sink.len(), 2);
    }

    #[test]
    fn samples_of_a_panicking_source_are_removed() {
        let mut sink = sink();
        sink.begin(Timestamp(1));
        sink.of_device().gauge(&LOAD, &[], 1.0);
        let mark = sink.mark();
        sink.of_device().gauge(&LOAD, &[], 2.0);
        sink.begin(Timestamp(2));
        sink.of_device().gauge(&LOAD, &[], 3.0);
        sink.cut_back(mark);
        let (ticks, index, values) = sink.columns();
        assert_eq!(
            (ticks, index, values),
            (&[Tick { at: Timestamp(1), samples: 1 }][..], &[0][..], &[1.0][..])
        );
    }

    #[test]
    fn idle_series_are_removed_and_their_slots_reused() {
        let mut sink = sink();
        sink.of_device().gauge(&LOAD, &[("a", "1")], 1.0);
        for _ in 0..=IDLE_SEALS_MAX {
            sink.of_device().gauge(&LOAD, &[("a", "2")], 1.0);
            sink.sealed();
        }
        assert_eq!(sink.series(), 1);
        assert!(sink.table_changed());
        assert_eq!(sink.table().filter(|entry| entry.is_none()).count(), 1);
        sink.of_device().gauge(&LOAD, &[("a", "3")], 1.0);
        assert_eq!(sink.table().len(), 2);
    }
}
