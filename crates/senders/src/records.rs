//! The store's records beside the samples, and the decision about a batch: whether it is a duplicate, and its series.

use crate::limits::Limits;
use crate::origin::{Seen, device_named_like};
use crate::origins::{OriginNumber, Origins};
use crate::selection::unless_whole;
use crate::series_registry::Registry;
use crate::series_table::{Table, Tables};
use crate::stored_gaps::{Gaps, touches};
use model::{Cause, DeviceId, Gap, Timestamp};
use std::sync::Arc;
use storage::{DeferReason, Outcome};
use wire::Decoded;

/// The store's records beside the samples: series, origins, gaps, tables.
#[derive(Debug)]
pub struct Bookkeeping {
    /// The senders.
    pub origins: Origins,
    /// The live series and the catalogue.
    pub registry: Registry,
    /// The tables that senders repeat.
    pub tables: Tables,
    /// The stored gaps.
    pub gaps: Gaps,
    /// Earlier samples are rejected: their rollups are final.
    pub settled: Timestamp,
}

/// The decision about a batch.
#[derive(Debug)]
pub enum Verdict {
    /// Store it for this origin, with this table.
    Store(OriginNumber, Arc<Table>),
    /// Its boot has left the window: store this gap instead, and reject it with this reason.
    TooLate(Gap, String),
    /// Decided already.
    Done(Outcome),
}

impl Bookkeeping {
    /// Gaps that touch an interval (bounds inclusive), of one device or of all, ordered by `from`, missing batches included.
    pub fn gaps_between(
        &self,
        (from, to): (Timestamp, Timestamp),
        device: Option<&DeviceId>,
        now: Timestamp,
        limits: &Limits,
    ) -> Vec<Gap> {
        let missing = self.origins.missing(now, limits.missing_grace_us, self.gaps.all());
        let reported = self.gaps.all().filter(|gap| touches(gap, from, to)).cloned();
        let all = reported.chain(missing.into_iter().filter(|gap| touches(gap, from, to)));
        let mut gaps: Vec<Gap> = match device {
            Some(device) => all.filter_map(|gap| self.origins.concerning(gap, device)).collect(),
            None => all.collect(),
        };
        gaps.sort_by(|a, b| (a.from, a.to, &a.device).cmp(&(b.from, b.to, &b.device)));
        gaps
    }

    /// Numbers of live series, metrics, gaps, and evicted gaps.
    pub fn sizes(&self) -> (u64, u64, u64, u64) {
        let (series, metrics) = (self.registry.series_count(), self.registry.metrics_count());
        (series as u64, metrics as u64, self.gaps.count(), self.gaps.forgotten())
    }

    /// Removes ended runs of programs, and the ownership of their series.
    pub fn forget_runs(&mut self, now: Timestamp) {
        let (free, given_up) = self.origins.forget_runs(now);
        given_up.into_iter().for_each(|gap| self.gaps.add(gap));
        if !free.is_empty() {
            self.tables.disown(&free);
            self.registry.disown(&free);
        }
    }

    /// Decides about a batch that arrived: of inserted rows, all are stored or none.
    pub fn judge_new(
        &mut self,
        decoded: &Decoded,
        received: Timestamp,
        limits: &Limits,
    ) -> Verdict {
        self.registry.metrics().mark();
        let verdict = self.judge(decoded, received, limits);
        if let Verdict::Store(_, table) = &verdict
            && decoded.origin.is_push()
            && let Some(outcome) = unless_whole(table, decoded, received, self.settled)
        {
            // A table without rejected series is cached, and its series stay.
            if !table.rejected.is_empty() {
                self.registry.undo(table.places.iter().filter_map(|slot| slot.series.as_ref()));
            }
            return Verdict::Done(outcome);
        }
        verdict
    }

    /// Decides about a batch. Changes only the registry of its series.
    pub fn judge(&mut self, decoded: &Decoded, received: Timestamp, limits: &Limits) -> Verdict {
        let for_good = |why: String| Verdict::Done(Outcome::RejectedPermanently(why));
        let Some(number) = self.origins.number(&decoded.origin, limits.origins_max) else {
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
                let table = Table::new(&table, number, origin, registry, limits, received);
                let (table, hash) = (Arc::new(table), decoded.table_hash);
                let places_max = limits.series_max.saturating_mul(2);
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
