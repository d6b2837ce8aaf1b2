//! Gaps that belong to a range: those of its series, not of other nodes or jobs.

use crate::lists::gap_samples::GapSamples;
use crate::lists::listing::gap;
use crate::{QueryContext, QueryEngine, QueryError, RangeQuery};
use jobs::Window;
use model::{ClusterId, DeviceId, Gap};
use std::collections::BTreeSet;
use storage::JobSelector;

impl QueryEngine {
    /// Gaps of the requested devices. Without devices: gaps of the devices of the found series, and of the
    /// requested job's devices. A gap of a `jobmeter run` belongs to its job only.
    pub(crate) fn gaps_of(
        &self,
        of: &RangeQuery,
        series: &[api::RangeSeries],
        context: &QueryContext,
    ) -> Result<Vec<api::Gap>, QueryError> {
        let devices = match &of.select.devices {
            Some(devices) => devices.clone(),
            None => self.devices_of(of, series, context)?,
        };
        let local = ClusterId::local();
        let jobs: BTreeSet<i64> = series
            .iter()
            .filter(|one| one.series.cluster.as_deref() == Some(local.as_str()))
            .filter_map(|one| one.series.job)
            .collect();
        let requested = match &of.select.job {
            JobSelector::Is(key) | JobSelector::NoneOrIs(key) if key.cluster == local => {
                Some(key.id.get())
            }
            _ => None,
        };
        let of_series = |gap: &&Gap| match gap.origin.as_run() {
            Some((_, id)) => jobs.contains(&id.get()) || requested == Some(id.get()),
            None => true,
        };
        // A poller that is down hides nothing of the agent of the same node.
        let is_of_agents = |device: &DeviceId| {
            let mut own =
                series.iter().filter(|one| one.series.device == device.as_str()).peekable();
            own.peek().is_some() && own.all(|one| self.store.declares(&one.series.metric))
        };
        let mut gaps = Vec::new();
        for device in &devices {
            let found = self.gaps((of.from, of.to), Some(device), context)?;
            let has_polled = !is_of_agents(device);
            let concerns = |gap: &&Gap| has_polled || !gap.origin.is_poller_group();
            let own = series.iter().filter(|one| one.series.device == device.as_str());
            let times: Vec<Vec<i64>> = own.map(instants).collect();
            let misses = |gap: &&Gap| misses(gap, &times, of.step_us.max(0));
            let found = found.iter().filter(of_series).filter(concerns).filter(misses);
            gaps.extend(found.map(gap));
        }
        gaps.sort_by(|a, b| a.from.total_cmp(&b.from));
        Ok(gaps)
    }

    fn devices_of(
        &self,
        of: &RangeQuery,
        series: &[api::RangeSeries],
        context: &QueryContext,
    ) -> Result<BTreeSet<DeviceId>, QueryError> {
        let found = series.iter().filter_map(|one| DeviceId::listed(&one.series.device).ok());
        let mut devices: BTreeSet<DeviceId> = found.collect();
        if let JobSelector::Is(key) | JobSelector::NoneOrIs(key) = &of.select.job {
            let (job, from, to) = (Some(key.clone()), Some(of.from), Some(of.to));
            let allocations =
                self.allocations(&Window { job, from, to, ..Window::default() }, context)?;
            devices.extend(allocations.into_iter().map(|allocation| allocation.device));
        }
        Ok(devices)
    }
}

/// The instants of the values of a series, in microseconds.
#[expect(clippy::cast_possible_truncation, reason = "instants of samples")]
fn instants(series: &api::RangeSeries) -> Vec<i64> {
    let values = series.times.iter().zip(&series.values).filter(|(_, value)| value.is_some());
    values.map(|(at, _)| (*at * 1e6).round() as i64).collect()
}

/// Whether one of the series misses a sample in a gap of their device. Without series, any gap is one of it.
fn misses(gap: &Gap, series: &[Vec<i64>], step: i64) -> bool {
    let gap = (gap.from.0, gap.to.0);
    let misses = |times: &Vec<i64>| {
        let mut samples = GapSamples::default();
        samples.take(gap, times, None);
        samples.is_missing(gap, step)
    };
    series.is_empty() || series.iter().any(misses)
}
