//! Accepts a batch, for the log's writer and for replay alike: detects duplicates, resolves its series,
//! selects the samples to store.

use crate::files::json::MetricJson;
use crate::head::append::{DeferReason, Outcome};
use crate::head::rejected_samples::RejectedSamples;
use crate::head::rejected_series::RejectedSeries;
use crate::head::samples::{Group, Head, Samples};
use crate::senders::dedup_window::BatchMark;
use crate::senders::origin::{OriginState, Received, Seen, Stored, device_named_like};
use crate::senders::origins::{OriginNumber, Origins};
use crate::senders::series_registry::Registry;
use crate::senders::series_table::{Table, Tables, source_of};
use crate::senders::stored_gaps::Gaps;
use crate::settings::Settings;
use model::{Boot, Cause, Gap, Metric, Tick, Timestamp, poll_instants};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use wire::Decoded;

/// A sample further ahead of its receipt is rejected.
const AHEAD_MAX_US: i64 = 24 * 60 * 60 * Timestamp::SECOND;

/// The store's records beside the samples: series, origins, gaps, tables.
#[derive(Debug)]
pub(crate) struct Bookkeeping {
    pub(crate) origins: Origins,
    pub(crate) registry: Registry,
    pub(crate) tables: Tables,
    pub(crate) gaps: Gaps,
    /// Earlier samples are rejected: their rollups are final.
    pub(crate) settled: Timestamp,
}

/// These records as a manifest stores them.
#[derive(Debug)]
pub(crate) struct Covered {
    pub(crate) origins: Vec<OriginState>,
    pub(crate) damage: Vec<Received>,
    pub(crate) metrics: Vec<MetricJson>,
    /// The gaps, if they changed since the previous manifest.
    pub(crate) gaps: Option<Gaps>,
    pub(crate) gaps_forgotten: u64,
}

/// The decision about a batch.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Store it for this origin, with this table.
    Store(OriginNumber, Arc<Table>),
    /// Its boot has left the window: store this gap instead, and reject it with this reason.
    TooLate(Gap, String),
    /// Decided already.
    Done(Outcome),
}

impl Bookkeeping {
    /// The records at this moment, for a manifest.
    pub(crate) fn covered(&mut self) -> Covered {
        let gaps = self.gaps.changed().then(|| self.gaps.clone());
        self.gaps.written();
        Covered {
            origins: self.origins.all().cloned().collect(),
            damage: self.origins.damage.clone(),
            metrics: self.registry.catalogue_json(),
            gaps,
            gaps_forgotten: self.gaps.forgotten(),
        }
    }

    /// Removes ended runs of programs, and the ownership of their series.
    pub(crate) fn forget_runs(&mut self, now: Timestamp) {
        let (free, given_up) = self.origins.forget_runs(now);
        given_up.into_iter().for_each(|gap| self.gaps.add(gap));
        if !free.is_empty() {
            self.tables.disown(&free);
            self.registry.disown(&free);
        }
    }

    /// Decides about a batch. Changes only the registry of its series.
    pub(crate) fn judge(
        &mut self,
        decoded: &Decoded,
        received: Timestamp,
        settings: &Settings,
    ) -> Verdict {
        let for_good = |why: String| Verdict::Done(Outcome::RejectedPermanently(why));
        let Some(number) = self.origins.number(&decoded.origin, settings.origins_max) else {
            let full = DeferReason::Origins(self.origins.count());
            return Verdict::Done(Outcome::RejectedTemporarily(full));
        };
        let Some(origin) = self.origins.get_mut(number) else {
            return for_good("an origin without a number".to_owned());
        };
        match origin.seen(decoded.boot, decoded.seq) {
            Seen::New => {}
            Seen::Before => return Verdict::Done(Outcome::Duplicate),
            Seen::TooLate => return too_late(decoded, received),
        }
        let counts: u64 = decoded.ticks.iter().map(|tick| u64::from(tick.samples)).sum();
        if decoded.index.len() != decoded.values.len() || counts != decoded.values.len() as u64 {
            return for_good("the batch's ticks, places and values disagree".to_owned());
        }
        let takeovers = self.registry.metrics().takeovers();
        let table = match self.tables.get((number, decoded.table_hash), received, takeovers) {
            Some(table) => match decoded.check_places(table.places.len()) {
                Ok(()) => table,
                Err(error) => return for_good(error.to_string()),
            },
            None => {
                let table = match decoded.table() {
                    Ok(table) => table,
                    Err(error) => return for_good(error.to_string()),
                };
                let registry = &mut self.registry;
                let table = Table::new(&table, number, origin, registry, settings, received);
                let (table, hash) = (Arc::new(table), decoded.table_hash);
                let places_max = settings.series_max.saturating_mul(2);
                // Rejected rows must not keep their series alive.
                if !decoded.origin.is_push() || table.rejected.is_empty() {
                    self.tables.keep(number, hash, &table, received, places_max);
                }
                table
            }
        };
        Verdict::Store(number, table)
    }
}

/// The head that receives batches, and the position in it.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) head: Arc<Head>,
    groups: FxHashMap<(OriginNumber, u64), Arc<Group>>,
    /// The origins of these groups.
    origins: FxHashSet<OriginNumber>,
    /// Batches accepted so far.
    pub(crate) position: u64,
}

impl Intake {
    pub(crate) fn new(head: Arc<Head>) -> Self {
        Self { head, groups: FxHashMap::default(), origins: FxHashSet::default(), position: 0 }
    }

    /// Directs further batches to another head.
    pub(crate) fn turn_to(&mut self, head: Arc<Head>) {
        self.head = head;
        self.groups.clear();
        self.origins.clear();
    }

    /// Stores a batch after [`Bookkeeping::judge`] accepted it and the log has it. `withheld`: its series that were
    /// rejected when it was stored first.
    pub(crate) fn store(
        &mut self,
        books: &mut Bookkeeping,
        (number, table, withheld): (OriginNumber, &Arc<Table>, Option<&RejectedSeries>),
        decoded: Decoded,
        received: Timestamp,
        settings: &Settings,
    ) -> Outcome {
        let hash = decoded.table_hash;
        let Decoded { boot, seq, ticks, index, values, gaps, .. } = decoded;
        let is_of_poller =
            books.origins.get_mut(number).is_some_and(|origin| origin.name.is_poller_group());
        let instants = instants_of((&ticks, &index), table, is_of_poller, received);
        let possible = Possible { received, settled: books.settled };
        let (samples, rejected) =
            sieve(Samples { ticks, index, values }, (table, withheld), possible);
        let kept = samples.values.len() as u64;
        if kept > 0 {
            let group = self.group(number, hash, table);
            self.head.push(&group, samples, self.position, received);
            self.position += 1;
        }
        let Some(origin) = books.origins.get_mut(number) else {
            return Outcome::RejectedPermanently("an origin without a number".to_owned());
        };
        let rejections =
            rejected.gaps(&origin.name, origin.sealed, received, |at| is_possible(at, received));
        let opened_gaps: Vec<Gap> =
            gaps.into_iter().filter_map(|gap| opened(gap, origin, boot)).collect();
        let mark = BatchMark { seq, instants, received };
        let samples_rejected = rejected.count.into();
        let stored = Stored { boot, mark, samples: kept, samples_rejected };
        let given_up = origin.note(&stored, settings);
        opened_gaps.into_iter().chain(given_up).for_each(|gap| books.gaps.add(gap));
        for gap in rejections {
            match gap.to <= possible.settled {
                true => books.gaps.add_late(gap),
                false => books.gaps.add(gap),
            }
        }
        Outcome::Stored { samples_rejected: rejected.count, reason: rejected.reason() }
    }

    fn group(&mut self, origin: OriginNumber, hash: u64, table: &Arc<Table>) -> Arc<Group> {
        let known = self.groups.get(&(origin, hash));
        if let Some(group) = known.filter(|group| Arc::ptr_eq(&group.table, table)) {
            return Arc::clone(group);
        }
        let group = self.head.group(table, self.origins.insert(origin));
        self.groups.insert((origin, hash), Arc::clone(&group));
        group
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

fn too_late(decoded: &Decoded, received: Timestamp) -> Verdict {
    let instants = decoded.ticks.iter().map(|tick| tick.at);
    let detail = format!("batch {} of boot {}", decoded.seq, decoded.boot);
    let gap = device_named_like(&decoded.origin).map(|device| Gap {
        origin: decoded.origin.clone(),
        device,
        source: "".into(),
        from: instants.clone().min().unwrap_or(received),
        to: instants.max().unwrap_or(received),
        cause: Cause::TooLate,
        detail: detail.clone().into(),
    });
    let why = format!("{detail} arrived after its entry in the deduplication window was dropped");
    gap.map_or(Verdict::Done(Outcome::RejectedPermanently(why.clone())), |gap| {
        Verdict::TooLate(gap, why)
    })
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
    let Samples { ticks, index, values } = samples;
    let mut kept = Samples { ticks: Vec::new(), index: Vec::new(), values: Vec::new() };
    let mut rest = index.into_iter().zip(values);
    for tick in ticks {
        let is_possible = possible.has(tick.at);
        let before = kept.index.len();
        for (place, value) in rest.by_ref().take(tick.samples as usize) {
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
    (kept, rejected)
}

fn impossible(at: Timestamp, received: Timestamp) -> String {
    if at < Timestamp::YEAR_2000 {
        format!("a sample of {at} is from before 2000: set the sender's clock")
    } else {
        format!("a sample of {at} is more than a day ahead of {received}: set the sender's clock")
    }
}
