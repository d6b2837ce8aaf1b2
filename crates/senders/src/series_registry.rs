//! The live series, each once in memory, and the catalogue: the meaning of every metric.
//!
//! A series is its canonical tuple (device, metric, job, labels) everywhere; neither disk nor wire has a
//! number for it (decision 0003).
//! In memory each has one `SeriesInfo`, shared by the tables, the head and the last values. The registry
//! drops a series that nothing else holds.

use crate::catalogue::Catalogue;
use crate::json::MetricJson;
use crate::limits::{Limits, Rejection};
use crate::origins::{OriginNumber, Origins};
use crate::reserved_labels::reserved_label;
use crate::share::{Share, ShareCounts};
use model::{DeviceId, Kind, Metric, Origin, Series, SeriesEntry, Timestamp, Unit};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use storage::{Claim, SeriesInfo};

/// A series as a key: compared by its identity alone.
#[derive(Debug)]
struct Key(Arc<SeriesInfo>);

impl Borrow<Series> for Key {
    fn borrow(&self) -> &Series {
        &self.0.series
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.series == other.0.series
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.series.hash(state);
    }
}

#[derive(Debug)]
struct Shared {
    origins: BTreeSet<OriginNumber>,
    example: Arc<SeriesInfo>,
}

/// Each series with the origin that sent it, unless it came from a block.
type Part = HashMap<Key, Option<OriginNumber>, FxBuildHasher>;

/// The live series and the meaning of their metrics.
#[derive(Debug)]
pub struct Registry {
    /// The series in parts by their device.
    parts: [Part; Self::PARTS],
    by_origin: FxHashMap<OriginNumber, usize>,
    /// The origins of kinds that have a share, and the number of their series.
    shares: FxHashMap<OriginNumber, Share>,
    share_series: ShareCounts,
    catalogue: Catalogue,
    shared: BTreeMap<DeviceId, Shared>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(Catalogue::default())
    }
}

impl Registry {
    /// Number of parts that are swept one by one, so that ingest waits for none of millions of series.
    pub const PARTS: usize = 64;

    /// A registry with this catalogue.
    pub fn new(catalogue: Catalogue) -> Self {
        Self {
            parts: std::array::from_fn(|_| Part::default()),
            by_origin: FxHashMap::default(),
            shares: FxHashMap::default(),
            share_series: ShareCounts::default(),
            catalogue,
            shared: BTreeMap::new(),
        }
    }

    /// The part of a series.
    fn part(series: &Series) -> usize {
        // The low bits of this hash are the worst.
        let hash = FxBuildHasher.hash_one(&series.device) >> 32;
        usize::try_from(hash).unwrap_or(0) % Self::PARTS
    }

    fn get(&self, series: &Series) -> Option<(&Arc<SeriesInfo>, Option<OriginNumber>)> {
        let (Key(info), owner) = self.parts.get(Self::part(series))?.get_key_value(series)?;
        Some((info, *owner))
    }

    fn insert(&mut self, info: &Arc<SeriesInfo>, owner: Option<OriginNumber>) {
        if let Some(part) = self.parts.get_mut(Self::part(&info.series)) {
            part.insert(Key(Arc::clone(info)), owner);
        }
    }

    /// The series of a table's entry, added if it is new.
    ///
    /// # Errors
    /// Its samples are rejected.
    pub(crate) fn resolve(
        &mut self,
        number: OriginNumber,
        origin: &Origin,
        entry: &SeriesEntry,
        limits: &Limits,
    ) -> Result<Arc<SeriesInfo>, Rejection> {
        if let Some(label) = reserved_label(entry, origin) {
            return Err(Rejection::Label(label));
        }
        if origin.as_run().is_some() {
            limits.declared.check_of_run(entry).map_err(Rejection::Meaning)?;
        }
        let share = Share::of(origin);
        self.shares.extend(share.map(|share| (number, share)));
        self.catalogue.learn(&entry.metric, origin, limits)?;
        let series = entry.series();
        let (unit, kind) = self.meaning_of(&entry.metric);
        if let Some((info, owner)) = self.get(&series) {
            let info = match (info.unit, info.kind) == (unit, kind) {
                true => Arc::clone(info),
                false => {
                    let new = SeriesInfo { unit, kind, ..SeriesInfo::clone(info) };
                    self.redefine(new, owner)
                }
            };
            if owner != Some(number) {
                self.take_over(&info, owner, number);
            }
            return Ok(info);
        }
        if self.series_count() >= limits.series_max {
            return Err(Rejection::Series(limits.series_max));
        }
        let max = match share {
            Some(Share::Users) if origin.is_user_push() => limits.series_per_inserting_user_max,
            Some(Share::Users) => limits.series_per_run_max.min(limits.series_per_origin_max),
            Some(Share::Pollers) | None => limits.series_per_origin_max,
        };
        if self.by_origin.get(&number).is_some_and(|owned| *owned >= max) {
            return Err(Rejection::OriginSeries { origin: origin.clone(), max });
        }
        if let Some(share) = share {
            let (used, most) = (*self.share_series.of(share), share.max(limits.series_max));
            if used >= most {
                return Err(Rejection::ShareSeries(share, used));
            }
        }
        self.gain(number);
        let series = self.named(series);
        let divisor = entry.metric.divisor;
        let info = Arc::new(SeriesInfo { series, unit, kind, divisor });
        self.insert(&info, Some(number));
        Ok(info)
    }

    /// Unit and kind of a metric that the catalogue has learned: those of its first sender of the highest rank.
    fn meaning_of(&self, metric: &Metric) -> (Unit, Kind) {
        let known = self.catalogue.get(&metric.name).map(|(_, known)| &**known);
        let known = known.unwrap_or(metric);
        (known.unit, known.kind)
    }

    /// Replaces a series that has the meaning from before its metric was taken over.
    fn redefine(&mut self, new: SeriesInfo, owner: Option<OriginNumber>) -> Arc<SeriesInfo> {
        // A map keeps the key of an entry that it has.
        if let Some(part) = self.parts.get_mut(Self::part(&new.series)) {
            part.remove(&new.series);
        }
        let new = Arc::new(new);
        self.insert(&new, owner);
        new
    }

    /// Records that another origin sends a known series: both claim it if the previous one is still active.
    fn take_over(
        &mut self,
        info: &Arc<SeriesInfo>,
        owner: Option<OriginNumber>,
        number: OriginNumber,
    ) {
        if let Some(owner) = owner {
            let device = info.series.device.clone();
            let new = || Shared { origins: BTreeSet::new(), example: Arc::clone(info) };
            self.shared.entry(device).or_insert_with(new).origins.extend([owner, number]);
            self.lose(owner, 1);
        }
        self.gain(number);
        self.insert(info, Some(number));
    }

    fn gain(&mut self, number: OriginNumber) {
        *self.by_origin.entry(number).or_default() += 1;
        self.share_series.add(self.shares.get(&number).copied());
    }

    fn lose(&mut self, number: OriginNumber, count: usize) {
        if let Some(owned) = self.by_origin.get_mut(&number) {
            let lost = count.min(*owned);
            *owned -= lost;
            self.share_series.subtract(self.shares.get(&number).copied(), lost);
        }
    }

    /// The live series with its metric's meaning, or a new one as a block stores it.
    pub fn series_info(&self, series: Series, divisor: u32) -> Arc<SeriesInfo> {
        match self.get(&series) {
            Some((info, _)) => Arc::clone(info),
            None => Arc::new(self.explain(series, divisor)),
        }
    }

    /// Adds a series of a block, so that its last value can be queried.
    pub fn restore(&mut self, series: Series, divisor: u32) -> Arc<SeriesInfo> {
        if let Some((info, _)) = self.get(&series) {
            return Arc::clone(info);
        }
        let info = Arc::new(self.explain(series, divisor));
        self.insert(&info, None);
        info
    }

    /// The series with its metric's shared name: a million series have a few hundred names.
    fn named(&self, series: Series) -> Series {
        match self.catalogue.get(&series.metric) {
            Some((name, _)) => Series { metric: Arc::clone(name), ..series },
            None => series,
        }
    }

    fn explain(&self, series: Series, divisor: u32) -> SeriesInfo {
        // The manifest of a block also lists its metrics.
        let Some((name, metric)) = self.catalogue.get(&series.metric) else {
            // Another program wrote it into a database: its name states its meaning.
            let (unit, kind) = (Unit::of_name(&series.metric), Kind::of_name(&series.metric));
            return SeriesInfo { series, unit, kind, divisor };
        };
        let (unit, kind) = (metric.unit, metric.kind);
        SeriesInfo { series: Series { metric: Arc::clone(name), ..series }, unit, kind, divisor }
    }

    /// Drops the series of a part that nothing else holds.
    pub fn sweep(&mut self, part: usize) {
        // The key and the example hold the series without using it.
        self.shared.retain(|_, shared| Arc::strong_count(&shared.example) > 2);
        let mut lost: FxHashMap<OriginNumber, usize> = FxHashMap::default();
        self.parts.get_mut(part).into_iter().for_each(|series| {
            series.retain(|Key(info), owner| {
                let used = Arc::strong_count(info) > 1;
                if let Some(owner) = owner.filter(|_| !used) {
                    *lost.entry(owner).or_default() += 1;
                }
                used
            });
        });
        if !lost.is_empty() {
            lost.into_iter().for_each(|(owner, count)| self.lose(owner, count));
            self.by_origin.retain(|_, owned| *owned > 0);
        }
    }

    /// Forgets the new metrics of a rejected table, and the series that only it and the registry hold.
    pub(crate) fn undo<'a>(&mut self, series: impl Iterator<Item = &'a Arc<SeriesInfo>>) {
        self.catalogue.undo();
        for info in series {
            let Some((known, owner)) = self.get(&info.series) else { continue };
            if Arc::strong_count(known) <= 2
                && let Some(part) = self.parts.get_mut(Self::part(&info.series))
            {
                part.remove(&info.series);
                owner.into_iter().for_each(|owner| self.lose(owner, 1));
            }
        }
    }

    /// Clears the origin of series, if it is one of these.
    pub(crate) fn disown(&mut self, origins: &BTreeSet<OriginNumber>) {
        for owner in self.parts.iter_mut().flat_map(Part::values_mut) {
            *owner = owner.filter(|owner| !origins.contains(owner));
        }
        for origin in origins {
            self.lose(*origin, usize::MAX);
            self.shares.remove(origin);
        }
        self.by_origin.retain(|origin, _| !origins.contains(origin));
        for shared in self.shared.values_mut() {
            shared.origins.retain(|origin| !origins.contains(origin));
        }
    }

    /// Number of live series.
    pub fn series_count(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    /// The metrics, for a batch that may be rejected whole.
    pub(crate) const fn metrics(&mut self) -> &mut Catalogue {
        &mut self.catalogue
    }

    /// Number of known metrics.
    pub fn metrics_count(&self) -> usize {
        self.catalogue.count()
    }

    /// The meaning of every metric, ordered by name.
    pub fn catalogue(&self) -> Vec<Arc<Metric>> {
        self.catalogue.all()
    }

    /// A number that differs after every change of the catalogue.
    pub const fn catalogue_version(&self) -> u64 {
        self.catalogue.version()
    }

    /// The catalogue as the manifest stores it.
    pub fn catalogue_json(&self) -> Vec<MetricJson> {
        self.catalogue.json()
    }

    /// Devices with the same series from several origins, each with a batch within `idle_us` of the latest one.
    pub fn claims(&self, origins: &Origins, idle_us: i64) -> Vec<Claim> {
        let claim = |(device, shared): (&DeviceId, &Shared)| {
            let states = shared.origins.iter().filter_map(|number| origins.get(*number));
            let mut claimants: Vec<(Origin, Timestamp)> =
                states.map(|state| (state.name.clone(), state.received)).collect();
            let newest = claimants.iter().map(|(_, received)| *received).max()?;
            claimants.retain(|(_, received)| newest.since(*received) <= idle_us);
            let example = shared.example.series.clone();
            let claim = Claim { device: device.clone(), origins: claimants, example };
            (claim.origins.len() > 1).then_some(claim)
        };
        self.shared.iter().filter_map(claim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;

    fn entry(name: &'static str, unit: Unit, device: &str) -> SeriesEntry {
        SeriesEntry {
            metric: Arc::new(Metric::gauge(name, unit, "help")),
            device: DeviceId::new(device).unwrap(),
            job: None,
            labels: Labels::default(),
            start: None,
        }
    }

    fn origin(name: &str) -> Origin {
        Origin::new(name).unwrap()
    }

    #[test]
    fn a_series_is_one_in_memory_while_it_is_used() {
        let mut registry = Registry::default();
        let limits = Limits::default();
        let mut resolve =
            || registry.resolve(0, &origin("n1"), &entry("a", Unit::Count, "n1"), &limits);
        let first = resolve().unwrap();
        assert!(Arc::ptr_eq(&first, &resolve().unwrap()));
        (0..Registry::PARTS).for_each(|part| registry.sweep(part));
        assert_eq!(registry.series_count(), 1);
        drop(first);
        (0..Registry::PARTS).for_each(|part| registry.sweep(part));
        assert_eq!((registry.series_count(), registry.metrics_count()), (0, 1));
    }

    #[test]
    fn a_conflict_of_units_reports_both_origins() {
        let mut registry = Registry::default();
        let limits = Limits::default();
        registry.resolve(0, &origin("n1"), &entry("a", Unit::Count, "n1"), &limits).unwrap();
        let error = registry
            .resolve(1, &origin("n2"), &entry("a", Unit::Bytes, "n2"), &limits)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "metric a is a gauge in count since n1 named it, and a gauge in bytes as n2 names it: \
             rename one"
        );
    }

    #[test]
    fn series_and_metrics_are_bounded() {
        let mut registry = Registry::default();
        let limits =
            Limits { series_max: 3, series_per_origin_max: 2, metrics_max: 1, ..Limits::default() };
        let mut kept = Vec::new();
        let mut resolve = |number, name: &'static str, device| {
            let info =
                registry.resolve(number, &origin("n"), &entry(name, Unit::Count, device), &limits);
            info.map(|info| kept.push(info))
        };
        assert!(resolve(0, "a", "n1").is_ok() && resolve(0, "a", "n2").is_ok());
        assert!(matches!(resolve(0, "a", "n3"), Err(Rejection::OriginSeries { max: 2, .. })));
        assert!(resolve(1, "a", "n3").is_ok());
        assert_eq!(resolve(1, "a", "n4"), Err(Rejection::Series(3)));
        assert_eq!(resolve(1, "b", "n1"), Err(Rejection::Metrics(1)));
    }

    #[test]
    fn commands_of_users_have_a_quarter_of_the_series_and_agents_the_rest() {
        let mut registry = Registry::default();
        let limits = Limits { series_max: 8, series_per_run_max: 2, ..Limits::default() };
        let mut kept = Vec::new();
        let mut resolve = |registry: &mut Registry, number, by, device: &str| {
            let entry = entry("run_threads", Unit::Count, device);
            let info = registry.resolve(number, &origin(by), &entry, &limits);
            info.map(|info| kept.push(info))
        };
        for device in ["a", "b"] {
            resolve(&mut registry, 0, "n1/run-1", device).unwrap();
        }
        let third = resolve(&mut registry, 0, "n1/run-1", "c");
        assert!(matches!(third, Err(Rejection::OriginSeries { max: 2, .. })), "{third:?}");
        assert_eq!(
            resolve(&mut registry, 1, "n1/run-2", "c"),
            Err(Rejection::ShareSeries(Share::Users, 2))
        );
        for device in ["c", "d", "e", "f", "g", "h"] {
            resolve(&mut registry, 2, "n1", device).unwrap();
        }
        registry.disown(&BTreeSet::from([0]));
        assert_eq!(resolve(&mut registry, 3, "n1/run-3", "i"), Err(Rejection::Series(8)));
        assert_eq!(*registry.share_series.of(Share::Users), 0);
    }

    #[test]
    fn labels_that_answers_add_are_rejected() {
        let mut registry = Registry::default();
        let limits = Limits::default();
        let labels = ["_job_id", "_cluster", "_device_orig", "_user", "_device_alias"];
        for (label, rejected) in labels.into_iter().zip([true, true, true, true, false]) {
            let mut entry = entry("a", Unit::Count, "n1");
            entry.labels = Labels::new([(label, "7"), ("cpu", "0")]).unwrap();
            let result = registry.resolve(0, &origin("n1"), &entry, &limits);
            assert_eq!(result.is_err(), rejected, "{label}");
        }
        let mut value = entry("a", Unit::Count, "n1");
        value.labels = Labels::new([("name", "_job_id")]).unwrap();
        assert!(registry.resolve(0, &origin("n1"), &value, &limits).is_ok());
    }

    #[test]
    fn two_origins_of_one_series_are_reported_while_both_send() {
        let mut registry = Registry::default();
        let mut origins = Origins::default();
        let mut kept = Vec::new();
        for (name, received) in [("n1.a", 100), ("n1.b", 150)] {
            let number = origins.number(&origin(name), 10).unwrap();
            origins.get_mut(number).unwrap().received = Timestamp(received);
            let entry = entry("a", Unit::Count, "n1");
            let limits = Limits::default();
            kept.push(registry.resolve(number, &origin(name), &entry, &limits).unwrap());
        }
        let claims = registry.claims(&origins, 50);
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].origins.len(), 2);
        assert_eq!(claims[0].device.as_str(), "n1");
        assert_eq!(registry.claims(&origins, 49), []);
    }
}
