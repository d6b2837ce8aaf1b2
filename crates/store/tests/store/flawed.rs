//! The suite would notice: stores with one flaw each, and the check that fails by it.

use crate::conforming::Embedded;
use conformance::*;
use model::{Batch, Boot, DeviceId, Gap, Metric, Point, RollupWindows, Series, Timestamp};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU8, Ordering};

/// Takes each batch for a new one.
const FORGETFUL: u8 = 0;
/// Loses everything at a restart.
const VOLATILE: u8 = 1;
/// Keeps six digits after the point.
const COARSE: u8 = 2;
/// Passes over what senders say is missing.
const SILENT: u8 = 3;
/// Leaves the last instant of a question out.
const EXCLUSIVE: u8 = 4;
/// Gives other jobs' samples too.
const INDISCREET: u8 = 5;
/// Makes windows of the samples within the question alone.
const SHORT_SIGHTED: u8 = 6;
/// Never settles.
const PATIENT: u8 = 7;
/// Keeps everything.
const HOARDING: u8 = 8;
/// Takes any number of series.
const BOUNDLESS: u8 = 9;

struct Flawed<const FLAW: u8> {
    of: Embedded,
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

fn question<const FLAW: u8>(question: &Question) -> Question {
    let mut question = question.clone();
    match FLAW {
        EXCLUSIVE => question.to = question.to.plus(-1),
        INDISCREET => question.job = Which::Any,
        _ => {}
    }
    question
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
        Self { of, rules, clock: clock.clone(), boots: AtomicU8::new(1) }
    }

    fn reopen(self) -> Self {
        if FLAW == VOLATILE {
            return Self { of: Embedded::open(&self.rules, &self.clock), ..self };
        }
        Self { of: self.of.reopen(), ..self }
    }

    fn append(&self, batches: Vec<(Batch, Timestamp)>) -> Vec<Outcome> {
        self.of.append(batches.into_iter().map(|(batch, at)| (self.batch(batch), at)).collect())
    }

    fn keep_house(&self) {
        self.of.keep_house();
    }

    fn scan(&self, asked: &Question) -> Vec<Sample> {
        self.of.scan(&question::<FLAW>(asked))
    }

    fn windows(&self, asked: &Question, window_us: i64) -> Vec<Window> {
        if FLAW != SHORT_SIGHTED {
            return self.of.windows(asked, window_us);
        }
        let (samples, mut told) = (self.of.scan(asked), Vec::new());
        for of_series in samples.chunk_by(|a, b| a.series == b.series) {
            let mut windows = RollupWindows::new(window_us);
            let points =
                of_series.iter().map(|&Sample { at, value, start, .. }| Point { at, value, start });
            let mut ended: Vec<_> = points.filter_map(|point| windows.push(point)).collect();
            ended.extend(windows.finish());
            let series = &of_series[0].series;
            let window = |(start, rollup)| Window { series: series.clone(), start, rollup };
            told.extend(ended.into_iter().map(window));
        }
        told
    }

    fn last(&self, asked: &Question) -> Vec<Sample> {
        self.of.last(asked)
    }

    fn counter_starts(&self, asked: &Question) -> Vec<(Series, Timestamp, Timestamp)> {
        self.of.counter_starts(asked)
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
        ("forgetful", a_batch_is_kept_once::<Flawed<FORGETFUL>>),
        ("volatile", samples_come_by_series_and_time::<Flawed<VOLATILE>>),
        ("coarse", values_come_back_bit_for_bit::<Flawed<COARSE>>),
        ("silent", a_gap_that_is_told_is_kept::<Flawed<SILENT>>),
        ("exclusive", bounds_of_a_question_are_inclusive::<Flawed<EXCLUSIVE>>),
        ("indiscreet", questions_choose_devices_metrics_jobs_and_labels::<Flawed<INDISCREET>>),
        ("short-sighted", a_question_has_the_windows_that_begin_within_it::<Flawed<SHORT_SIGHTED>>),
        ("patient", what_is_settled_takes_no_late_sample_and_stays::<Flawed<PATIENT>>),
        ("hoarding", old_samples_go_and_their_windows_stay::<Flawed<HOARDING>>),
        ("boundless", series_beyond_a_limit_cost_themselves::<Flawed<BOUNDLESS>>),
    ];
    for (flaw, check) in checks {
        assert!(catch_unwind(check).is_err(), "nothing was noticed of a {flaw} store");
    }
}
