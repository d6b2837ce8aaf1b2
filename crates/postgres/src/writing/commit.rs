//! A commit that is being prepared: the batches to store, their rows, and what they change beside them.

use crate::copy::Rows;
use crate::series_book::{Arrived, SeriesBook};
use model::{Boot, Series, Timestamp};
use senders::{
    Bookkeeping, Limits, NO_START, NewGap, Noted, OriginNumber, OriginState, Samples, SeriesSlot,
    Table, Verdict, select,
};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use storage::{DeferReason, Incoming, Outcome, SeriesInfo};
use wire::Value;

/// A batch to store.
#[derive(Debug)]
pub(crate) struct AcceptedBatch {
    number: OriginNumber,
    samples: Samples,
    noted: Noted,
    table: Arc<Table>,
    received: Timestamp,
    /// Inserted rows: all are stored or none.
    pub(crate) is_whole: bool,
    /// The position of its outcome.
    outcome: usize,
    /// Samples that the database rejected, with the reason.
    pub(crate) rejected: BTreeMap<usize, Arc<str>>,
    /// Why none of it is stored.
    pub(crate) failed: Option<Outcome>,
}

/// A sample as a row.
struct SampleRow<'a> {
    /// Its position in the batch.
    index: usize,
    /// The position of its series in the table.
    place: u32,
    slot: &'a SeriesSlot,
    info: &'a SeriesInfo,
    at: Timestamp,
    value: f64,
}

/// A commit that is being prepared.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    /// The outcomes of all batches, in the order of their arrival.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) batches: Vec<AcceptedBatch>,
    pub(crate) origins: BTreeMap<OriginNumber, OriginState>,
    pub(crate) gaps: Vec<NewGap>,
    pub(crate) arrived: BTreeMap<Series, Vec<Arrived>>,
    pub(crate) samples: u64,
    pub(crate) samples_rejected: u64,
    /// Time of series with rollups to compute again.
    pub(crate) late: Vec<(Option<i64>, (i64, i64))>,
    /// The position of each batch among the accepted ones.
    accepted: HashMap<(OriginNumber, Boot, u64), usize>,
    /// The outcome of a repeated batch, and the position of the first one.
    repeated: Vec<(usize, usize)>,
}

impl Commit {
    /// Finds samples of settled time.
    pub(crate) fn find_late(&mut self, draft: &SeriesBook, settling: i64) {
        for (series, arrived) in &self.arrived {
            let late = arrived.iter().filter(|one| one.span.0 < settling);
            let id = draft.get(series).map(|stored| stored.id);
            self.late.extend(late.map(|one| (id, one.span)));
        }
    }

    /// Decides about a batch.
    pub(crate) fn add(&mut self, books: &mut Bookkeeping, batch: Incoming, limits: &Limits) {
        let outcome = self.decide(books, batch, limits);
        self.outcomes.push(outcome);
    }

    /// The outcome of a batch, provided that the database stores all of its samples.
    fn decide(&mut self, books: &mut Bookkeeping, batch: Incoming, limits: &Limits) -> Outcome {
        let Incoming { decoded, received, .. } = batch;
        let (number, table) = match books.judge_new(&decoded, received, limits) {
            Verdict::Store(number, table) => (number, table),
            Verdict::TooLate(gap, why) => {
                self.gaps.push(NewGap { gap, late: false });
                return Outcome::RejectedPermanently(why);
            }
            Verdict::Done(outcome) => return outcome,
        };
        let next = self.batches.len();
        let first = *self.accepted.entry((number, decoded.boot, decoded.seq)).or_insert(next);
        if first != next {
            self.repeated.push((self.outcomes.len(), first));
            return Outcome::Duplicate;
        }
        let name = decoded.origin.clone();
        let settled = books.settled;
        let (samples, noted) = select(&name, (&table, None), decoded, received, settled);
        self.batches.push(AcceptedBatch {
            number,
            samples,
            noted,
            table,
            received,
            is_whole: name.is_push(),
            outcome: self.outcomes.len(),
            rejected: BTreeMap::new(),
            failed: None,
        });
        Outcome::Stored { samples_rejected: 0, reason: String::new() }
    }

    /// The rows of all batches: those of nodes and those of jobs.
    pub(crate) fn rows(&self) -> [Rows; 2] {
        let mut rows = <[Rows; 2]>::default();
        for batch in &self.batches {
            batch.encode(0..usize::MAX, &mut rows);
        }
        rows
    }

    /// Records what is stored: changed origins, gaps, and a note for each run of one series.
    pub(crate) fn record(&mut self, books: &mut Bookkeeping, limits: &Limits) {
        let batches = std::mem::take(&mut self.batches);
        let outcomes: Vec<Outcome> =
            batches.into_iter().map(|batch| self.record_batch(books, batch, limits)).collect();
        for (place, first) in std::mem::take(&mut self.repeated) {
            // The first one waits, or is rejected: so is its copy.
            let first = outcomes.get(first).filter(|one| !matches!(one, Outcome::Stored { .. }));
            if let Some((outcome, first)) = self.outcomes.get_mut(place).zip(first) {
                *outcome = first.clone();
            }
        }
    }

    fn record_batch(
        &mut self,
        books: &mut Bookkeeping,
        mut batch: AcceptedBatch,
        limits: &Limits,
    ) -> Outcome {
        let place = batch.outcome;
        let outcome = match batch.failed.take() {
            Some(outcome) => outcome,
            None => self.note(books, batch, limits),
        };
        if let Some(place) = self.outcomes.get_mut(place) {
            *place = outcome.clone();
        }
        outcome
    }

    fn note(
        &mut self,
        books: &mut Bookkeeping,
        mut batch: AcceptedBatch,
        limits: &Limits,
    ) -> Outcome {
        let state = match self.origins.entry(batch.number) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                match books.origins.get_mut(batch.number) {
                    Some(origin) => new.insert(origin.clone()),
                    None => {
                        let why = "an origin without a number".to_owned();
                        return Outcome::RejectedPermanently(why);
                    }
                }
            }
        };
        let runs = batch.runs();
        let (outcome, gaps) = batch.noted.note(state, limits);
        self.gaps.extend(gaps);
        self.samples += (batch.samples.values.len() - batch.rejected.len()) as u64;
        if let Outcome::Stored { samples_rejected, .. } = &outcome {
            self.samples_rejected += u64::from(*samples_rejected);
        }
        for (place, run) in runs {
            let info = batch.table.places.get(place as usize).and_then(|slot| slot.series.as_ref());
            if let Some(info) = info {
                self.arrived.entry(info.series.clone()).or_default().push(run);
            }
        }
        outcome
    }
}

impl AcceptedBatch {
    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.values.len()
    }

    /// The position of a sample's series in the batch's table.
    pub(crate) fn place(&self, row: usize) -> u32 {
        self.samples.index.get(row).copied().unwrap_or(0)
    }

    /// Nothing of it is stored now; its sender keeps it.
    pub(crate) fn defer(&mut self, why: &str) {
        let why = DeferReason::Unavailable(why.to_owned());
        self.failed = Some(Outcome::RejectedTemporarily(why));
    }

    fn samples(&self) -> impl Iterator<Item = SampleRow<'_>> {
        let instants = self.samples.ticks.iter();
        let instants = instants.flat_map(|tick| (0..tick.samples).map(|_| tick.at));
        let values = self.samples.index.iter().zip(&self.samples.values);
        let all = instants.zip(values).enumerate();
        all.filter_map(|(index, (at, (place, value)))| {
            let slot = self.table.places.get(*place as usize)?;
            let info = slot.series.as_deref()?;
            let value = in_unit(*value, slot.divisor);
            Some(SampleRow { index, place: *place, slot, info, at, value })
        })
    }

    /// Adds the rows of some samples.
    pub(crate) fn encode(&self, range: Range<usize>, [nodes, jobs]: &mut [Rows; 2]) {
        let rest = self.samples().skip_while(|row| row.index < range.start);
        for row in rest.take_while(|row| row.index < range.end) {
            let rows = if row.info.series.job.is_some() { &mut *jobs } else { &mut *nodes };
            rows.push(&row.info.series, row.at.0, row.value);
        }
    }

    /// The stored samples of each series; the others become gaps.
    fn runs(&mut self) -> BTreeMap<u32, Arrived> {
        let mut runs: BTreeMap<u32, Arrived> = BTreeMap::new();
        let mut rejected = Vec::new();
        for SampleRow { index, place, slot, info, at, value } in self.samples() {
            if let Some(why) = self.rejected.get(&index) {
                rejected.push((info.series.clone(), at, Arc::clone(why)));
                continue;
            }
            let start = (slot.start != NO_START).then_some(slot.start);
            let run = runs.entry(place).or_insert(Arrived {
                divisor: slot.divisor,
                start,
                received: self.received,
                span: (at.0, at.0),
                last_value: value,
                samples: 0,
            });
            run.add(at.0, value);
        }
        rejected.iter().for_each(|(series, at, why)| self.noted.reject(series, *at, why));
        runs
    }
}

impl Arrived {
    fn add(&mut self, at: i64, value: f64) {
        self.samples += 1;
        self.span.0 = self.span.0.min(at);
        if at >= self.span.1 {
            (self.span.1, self.last_value) = (at, value);
        }
    }
}

/// A value in the metric's unit.
fn in_unit(value: Value, divisor: u32) -> f64 {
    match value {
        Value::Steps(steps) => steps as f64 / f64::from(divisor),
        Value::Real(real) => real,
    }
}
