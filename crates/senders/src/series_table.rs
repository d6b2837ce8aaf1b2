//! The tables that senders repeat in every batch, resolved once: position in the table → series.

use crate::limits::Limits;
use crate::origin::OriginState;
use crate::origins::OriginNumber;
use crate::series_registry::Registry;
use model::{DeviceId, SeriesEntry, SeriesTable, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use storage::SeriesInfo;

/// The start is unknown.
pub const NO_START: i64 = i64::MIN;
/// A table with rejected series is resolved again after this time: limits may permit them by then.
const RETRY_US: i64 = Timestamp::SECOND * 60;

/// The series of a position.
#[derive(Clone, Debug)]
pub struct SeriesSlot {
    /// The series; `None` if it is rejected.
    pub series: Option<Arc<SeriesInfo>>,
    /// Steps in one unit.
    pub divisor: u32,
    /// The counter's start, or [`NO_START`].
    pub start: i64,
}

/// A position with rejected samples.
#[derive(Clone, Debug)]
pub struct RejectedSlot {
    pub(crate) place: u32,
    pub(crate) device: DeviceId,
    /// The first word of the metric's name, which is its source's.
    pub(crate) source: Box<str>,
    pub(crate) why: String,
}

/// A table of one origin.
#[derive(Debug)]
pub struct Table {
    /// One for each entry.
    pub places: Box<[SeriesSlot]>,
    /// The positions that have a series, ordered by series.
    pub order: Box<[u32]>,
    /// The devices, in order, and each one's part of `order`.
    pub devices: Box<[(DeviceId, Range<usize>)]>,
    /// The rejected positions, in order.
    pub rejected: Box<[RejectedSlot]>,
    resolved: Timestamp,
    /// `Catalogue::takeovers` when it was resolved, if one of its meanings may yield to another.
    takeovers: Option<u64>,
}

impl Table {
    /// Resolves a table.
    pub(crate) fn new(
        table: &SeriesTable,
        number: OriginNumber,
        origin: &mut OriginState,
        registry: &mut Registry,
        limits: &Limits,
        now: Timestamp,
    ) -> Self {
        let (mut places, mut rejected) = (Vec::with_capacity(table.entries.len()), Vec::new());
        for (entry, at) in table.entries.iter().zip(0_u32..) {
            let series = match registry.resolve(number, &origin.name, entry, limits) {
                Ok(series) => Some(series),
                Err(rejection) => {
                    rejected.push(RejectedSlot {
                        place: at,
                        device: entry.device.clone(),
                        source: source_of(&entry.metric.name).into(),
                        why: rejection.to_string(),
                    });
                    None
                }
            };
            let start = entry.start.map_or(NO_START, |start| start.0);
            places.push(SeriesSlot { series, divisor: entry.metric.divisor, start });
        }
        let mut order: Vec<(&Arc<SeriesInfo>, u32)> =
            places.iter().zip(0..).filter_map(|(p, at)| Some((p.series.as_ref()?, at))).collect();
        order.sort_by(|a, b| SeriesInfo::order(a.0, b.0).then(a.1.cmp(&b.1)));
        let mut devices: Vec<(DeviceId, Range<usize>)> = Vec::new();
        for (row, (info, _)) in order.iter().enumerate() {
            match devices.last_mut() {
                Some((device, rows)) if *device == info.series.device => rows.end = row + 1,
                _ => {
                    origin.claim(&info.series.device);
                    devices.push((info.series.device.clone(), row..row + 1));
                }
            }
        }
        let order = order.into_iter().map(|(_, at)| at).collect();
        let may_yield =
            |entry: &SeriesEntry| entry.metric.assumed || !limits.declared.has(&entry.metric.name);
        let may_yield = origin.name.is_push() || table.entries.iter().any(may_yield);
        Self {
            order,
            places: places.into(),
            devices: devices.into(),
            rejected: rejected.into(),
            resolved: now,
            takeovers: may_yield.then(|| registry.metrics().takeovers()),
        }
    }

    /// Whether it should be resolved again.
    fn is_stale(&self, now: Timestamp, takeovers: u64) -> bool {
        self.takeovers.is_some_and(|before| before != takeovers)
            || (!self.rejected.is_empty() && now.since(self.resolved) >= RETRY_US)
    }

    /// Why the samples of a position are rejected.
    pub(crate) fn rejection(&self, place: u32) -> Option<&RejectedSlot> {
        let at = self.rejected.binary_search_by_key(&place, |rejected| rejected.place).ok()?;
        self.rejected.get(at)
    }

    /// Its approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.places.len() * (size_of::<SeriesSlot>() + size_of::<u32>())
            + self.devices.len() * size_of::<(DeviceId, Range<usize>)>()
    }
}

/// The first word of a metric's name: `<source>_<what>_<unit word>`.
pub(crate) fn source_of(metric: &str) -> &str {
    metric.split('_').next().unwrap_or_default()
}

#[derive(Debug)]
struct Cached {
    table: Arc<Table>,
    used: Timestamp,
}

/// Resolved tables by origin and hash of their bytes.
#[derive(Debug, Default)]
pub struct Tables {
    cached: FxHashMap<(OriginNumber, u64), Cached>,
    places: usize,
}

impl Tables {
    /// A cached table. `takeovers`: `Catalogue::takeovers`.
    pub(crate) fn get(
        &mut self,
        (origin, hash): (OriginNumber, u64),
        now: Timestamp,
        takeovers: u64,
    ) -> Option<Arc<Table>> {
        let cached = self.cached.get_mut(&(origin, hash))?;
        if cached.table.is_stale(now, takeovers) {
            return None;
        }
        cached.used = cached.used.max(now);
        Some(Arc::clone(&cached.table))
    }

    /// Caches a table. The least recently used ones are evicted while all together contain more than
    /// `places_max` series.
    pub(crate) fn keep(
        &mut self,
        origin: OriginNumber,
        hash: u64,
        table: &Arc<Table>,
        now: Timestamp,
        places_max: usize,
    ) {
        self.places += table.places.len();
        let cached = Cached { table: Arc::clone(table), used: now };
        if let Some(old) = self.cached.insert((origin, hash), cached) {
            self.places -= old.table.places.len();
        }
        if self.places > places_max {
            let mut used: Vec<Timestamp> = self.cached.values().map(|cached| cached.used).collect();
            let middle = used.len() / 2;
            let median = *used.select_nth_unstable(middle).1;
            self.drop_unused(median.plus(1));
        }
    }

    /// Drops the tables of some origins.
    pub(crate) fn disown(&mut self, origins: &BTreeSet<OriginNumber>) {
        let places = &mut self.places;
        self.cached.retain(|(origin, _), cached| {
            let keep = !origins.contains(origin);
            *places -= if keep { 0 } else { cached.table.places.len() };
            keep
        });
    }

    /// Drops the tables last used before an instant.
    pub fn drop_unused(&mut self, before: Timestamp) {
        let places = &mut self.places;
        self.cached.retain(|_, cached| {
            let keep = cached.used >= before;
            if !keep {
                *places -= cached.table.places.len();
            }
            keep
        });
    }
}
