//! Merges two streams of rows, each ascending by time.

use crate::rows::table_rows::Batches;
use crate::{QueryError, RowBatch};
use std::fmt;

/// Rows of two streams, ascending by time; at one instant the first stream's rows come first.
pub(crate) struct MergeRows {
    first: MergeInput,
    second: MergeInput,
}

struct MergeInput {
    batches: Batches,
    batch: RowBatch,
    /// Number of rows of the batch already emitted.
    given: usize,
    ended: bool,
}

impl fmt::Debug for MergeRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergeRows").finish_non_exhaustive()
    }
}

impl MergeInput {
    fn new(batches: Batches) -> Self {
        Self { batches, batch: RowBatch::default(), given: 0, ended: false }
    }

    /// Ensures that the next row is available, unless the stream has ended.
    fn fill(&mut self) -> Result<(), QueryError> {
        while !self.ended && self.given >= self.batch.len() {
            match self.batches.next() {
                Some(batch) => (self.batch, self.given) = (batch?, 0),
                None => self.ended = true,
            }
        }
        Ok(())
    }

    fn next_time(&self) -> Option<i64> {
        self.batch.times.get(self.given).copied()
    }

    /// Number of rows of the batch not emitted yet.
    fn left(&self) -> usize {
        self.batch.len().saturating_sub(self.given)
    }

    /// The whole batch, if none of its rows was emitted.
    fn rest(&mut self) -> Option<RowBatch> {
        let whole = self.given == 0 && !self.batch.is_empty();
        whole.then(|| std::mem::take(&mut self.batch))
    }

    /// Appends the next row to `out`, in which the lines of this side begin at `offset`.
    fn give(&mut self, offset: u32, out: &mut RowBatch) {
        let row = self.given;
        let place = self.batch.places.get(row).copied().unwrap_or_default();
        let at = self.batch.times.get(row).copied().unwrap_or_default();
        let value = self.batch.values.get(row).copied().unwrap_or(f64::NAN);
        out.push(place.saturating_add(offset), at, value, self.batch.is_valid(row));
        self.given += 1;
    }
}

impl MergeRows {
    pub(crate) fn new(first: Batches, second: Batches) -> Self {
        Self { first: MergeInput::new(first), second: MergeInput::new(second) }
    }

    fn read(&mut self) -> Result<Option<RowBatch>, QueryError> {
        self.first.fill()?;
        self.second.fill()?;
        let whole = match (self.first.next_time(), self.second.next_time()) {
            (None, None) => return Ok(None),
            (Some(_), None) => self.first.rest(),
            (None, Some(_)) => self.second.rest(),
            (Some(_), Some(_)) => None,
        };
        if whole.is_some() {
            return Ok(whole);
        }
        let mut out = RowBatch::default();
        out.lines.extend_from_slice(&self.first.batch.lines);
        let offset = u32::try_from(out.lines.len()).unwrap_or(u32::MAX);
        out.lines.extend_from_slice(&self.second.batch.lines);
        let rows = self.first.left().saturating_add(self.second.left());
        out.reserve(rows);
        // Stops at the end of a batch: its successor may precede the other stream's remaining rows.
        loop {
            match (self.first.next_time(), self.second.next_time()) {
                (Some(first), Some(second)) if first <= second => self.first.give(0, &mut out),
                (Some(_), Some(_)) => self.second.give(offset, &mut out),
                (Some(_), None) if self.second.ended => self.first.give(0, &mut out),
                (None, Some(_)) if self.first.ended => self.second.give(offset, &mut out),
                _ => return Ok(Some(out)),
            }
        }
    }
}

impl Iterator for MergeRows {
    type Item = Result<RowBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Line;
    use model::{DeviceId, Kind};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn batches(device: &str, batches: &[Vec<i64>]) -> Batches {
        let line = Arc::new(Line {
            device: DeviceId::new(device).unwrap(),
            metric: Arc::from("m"),
            kind: Kind::Gauge,
            labels: Arc::from("{}"),
            job: None,
            allocation: None,
        });
        let batch = |times: &Vec<i64>| {
            let mut batch = RowBatch { lines: vec![Arc::clone(&line)], ..RowBatch::default() };
            times.iter().for_each(|at| batch.push(0, *at, 1.0, *at % 2 == 0));
            Ok(batch)
        };
        let batches: Vec<Result<RowBatch, QueryError>> = batches.iter().map(batch).collect();
        Box::new(batches.into_iter())
    }

    proptest! {
        #[test]
        fn rows_come_in_the_order_of_time(
            mut a in proptest::collection::vec(0_i64..50, 0..40),
            mut b in proptest::collection::vec(0_i64..50, 0..40),
            size in 1_usize..9,
        ) {
            a.sort_unstable();
            b.sort_unstable();
            let cut = |times: &[i64]| times.chunks(size).map(<[i64]>::to_vec).collect::<Vec<_>>();
            let merged = MergeRows::new(batches("a", &cut(&a)), batches("b", &cut(&b)));
            let mut rows = Vec::new();
            for batch in merged {
                let batch = batch.unwrap();
                for row in 0..batch.len() {
                    prop_assert_eq!(batch.is_valid(row), batch.times[row] % 2 == 0);
                    rows.push((batch.times[row], batch.line(row).unwrap().device.to_string()));
                }
            }
            let mut expected: Vec<(i64, String)> = a.iter().map(|at| (*at, "a".to_owned()))
                .chain(b.iter().map(|at| (*at, "b".to_owned()))).collect();
            expected.sort();
            prop_assert_eq!(rows, expected);
        }
    }

    #[test]
    fn an_error_is_passed_on() {
        let broken: Batches = Box::new(std::iter::once(Err(QueryError::Cancelled)));
        let mut merged = MergeRows::new(batches("a", &[vec![1]]), broken);
        assert!(matches!(merged.next(), Some(Err(QueryError::Cancelled))));
    }
}
