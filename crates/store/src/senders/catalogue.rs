//! The catalogue: the meaning of every metric, and the rules for adding one.
//!
//! A declared metric ([`crate::DeclaredMetrics`]) has the meaning and the help text of the program's build.
//! No sender changes either, and the limits do not count it.
//! The first sender of an undeclared metric defines it; no other sender changes its help text.

use crate::files::json::MetricJson;
use crate::senders::series_registry::Rejection;
use crate::settings::{DeclaredMetrics, Settings};
use model::{Metric, Origin, Unit};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All commands of `jobmeter run` together count as one origin.
const RUNS: &str = "/runs";

#[derive(Debug)]
struct CatalogueEntry {
    metric: Arc<Metric>,
    by: Box<str>,
}

/// The metrics of senders.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    declared: DeclaredMetrics,
    /// By names that the series share.
    metrics: BTreeMap<Arc<str>, CatalogueEntry>,
    /// Undeclared metrics of each origin.
    by_origin: HashMap<Box<str>, usize>,
    undeclared: usize,
}

impl Catalogue {
    /// A catalogue with stored metrics.
    pub(crate) fn new(
        declared: DeclaredMetrics,
        stored: impl IntoIterator<Item = (Metric, String)>,
    ) -> Self {
        let mut catalogue = Self { declared, ..Self::default() };
        for (metric, by) in stored {
            match catalogue.declared.get(&metric.name) {
                Some(declared) => {
                    let metric = Metric { divisor: metric.divisor, ..declared.clone() };
                    catalogue.keep(&metric, &by);
                }
                None => catalogue.add_undeclared(&Arc::new(metric), &by),
            }
        }
        catalogue
    }

    /// Adds a metric, or checks that its meaning is unchanged.
    ///
    /// # Errors
    /// It has another meaning, or a limit is reached.
    pub(crate) fn learn(
        &mut self,
        metric: &Arc<Metric>,
        by: &Origin,
        settings: &Settings,
    ) -> Result<(), Rejection> {
        if let Some(known) = self.metrics.get_mut(&*metric.name) {
            check(&known.metric, &known.by, metric, by)?;
            let is_first = *known.by == *by.as_str() && !self.declared.has(&metric.name);
            if is_first && !metric.help.is_empty() && known.metric.help != metric.help {
                known.metric = Arc::clone(metric);
            }
            return Ok(());
        }
        if let Some(declared) = self.declared.get(&metric.name) {
            check(declared, "the program", metric, by)?;
            let metric = Metric { divisor: metric.divisor, ..declared.clone() };
            self.keep(&metric, "the program");
            return Ok(());
        }
        if self.undeclared >= settings.metrics_max {
            return Err(Rejection::Metrics(self.undeclared));
        }
        let max = settings.metrics_per_origin_max;
        if self.by_origin.get(quota_of(by.as_str())).is_some_and(|count| *count >= max) {
            return Err(Rejection::OriginMetrics { origin: by.clone(), max });
        }
        self.add_undeclared(metric, by.as_str());
        Ok(())
    }

    fn add_undeclared(&mut self, metric: &Arc<Metric>, by: &str) {
        self.undeclared += 1;
        *self.by_origin.entry(quota_of(by).into()).or_default() += 1;
        self.keep(metric, by);
    }

    fn keep(&mut self, metric: &Metric, by: &str) {
        let known = CatalogueEntry { metric: Arc::new(metric.clone()), by: by.into() };
        self.metrics.insert(Arc::from(&*metric.name), known);
    }

    /// A metric with its shared name.
    pub(crate) fn get(&self, name: &str) -> Option<(&Arc<str>, &Arc<Metric>)> {
        self.metrics.get_key_value(name).map(|(name, known)| (name, &known.metric))
    }

    /// Number of known metrics.
    pub(crate) fn count(&self) -> usize {
        self.metrics.len()
    }

    /// Every metric, ordered by name.
    pub(crate) fn all(&self) -> Vec<Arc<Metric>> {
        self.metrics.values().map(|known| Arc::clone(&known.metric)).collect()
    }

    /// The catalogue as the manifest stores it.
    pub(crate) fn json(&self) -> Vec<MetricJson> {
        self.metrics.values().map(|known| MetricJson::new(&known.metric, &known.by)).collect()
    }
}

/// The quota that counts a metric of this origin.
fn quota_of(by: &str) -> &str {
    let is_run = Origin::new(by).is_ok_and(|origin| origin.as_run().is_some());
    if is_run { RUNS } else { by }
}

/// Checks that a metric's meaning is unchanged.
fn check(known: &Metric, known_by: &str, metric: &Metric, by: &Origin) -> Result<(), Rejection> {
    if (known.unit, known.kind) == (metric.unit, metric.kind) {
        return Ok(());
    }
    Err(Rejection::Meaning(format!(
        "metric {} is a {} in {} since {known_by} named it, and a {} in {} as {by} names it: rename one",
        metric.name,
        known.kind.word(),
        unit_name(known.unit),
        metric.kind.word(),
        unit_name(metric.unit),
    )))
}

const fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "count",
        other => other.word(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(catalogue: &mut Catalogue, metric: Metric, by: &str) -> Result<(), Rejection> {
        let settings =
            Settings { metrics_max: 5, metrics_per_origin_max: 2, ..Settings::default() };
        catalogue.learn(&Arc::new(metric), &Origin::new(by).unwrap(), &settings)
    }

    fn declared() -> DeclaredMetrics {
        DeclaredMetrics::new([Metric::gauge("memory_available_bytes", Unit::Bytes, "Built in.")])
    }

    #[test]
    fn a_declared_metric_keeps_its_meaning_and_help_and_counts_in_no_limit() {
        let mut catalogue = Catalogue::new(declared(), []);
        let wrong = Metric::counter("memory_available_bytes", Unit::Joules, "Mine.");
        assert!(matches!(learn(&mut catalogue, wrong, "n1"), Err(Rejection::Meaning(_))));
        for origin in ["n1", "n2", "n3"] {
            for name in ["a", "b", "c"] {
                let name = format!("{origin}_{name}");
                let metric = Metric { name: name.into(), ..Metric::gauge("", Unit::Count, "") };
                learn(&mut catalogue, metric, origin).ok();
            }
        }
        assert_eq!(catalogue.count(), 5, "two of each origin, five of all");
        let again = Metric::gauge("memory_available_bytes", Unit::Bytes, "Mine.");
        assert_eq!(learn(&mut catalogue, again, "n9"), Ok(()));
        assert_eq!(catalogue.get("memory_available_bytes").unwrap().1.help, "Built in.");
    }

    #[test]
    fn only_the_first_sender_changes_the_help_of_its_metric() {
        let mut catalogue = Catalogue::default();
        let metric = |help| Metric::gauge("site_power", Unit::Watts, help);
        for (help, by, now) in [
            ("one", "n1", "one"),
            ("two", "n2", "one"),
            ("", "n1", "one"),
            ("three", "n1", "three"),
        ] {
            learn(&mut catalogue, metric(help), by).unwrap();
            assert_eq!(catalogue.get("site_power").unwrap().1.help, now, "{help} by {by}");
        }
    }

    #[test]
    fn all_runs_share_one_quota_and_a_restart_keeps_it() {
        let mut catalogue = Catalogue::default();
        let metric = |name| Metric::gauge(name, Unit::Count, "");
        learn(&mut catalogue, metric("a"), "n1/run-1").unwrap();
        learn(&mut catalogue, metric("b"), "n1/run-2").unwrap();
        let stored = catalogue.json().into_iter().map(|json| json.metric().unwrap());
        let mut catalogue = Catalogue::new(DeclaredMetrics::default(), stored);
        let third = learn(&mut catalogue, metric("c"), "n2/run-3");
        assert!(matches!(third, Err(Rejection::OriginMetrics { max: 2, .. })), "{third:?}");
        assert_eq!(learn(&mut catalogue, metric("c"), "n2"), Ok(()));
    }

    #[test]
    fn a_stored_metric_that_took_a_declared_name_is_the_declared_one() {
        let wrong = Metric::gauge("memory_available_bytes", Unit::Joules, "Mine.");
        let catalogue = Catalogue::new(declared(), [(wrong, "n1/run-7".to_owned())]);
        let (_, metric) = catalogue.get("memory_available_bytes").unwrap();
        assert_eq!((metric.unit, &*metric.help), (Unit::Bytes, "Built in."));
    }
}
