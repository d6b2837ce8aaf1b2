//! Converts batches into series: the samples of some adjacent series, side by side.

use crate::files::point::Point;
use crate::head::samples::{Group, Member, RawValue};
use std::ops::Range;
use std::sync::Arc;
use storage::SeriesInfo;

/// Samples of one series, ordered by time; those of one instant in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeriesRows<'a> {
    pub(crate) series: &'a Arc<SeriesInfo>,
    /// Instants, ascending.
    pub(crate) times: &'a [i64],
    /// Steps, or the bits of a double.
    pub(crate) bits: &'a [i64],
    /// Whether the row is a double.
    pub(crate) reals: &'a [bool],
    /// First row of each run of one start; neighbours differ.
    pub(crate) starts: &'a [(usize, i64)],
    /// Steps in one unit, of all rows.
    pub(crate) divisor: u32,
}

/// The samples of some adjacent series of a head.
#[derive(Debug, Default)]
pub(crate) struct SeriesBuilder {
    times: Vec<i64>,
    bits: Vec<i64>,
    reals: Vec<bool>,
    /// Rows of each member.
    filled: Vec<Range<usize>>,
    scratch: Scratch,
}

/// One series, joined from several members or sorted.
#[derive(Debug, Default)]
struct Scratch {
    rows: Vec<Row>,
    times: Vec<i64>,
    bits: Vec<i64>,
    reals: Vec<bool>,
    starts: Vec<(usize, i64)>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    at: i64,
    start: i64,
    raw: RawValue,
}

impl SeriesBuilder {
    /// Reads the samples of these members between two instants, and two points.
    /// Shows them series by series, in order; series without samples are skipped.
    ///
    /// # Errors
    /// The first error of `show`.
    pub(crate) fn read<E>(
        &mut self,
        members: &[Member],
        points: &Range<Point>,
        (from, to): (i64, i64),
        mut show: impl FnMut(SeriesRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.fill(members, points, from, to);
        let mut first = 0;
        for same in members.chunk_by(|a, b| SeriesInfo::same(&a.series, &b.series)) {
            let filled = self.filled.get(first..first + same.len()).unwrap_or_default();
            first += same.len();
            if filled.iter().all(Range::is_empty) {
                continue;
            }
            if let ([member], [rows]) = (same, filled)
                && let Some(times) = self.times.get(rows.clone())
                && times.is_sorted()
            {
                show(SeriesRows {
                    series: &member.series,
                    times,
                    bits: self.bits.get(rows.clone()).unwrap_or_default(),
                    reals: self.reals.get(rows.clone()).unwrap_or_default(),
                    starts: &[(0, member.start())],
                    divisor: member.divisor(),
                })?;
            } else if let Some(last) = same.last() {
                let divisor = last.divisor();
                self.scratch.join(same, filled, &self.times, &self.bits, &self.reals, divisor);
                let Scratch { times, bits, reals, starts, .. } = &self.scratch;
                show(SeriesRows { series: &last.series, times, bits, reals, starts, divisor })?;
            }
        }
        Ok(())
    }

    fn fill(&mut self, members: &[Member], points: &Range<Point>, from: i64, to: i64) {
        self.filled.clear();
        let mut total = 0;
        for member in members {
            let rows = member.group.rows().samples(member.place);
            self.filled.push(total..total);
            total += rows;
        }
        self.times.clear();
        self.times.resize(total, 0);
        self.bits.clear();
        self.bits.resize(total, 0);
        self.reals.clear();
        self.reals.resize(total, false);
        let mut by_group: Vec<(*const Group, u32)> =
            members.iter().zip(0..).map(|(m, slot)| (Arc::as_ptr(&m.group), slot)).collect();
        by_group.sort_unstable();
        let (mut slots, mut wanted) = (Vec::new(), Vec::new());
        for slots_of_group in by_group.chunk_by(|a, b| a.0 == b.0) {
            let Some(first) =
                slots_of_group.first().and_then(|(_, slot)| members.get(*slot as usize))
            else {
                continue;
            };
            slots.clear();
            slots.resize(first.group.table.places.len(), u32::MAX);
            wanted.clear();
            for (_, slot) in slots_of_group {
                let Some(member) = members.get(*slot as usize) else { continue };
                slots.get_mut(member.place as usize).into_iter().for_each(|s| *s = *slot);
                wanted.push(member.place);
            }
            wanted.sort_unstable();
            let Self { times, bits, reals, filled, .. } = self;
            first.group.rows().walk(points, from, to, &slots, &wanted, |slot, at, raw| {
                let Some(rows) = filled.get_mut(slot as usize) else { return };
                let row = rows.end;
                // The count of a position never decreases, so every sample has its row.
                if let (Some(t), Some(b), Some(r)) =
                    (times.get_mut(row), bits.get_mut(row), reals.get_mut(row))
                {
                    (*t, *b, *r) = (at, raw.bits, raw.real);
                    rows.end += 1;
                }
            });
        }
    }
}

impl Scratch {
    /// Joins the rows of several members, ordered by time. Steps of another divisor than the last member's
    /// become steps of that one, or doubles.
    fn join(
        &mut self,
        members: &[Member],
        filled: &[Range<usize>],
        times: &[i64],
        bits: &[i64],
        reals: &[bool],
        divisor: u32,
    ) {
        self.rows.clear();
        for (member, rows) in members.iter().zip(filled) {
            let (own, start) = (member.divisor(), member.start());
            let columns = times.get(rows.clone()).unwrap_or_default().iter();
            let columns = columns.zip(bits.get(rows.clone()).unwrap_or_default());
            let columns = columns.zip(reals.get(rows.clone()).unwrap_or_default());
            self.rows.extend(columns.map(|((at, bits), real)| {
                let raw = RawValue { bits: *bits, real: *real };
                Row { at: *at, start, raw: raw.of_divisor(own, divisor) }
            }));
        }
        self.rows.sort_by_key(|row| row.at);
        self.times.clear();
        self.times.extend(self.rows.iter().map(|row| row.at));
        self.bits.clear();
        self.bits.extend(self.rows.iter().map(|row| row.raw.bits));
        self.reals.clear();
        self.reals.extend(self.rows.iter().map(|row| row.raw.real));
        self.starts.clear();
        for (at, row) in self.rows.iter().enumerate() {
            if self.starts.last().is_none_or(|(_, start)| *start != row.start) {
                self.starts.push((at, row.start));
            }
        }
    }
}
