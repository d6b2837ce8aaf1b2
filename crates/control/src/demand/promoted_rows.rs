//! Promotions by rows of Kwollect's table `promoted_metrics` in a database, written by people or other programs.

use super::{DemandError, DemandStore, Promotion, PromotionOrigin, count, promotions};
use model::Timestamp;
use rusqlite::params;
use std::collections::BTreeSet;

/// The requester of these promotions.
pub const PROMOTED_METRICS: &str = "promoted_metrics";
/// Part of all promotions that such rows may have: a tenth.
const PART: u64 = 10;

/// A row: a device, and a regular expression of metrics.
pub type PromotedKey = (Box<str>, Box<str>);

/// The outcome for all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FromRows {
    /// The rows whose promotions are in force.
    pub held: BTreeSet<PromotedKey>,
    /// Rows beyond the limit.
    pub left_out: u64,
    /// New and ended promotions.
    pub changes: u64,
}

impl DemandStore {
    /// Makes the promotions of origin `hand` by rows of `promoted_metrics` match the rows: adds missing ones and ends the
    /// others. The rows are valid.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn follow_rows(
        &self,
        rows: &BTreeSet<PromotedKey>,
        now: Timestamp,
    ) -> Result<FromRows, DemandError> {
        let mut done = FromRows::default();
        let mut missing: BTreeSet<&PromotedKey> = rows.iter().collect();
        let mut over = Vec::new();
        for promotion in self.held(now)?.0.promotions.iter().filter(|one| is_of_row(one)) {
            let key = (promotion.nodes.as_str().into(), promotion.metric.clone());
            if missing.remove(&key) {
                done.held.insert(key);
            } else {
                over.push(promotion.number);
            }
        }
        if over.is_empty() && missing.is_empty() {
            return Ok(done);
        }
        self.write(|change| {
            for number in &over {
                change
                    .prepare_cached("UPDATE promotions SET ended = ?2 WHERE number = ?1")?
                    .execute(params![number, now.0])?;
            }
            let most = self.limits.promotions_max;
            let free = most.saturating_sub(count(change, "promotions", now)?);
            let mut share = (most / PART).saturating_sub(done.held.len() as u64).min(free);
            for (device, metric) in &missing {
                if share == 0 {
                    done.left_out += 1;
                    continue;
                }
                share -= 1;
                promotions::insert_row(change, (device, metric), PROMOTED_METRICS, now)?;
                done.held.insert((device.clone(), metric.clone()));
                done.changes += 1;
            }
            done.changes += over.len() as u64;
            self.forget(change)?;
            Ok(())
        })?;
        Ok(done)
    }
}

/// Whether a row of `promoted_metrics` requests a promotion.
pub(crate) fn is_of_row(promotion: &Promotion) -> bool {
    promotion.origin == PromotionOrigin::Hand && &*promotion.by == PROMOTED_METRICS
}
