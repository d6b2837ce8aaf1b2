//! The metrics whose meaning the program itself defines.

use model::{Metric, SeriesEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The metrics of the program's own sources, with their meaning: no sender can change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredMetrics {
    all: Arc<BTreeMap<Box<str>, Metric>>,
    run: Option<Arc<RunMetrics>>,
}

/// The metrics and label keys of `jobmeter run`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunMetrics {
    /// Names of declared metrics.
    pub names: BTreeSet<Box<str>>,
    /// Keys of labels.
    pub labels: BTreeSet<Box<str>>,
}

impl DeclaredMetrics {
    /// These metrics.
    pub fn new(metrics: impl IntoIterator<Item = Metric>) -> Self {
        let named = |metric: Metric| (Box::from(&*metric.name), metric);
        Self { all: Arc::new(metrics.into_iter().map(named).collect()), run: None }
    }

    /// The same, with these series as the only ones of `jobmeter run`.
    #[must_use]
    pub fn with_run(self, run: RunMetrics) -> Self {
        Self { run: Some(Arc::new(run)), ..self }
    }

    /// The declared metric of this name.
    pub fn get(&self, name: &str) -> Option<&Metric> {
        self.all.get(name)
    }

    /// Whether a metric of this name is declared.
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Checks that `jobmeter run` measures a series. Unit and kind are checked as for every declared metric.
    ///
    /// # Errors
    /// It does not; the text states why.
    pub fn check_of_run(&self, entry: &SeriesEntry) -> Result<(), String> {
        let Some(run) = &self.run else { return Ok(()) };
        let name = &*entry.metric.name;
        if !run.names.contains(name) {
            return Err(format!(
                "`jobmeter run` of the server's version measures no metric {name}"
            ));
        }
        let labels = entry.labels.pairs();
        match labels.iter().find(|(key, _)| !run.labels.contains(key.as_str())) {
            Some((key, _)) => Err(format!("{name} of `jobmeter run` has no label `{key}`")),
            None => Ok(()),
        }
    }
}
