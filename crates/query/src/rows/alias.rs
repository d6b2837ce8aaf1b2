//! Rows of devices under an alias: the sum of several devices' samples for the alias at one instant.
//! `_device_orig` lists these devices.

use crate::common::print::ALIAS;
use crate::engine::access_filter::Visibility;
use crate::rows::line_cache::LineCache;
use crate::rows::node_rows_filter::{NodeRowsFilter, TimeRanges};
use crate::rows::slices::{Slice, Slices, address};
use crate::{Line, QueryError, RowBatch, RowQuery};
use model::{DeviceId, JobKey, Labels};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use storage::{Chunk, LabelMatch, Selector, SeriesInfo, Snapshot};

/// Samples that belong to a device by alias.
#[derive(Clone, Debug)]
pub(crate) struct Aliased {
    /// The series that have an alias.
    pub(crate) select: Selector,
    /// The requested aliases; `None`: all.
    pub(crate) of: Option<BTreeSet<DeviceId>>,
}

impl Aliased {
    /// Selects the samples to read for the aliases of a query; `None`: none.
    pub(crate) fn find(
        snapshot: &dyn Snapshot,
        query: &RowQuery,
    ) -> Result<Option<Self>, QueryError> {
        let mut labels = vec![LabelMatch::Present(ALIAS.to_owned())];
        if let Some(devices) = &query.devices
            && let (1, Some(only)) = (devices.len(), devices.first())
        {
            let (key, value) = (ALIAS.to_owned(), only.as_str().to_owned());
            labels = vec![LabelMatch::Is { key, value }];
        }
        let (metrics, job) = (query.metrics.clone(), query.job.clone());
        let mut select = Selector { devices: None, metrics, job, labels };
        let (mut devices, mut metrics) = (BTreeSet::new(), BTreeSet::new());
        for info in snapshot.series(&select, query.from, query.to)? {
            if alias(&info, query.devices.as_ref()).is_some() {
                devices.insert(info.series.device.clone());
                metrics.insert(Arc::clone(&info.series.metric));
            }
        }
        if devices.is_empty() {
            return Ok(None);
        }
        (select.devices, select.metrics) = (Some(devices), Some(metrics));
        Ok(Some(Self { select, of: query.devices.clone() }))
    }
}

/// The alias of a series, if the query requests it.
fn alias(info: &SeriesInfo, of: Option<&BTreeSet<DeviceId>>) -> Option<DeviceId> {
    let alias = DeviceId::foreign(&info.series.labels.get(ALIAS)?)?;
    of.is_none_or(|of| of.contains(&alias)).then_some(alias)
}

/// Key of a sum: rows of one instant that agree in all fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Group {
    device: DeviceId,
    metric: Arc<str>,
    job: Option<JobKey>,
    labels: Labels,
}

/// A series in a group.
#[derive(Clone, Debug)]
struct Member {
    info: Arc<SeriesInfo>,
    group: Arc<Group>,
    /// The line for samples of this device only.
    alone: Arc<Line>,
    /// When its samples count; `None`: always.
    ranges: Option<TimeRanges>,
}

/// A group's sample at the current instant.
#[derive(Clone, Debug)]
struct Part {
    member: Member,
    value: f64,
    valid: bool,
}

/// Rows ascending by time; rows of one instant ascending by device, metric, job and labels.
#[derive(Debug)]
pub(crate) struct AliasRows {
    slices: Slices,
    lines: LineCache,
    of: Option<BTreeSet<DeviceId>>,
    node_rows: NodeRowsFilter,
    /// Members by address of the series; a member holds the series.
    members: HashMap<usize, Option<Member>>,
    /// Series without an alias, held so that their addresses are not reused.
    others: Vec<Arc<SeriesInfo>>,
    together: HashMap<(Arc<Group>, Vec<DeviceId>), Arc<Line>>,
}

/// Maximum cached series and lines; beyond it, the cache is cleared.
const KEPT_MAX: usize = 100_000;

impl AliasRows {
    pub(crate) fn new(
        slices: Slices,
        lines: LineCache,
        of: Option<BTreeSet<DeviceId>>,
        node_rows: NodeRowsFilter,
    ) -> Self {
        let (members, together) = (HashMap::new(), HashMap::new());
        Self { slices, lines, of, node_rows, members, others: Vec::new(), together }
    }

    fn rows_of(&mut self, slice: &Slice) -> Result<RowBatch, QueryError> {
        if self.members.len().max(self.together.len()) > KEPT_MAX {
            self.members.clear();
            self.others.clear();
            self.together.clear();
        }
        let members: Vec<Option<Member>> =
            slice.series.iter().map(|info| self.member(info)).collect::<Result<_, _>>()?;
        let mut out = BatchBuilder::default();
        let mut parts: Vec<Part> = Vec::new();
        let mut instant = None;
        for (row, (place, at)) in slice.places.iter().zip(&slice.times).enumerate() {
            if instant != Some(*at) {
                self.sum(&mut parts, instant, &mut out);
                instant = Some(*at);
            }
            let member = usize::try_from(*place).ok().and_then(|place| members.get(place));
            let Some(Some(member)) = member else { continue };
            if member.ranges.as_ref().is_none_or(|ranges| ranges.have(*at)) {
                let value = slice.values.get(row).copied().unwrap_or(f64::NAN);
                let valid = slice.valid.get(row).copied().unwrap_or(true);
                parts.push(Part { member: member.clone(), value, valid });
            }
        }
        self.sum(&mut parts, instant, &mut out);
        Ok(out.batch)
    }

    /// Converts the samples of one instant to rows.
    fn sum(&mut self, parts: &mut Vec<Part>, instant: Option<i64>, out: &mut BatchBuilder) {
        let Some(at) = instant else { return };
        // The sort is stable: the samples in a group stay in the order of their devices.
        parts.sort_by(|a, b| a.member.group.cmp(&b.member.group));
        for parts in parts.chunk_by(|a, b| a.member.group == b.member.group) {
            let [first, rest @ ..] = parts else { continue };
            if rest.is_empty() {
                out.push(&first.member.alone, at, first.value, first.valid);
                continue;
            }
            // Of two samples of one series at one instant the last counts.
            let included = |(i, part): &(usize, &Part)| {
                let next = parts.get(i + 1);
                next.is_none_or(|next| !Arc::ptr_eq(&next.member.info, &part.member.info))
            };
            let included: Vec<&Part> =
                parts.iter().enumerate().filter(included).map(|(_, part)| part).collect();
            // As SQL's sum: a sample without a value does not count, unless no sample has one.
            let with_value = included.iter().filter(|part| Chunk::has_value(part.value));
            let value = with_value.clone().map(|part| part.value).sum();
            let valid = with_value.clone().all(|part| part.valid) && with_value.count() > 0;
            let line = self.line(&first.member, &included);
            out.push(&line, at, value, valid);
        }
        parts.clear();
    }

    fn line(&mut self, first: &Member, included: &[&Part]) -> Arc<Line> {
        let devices = included.iter().map(|part| part.member.info.series.device.clone());
        let devices: BTreeSet<DeviceId> = devices.collect();
        let devices: Vec<DeviceId> = devices.into_iter().collect();
        let key = (Arc::clone(&first.group), devices);
        if let Some(line) = self.together.get(&key) {
            return Arc::clone(line);
        }
        let line = self.lines.alias(&first.info, &first.group.device, &key.1);
        self.together.insert(key, Arc::clone(&line));
        line
    }

    fn member(&mut self, info: &Arc<SeriesInfo>) -> Result<Option<Member>, QueryError> {
        if let Some(member) = self.members.get(&address(info)) {
            return Ok(member.clone());
        }
        let member = match alias(info, self.of.as_ref()) {
            Some(device) if self.lines.seen_as(info, &device)? != Visibility::Never => {
                let series = &info.series;
                let origin = std::slice::from_ref(&series.device);
                let alone = self.lines.alias(info, &device, origin);
                let (metric, job) = (Arc::clone(&series.metric), series.job.clone());
                let labels = series.labels.without(ALIAS);
                let ranges = job.is_none().then(|| self.node_rows.on(&device));
                let group = Arc::new(Group { device, metric, job, labels });
                Some(Member { info: Arc::clone(info), group, alone, ranges })
            }
            _ => None,
        };
        if member.is_none() {
            self.others.push(Arc::clone(info));
        }
        self.members.insert(address(info), member.clone());
        Ok(member)
    }
}

impl Iterator for AliasRows {
    type Item = Result<RowBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { slices, lines, of, .. } = self;
        let slice = slices.next(&mut |info| match alias(info, of.as_ref()) {
            Some(device) => lines.seen_as(info, &device),
            None => Ok(Visibility::Never),
        })?;
        Some(slice.and_then(|slice| self.rows_of(&slice)))
    }
}

/// A batch during its construction.
#[derive(Debug, Default)]
struct BatchBuilder {
    batch: RowBatch,
    places: HashMap<usize, u32>,
}

impl BatchBuilder {
    fn push(&mut self, line: &Arc<Line>, at: i64, value: f64, valid: bool) {
        let lines = &mut self.batch.lines;
        let place = *self.places.entry(Arc::as_ptr(line).addr()).or_insert_with(|| {
            lines.push(Arc::clone(line));
            u32::try_from(lines.len() - 1).unwrap_or(u32::MAX)
        });
        self.batch.push(place, at, value, valid);
    }
}
