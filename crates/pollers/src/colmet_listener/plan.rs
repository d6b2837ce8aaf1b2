//! How the columns of a backend are stored.

use super::host::counter_files::HostCounters;
use colmet::backends::Backend;
use colmet::counter_names::CounterNames;
use colmet::names::{Stored, stored};
use model::{Kind, Labels, Metric};
use std::collections::HashMap;
use std::sync::Arc;

/// How a column is stored.
#[derive(Debug)]
pub(super) struct ColumnPlan {
    pub(super) metric: Arc<Metric>,
    pub(super) labels: Labels,
    /// The place of an earlier column of the same series: of two values, only the first is stored.
    pub(super) first: Option<usize>,
    stored: Stored,
}

impl ColumnPlan {
    /// Whether the values are growths.
    pub(super) const fn is_growth(&self) -> bool {
        self.stored.is_growth
    }

    /// Whether the series is a counter.
    pub(super) fn is_counter(&self) -> bool {
        self.stored.is_growth || self.metric.kind == Kind::Counter
    }

    /// A number of Colmet's in the metric's unit.
    pub(super) fn value(&self, theirs: f64) -> f64 {
        self.stored.scale.to_ours(theirs)
    }
}

/// The columns of a backend by their places; `None` for those that are not stored.
pub(super) type BackendPlan = Arc<[Option<ColumnPlan>]>;

/// The plans that hosts share.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// Of backends without named counters, by the backend and whether the host has an agent.
    common: HashMap<(&'static str, bool), BackendPlan>,
    metrics: HashMap<String, Arc<Metric>>,
}

impl Plans {
    /// The plan of a backend of a host.
    pub(super) fn of(
        &mut self,
        backend: &'static Backend,
        counters: &HostCounters,
        has_agent: bool,
    ) -> BackendPlan {
        if let Some(names) = counters.of(backend) {
            return self.build(backend, names, has_agent);
        }
        if let Some(known) = self.common.get(&(backend.id, has_agent)) {
            return Arc::clone(known);
        }
        let plan = self.build(backend, &CounterNames::none(backend), has_agent);
        self.common.insert((backend.id, has_agent), Arc::clone(&plan));
        plan
    }

    fn build(
        &mut self,
        backend: &'static Backend,
        names: &CounterNames,
        has_agent: bool,
    ) -> BackendPlan {
        let mut columns: Vec<Option<ColumnPlan>> = Vec::new();
        for column in backend.columns {
            let plan = stored(backend, column, names, has_agent).map(|stored| {
                let shared = self.metrics.entry(stored.metric.name.to_string());
                let metric = Arc::clone(shared.or_insert_with(|| Arc::new(stored.metric.clone())));
                let labels = stored.labels.clone();
                let is_same = |one: &Option<ColumnPlan>| {
                    one.as_ref().is_some_and(|one| one.metric == metric && one.labels == labels)
                };
                ColumnPlan { first: columns.iter().position(is_same), metric, labels, stored }
            });
            columns.push(plan);
        }
        columns.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colmet::backends::{EVENTS, JOBPROC, PERFHW, PROCSTATS};

    #[test]
    fn a_host_with_an_agent_has_other_names() {
        let (mut plans, none) = (Plans::default(), HostCounters::default());
        let mut names = |backend, has_agent| -> Vec<String> {
            let plan = plans.of(backend, &none, has_agent);
            plan.iter().flatten().map(|column| column.metric.name.to_string()).collect()
        };
        assert!(names(&PROCSTATS, false).contains(&"memory_total_bytes".to_owned()));
        for backend in [&PROCSTATS, &JOBPROC, &PERFHW] {
            assert!(names(backend, true).iter().all(|name| name.starts_with("colmet_")));
        }
        assert_eq!(names(&JOBPROC, false), names(&JOBPROC, true));
    }

    #[test]
    fn two_columns_of_one_series_are_stored_once() {
        let plan = Plans::default().of(&EVENTS, &HostCounters::default(), false);
        let firsts: Vec<_> = plan.iter().map(|it| it.as_ref().and_then(|it| it.first)).collect();
        let place = |name| EVENTS.position(name).unwrap();
        assert_eq!(firsts[place("cache_op_read")], Some(place("cache_l1d")));
        assert_eq!(firsts[place("cache_result_access")], Some(place("cache_l1d")));
        assert_eq!(firsts.iter().flatten().count(), 3);
    }
}
