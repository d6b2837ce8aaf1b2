//! Selects the samples of a batch to store.
//!
//! `rejected_samples`: the others, and their gaps. `rejected_series`: the log record of rejected series.

pub(crate) mod rejected_samples;
pub(crate) mod rejected_series;

use crate::dedup_window::BatchMark;
use crate::limits::Limits;
use crate::origin::{OriginState, Stored};
use crate::series_table::{Table, source_of};
use model::{Boot, Gap, Metric, Origin, Series, Tick, Timestamp, poll_instants};
use rejected_samples::RejectedSamples;
use rejected_series::RejectedSeries;
use storage::Outcome;
use wire::{Decoded, Value};

/// A sample further ahead of its receipt is rejected.
const AHEAD_MAX_US: i64 = 24 * 60 * 60 * Timestamp::SECOND;

/// The samples of a batch.
#[derive(Debug)]
pub struct Samples {
    /// The instants, each with the number of its samples.
    pub ticks: Vec<Tick>,
    /// The position of each sample in the batch's table.
    pub index: Vec<u32>,
    /// The value of each sample.
    pub values: Vec<Value>,
    /// The number of each sample in the batch as received, counted from 0; `None`: the batch has no other samples. Another
    /// decision about the batch, at a replay, does not change it.
    pub numbers: Option<Vec<u32>>,
}

/// What a batch changes beside its samples.
#[derive(Debug)]
pub struct Noted {
    boot: Boot,
    mark: BatchMark,
    gaps: Vec<Gap>,
    samples: u64,
    rejected: RejectedSamples,
    received: Timestamp,
    settled: Timestamp,
}

/// A gap to add.
#[derive(Debug)]
pub struct NewGap {
    /// The gap.
    pub gap: Gap,
    /// Its samples arrived too late: the newest gap of their device grows.
    pub late: bool,
}

/// Selects the samples of a batch that [`crate::Bookkeeping::judge`] accepted, and what it changes beside them. `withheld`: its
/// series that were rejected when it was stored first.
pub fn select(
    origin: &Origin,
    (table, withheld): (&Table, Option<&RejectedSeries>),
    decoded: Decoded,
    received: Timestamp,
    settled: Timestamp,
) -> (Samples, Noted) {
    let Decoded { boot, seq, ticks, index, values, gaps, .. } = decoded;
    let instants = instants_of((&ticks, &index), table, origin.is_poller_group(), received);
    let possible = Possible { received, settled };
    let (samples, rejected) =
        sieve(Samples { ticks, index, values, numbers: None }, (table, withheld), possible);
    let mark = BatchMark { seq, instants, received };
    let kept = samples.values.len() as u64;
    (samples, Noted { boot, mark, gaps, samples: kept, rejected, received, settled })
}

impl Noted {
    /// Rejects a selected sample after all: it becomes part of a gap.
    pub fn reject(&mut self, series: &Series, at: Timestamp, why: &str) {
        self.samples = self.samples.saturating_sub(1);
        let part = (&series.device, source_of(&series.metric));
        self.rejected.add(part, at, || why.to_owned());
    }

    /// Records the batch for its origin. Returns its outcome, and the gaps to add.
    pub fn note(self, origin: &mut OriginState, limits: &Limits) -> (Outcome, Vec<NewGap>) {
        let Self { boot, mark, gaps, samples, rejected, received, settled } = self;
        let rejections =
            rejected.gaps(&origin.name, origin.sealed, received, |at| is_possible(at, received));
        let opened_gaps: Vec<Gap> =
            gaps.into_iter().filter_map(|gap| opened(gap, origin, boot)).collect();
        let samples_rejected = rejected.count.into();
        let given_up = origin.note(&Stored { boot, mark, samples, samples_rejected }, limits);
        let mut new: Vec<NewGap> = opened_gaps
            .into_iter()
            .chain(given_up)
            .map(|gap| NewGap { gap, late: false })
            .collect();
        new.extend(rejections.into_iter().map(|gap| NewGap { late: gap.to <= settled, gap }));
        (Outcome::Stored { samples_rejected: rejected.count, reason: rejected.reason() }, new)
    }
}

/// The gap of a sender that was down. It starts at the origin's last sample from earlier boots: the sender does not know
/// since when it was down (its reported start is then one period), or knows the time until which it had written how far
/// everything is kept, while later samples arrived.
fn opened(mut gap: Gap, origin: &OriginState, boot: Boot) -> Option<Gap> {
    if !gap.cause.is_down() || !gap.source.is_empty() {
        return Some(gap);
    }
    let last = origin.last_before(boot, gap.to);
    if gap.from < Timestamp::YEAR_2000 {
        let period_us = gap.from.0;
        gap.from = last?;
        return (gap.to.since(gap.from) > period_us).then_some(gap);
    }
    gap.from = last.map_or(gap.from, |last| gap.from.max(last));
    (gap.from < gap.to).then_some(gap)
}

/// The first and the last instant of a batch by its sender's clock. Those of a poller are the instants of its polls: its
/// devices may report samples of any instant.
fn instants_of(
    (ticks, index): (&[Tick], &[u32]),
    table: &Table,
    is_of_poller: bool,
    received: Timestamp,
) -> Option<(Timestamp, Timestamp)> {
    let span = |instants: &mut dyn Iterator<Item = Timestamp>| {
        let possible = instants.filter(|at| is_possible(*at, received));
        possible.fold(None, |span, at| {
            let (first, last) = span.unwrap_or((at, at));
            Some((first.min(at), last.max(at)))
        })
    };
    let is_of_polls = |place: u32| {
        let info = table.places.get(place as usize).and_then(|place| place.series.as_ref());
        info.is_some_and(|info| Metric::is_of_polls(&info.series.metric))
    };
    let polls = is_of_poller.then(|| span(&mut poll_instants(ticks, index, is_of_polls))).flatten();
    polls.or_else(|| span(&mut ticks.iter().map(|tick| tick.at)))
}

/// Whether a sample may have this instant.
const fn is_possible(at: Timestamp, received: Timestamp) -> bool {
    at.0 >= Timestamp::YEAR_2000.0 && at.since(received) <= AHEAD_MAX_US
}

/// The outcome of inserted rows that cannot all be stored: then none is.
pub(crate) fn unless_whole(
    table: &Table,
    decoded: &Decoded,
    received: Timestamp,
    settled: Timestamp,
) -> Option<Outcome> {
    if let Some(rejected) = table.rejected.first() {
        let why = rejected.why.clone();
        return Some(Outcome::RejectedWhole { place: rejected.place, why });
    }
    let possible = Possible { received, settled };
    let mut samples = 0;
    let tick = decoded.ticks.iter().find(|tick| {
        let is_possible = possible.has(tick.at);
        samples += if is_possible { tick.samples as usize } else { 0 };
        !is_possible
    })?;
    let place = decoded.index.get(samples).copied().unwrap_or(0);
    Some(Outcome::RejectedWhole { place, why: possible.why_not(tick.at) })
}

/// The instants that a sample may have.
#[derive(Clone, Copy)]
struct Possible {
    received: Timestamp,
    settled: Timestamp,
}

impl Possible {
    fn has(self, at: Timestamp) -> bool {
        at >= self.settled && is_possible(at, self.received)
    }

    /// The reason against an instant.
    fn why_not(self, at: Timestamp) -> String {
        if is_possible(at, self.received) {
            let settled = self.settled;
            return format!("a sample of {at} arrived too late: data before {settled} is final");
        }
        impossible(at, self.received)
    }
}

/// Separates accepted samples from rejected ones.
fn sieve(
    samples: Samples,
    (table, withheld): (&Table, Option<&RejectedSeries>),
    possible: Possible,
) -> (Samples, RejectedSamples) {
    let mut rejected = RejectedSamples::default();
    let takes_all = table.rejected.is_empty() && withheld.is_none();
    if takes_all && samples.ticks.iter().all(|tick| possible.has(tick.at)) {
        return (samples, rejected);
    }
    let Samples { ticks, index, values, .. } = samples;
    let mut kept =
        Samples { ticks: Vec::new(), index: Vec::new(), values: Vec::new(), numbers: None };
    let (mut rest, mut numbers) = ((0..).zip(index.into_iter().zip(values)), Vec::new());
    for tick in ticks {
        let is_possible = possible.has(tick.at);
        let before = kept.index.len();
        for (number, (place, value)) in rest.by_ref().take(tick.samples as usize) {
            let series = table.places.get(place as usize).and_then(|place| place.series.as_ref());
            let withheld = withheld.filter(|withheld| withheld.has(place));
            match (series, table.rejection(place)) {
                (Some(info), None) if withheld.is_some() => {
                    let why = || withheld.map(|withheld| withheld.why.clone()).unwrap_or_default();
                    rejected.add(
                        (&info.series.device, source_of(&info.series.metric)),
                        tick.at,
                        why,
                    );
                }
                (Some(_), _) if is_possible => {
                    kept.index.push(place);
                    kept.values.push(value);
                    numbers.push(number);
                }
                (Some(info), _) => {
                    let source = source_of(&info.series.metric);
                    rejected
                        .add((&info.series.device, source), tick.at, || possible.why_not(tick.at));
                }
                (None, Some(why)) => {
                    rejected.add((&why.device, &why.source), tick.at, || why.why.clone());
                }
                // A batch with positions outside the table was rejected as a whole.
                (None, None) => {}
            }
        }
        let samples = u32::try_from(kept.index.len() - before).unwrap_or(u32::MAX);
        if samples > 0 {
            kept.ticks.push(Tick { at: tick.at, samples });
        }
    }
    kept.numbers = Some(numbers);
    (kept, rejected)
}

fn impossible(at: Timestamp, received: Timestamp) -> String {
    if at < Timestamp::YEAR_2000 {
        format!("a sample of {at} is from before 2000: set the sender's clock")
    } else {
        format!("a sample of {at} is more than a day ahead of {received}: set the sender's clock")
    }
}
