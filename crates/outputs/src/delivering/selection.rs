//! The samples that an output gets.

use crate::portion::{rows, slice_of};
use config::OutputConfig;
use model::DeviceId;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use storage::{Chunk, SeriesInfo, TimeSlice};

/// Most remembered decisions about names of metrics, and about devices.
const KNOWN_MAX: usize = 100_000;

/// Decides about series, and remembers what its expressions decided.
#[derive(Debug)]
pub(super) struct Selection {
    config: OutputConfig,
    metrics: FxHashMap<Arc<str>, bool>,
    devices: FxHashMap<DeviceId, bool>,
}

impl Selection {
    pub(super) fn new(config: OutputConfig) -> Self {
        Self { config, metrics: FxHashMap::default(), devices: FxHashMap::default() }
    }

    /// The rows of a slice that the output gets.
    pub(super) fn select(&mut self, slice: TimeSlice) -> TimeSlice {
        let kept: Vec<bool> = slice.series.iter().map(|info| self.has(info)).collect();
        let is_kept = |place: u32| kept.get(place as usize).copied().unwrap_or(false);
        if kept.iter().all(|kept| *kept)
            && slice.values.iter().all(|value| Chunk::has_value(*value))
        {
            return slice;
        }
        let each = slice.places.iter().zip(rows(&slice));
        let each = each.filter(|(place, row)| is_kept(**place) && Chunk::has_value(row.value));
        slice_of(each.map(|(_, row)| row))
    }

    fn has(&mut self, info: &SeriesInfo) -> bool {
        let series = &info.series;
        self.config.jobs.has(series.job.as_ref())
            && self.has_device(&series.device)
            && self.has_metric(&series.metric)
    }

    /// Whether the output gets what a device sends.
    pub(super) fn has_device(&mut self, device: &DeviceId) -> bool {
        let Some(list) = &self.config.devices else { return true };
        remembered(&mut self.devices, device, || list.has(device.as_str()))
    }

    fn has_metric(&mut self, metric: &Arc<str>) -> bool {
        let patterns = &self.config.metrics;
        patterns.is_empty()
            || remembered(&mut self.metrics, metric, || {
                patterns.iter().any(|pattern| pattern.matches(metric))
            })
    }
}

fn remembered<K: Clone + Eq + std::hash::Hash>(
    known: &mut FxHashMap<K, bool>,
    key: &K,
    decide: impl FnOnce() -> bool,
) -> bool {
    if let Some(is) = known.get(key) {
        return *is;
    }
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    let is = decide();
    known.insert(key.clone(), is);
    is
}
