//! The rows of the last 60 s of a meter, for a flush.

use super::line::PortValue;
use super::row_order::Row;
use model::Timestamp;
use std::collections::VecDeque;

/// How long rows are kept.
const KEPT_US: i64 = 60 * Timestamp::SECOND;
/// Most values of all kept rows: 16 MiB.
const VALUES_MAX: usize = 1 << 20;
/// Remembered flushes. The server sends each for 10 min.
const FLUSHES_MAX: usize = 256;

/// Kept rows, and the flushes that were carried out.
#[derive(Debug, Default)]
pub(super) struct RecentRows {
    rows: VecDeque<Row>,
    values: usize,
    flushes: VecDeque<i64>,
    /// When the first row arrived: no earlier flush is its.
    begun: Option<Timestamp>,
    is_full: bool,
}

impl RecentRows {
    /// States that rows arrive.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.begun.get_or_insert(now);
    }

    /// Keeps a row, and drops those that are too old.
    pub(super) fn push(&mut self, at: Timestamp, values: &[PortValue]) {
        // The clock of the meter was set back.
        if self.rows.back().is_some_and(|last| last.at > at) {
            (self.rows, self.values) = (VecDeque::new(), 0);
        }
        self.values += values.len();
        self.rows.push_back(Row { at, values: values.to_vec() });
        while let Some(first) = self.rows.front() {
            let is_old = at.since(first.at) >= KEPT_US;
            if !is_old && self.values > VALUES_MAX && !self.is_full {
                self.is_full = true;
                log::warn!(
                    "a flush has less than 60 s: more than {VALUES_MAX} values are in memory"
                );
            }
            if !is_old && self.values <= VALUES_MAX {
                break;
            }
            self.values -= first.values.len();
            self.rows.pop_front();
        }
    }

    /// Whether a flush was not carried out before. One that was requested before the first row was carried out by an
    /// earlier start, or has no rows.
    pub(super) fn is_new(&mut self, flush: i64, made: Timestamp) -> bool {
        if self.flushes.contains(&flush) || self.begun.is_none_or(|begun| made < begun) {
            return false;
        }
        if self.flushes.len() >= FLUSHES_MAX {
            self.flushes.pop_front();
        }
        self.flushes.push_back(flush);
        true
    }

    /// The powers of a port after an instant.
    pub(super) fn of_port(
        &self,
        place: usize,
        after: Option<Timestamp>,
    ) -> impl Iterator<Item = (Timestamp, f64)> {
        let rows = self.rows.iter().filter(move |row| after.is_none_or(|after| row.at > after));
        rows.filter_map(move |row| match row.values.get(place)? {
            PortValue::Watts(watts) => Some((row.at, *watts)),
            PortValue::Missing | PortValue::Bad => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: i64) -> Timestamp {
        Timestamp::from_seconds(at)
    }

    #[test]
    fn rows_are_kept_for_60_s_and_flushes_are_carried_out_once() {
        let mut rows = RecentRows::default();
        for at in 0..100 {
            rows.push(second(at), &[PortValue::Watts(at as f64), PortValue::Bad]);
        }
        let of = |rows: &RecentRows, place: usize, after| rows.of_port(place, after).count();
        assert_eq!((of(&rows, 0, None), of(&rows, 0, Some(second(89)))), (60, 10));
        assert_eq!((of(&rows, 1, None), of(&rows, 2, None)), (0, 0));
        assert_eq!(rows.of_port(0, None).next(), Some((second(40), 40.0)));
        assert!(!rows.is_new(7, second(9)), "no row arrived");
        rows.begin(second(5));
        rows.begin(second(10));
        assert!(rows.is_new(7, second(9)) && !rows.is_new(7, second(9)));
        assert!(rows.is_new(8, second(5)));
        assert!(!rows.is_new(6, second(4)), "an earlier start answered it");
        rows.push(second(50), &[PortValue::Watts(1.0)]);
        assert_eq!((of(&rows, 0, None), rows.values), (1, 1), "the clock was set back");
    }

    #[test]
    fn the_memory_of_rows_is_bounded() {
        let mut rows = RecentRows::default();
        let row = [PortValue::Watts(1.0); 1024];
        for at in 0..2000 {
            rows.push(Timestamp(at), &row);
        }
        assert_eq!((rows.values, rows.rows.len()), (VALUES_MAX, 1024));
    }
}
