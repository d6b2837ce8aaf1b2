//! The promotions that a poller receives: of the devices that it reads, and of the nodes that these feed.

use super::compose::furthest;
use super::fitting_promotions::FittingPromotions;
use super::node_settings_cache::Active;
use crate::demand::Promotion;
use model::Timestamp;
use model::setting::PROMOTIONS_MAX;
use std::collections::BTreeMap;

/// Promotions of several names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedPromotions<'a> {
    /// Expression, end, and the names.
    pub listed: BTreeMap<(Box<str>, Timestamp), Vec<&'a str>>,
    /// Number of promotions that did not fit.
    pub cut: usize,
}

impl Active {
    /// Returns the promotions of each of these names, at most `most` of a name: those of administrators first, then of
    /// users in turns.
    pub fn promotions_of<'a>(
        &self,
        names: &'a [String],
        most: usize,
        now: Timestamp,
    ) -> NamedPromotions<'a> {
        let mut found = NamedPromotions::default();
        let furthest = furthest(now);
        for name in names {
            let get = |at: usize| self.held.promotions.get(at).map(|one| (one, &one.nodes));
            let mut promotions: Vec<&Promotion> = self.promotions.find(name, get);
            promotions.retain(|one| one.until.is_none_or(|until| until > now));
            let mut fitting = FittingPromotions::after(0, PROMOTIONS_MAX.saturating_sub(most));
            fitting.fill(&promotions, |until| until.map_or(furthest, |until| until.min(furthest)));
            found.cut += fitting.cut;
            for (metric, until) in fitting.listed {
                found.listed.entry((metric.into(), until)).or_default().push(name);
            }
        }
        found
    }
}
