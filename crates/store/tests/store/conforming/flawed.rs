//! Tests of the suite itself: stores with one flaw each fail the check for it.

use super::Embedded;
use super::flawed_followers::UNSIEVED;
use conformance::*;
use model::{Batch, Boot, DeviceId, Gap, Metric, Point, RollupWindows, Series, Timestamp};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU8, Ordering};

/// Stores duplicates.
const FORGETFUL: u8 = 0;
/// Loses everything at a restart.
const VOLATILE: u8 = 1;
/// Keeps six digits after the point.
const COARSE: u8 = 2;
/// Ignores gaps that senders report.
const SILENT: u8 = 3;
/// Excludes the last instant of a query.
const EXCLUSIVE: u8 = 4;
/// Returns other jobs' samples too.
const INDISCREET: u8 = 5;
/// Computes windows from the samples within the query alone.
const SHORT_SIGHTED: u8 = 6;
/// Never settles.
const PATIENT: u8 = 7;
/// Deletes nothing.
const HOARDING: u8 = 8;
/// Accepts any number of series.
const BOUNDLESS: u8 = 9;

pub(super) struct Flawed<const FLAW: u8> {
    pub(super) of: Embedded,
    /// Receives the same batches, and is followed instead.
    pub(super) followed: Option<Embedded>,
    /// Number of confirmations.
    pub(super) confirmed: AtomicU8,
    rules: Rules,
    clock: Clock,
    boots: AtomicU8,
}

impl<const FLAW: u8> Flawed<FLAW> {
    fn batch(&self, mut batch: Batch) -> Batch {
        match FLAW {
            FORGETFUL => batch.boot = Boot([self.boots.fetch_add(1, Ordering::SeqCst); 16]),
            COARSE => {
                batch.values.iter_mut().for_each(|value| *value = (*value * 1e6).round() / 1e6)
            }
            SILENT => batch.gaps.clear(),
            _ => {}
        }
        batch
    }
}

fn flawed_query<const FLAW: u8>(query: &Query) -> Query {
    let mut query = query.clone();
    match FLAW {
        EXCLUSIVE => query.to = query.to.plus(-1),
        INDISCREET => query.job = JobFilter::Any,
        _ => {}
    }
    query
}

impl<const FLAW: u8> Subject for Flawed<FLAW> {
    fn open(rules: &Rules, clock: &Clock) -> Self {
        let mut rules = *rules;
        match FLAW {
            PATIENT => rules.late_max_us = i64::MAX,
            HOARDING => rules.keep_samples_us = i64::MAX,
            BOUNDLESS => (rules.series_max, rules.series_per_origin_max) = (1000, 1000),
            _ => {}
        }
        let of = Embedded::open(&rules, clock);
        let unlimited = Rules { series_max: 1000, series_per_origin_max: 1000, ..rules };
        let followed = (FLAW == UNSIEVED).then(|| Embedded::open(&unlimited, clock));
        let (clock, boots) = (clock.clone(), AtomicU8::new(1));
        Self { of, followed, confirmed: AtomicU8::new(0), rules, clock, boots }
    }

    fn reopen(self) -> Self {
        if FLAW == VOLATILE {
            return Self { of: Embedded::open(&self.rules, &self.clock), ..self };
        }
        Self { of: self.of.reopen(), followed: self.followed.map(Subject::reopen), ..self }
    }

    fn append(&self, batches: Vec<(Batch, Timestamp)>) -> Vec<Outcome> {
        if let Some(followed) = &self.followed {
            followed.append(batches.clone());
        }
        self.of.append(batches.into_iter().map(|(batch, at)| (self.batch(batch), at)).collect())
    }

    fn maintain(&self) {
        self.followed.iter().for_each(Embedded::maintain);
        self.of.maintain();
    }

    fn scan(&self, query: &Query) -> Vec<Sample> {
        self.of.scan(&flawed_query::<FLAW>(query))
    }

    fn windows(&self, query: &Query, window_us: i64) -> Vec<Window> {
        if FLAW != SHORT_SIGHTED {
            return self.of.windows(query, window_us);
        }
        let (samples, mut found) = (self.of.scan(query), Vec::new());
        for of_series in samples.chunk_by(|a, b| a.series == b.series) {
            let mut windows = RollupWindows::new(window_us);
            let points =
                of_series.iter().map(|&Sample { at, value, start, .. }| Point { at, value, start });
            let mut ended: Vec<_> = points.filter_map(|point| windows.push(point)).collect();
            ended.extend(windows.finish());
            let series = &of_series[0].series;
            let window = |(start, rollup)| Window { series: series.clone(), start, rollup };
            found.extend(ended.into_iter().map(window));
        }
        found
    }

    fn last(&self, query: &Query) -> Vec<Sample> {
        self.of.last(query)
    }

    fn counter_starts(&self, query: &Query) -> Vec<(Series, Timestamp, Timestamp)> {
        self.of.counter_starts(query)
    }

    fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap> {
        self.of.gaps(from, to, device)
    }

    fn metrics(&self) -> Vec<Metric> {
        self.of.metrics()
    }

    fn settled(&self) -> Option<Timestamp> {
        self.of.settled()
    }

    fn samples_removed(&self) -> u64 {
        self.of.samples_removed()
    }
}

#[test]
fn every_flaw_is_found_by_the_check_of_its_rule() {
    let checks: [(&str, fn()); 10] = [
        ("forgetful", a_batch_is_stored_once::<Flawed<FORGETFUL>>),
        ("volatile", samples_come_by_series_and_time::<Flawed<VOLATILE>>),
        ("coarse", values_come_back_bit_for_bit::<Flawed<COARSE>>),
        ("silent", reported_gaps_are_stored::<Flawed<SILENT>>),
        ("exclusive", bounds_of_a_query_are_inclusive::<Flawed<EXCLUSIVE>>),
        ("indiscreet", queries_select_devices_metrics_jobs_and_labels::<Flawed<INDISCREET>>),
        (
            "short-sighted",
            a_query_returns_the_windows_that_begin_within_it::<Flawed<SHORT_SIGHTED>>,
        ),
        ("patient", settled_time_rejects_late_samples::<Flawed<PATIENT>>),
        ("hoarding", old_samples_are_deleted_and_their_windows_remain::<Flawed<HOARDING>>),
        ("boundless", series_beyond_a_limit_are_rejected_alone::<Flawed<BOUNDLESS>>),
    ];
    for (flaw, check) in checks {
        assert!(catch_unwind(check).is_err(), "nothing was noticed of a {flaw} store");
    }
}
