//! Which record belongs to which run.
//!
//! A run's record is the one of its number that was running at the same time; of several, one that had
//! started when the run began, and of those the one that started nearest. A record's times are the
//! scheduler's and a run's the node's, so that they may miss each other by [`TOGETHER`] when what is known of
//! the node's clock has been taken off.
//!
//! Runs that have one record are one run: a job whose steps come and go has no cgroup between them.

use crate::visits::TOGETHER;
use model::Timestamp;
use std::cmp::Reverse;

/// From when until when a run was, or a record says that its job was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Timestamp,
    /// `None`: it goes on.
    pub(crate) stop: Option<Timestamp>,
}

impl Span {
    /// As the server's clock shows it, of a clock that was so many microseconds ahead of it.
    pub(crate) fn by_the_server(self, ahead_us: i64) -> Self {
        let at = |at: Timestamp| at.plus(ahead_us.saturating_neg());
        Self { start: at(self.start), stop: self.stop.map(at) }
    }

    fn end(self) -> i64 {
        self.stop.map_or(i64::MAX, |stop| stop.0)
    }
}

/// The place of the record that a run has; `records` of `None` never started.
pub(crate) fn pick(run: Span, records: &[Option<Span>]) -> Option<usize> {
    let rank = |record: &Span| {
        let common = run.end().min(record.end()).saturating_sub(run.start.0.max(record.start.0));
        let had_started = record.start.since(run.start) <= TOGETHER;
        let apart = Reverse(run.start.0.abs_diff(record.start.0));
        (common >= -TOGETHER).then_some((common >= 0, had_started, apart))
    };
    let ranked = records.iter().enumerate().filter_map(|(place, record)| {
        let rank = rank(record.as_ref()?)?;
        Some((rank, Reverse(place)))
    });
    ranked.max().map(|(_, place)| place.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: i64, stop: Option<i64>) -> Span {
        let at = |second: i64| Timestamp(second * Timestamp::SECOND);
        Span { start: at(start), stop: stop.map(at) }
    }

    #[test]
    fn the_record_of_the_same_time_is_the_runs() {
        let records = [None, Some(span(100, Some(200))), Some(span(400, None))];
        let run = |start, stop| pick(span(start, stop), &records);
        assert_eq!(run(101, Some(199)), Some(1));
        assert_eq!(run(105, None), Some(1), "its end was lost");
        assert_eq!(run(180, Some(190)), Some(1));
        assert_eq!(run(401, None), Some(2));
        assert_eq!(run(240, Some(250)), Some(1), "late by less than a minute");
        assert_eq!(run(270, Some(300)), None);
        assert_eq!(run(30, Some(35)), None);
        assert_eq!(run(345, Some(350)), Some(2));
    }

    #[test]
    fn of_two_that_overlap_alike_the_nearer_is_meant() {
        let records = [Some(span(100, None)), Some(span(300, None))];
        assert_eq!(pick(span(310, None), &records), Some(1));
        assert_eq!(pick(span(110, None), &records), Some(0));
        assert_eq!(pick(span(310, Some(320)), &records), Some(1));
        assert_eq!(pick(span(110, Some(120)), &[]), None);
    }
}
