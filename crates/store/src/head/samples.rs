//! Samples in memory: the columns of each batch as received, grouped by table.
//!
//! A batch costs a copy of its values and one update per sample, without look-up or sorting. Readers convert
//! batches into series ([`crate::head::series_builder`]). That is cheap because a group is one sender's
//! table: a few hundred series with adjacent samples.

use crate::files::point::Point;
use model::{DeviceId, Tick, Timestamp};
use parking_lot::{RwLock, RwLockReadGuard};
use senders::{NO_START, Samples, SeriesSlot, Table};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use storage::SeriesInfo;
use wire::Value;

/// The value of a sample as received: steps, or the bits of a double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawValue {
    pub(crate) bits: i64,
    pub(crate) real: bool,
}

impl RawValue {
    pub(crate) const fn of(value: Value) -> Self {
        match value {
            Value::Steps(steps) => Self { bits: steps, real: false },
            Value::Real(real) => Self { bits: real.to_bits().cast_signed(), real: true },
        }
    }

    /// The same value for a column of another divisor: a double.
    pub(crate) fn of_divisor(self, own: u32, other: u32) -> Self {
        if self.real || own == other {
            return self;
        }
        Self { bits: self.value(own).to_bits().cast_signed(), real: true }
    }

    /// The value in the metric's unit.
    pub(crate) fn value(self, divisor: u32) -> f64 {
        if self.real {
            f64::from_bits(self.bits.cast_unsigned())
        } else {
            self.bits as f64 / f64::from(divisor)
        }
    }
}

/// Which samples of a batch are doubles.
#[derive(Debug)]
enum Reals {
    None,
    All,
    /// One bit per sample.
    Some(Box<[u64]>),
}

impl Reals {
    fn at(&self, row: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(bits) => bits.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1),
        }
    }
}

/// Each sample's position in the table.
#[derive(Debug)]
enum Index {
    /// Every tick has every position of the table, in order.
    All,
    /// As received.
    Places(Arc<[u32]>),
}

/// A batch's samples.
#[derive(Debug)]
pub(crate) struct HeadBatch {
    /// The batch's place in the order of storing.
    place: u64,
    from: i64,
    to: i64,
    ticks: Box<[Tick]>,
    index: Index,
    bits: Box<[i64]>,
    reals: Reals,
    /// The number of each sample in the batch as received, if it had others.
    numbers: Option<Box<[u32]>>,
}

/// Facts about a position of a group's table; there may be millions.
#[derive(Clone, Copy, Debug)]
struct PlaceNote {
    /// The newest sample's instant.
    at: i64,
    /// Its value.
    bits: i64,
    real: bool,
    samples: u32,
}

/// The batches of one table.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) table: Arc<Table>,
    rows: RwLock<Rows>,
}

/// The batches of a group.
#[derive(Debug)]
pub(crate) struct Rows {
    batches: Vec<HeadBatch>,
    notes: Box<[PlaceNote]>,
    from: i64,
    to: i64,
}

impl Group {
    fn new(table: Arc<Table>) -> Self {
        let empty = PlaceNote { at: i64::MIN, bits: 0, real: false, samples: 0 };
        let notes = vec![empty; table.places.len()].into();
        let rows = Rows { batches: Vec::new(), notes, from: i64::MAX, to: i64::MIN };
        Self { table, rows: RwLock::new(rows) }
    }

    /// The batches, locked against changes.
    pub(crate) fn rows(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read()
    }

    fn push(&self, samples: Samples, place: u64) -> usize {
        let mut rows = self.rows.write();
        rows.push(samples, place)
    }

    fn bytes(&self) -> usize {
        self.table.places.len() * size_of::<PlaceNote>()
    }
}

impl Rows {
    fn push(&mut self, samples: Samples, batch_place: u64) -> usize {
        let Samples { ticks, index, values, numbers } = samples;
        let (mut from, mut to) = (i64::MAX, i64::MIN);
        let mut bits = Vec::with_capacity(values.len());
        let mut real_bits = vec![0_u64; values.len().div_ceil(64)];
        let mut reals = 0_usize;
        let mut rest = index.iter().zip(&values);
        for Tick { at, samples } in &ticks {
            (from, to) = (from.min(at.0), to.max(at.0));
            for (place, value) in rest.by_ref().take(*samples as usize) {
                let raw = RawValue::of(*value);
                if raw.real {
                    let row = bits.len();
                    real_bits.get_mut(row / 64).into_iter().for_each(|w| *w |= 1 << (row % 64));
                    reals += 1;
                }
                bits.push(raw.bits);
                if let Some(note) = self.notes.get_mut(*place as usize) {
                    note.samples = note.samples.saturating_add(1);
                    if at.0 >= note.at {
                        (note.at, note.bits, note.real) = (at.0, raw.bits, raw.real);
                    }
                }
            }
        }
        (self.from, self.to) = (self.from.min(from), self.to.max(to));
        let reals = match reals {
            0 => Reals::None,
            all if all == bits.len() => Reals::All,
            _ => Reals::Some(real_bits.into()),
        };
        let (index, index_bytes) = self.index(&ticks, index);
        let real_bytes = if matches!(reals, Reals::Some(_)) { bits.len() / 8 } else { 0 };
        let bytes = size_of::<HeadBatch>()
            + ticks.len() * size_of::<Tick>()
            + bits.len() * size_of::<i64>()
            + real_bytes
            + numbers.as_ref().map_or(0, |numbers| numbers.len() * size_of::<u32>())
            + index_bytes;
        let (ticks, bits, numbers) = (ticks.into(), bits.into(), numbers.map(Into::into));
        let place = batch_place;
        self.batches.push(HeadBatch { place, from, to, ticks, index, bits, reals, numbers });
        bytes
    }

    /// The index in its shortest form: senders repeat the same one.
    fn index(&self, ticks: &[Tick], index: Vec<u32>) -> (Index, usize) {
        let places = self.notes.len();
        let whole = |tick: &Tick| tick.samples as usize == places;
        if places > 0
            && ticks.iter().all(whole)
            && index.chunks(places).all(|tick| tick.iter().copied().eq(0..))
        {
            return (Index::All, 0);
        }
        if let Some(HeadBatch { index: Index::Places(before), .. }) = self.batches.last()
            && **before == *index
        {
            return (Index::Places(Arc::clone(before)), 0);
        }
        let bytes = index.len() * size_of::<u32>();
        (Index::Places(index.into()), bytes)
    }

    /// The number of samples of a position; at least that of any earlier snapshot.
    pub(crate) fn samples(&self, place: u32) -> usize {
        self.notes.get(place as usize).map_or(0, |note| note.samples as usize)
    }

    /// First and last instant of all samples; the first is after the last if there are none.
    pub(crate) const fn span(&self) -> (i64, i64) {
        (self.from, self.to)
    }

    /// The newest sample of a position.
    pub(crate) fn last(&self, place: u32) -> Option<(i64, RawValue)> {
        let note = self.notes.get(place as usize).filter(|note| note.samples > 0)?;
        Some((note.at, RawValue { bits: note.bits, real: note.real }))
    }

    /// The batches with rows between two points, each with these rows.
    fn between(&self, points: &Range<Point>) -> impl Iterator<Item = (&HeadBatch, Range<usize>)> {
        let Range { start, end } = *points;
        let first = self.batches.partition_point(|batch| batch.place < start.place);
        let batches = self.batches.get(first..).unwrap_or_default().iter();
        let rows = move |batch: &HeadBatch| {
            let row =
                |of: Point, other| if of.place == batch.place { batch.row(of) } else { other };
            row(start, 0)..row(end, batch.bits.len())
        };
        batches
            .take_while(move |batch| Point { place: batch.place, row: 0 } < end)
            .map(move |batch| (batch, rows(batch)))
    }

    /// The place and the number of rows of each batch between two points; the first may have fewer.
    pub(crate) fn sizes(&self, points: &Range<Point>) -> impl Iterator<Item = (u64, usize)> {
        self.between(points).map(|(batch, rows)| (batch.place, rows.len()))
    }

    /// The point after some rows of the batch at a place, not counting those before another point; `None` without that batch.
    pub(crate) fn point_after(&self, before: Point, place: u64, rows: usize) -> Option<Point> {
        let at = self.batches.binary_search_by_key(&place, |batch| batch.place).ok()?;
        let batch = self.batches.get(at)?;
        let first = if before.place == place { batch.row(before) } else { 0 };
        Some(Point { place, row: batch.number(first.saturating_add(rows)) })
    }

    /// Shows the samples between two points in order of arrival: the place of the batch, the position in the table, instant
    /// and value.
    pub(crate) fn each(
        &self,
        points: &Range<Point>,
        mut show: impl FnMut(u64, u32, i64, RawValue),
    ) {
        for (batch, only) in self.between(points) {
            let mut start = 0;
            for Tick { at: Timestamp(at), samples } in &batch.ticks {
                for (row, nth) in (start..).zip(0..*samples) {
                    let place = match &batch.index {
                        Index::All => Some(nth),
                        Index::Places(places) => places.get(row).copied(),
                    };
                    if only.contains(&row)
                        && let (Some(place), Some(bits)) = (place, batch.bits.get(row))
                    {
                        let raw = RawValue { bits: *bits, real: batch.reals.at(row) };
                        show(batch.place, place, *at, raw);
                    }
                }
                start += *samples as usize;
            }
        }
    }

    /// Shows the samples of the wanted positions between two instants and two points, in order of arrival.
    /// `slots` has an entry for each position: the slot to show, or `u32::MAX`; `wanted` lists the positions
    /// with a slot.
    pub(crate) fn walk(
        &self,
        points: &Range<Point>,
        from: i64,
        to: i64,
        slots: &[u32],
        wanted: &[u32],
        mut show: impl FnMut(u32, i64, RawValue),
    ) {
        for (batch, only) in self.between(points) {
            if batch.to < from || batch.from > to {
                continue;
            }
            let mut start = 0;
            for Tick { at: Timestamp(at), samples } in &batch.ticks {
                let rows = start..start + *samples as usize;
                start = rows.end;
                if (from..=to).contains(at) {
                    batch.tick(rows, &only, slots, wanted, |slot, raw| show(slot, *at, raw));
                }
            }
        }
    }
}

impl HeadBatch {
    /// The first row at a point of the batch or after it.
    fn row(&self, point: Point) -> usize {
        match &self.numbers {
            None => self.bits.len().min(point.row as usize),
            Some(numbers) => numbers.partition_point(|number| *number < point.row),
        }
    }

    /// The number of a row in the batch as received.
    fn number(&self, row: usize) -> u32 {
        let number = self.numbers.as_ref().and_then(|numbers| numbers.get(row).copied());
        number.unwrap_or_else(|| u32::try_from(row).unwrap_or(u32::MAX))
    }

    fn tick(
        &self,
        rows: Range<usize>,
        only: &Range<usize>,
        slots: &[u32],
        wanted: &[u32],
        mut show: impl FnMut(u32, RawValue),
    ) {
        let mut at = |row: usize, place: u32| {
            let slot = slots.get(place as usize).copied().unwrap_or(u32::MAX);
            if slot != u32::MAX
                && only.contains(&row)
                && let Some(bits) = self.bits.get(row)
            {
                show(slot, RawValue { bits: *bits, real: self.reals.at(row) });
            }
        };
        match &self.index {
            Index::All => wanted.iter().for_each(|place| at(rows.start + *place as usize, *place)),
            Index::Places(places) => {
                let places = places.get(rows.clone()).unwrap_or_default();
                rows.zip(places).for_each(|(row, place)| at(row, *place));
            }
        }
    }
}

/// A position of a group's table, with its series.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) series: Arc<SeriesInfo>,
    pub(crate) group: Arc<Group>,
    pub(crate) place: u32,
}

impl Member {
    pub(crate) fn divisor(&self) -> u32 {
        self.of().map_or(1, |place| place.divisor)
    }

    pub(crate) fn start(&self) -> i64 {
        self.of().map_or(NO_START, |place| place.start)
    }

    fn of(&self) -> Option<&SeriesSlot> {
        self.group.table.places.get(self.place as usize)
    }
}

/// A group, and a part of its table's order.
type PartOfGroup = (Arc<Group>, Range<usize>);

#[derive(Debug, Default)]
struct Groups {
    list: Vec<Arc<Group>>,
    /// The groups with series of a device, each with its part of the table's order.
    by_device: BTreeMap<DeviceId, Vec<PartOfGroup>>,
}

/// Samples in memory that go into one block together.
#[derive(Debug)]
pub(crate) struct Head {
    groups: RwLock<Groups>,
    samples: AtomicU64,
    bytes: AtomicU64,
    /// Time of receipt of the oldest batch; `i64::MAX` if there is none.
    oldest: AtomicI64,
    /// Time of receipt of the newest batch.
    newest: AtomicI64,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            groups: RwLock::default(),
            samples: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            oldest: AtomicI64::new(i64::MAX),
            newest: AtomicI64::new(i64::MIN),
        }
    }
}

impl Head {
    /// A group for a table that this head lacks. Called by one thread only, like [`Self::push`].
    ///
    /// The first table of an origin is in memory anyway, so a block would free nothing of it. Further ones count: an
    /// origin might send another table with each batch.
    pub(crate) fn group(&self, table: &Arc<Table>, first: bool) -> Arc<Group> {
        let group = Arc::new(Group::new(Arc::clone(table)));
        let bytes = group.bytes() + if first { 0 } else { table.bytes() };
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut groups = self.groups.write();
        for (device, rows) in &table.devices {
            let of_device = groups.by_device.entry(device.clone()).or_default();
            of_device.push((Arc::clone(&group), rows.clone()));
        }
        groups.list.push(Arc::clone(&group));
        group
    }

    /// Adds a batch's samples.
    pub(crate) fn push(&self, group: &Group, samples: Samples, place: u64, received: Timestamp) {
        let count = samples.values.len();
        let bytes = group.push(samples, place);
        self.samples.fetch_add(count as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.oldest.fetch_min(received.0, Ordering::Relaxed);
        self.newest.fetch_max(received.0, Ordering::Relaxed);
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Times of receipt of the oldest and the newest batch, if there are any.
    pub(crate) fn received(&self) -> Option<(Timestamp, Timestamp)> {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let newest = self.newest.load(Ordering::Relaxed);
        (oldest <= newest).then_some((Timestamp(oldest), Timestamp(newest)))
    }

    /// The groups, oldest first.
    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.read().list.clone()
    }

    /// The devices of its series, in order.
    pub(crate) fn devices(&self) -> Vec<DeviceId> {
        let groups = self.groups.read();
        groups.by_device.keys().cloned().collect()
    }

    /// The positions of a device's series that `keep` selects, ordered by series; those of one series in the
    /// order of arrival of their tables.
    pub(crate) fn members(
        &self,
        device: &DeviceId,
        mut keep: impl FnMut(&SeriesInfo) -> bool,
    ) -> Vec<Member> {
        let groups = {
            let groups = self.groups.read();
            groups.by_device.get(device).cloned().unwrap_or_default()
        };
        let mut members = Vec::new();
        for (group, rows) in &groups {
            let mut before: Option<(Arc<SeriesInfo>, bool)> = None;
            for place in group.table.order.get(rows.clone()).unwrap_or_default() {
                let series = group.table.places.get(*place as usize);
                let Some(series) = series.and_then(|place| place.series.as_ref()) else { continue };
                let kept = match &before {
                    Some((same, kept)) if Arc::ptr_eq(same, series) => *kept,
                    _ => keep(series),
                };
                before = Some((Arc::clone(series), kept));
                if kept {
                    let (series, group) = (Arc::clone(series), Arc::clone(group));
                    members.push(Member { series, group, place: *place });
                }
            }
        }
        if groups.len() > 1 {
            members.sort_by(|a, b| SeriesInfo::order(&a.series, &b.series));
        }
        members
    }
}
