//! Totals of node metrics over the allocations of a job: what the devices used, such as the energy of a job's nodes.

use crate::common::print::ALIAS;
use crate::engine::access_filter::{AccessFilter, ListedAs, Visibility};
use crate::lists::listing::described;
use crate::ranges::series_totals::TotalsOf;
use crate::{QueryContext, QueryEngine, QueryError};

use model::{Allocation, DeviceId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{JobSelector, LabelMatch, Selector, SeriesInfo};

impl QueryEngine {
    /// The totals of metrics on the devices of a job, during its allocations: of node samples, also of those that other
    /// devices measure for these. A running job ends now.
    pub(crate) fn node_metrics(
        &self,
        metrics: &BTreeSet<Arc<str>>,
        allocations: &[Allocation],
        context: &QueryContext,
    ) -> Result<Vec<api::NodeMetric>, QueryError> {
        let mut spans: BTreeMap<&DeviceId, Vec<(i64, i64)>> = BTreeMap::new();
        for one in allocations {
            let stop = one.stop.unwrap_or(context.now);
            spans.entry(&one.device).or_default().push((one.start.0, stop.0));
        }
        let all = || spans.values().flatten();
        let (Some(from), Some(to)) = (all().map(|one| one.0).min(), all().map(|one| one.1).max())
        else {
            return Ok(Vec::new());
        };
        let (from, to) = (Timestamp(from), Timestamp(to));
        let access = AccessFilter::new(self, context, (from, to), None);
        let snapshot = access.limit(&self.store.snapshot(), ListedAs::DeviceAndAlias);
        let own = spans.keys().map(|device| (*device).clone()).collect();
        let (metrics, job) = (Some(metrics.clone()), JobSelector::None);
        let select =
            Selector { devices: Some(own), metrics: metrics.clone(), job, labels: Vec::new() };
        let labels = vec![LabelMatch::Present(ALIAS.to_owned())];
        let aliased = Selector { devices: None, labels, ..select.clone() };
        let mut rows = Vec::new();
        let totals = TotalsOf { snapshot: &*snapshot, from, to, cancel: &context.cancel };
        let mut seen = BTreeSet::new();
        for (select, is_alias) in [(&select, false), (&aliased, true)] {
            for info in snapshot.series(select, from, to)? {
                let Some(node) = node_of(&info, is_alias) else { continue };
                let Some(spans) = spans.get(&node) else { continue };
                let is_new = seen.insert((node.clone(), info.series.clone()));
                if !is_new {
                    continue;
                }
                if rows.len() >= self.settings.series_max {
                    let what = format!("more than {} series; choose fewer metrics", rows.len());
                    return Err(QueryError::TooMuch(what));
                }
                let visible = access.of_node(&node)?.during(spans);
                if visible == Visibility::Never {
                    continue;
                }
                let totals = totals.of(&info, &visible)?;
                if totals.samples > 0 {
                    let node = node.to_string();
                    rows.push(api::NodeMetric { node, series: described(&info), totals });
                }
            }
        }
        Ok(rows)
    }
}

/// The node that a series belongs to: its own device, or the one in its alias.
fn node_of(info: &SeriesInfo, is_alias: bool) -> Option<DeviceId> {
    match is_alias {
        true => DeviceId::new(&info.series.labels.get(ALIAS)?).ok(),
        false => Some(info.series.device.clone()),
    }
}
