//! Selects the promotions that fit into a node's settings. A node rejects more promotions or bytes. Promotions of administrators come first, then users share the rest evenly, and the
//! remainder is cut.

use crate::demand::{PROMOTIONS_ON_NODE_MAX, Promotion, PromotionOrigin, is_of_row};
use model::Timestamp;
use model::setting::{PROMOTIONS_MAX, SETTINGS_BYTES_MAX};
use std::collections::{BTreeMap, VecDeque};

/// The promotions of a node that fit so far.
#[derive(Debug)]
pub(super) struct FittingPromotions<'a> {
    /// Each expression with its end; of duplicates, the later end counts.
    pub(super) listed: BTreeMap<&'a str, Timestamp>,
    /// Number of promotions that did not fit.
    pub(super) cut: usize,
    count: usize,
    bytes: usize,
}

impl<'a> FittingPromotions<'a> {
    /// Reserves the bytes and promotions of the existing settings.
    pub(super) fn after(bytes: usize, promotions: usize) -> Self {
        let (count, bytes) =
            (PROMOTIONS_MAX.saturating_sub(promotions), SETTINGS_BYTES_MAX.saturating_sub(bytes));
        Self { listed: BTreeMap::new(), cut: 0, count, bytes }
    }

    /// Adds promotions, oldest first; `ends` returns the end of each.
    pub(super) fn fill(
        &mut self,
        promotions: &[&'a Promotion],
        mut ends: impl FnMut(Option<Timestamp>) -> Timestamp,
    ) {
        let mut users: BTreeMap<Option<u32>, VecDeque<(&'a str, Timestamp)>> = BTreeMap::new();
        for promotion in promotions {
            let one = (&*promotion.metric, ends(promotion.until));
            if is_of_administrators(promotion) {
                self.take(one);
            } else {
                users.entry(promotion.uid).or_default().push_back(one);
            }
        }
        // Round robin, so that a user with many promotions does not displace a user with few.
        for _ in 0..PROMOTIONS_ON_NODE_MAX {
            for waiting in users.values_mut() {
                while let Some(one) = waiting.pop_front() {
                    // A duplicate does not use up the user's turn.
                    if !self.again(one) {
                        self.take(one);
                        break;
                    }
                }
            }
        }
        for one in users.into_values().flatten() {
            if !self.again(one) {
                self.cut += 1;
            }
        }
    }

    /// Whether an expression is already included; if so, extends it to the later end.
    fn again(&mut self, (metric, until): (&'a str, Timestamp)) -> bool {
        let Some(furthest) = self.listed.get_mut(metric) else { return false };
        *furthest = until.max(*furthest);
        true
    }

    fn take(&mut self, one: (&'a str, Timestamp)) {
        if self.again(one) {
            return;
        }
        let bytes = wire::promotion_bytes(one.0, one.1);
        if self.listed.len() >= self.count || bytes > self.bytes {
            self.cut += 1;
            return;
        }
        self.bytes -= bytes;
        self.listed.insert(one.0, one.1);
    }
}

/// Whether a promotion comes from an administrator. Its origin is a rule, a row inserted into the database
/// by hand, or an API caller without a user ID.
fn is_of_administrators(promotion: &Promotion) -> bool {
    match promotion.origin {
        PromotionOrigin::Rule => true,
        // Any user's job may request rows of that table.
        PromotionOrigin::Hand => !is_of_row(promotion),
        PromotionOrigin::Api => promotion.uid.is_none(),
        PromotionOrigin::Job => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::NodeList;

    const UNTIL: Timestamp = Timestamp::from_seconds(1_767_706_500);

    fn promotion(metric: &str, origin: PromotionOrigin, uid: Option<u32>) -> Promotion {
        Promotion {
            number: 1,
            nodes: NodeList::new("n1").unwrap(),
            metric: metric.into(),
            until: Some(UNTIL),
            made: UNTIL,
            by: "somebody".into(),
            origin,
            job: None,
            uid,
        }
    }

    fn filled<'a>(
        mut fitting_promotions: FittingPromotions<'a>,
        promotions: &'a [Promotion],
    ) -> (Vec<&'a str>, usize) {
        let all: Vec<&Promotion> = promotions.iter().collect();
        fitting_promotions.fill(&all, |until| until.unwrap_or(UNTIL));
        (fitting_promotions.listed.into_keys().collect(), fitting_promotions.cut)
    }

    #[test]
    fn large_requests_take_no_capacity_of_others() {
        let names = |of: &str, count: usize| (0..count).map(|n| format!("{of}{n:03}")).collect();
        let (greedy, words): (Vec<String>, Vec<String>) = (names("a", 100), names("b", 100));
        let mut all: Vec<_> =
            greedy.iter().map(|name| promotion(name, PromotionOrigin::Api, Some(1))).collect();
        all.extend(words.iter().map(|name| promotion(name, PromotionOrigin::Job, Some(2))));
        all.push(promotion("modest", PromotionOrigin::Api, Some(3)));
        for (name, origin) in [
            ("z", PromotionOrigin::Api),
            ("y", PromotionOrigin::Rule),
            ("x", PromotionOrigin::Hand),
        ] {
            all.push(promotion(name, origin, None));
        }
        let (listed, cut) = filled(FittingPromotions::after(0, 0), &all);
        for name in ["modest", "x", "y", "z"] {
            assert!(listed.contains(&name), "{listed:?}");
        }
        let of = |first: char| listed.iter().filter(|name| name.starts_with(first)).count();
        assert_eq!((of('a'), of('b'), cut), (16, 16, 168));
        // Users share the remaining slots.
        let (listed, cut) = filled(FittingPromotions::after(0, PROMOTIONS_MAX - 6), &all);
        assert_eq!((listed, cut), (vec!["a000", "b000", "modest", "x", "y", "z"], 198));
    }

    #[test]
    fn settings_have_the_bytes_that_a_node_accepts() {
        let long = format!("b{}", "\\".repeat(199));
        let all = [
            promotion(&long, PromotionOrigin::Api, Some(1)),
            promotion("c", PromotionOrigin::Api, Some(2)),
        ];
        let left = |bytes| filled(FittingPromotions::after(SETTINGS_BYTES_MAX - bytes, 0), &all);
        assert_eq!(left(300), (vec![&*long, "c"], 0));
        assert_eq!(left(100), (vec!["c"], 1));
        assert_eq!(left(0), (vec![], 2));
    }

    #[test]
    fn of_two_requests_for_the_same_the_later_end_counts() {
        let later = Promotion {
            until: Some(UNTIL.plus(5)),
            ..promotion("a", PromotionOrigin::Job, Some(2))
        };
        let (first, other) = (
            promotion("a", PromotionOrigin::Api, None),
            promotion("b", PromotionOrigin::Job, Some(2)),
        );
        let mut fitting_promotions = FittingPromotions::after(0, 0);
        fitting_promotions.fill(&[&first, &later, &other], |until| until.unwrap_or(UNTIL));
        let listed: Vec<_> = fitting_promotions.listed.into_iter().collect();
        assert_eq!(listed, [("a", UNTIL.plus(5)), ("b", UNTIL)]);
    }
}
