//! Rows in order. Noise on a serial line, a pipe that begins within a line, or a clock that is set change the time or
//! the number of ports of a line. Such a row waits: it counts if the next row confirms it.

use super::line::PortValue;
use model::Timestamp;

/// A row further ahead waits for its confirmation.
const AHEAD_MAX_US: i64 = 3600 * Timestamp::SECOND;
/// Rows that go back in time count after they have followed each other for this time: then the clock was set back.
const BACK_US: i64 = 10 * Timestamp::SECOND;

/// An instant with the values of ports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) at: Timestamp,
    pub(super) values: Vec<PortValue>,
}

/// What the order decides about a row. A row that waited in vain is dropped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Placement {
    /// It counts.
    Next { is_one_dropped: bool },
    /// It counts, after the row that waited.
    Confirms(Row),
    /// It waits for the next one.
    Waits { is_one_dropped: bool },
}

/// The latest row that counts, and one that waits.
#[derive(Debug, Default)]
pub(super) struct RowOrder {
    last: Option<(Timestamp, usize)>,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    row: Row,
    /// Instant of the first of the rows that follow each other and do not count.
    since: Timestamp,
}

impl Waiting {
    const fn shape(&self) -> (Timestamp, usize) {
        (self.row.at, self.row.values.len())
    }
}

impl RowOrder {
    /// Places a row.
    pub(super) fn place(&mut self, at: Timestamp, values: &[PortValue]) -> Placement {
        let shape = (at, values.len());
        let waiting = self.waiting.take();
        if self.last.is_some_and(|last| follows(last, shape)) {
            self.last = Some(shape);
            return Placement::Next { is_one_dropped: waiting.is_some() };
        }
        let is_back = self.last.is_some_and(|(last, _)| at < last);
        let is_one_dropped = waiting.is_some();
        let confirmed = waiting.filter(|waiting| follows(waiting.shape(), shape));
        let since = confirmed.as_ref().map_or(at, |waiting| waiting.since);
        if let Some(waiting) = confirmed
            && (!is_back || at.since(since) >= BACK_US)
        {
            self.last = Some(shape);
            return Placement::Confirms(waiting.row);
        }
        self.waiting = Some(Waiting { row: Row { at, values: values.to_vec() }, since });
        Placement::Waits { is_one_dropped }
    }

    /// The end of the rows. A row that still waits counts, and is returned, if only its confirmation is missing.
    pub(super) fn end(&mut self) -> Placement {
        let Some(waiting) = self.waiting.take() else {
            return Placement::Next { is_one_dropped: false };
        };
        let (at, ports) = waiting.shape();
        match self.last.is_none_or(|(last, before)| at >= last && ports == before) {
            true => Placement::Confirms(waiting.row),
            false => Placement::Next { is_one_dropped: true },
        }
    }
}

/// Whether a row can follow another.
fn follows((before, ports): (Timestamp, usize), (at, now): (Timestamp, usize)) -> bool {
    ports == now && (0..=AHEAD_MAX_US).contains(&at.since(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places rows of milliseconds and numbers of ports. Returns the milliseconds that count, and how many are dropped.
    fn placed(rows: &[(i64, usize)]) -> (Vec<i64>, usize) {
        let (mut order, mut counted, mut dropped) = (RowOrder::default(), Vec::new(), 0);
        for (ms, ports) in rows {
            let at = Timestamp(ms * 1000);
            match order.place(at, &vec![PortValue::Missing; *ports]) {
                Placement::Next { is_one_dropped } => {
                    dropped += usize::from(is_one_dropped);
                    counted.push(*ms);
                }
                Placement::Confirms(row) => counted.extend([row.at.0 / 1000, *ms]),
                Placement::Waits { is_one_dropped } => dropped += usize::from(is_one_dropped),
            }
        }
        match order.end() {
            Placement::Confirms(row) => counted.push(row.at.0 / 1000),
            Placement::Next { is_one_dropped } | Placement::Waits { is_one_dropped } => {
                dropped += usize::from(is_one_dropped);
            }
        }
        (counted, dropped)
    }

    #[test]
    fn rows_in_order_count_from_the_first_to_the_last() {
        assert_eq!(placed(&[(5, 2)]), (vec![5], 0));
        assert_eq!(placed(&[(5, 2), (25, 2), (25, 2), (3000, 2)]), (vec![5, 25, 25, 3000], 0));
    }

    #[test]
    fn a_single_odd_row_is_dropped() {
        for odd in [(40, 1), (40, 90), (39_000_000, 2), (3, 2)] {
            let rows = [(10, 2), (30, 2), odd, (50, 2), (70, 2)];
            assert_eq!(placed(&rows), (vec![10, 30, 50, 70], 1), "{odd:?}");
        }
        // The pipe begins within a line.
        assert_eq!(placed(&[(10, 1), (30, 2), (50, 2)]), (vec![30, 50], 1));
    }

    #[test]
    fn a_change_counts_when_the_next_row_confirms_it() {
        let rows = [(10, 2), (30, 2), (50, 3), (70, 3), (90, 3)];
        assert_eq!(placed(&rows), (vec![10, 30, 50, 70, 90], 0));
        let rows = [(10, 2), (30, 2), (9_000_000, 2), (9_000_020, 2)];
        assert_eq!(placed(&rows), (vec![10, 30, 9_000_000, 9_000_020], 0));
        // The last row is a jump ahead, or another number of ports.
        assert_eq!(placed(&[(10, 2), (30, 2), (9_000_000, 2)]), (vec![10, 30, 9_000_000], 0));
        assert_eq!(placed(&[(10, 2), (30, 2), (50, 1)]), (vec![10, 30], 1));
    }

    #[test]
    fn a_clock_that_is_set_back_counts_after_a_while() {
        let mut rows = vec![(50_000, 2), (50_020, 2)];
        rows.extend((0..20).map(|n| (20_000 + n * 1000, 2)));
        let (counted, dropped) = placed(&rows);
        assert_eq!(counted.first(), Some(&50_000));
        assert_eq!(counted.get(2), Some(&29_000), "{counted:?}");
        assert_eq!((counted.len(), dropped), (rows.len() - 9, 9));
        // A small step back is over before that.
        let rows = [(50_000, 2), (50_020, 2), (49_000, 2), (49_500, 2), (50_030, 2)];
        assert_eq!(placed(&rows), (vec![50_000, 50_020, 50_030], 2));
    }
}
