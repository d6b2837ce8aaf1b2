//! Stores the selected samples of a batch in memory, for the log's writer and for replay alike.

use crate::head::samples::{Group, Head};
use model::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use senders::{Bookkeeping, Gaps, Limits, OriginNumber, RejectedSeries, Table, select};
use std::sync::Arc;
use storage::Outcome;
use wire::Decoded;

/// The head that receives batches, and the place of the next one.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) head: Arc<Head>,
    groups: FxHashMap<(OriginNumber, u64), Arc<Group>>,
    /// The origins of these groups.
    origins: FxHashSet<OriginNumber>,
    /// The place of the next batch.
    pub(crate) place: u64,
}

impl Intake {
    pub(crate) fn new(head: Arc<Head>) -> Self {
        Self { head, groups: FxHashMap::default(), origins: FxHashSet::default(), place: 0 }
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
        limits: &Limits,
    ) -> Outcome {
        let hash = decoded.table_hash;
        let settled = books.settled;
        let Some(origin) = books.origins.get_mut(number) else {
            return Outcome::RejectedPermanently("an origin without a number".to_owned());
        };
        let (samples, noted) = select(&origin.name, (table, withheld), decoded, received, settled);
        if !samples.values.is_empty() {
            let group = self.group(number, hash, table);
            self.head.push(&group, samples, self.place, received);
        }
        let (outcome, gaps) = noted.note(origin, limits);
        books.gaps.set_place(self.place);
        gaps.into_iter().for_each(|gap| books.gaps.put(gap));
        books.gaps.set_place(Gaps::OWN);
        outcome
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
