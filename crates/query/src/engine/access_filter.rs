//! Access control: what a reader may see of each job and device, evaluated before a row is returned.
//!
//! A row belongs to the device under which it is listed, or to the job to which it is attributed. The reader
//! sees it always, never, or within time ranges. In the last case a value made of several readings uses only
//! readings within one range. If such readings are no longer stored, there is no value.

use crate::common::print::ALIAS;
use crate::common::time::SLACK;
use crate::{QueryContext, QueryEngine, QueryError};
use jobs::{Reader, Registry, Window};
use model::{DeviceId, Gap, JobKey, Series, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use storage::Snapshot;

/// Maximum number of jobs to look up one by one. For more jobs, the reader's visible jobs are read once, so that the
/// number of other users' jobs does not change the duration of a query.
const LOOKED_UP_ONE_BY_ONE: usize = 64;
/// Maximum number of visible jobs to read at once; a reader of more has them looked up one by one.
const VISIBLE_JOBS_MAX: usize = 100_000;

/// Sorted, disjoint time ranges in microseconds, bounds excluded; two ranges may share a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<(i64, i64)>);

/// When a reader may see a device or a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Never.
    Never,
    /// Always.
    Always,
    /// Within these time ranges.
    During(Arc<Spans>),
}

impl Spans {
    /// The union of time ranges, in any order.
    fn of(mut spans: Vec<(i64, i64)>) -> Self {
        spans.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::new();
        for (from, to) in spans.into_iter().filter(|(from, to)| from < to) {
            match joined.last_mut() {
                Some((_, end)) if from < *end => *end = to.max(*end),
                _ => joined.push((from, to)),
            }
        }
        Self(joined)
    }

    /// The first range that overlaps an interval (bounds of the interval included).
    fn touching(&self, from: i64, to: i64) -> Option<(i64, i64)> {
        let place = self.0.partition_point(|(_, end)| *end <= from);
        self.0.get(place).copied().filter(|(begin, _)| *begin < to)
    }
}

impl Visibility {
    pub(crate) fn within(spans: Vec<(i64, i64)>) -> Self {
        let spans = Spans::of(spans);
        if spans.0.is_empty() { Self::Never } else { Self::During(Arc::new(spans)) }
    }

    /// The part of it within a time range, bounds included.
    pub(crate) fn limited(&self, from: i64, to: i64) -> Self {
        self.during(&[(from.saturating_sub(1), to.saturating_add(1))])
    }

    /// The part of it within these time ranges, bounds excluded.
    pub(crate) fn during(&self, spans: &[(i64, i64)]) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Always => Self::within(spans.to_vec()),
            Self::During(own) => {
                let cut = |(from, to): &(i64, i64)| {
                    let (from, to) = (*from, *to);
                    own.0.iter().map(move |(begin, end)| ((*begin).max(from), (*end).min(to)))
                };
                Self::within(Spans::of(spans.to_vec()).0.iter().flat_map(cut).collect())
            }
        }
    }

    /// Whether the instant is visible.
    pub(crate) fn at(&self, at: i64) -> bool {
        self.joins(at, at)
    }

    /// Whether the whole interval is visible, bounds included.
    pub(crate) fn joins(&self, from: i64, to: i64) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::During(spans) => {
                spans.touching(from, from).is_some_and(|(begin, end)| begin < from && to < end)
            }
        }
    }

    /// Whether a part of the interval may be visible, bounds included.
    pub(crate) fn touches(&self, from: i64, to: i64) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::During(spans) => spans.touching(from, to).is_some(),
        }
    }

    /// Whether one visible range overlaps both of two successive intervals, each of `width` microseconds.
    pub(crate) fn connects(&self, before: i64, after: i64, width: i64) -> bool {
        let Self::During(spans) = self else { return *self == Self::Always };
        let last = |at: i64| at.saturating_add(width - 1);
        let mut place = spans.0.partition_point(|(_, end)| *end <= before);
        while let Some((begin, end)) = spans.0.get(place).filter(|(begin, _)| *begin < last(before))
        {
            if *begin < last(after) && *end > after {
                return true;
            }
            place += 1;
        }
        false
    }
}

/// When a job is visible: on devices where only the node itself names the job owner, and on all other devices.
#[derive(Debug)]
struct JobVisibility {
    on: HashMap<DeviceId, Visibility>,
    elsewhere: Visibility,
}

impl JobVisibility {
    fn on(&self, device: &DeviceId) -> Visibility {
        self.on.get(device).unwrap_or(&self.elsewhere).clone()
    }
}

/// When runs with these time ranges are visible. Always, if `every` states that they are all runs of the job.
fn seen_during((spans, every): (Vec<jobs::Span>, bool)) -> Visibility {
    if every && !spans.is_empty() {
        return Visibility::Always;
    }
    let until = |stop: Option<Timestamp>| stop.map_or(i64::MAX, |stop| stop.plus(SLACK).0);
    Visibility::within(spans.iter().map(|(a, b)| (a.plus(-SLACK).0, until(*b))).collect())
}

/// What a reader may see in one query. Caches the permission per job and device; clones share the cache.
#[derive(Clone, Debug)]
pub(crate) struct AccessFilter {
    registry: Arc<Registry>,
    context: QueryContext,
    /// Limits of the queries for allocations.
    window: Window,
    cache: Arc<Mutex<Cache>>,
}

/// Permissions read from the registry so far.
#[derive(Debug, Default)]
struct Cache {
    jobs: HashMap<JobKey, JobVisibility>,
    /// Jobs with a visible run, and perhaps others; read on first use. `Some(None)`: too many.
    visible_jobs: Option<Option<HashSet<JobKey>>>,
    /// Visibility of each device with a visible job; read on first use.
    devices: Option<HashMap<DeviceId, Visibility>>,
}

/// The device names under which rows list a series.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListedAs {
    /// Its own device.
    Device,
    /// Its alias, if it has one.
    Alias,
    /// Both.
    DeviceAndAlias,
}

impl ListedAs {
    /// The names, at most one of each kind.
    pub(crate) fn names(self, series: &Series) -> [Option<DeviceId>; 2] {
        let alias = || DeviceId::foreign(&series.labels.get(ALIAS)?);
        match self {
            Self::Device => [Some(series.device.clone()), None],
            Self::Alias => [None, alias()],
            Self::DeviceAndAlias => [Some(series.device.clone()), alias()],
        }
    }
}

impl AccessFilter {
    /// The permissions of a reader in an interval, for the given devices or for all.
    pub(crate) fn new(
        engine: &QueryEngine,
        context: &QueryContext,
        (from, to): (Timestamp, Timestamp),
        devices: Option<&BTreeSet<DeviceId>>,
    ) -> Self {
        let only = devices.filter(|devices| devices.len() == 1).and_then(BTreeSet::first);
        let (from, to) = (Some(from), Some(to));
        let reader = context.reader;
        let window = Window { reader, device: only.cloned(), from, to, ..Window::default() };
        let (registry, context) = (Arc::clone(&engine.registry), context.clone());
        Self { registry, context, window, cache: Arc::default() }
    }

    /// Limits a snapshot to the series of which the reader may see a sample in the interval of a scan: hidden samples
    /// are not read. Rows of the remaining series still need [`Self::of`].
    pub(crate) fn limit(
        &self,
        snapshot: &Arc<dyn Snapshot>,
        listed: ListedAs,
    ) -> Arc<dyn Snapshot> {
        if self.context.reader.sees_every_job() {
            return Arc::clone(snapshot);
        }
        let access = self.clone();
        snapshot.limited_to(Arc::new(move |series, span| access.touches(series, span, listed)))
    }

    /// Limits a snapshot in the same way, and to the series that meet a condition.
    pub(crate) fn limit_to(
        &self,
        snapshot: &dyn Snapshot,
        listed: ListedAs,
        condition: impl Fn(&Series) -> bool + Send + Sync + 'static,
    ) -> Arc<dyn Snapshot> {
        let access = self.clone();
        snapshot.limited_to(Arc::new(move |series, span| {
            condition(series) && access.touches(series, span, listed)
        }))
    }

    /// Whether the reader may see a sample of a series in an interval.
    fn touches(
        &self,
        series: &Series,
        (from, to): (Timestamp, Timestamp),
        listed: ListedAs,
    ) -> bool {
        let reader = self.context.reader;
        reader.sees_every_job()
            || listed.names(series).iter().flatten().any(|device| {
                // If the registry fails, the check of the rows fails too and returns the error.
                let seen = self.of(device, series.job.as_ref());
                seen.map_or(true, |seen| seen.touches(from.0, to.0))
            })
    }

    /// When the reader sees samples of a device that are attributed to this job, or to no job.
    pub(crate) fn of(
        &self,
        device: &DeviceId,
        job: Option<&JobKey>,
    ) -> Result<Visibility, QueryError> {
        match job {
            Some(job) => self.of_job(device, job),
            None => self.of_node(device),
        }
    }

    /// Whether the reader sees a sample of a series, as one of its device or of the node that the device feeds.
    pub(crate) fn sees(&self, series: &Series, at: Timestamp) -> Result<bool, QueryError> {
        let job = series.job.as_ref();
        if self.of(&series.device, job)?.at(at.0) {
            return Ok(true);
        }
        let [_, alias] = ListedAs::Alias.names(series);
        alias.map_or(Ok(false), |alias| Ok(self.of(&alias, job)?.at(at.0)))
    }

    /// When the reader sees samples of a device that are attributed to the job.
    pub(crate) fn of_job(&self, device: &DeviceId, job: &JobKey) -> Result<Visibility, QueryError> {
        if self.context.reader.sees_every_job() {
            self.context.meets(job);
            return Ok(Visibility::Always);
        }
        let mut cache = self.cache.lock();
        if let Some(seen) = cache.jobs.get(job) {
            return Ok(seen.on(device));
        }
        if cache.jobs.len() >= LOOKED_UP_ONE_BY_ONE {
            let read = || self.registry.keys_visible(self.context.reader, VISIBLE_JOBS_MAX);
            let visible = match &mut cache.visible_jobs {
                Some(visible) => visible,
                none => none.insert(read()?),
            };
            if visible.as_ref().is_some_and(|visible| !visible.contains(job)) {
                return Ok(Visibility::Never);
            }
        }
        let runs = self.registry.runs_seen(self.context.reader, job)?;
        let devices = runs.devices().into_iter();
        let on = devices.map(|device| (device.clone(), seen_during(runs.on(device)))).collect();
        let seen = JobVisibility { on, elsewhere: seen_during(runs.elsewhere()) };
        let here = seen.on(device);
        cache.jobs.insert(job.clone(), seen);
        Ok(here)
    }

    /// When the reader sees the node samples of a device (not attributed to a job).
    pub(crate) fn of_node(&self, device: &DeviceId) -> Result<Visibility, QueryError> {
        if self.context.reader.sees_every_node() {
            return Ok(Visibility::Always);
        }
        let mut cache = self.cache.lock();
        let devices = match &mut cache.devices {
            Some(devices) => devices,
            none => none.insert(visibility_by_device(&self.registry, &self.window)?),
        };
        Ok(devices.get(device).cloned().unwrap_or(Visibility::Never))
    }

    /// The parts of a gap that the reader sees: the whole gap, pieces of it, or none.
    pub(crate) fn of_gap(&self, gap: Gap) -> Result<Vec<Gap>, QueryError> {
        let seen = match gap.origin.as_run() {
            Some((_, id)) if self.context.reader != Reader::Everything => {
                let job = JobKey { cluster: model::ClusterId::local(), id };
                self.of_job(&gap.device, &job)?
            }
            Some(_) => Visibility::Always,
            None => self.of_node(&gap.device)?,
        };
        let Visibility::During(spans) = seen else {
            return Ok(if seen == Visibility::Always { vec![gap] } else { Vec::new() });
        };
        let cut = |(from, to): &(i64, i64)| {
            let (from, to) = (gap.from.max(Timestamp(*from)), gap.to.min(Timestamp(*to)));
            (from < to).then(|| Gap { from, to, ..gap.clone() })
        };
        Ok(spans.0.iter().filter_map(cut).collect())
    }
}

/// Which nodes a reader sees and when, for node data outside of the store.
#[derive(Debug)]
pub struct NodeAccess(Option<HashMap<DeviceId, Visibility>>);

impl NodeAccess {
    /// The visible nodes that match `meant` at an instant. `None`: every node, at all times.
    pub fn at(&self, at: Timestamp, meant: impl Fn(&str) -> bool) -> Option<BTreeSet<&DeviceId>> {
        let devices = self.0.as_ref()?.iter();
        let seen = devices.filter(|(device, seen)| seen.at(at.0) && meant(device.as_str()));
        Some(seen.map(|(device, _)| device).collect())
    }
}

impl QueryEngine {
    /// Which nodes the reader sees in an interval, and when.
    ///
    /// # Errors
    /// The registry fails.
    pub fn node_access(
        &self,
        (from, to): (Timestamp, Timestamp),
        context: &QueryContext,
    ) -> Result<NodeAccess, QueryError> {
        if context.reader.sees_every_node() {
            return Ok(NodeAccess(None));
        }
        let (reader, from, to) = (context.reader, Some(from), Some(to));
        let window = Window { reader, from, to, ..Window::default() };
        Ok(NodeAccess(Some(visibility_by_device(&self.registry, &window)?)))
    }
}

/// Allocations of the reader's visible jobs, verified by an agent or by the kernel.
fn visibility_by_device(
    registry: &Registry,
    window: &Window,
) -> Result<HashMap<DeviceId, Visibility>, QueryError> {
    let spans = registry.spans(window)?.into_iter().map(|(device, spans)| {
        let until = |stop: Option<Timestamp>| stop.map_or(i64::MAX, |stop| stop.0);
        let spans = spans.into_iter().map(|(start, stop)| (start.0, until(stop)));
        (device, Visibility::within(spans.collect()))
    });
    Ok(spans.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use jobs::Registration;
    use proptest::prelude::*;
    use store::Store;

    #[test]
    fn spans_that_overlap_are_one_and_those_that_touch_are_two() {
        let spans = |list: &[(i64, i64)]| Spans::of(list.to_vec()).0;
        assert_eq!(spans(&[(5, 9), (0, 6), (20, 30), (7, 8)]), [(0, 9), (20, 30)]);
        assert_eq!(spans(&[(0, 5), (5, 9), (3, 3), (4, 1)]), [(0, 5), (5, 9)]);
        assert_eq!(Visibility::within(vec![(3, 3)]), Visibility::Never);
    }

    #[test]
    fn what_is_made_of_two_readings_needs_both_in_one_span() {
        let seen = Visibility::within(vec![(0, 10), (20, 30)]);
        assert!(seen.joins(1, 9) && !seen.joins(0, 9) && !seen.joins(1, 10) && !seen.joins(5, 25));
        assert!(seen.connects(2, 8, 1) && !seen.connects(8, 22, 1) && !seen.connects(2, 12, 1));
        // Buckets of 10 µs: the first overlaps only the first range, the third only the second.
        assert!(!seen.connects(0, 20, 10) && !seen.connects(0, 10, 10));
        assert!(Visibility::within(vec![(5, 30)]).connects(0, 10, 10));
        assert!(Visibility::Always.connects(0, 99, 1) && !Visibility::Never.connects(0, 99, 1));
    }

    #[test]
    fn other_users_jobs_cost_a_bounded_number_of_lookups() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_seconds(1_767_706_500);
        let (store, _) =
            Store::open(dir.path(), store::Settings::default(), Arc::new(move || now)).unwrap();
        let path = dir.path().join("registry.sqlite");
        let registry = Registry::open(&path, jobs::Limits::default(), jobs::Users::default);
        let registry = Arc::new(registry.unwrap());
        let device = DeviceId::new("n1").unwrap();
        let register = |uid| {
            let (device, start) = (device.clone(), now);
            let (user, name, is_verified) = (None, None, true);
            let job = Registration { uid, user, name, device, start, is_verified };
            registry.register_local(&job).unwrap()
        };
        let others: Vec<JobKey> = (0..200).map(|_| register(1)).collect();
        let own = register(2);
        let engine = QueryEngine::new(Arc::new(store), Arc::clone(&registry), Settings::default());
        let context = QueryContext::new(Reader::User(2), now);
        let access = AccessFilter::new(&engine, &context, (now, now), None);
        for other in &others {
            assert_eq!(access.of_job(&device, other).unwrap(), Visibility::Never);
        }
        assert_eq!(access.cache.lock().jobs.len(), LOOKED_UP_ONE_BY_ONE);
        assert_ne!(access.of_job(&device, &own).unwrap(), Visibility::Never);
    }

    proptest! {
        #[test]
        fn an_instant_is_seen_when_some_span_has_it(
            spans in prop::collection::vec((0_i64..60, 0_i64..20), 0..8),
            at in -5_i64..90, long in 0_i64..30,
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(from, long)| (from, from + long)).collect();
            let inside = |at: i64| spans.iter().any(|(from, to)| *from < at && at < *to);
            let seen = Visibility::within(spans.clone());
            prop_assert_eq!(seen.at(at), inside(at));
            let touched = (at..=at + long).any(inside);
            prop_assert!(!touched || seen.touches(at, at + long));
            if seen.joins(at, at + long) {
                prop_assert!((at..=at + long).all(inside));
            }
            prop_assert_eq!(seen.connects(at, at + long, 1), seen.joins(at, at + long));
        }
    }
}
