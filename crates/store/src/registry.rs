//! The series alive, each once in memory, and the catalogue: what every metric means.
//!
//! A series is its canonical tuple (device, metric, job, labels) everywhere; nothing on disk or on the
//! wire knows a number for it (decision 0003). In memory each has one `SeriesInfo`, shared by the
//! tables, the head and the last values; when only the registry still holds it, it is forgotten.

use crate::answer::{Claim, SeriesInfo};
use crate::json::MetricJson;
use crate::origins::{OriginNumber, Origins};
use crate::settings::Settings;
use model::{DeviceId, Kind, Metric, Origin, Series, SeriesEntry, Timestamp, Unit};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Why a series' samples are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the server has {0} series, its limit")]
    Series(usize),
    #[error("origin {origin} has {max} series, its limit")]
    OriginSeries { origin: Origin, max: usize },
    #[error("the server has {0} metrics, its limit")]
    Metrics(usize),
    #[error("{0}")]
    Meaning(String),
}

/// A series as a key: found by its identity alone.
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
struct Known {
    metric: Arc<Metric>,
    by: Box<str>,
}

#[derive(Debug)]
struct Shared {
    origins: BTreeSet<OriginNumber>,
    example: Arc<SeriesInfo>,
}

/// The series alive and what their metrics mean.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Each series with the origin that brought it, unless a block did.
    series: HashMap<Key, Option<OriginNumber>, FxBuildHasher>,
    by_origin: FxHashMap<OriginNumber, usize>,
    /// By names that the series share.
    metrics: BTreeMap<Arc<str>, Known>,
    shared: BTreeMap<DeviceId, Shared>,
}

impl Registry {
    /// A registry that knows these metrics.
    pub(crate) fn new(metrics: impl IntoIterator<Item = (Metric, String)>) -> Self {
        let known = |(metric, by): (Metric, String)| {
            (Arc::from(&*metric.name), Known { metric: Arc::new(metric), by: by.into() })
        };
        Self { metrics: metrics.into_iter().map(known).collect(), ..Self::default() }
    }

    /// The series of a table's entry, taken in if it is new.
    ///
    /// # Errors
    /// Its samples are refused.
    pub(crate) fn resolve(
        &mut self,
        number: OriginNumber,
        origin: &Origin,
        entry: &SeriesEntry,
        settings: &Settings,
    ) -> Result<Arc<SeriesInfo>, Refusal> {
        self.learn(&entry.metric, origin, settings)?;
        let series = entry.series();
        if let Some((Key(info), owner)) = self.series.get_key_value(&series) {
            let (info, owner) = (Arc::clone(info), *owner);
            if owner != Some(number) {
                self.take_over(&info, owner, number);
            }
            return Ok(info);
        }
        if self.series.len() >= settings.series_max {
            return Err(Refusal::Series(settings.series_max));
        }
        let owned = self.by_origin.entry(number).or_default();
        if *owned >= settings.series_per_origin_max {
            let (origin, max) = (origin.clone(), settings.series_per_origin_max);
            return Err(Refusal::OriginSeries { origin, max });
        }
        *owned += 1;
        let series = self.named(series);
        let Metric { unit, kind, divisor, .. } = *entry.metric;
        let info = Arc::new(SeriesInfo { series, unit, kind, divisor });
        self.series.insert(Key(Arc::clone(&info)), Some(number));
        Ok(info)
    }

    /// Notes that another origin sends a known series: they share it if the one before still does.
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
            if let Some(owned) = self.by_origin.get_mut(&owner) {
                *owned = owned.saturating_sub(1);
            }
        }
        *self.by_origin.entry(number).or_default() += 1;
        self.series.insert(Key(Arc::clone(info)), Some(number));
    }

    /// Learns what a metric means, or checks that it means what it did.
    fn learn(
        &mut self,
        metric: &Arc<Metric>,
        by: &Origin,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        let count = self.metrics.len();
        match self.metrics.get_mut(&*metric.name) {
            Some(known) if (known.metric.unit, known.metric.kind) == (metric.unit, metric.kind) => {
                if !metric.help.is_empty() && known.metric.help != metric.help {
                    known.metric = Arc::clone(metric);
                }
                Ok(())
            }
            Some(known) => Err(Refusal::Meaning(format!(
                "metric {} is a {} in {} since {} named it, and a {} in {} as {by} names it: rename \
                 one",
                metric.name,
                known.metric.kind.word(),
                unit_word(known.metric.unit),
                known.by,
                metric.kind.word(),
                unit_word(metric.unit),
            ))),
            None if count >= settings.metrics_max => Err(Refusal::Metrics(count)),
            None => {
                let known = Known { metric: Arc::clone(metric), by: by.as_str().into() };
                self.metrics.insert(Arc::from(&*metric.name), known);
                Ok(())
            }
        }
    }

    /// The series with what its metric means, as a block tells it: the one alive, if it is.
    pub(crate) fn known(&self, series: Series, divisor: u32) -> Arc<SeriesInfo> {
        match self.series.get_key_value(&series) {
            Some((Key(info), _)) => Arc::clone(info),
            None => Arc::new(self.explain(series, divisor)),
        }
    }

    /// Takes in a series that a block holds, so that its last value can be told.
    pub(crate) fn restore(&mut self, series: Series, divisor: u32) -> Arc<SeriesInfo> {
        let info = self.known(series, divisor);
        self.series.entry(Key(Arc::clone(&info))).or_insert(None);
        info
    }

    /// The series by its metric's one name in memory: a million series have a few hundred.
    fn named(&self, series: Series) -> Series {
        match self.metrics.get_key_value(&*series.metric) {
            Some((name, _)) => Series { metric: Arc::clone(name), ..series },
            None => series,
        }
    }

    fn explain(&self, series: Series, divisor: u32) -> SeriesInfo {
        // The manifest that names a block also names its metrics.
        let series = self.named(series);
        let known = self.metrics.get(&*series.metric).map(|known| &known.metric);
        let (unit, kind) =
            known.map_or((Unit::Count, Kind::Gauge), |metric| (metric.unit, metric.kind));
        SeriesInfo { series, unit, kind, divisor }
    }

    /// Forgets the series that nothing else holds.
    pub(crate) fn sweep(&mut self) {
        // The series' key and the example are the two that do not count as use.
        self.shared.retain(|_, shared| Arc::strong_count(&shared.example) > 2);
        let by_origin = &mut self.by_origin;
        self.series.retain(|Key(info), owner| {
            let used = Arc::strong_count(info) > 1;
            if let Some(owned) = owner.filter(|_| !used).and_then(|owner| by_origin.get_mut(&owner))
            {
                *owned = owned.saturating_sub(1);
            }
            used
        });
        by_origin.retain(|_, owned| *owned > 0);
    }

    /// Forgets who brought series, where it was one of these.
    pub(crate) fn disown(&mut self, origins: &BTreeSet<OriginNumber>) {
        for owner in self.series.values_mut() {
            *owner = owner.filter(|owner| !origins.contains(owner));
        }
        self.by_origin.retain(|origin, _| !origins.contains(origin));
        for shared in self.shared.values_mut() {
            shared.origins.retain(|origin| !origins.contains(origin));
        }
    }

    /// Series alive.
    pub(crate) fn series_count(&self) -> usize {
        self.series.len()
    }

    /// Metrics known.
    pub(crate) fn metrics_count(&self) -> usize {
        self.metrics.len()
    }

    /// What every metric means, ordered by name.
    pub(crate) fn catalogue(&self) -> Vec<Arc<Metric>> {
        self.metrics.values().map(|known| Arc::clone(&known.metric)).collect()
    }

    /// The catalogue as the manifest keeps it.
    pub(crate) fn catalogue_json(&self) -> Vec<MetricJson> {
        self.metrics.values().map(|known| MetricJson::new(&known.metric, &known.by)).collect()
    }

    /// Devices of which several origins send the same series, and sent batches within `idle_us` of the
    /// one that did last.
    pub(crate) fn claims(&self, origins: &Origins, idle_us: i64) -> Vec<Claim> {
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

const fn unit_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "count",
        other => other.word(),
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
        let settings = Settings::default();
        let mut resolve =
            || registry.resolve(0, &origin("n1"), &entry("a", Unit::Count, "n1"), &settings);
        let first = resolve().unwrap();
        assert!(Arc::ptr_eq(&first, &resolve().unwrap()));
        registry.sweep();
        assert_eq!(registry.series_count(), 1);
        drop(first);
        registry.sweep();
        assert_eq!((registry.series_count(), registry.metrics_count()), (0, 1));
    }

    #[test]
    fn one_name_with_two_units_names_both_places() {
        let mut registry = Registry::default();
        let settings = Settings::default();
        registry.resolve(0, &origin("n1"), &entry("a", Unit::Count, "n1"), &settings).unwrap();
        let error = registry
            .resolve(1, &origin("n2"), &entry("a", Unit::Bytes, "n2"), &settings)
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
        let settings = Settings {
            series_max: 3,
            series_per_origin_max: 2,
            metrics_max: 1,
            ..Settings::default()
        };
        let mut kept = Vec::new();
        let mut resolve = |number, name: &'static str, device| {
            let info = registry.resolve(
                number,
                &origin("n"),
                &entry(name, Unit::Count, device),
                &settings,
            );
            info.map(|info| kept.push(info))
        };
        assert!(resolve(0, "a", "n1").is_ok() && resolve(0, "a", "n2").is_ok());
        assert!(matches!(resolve(0, "a", "n3"), Err(Refusal::OriginSeries { max: 2, .. })));
        assert!(resolve(1, "a", "n3").is_ok());
        assert_eq!(resolve(1, "a", "n4"), Err(Refusal::Series(3)));
        assert_eq!(resolve(1, "b", "n1"), Err(Refusal::Metrics(1)));
    }

    #[test]
    fn two_origins_of_one_series_are_told_while_both_send() {
        let mut registry = Registry::default();
        let mut origins = Origins::default();
        let mut kept = Vec::new();
        for (name, received) in [("n1.a", 100), ("n1.b", 150)] {
            let number = origins.number(&origin(name), 10).unwrap();
            origins.get_mut(number).unwrap().received = Timestamp(received);
            let entry = entry("a", Unit::Count, "n1");
            let settings = Settings::default();
            kept.push(registry.resolve(number, &origin(name), &entry, &settings).unwrap());
        }
        let claims = registry.claims(&origins, 50);
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].origins.len(), 2);
        assert_eq!(claims[0].device.as_str(), "n1");
        assert_eq!(registry.claims(&origins, 49), []);
    }
}
