//! The budget of writes of a sender that may report a scheduler's jobs. One request of 200 bytes names up to 65 536
//! nodes, each of which takes a row: without a budget, such a sender fills the disk and delays acknowledgements.

use crate::Limits;
use model::{ClusterId, Timestamp};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Cost of an update without nodes.
const UPDATE_COST: u64 = 2;
/// Rows that an update keeps cost this part of new ones.
const KEPT_ROWS: u64 = 64;

const HOUR_US: u64 = 3600 * Timestamp::SECOND.unsigned_abs();

/// Budgets by the cluster that senders may report; `None`: every cluster.
#[derive(Debug, Default)]
pub(crate) struct WriteBudgets(Mutex<BTreeMap<Option<ClusterId>, Budget>>);

/// What was spent and not yet refilled, at a time.
#[derive(Debug)]
struct Budget {
    spent: u64,
    at: Timestamp,
}

/// The cost of an update of a record: of new rows of nodes and steps, and of kept ones, which are written again.
pub(crate) fn cost(new: usize, kept: usize) -> u64 {
    let count = |rows| u64::try_from(rows).unwrap_or(u64::MAX);
    UPDATE_COST.saturating_add(count(new)).saturating_add(count(kept) / KEPT_ROWS)
}

impl WriteBudgets {
    /// Whether an update exceeds the budget of a sender.
    pub(crate) fn is_exceeded_by(
        &self,
        cost: u64,
        cluster: Option<&ClusterId>,
        limits: &Limits,
        now: Timestamp,
    ) -> bool {
        let spent = self.refilled(cluster, limits, now, 0);
        spent.saturating_add(cost) > limits.reported_writes_max
    }

    /// Takes the cost of an update that was written.
    pub(crate) fn spend(
        &self,
        cost: u64,
        cluster: Option<&ClusterId>,
        limits: &Limits,
        now: Timestamp,
    ) {
        self.refilled(cluster, limits, now, cost);
    }

    /// Refills a budget, adds a cost, and returns what is spent.
    fn refilled(
        &self,
        cluster: Option<&ClusterId>,
        limits: &Limits,
        now: Timestamp,
        cost: u64,
    ) -> u64 {
        let mut budgets = self.0.lock();
        let budget = budgets.entry(cluster.cloned()).or_insert(Budget { spent: 0, at: now });
        // A clock that was set back refills nothing.
        let passed_us = u64::try_from(now.since(budget.at)).unwrap_or(0);
        let refill = passed_us.saturating_mul(limits.reported_writes_per_hour) / HOUR_US;
        // The rest of the division counts next time.
        let used_us = refill.saturating_mul(HOUR_US) / limits.reported_writes_per_hour.max(1);
        budget.at = budget.at.plus(i64::try_from(used_us).unwrap_or(i64::MAX)).min(now);
        if budget.spent <= refill {
            budget.at = now;
        }
        budget.spent = budget.spent.saturating_sub(refill).saturating_add(cost);
        budget.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_refilled_and_belongs_to_one_sender() {
        let limits =
            Limits { reported_writes_max: 100, reported_writes_per_hour: 60, ..Limits::default() };
        let (budgets, cluster) = (WriteBudgets::default(), ClusterId::new("slurm").unwrap());
        let at = |minutes: i64| Timestamp::YEAR_2000.plus(minutes * 60 * Timestamp::SECOND);
        let exceeds =
            |cost, cluster, minutes| budgets.is_exceeded_by(cost, cluster, &limits, at(minutes));
        assert!(!exceeds(100, None, 0) && exceeds(101, None, 0));
        budgets.spend(100, None, &limits, at(0));
        assert!(exceeds(1, None, 0) && !exceeds(100, Some(&cluster), 0));
        // Many looks within a minute neither refill nor delay the refill.
        assert!((0..60).all(|_| exceeds(1, None, 0)));
        assert!(!exceeds(10, None, 10) && exceeds(11, None, 10));
        assert!(exceeds(11, None, 0), "the clock was set back");
        assert_eq!((cost(1000, 0), cost(0, 6400), cost(0, 0)), (1002, 102, 2));
    }

    #[test]
    fn frequent_looks_lose_nothing_of_the_refill() {
        let limits = Limits {
            reported_writes_max: 1000,
            reported_writes_per_hour: 1000,
            ..Limits::default()
        };
        let budgets = WriteBudgets::default();
        let at = |ms: i64| Timestamp::YEAR_2000.plus(ms * 1000);
        budgets.spend(1000, None, &limits, at(0));
        // A node or update is refilled every 3.6 s.
        for ms in (0..1_800_000).step_by(2500) {
            budgets.spend(0, None, &limits, at(ms));
        }
        assert!(!budgets.is_exceeded_by(499, None, &limits, at(1_800_000)));
        assert!(budgets.is_exceeded_by(502, None, &limits, at(1_800_000)));
    }
}
