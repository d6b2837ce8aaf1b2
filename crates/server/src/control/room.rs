//! Which promotions a node is told: it takes so many, and so much text, and refuses all of a longer one. So what
//! administrators ask stands first, then a share for each user, and the rest is cut.

use crate::control::text::quoted;
use config::{PROMOTIONS_MAX, TEXT_BYTES_MAX};
use jobs::{Origin, Promotion};
use model::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a promotion beside its expression: the words, and the longest time.
const FRAME_BYTES: usize = 80;

/// What of a node's promotions has found room.
#[derive(Debug)]
pub(super) struct Room<'a> {
    /// Each expression with its end; of two who ask for the same, the later counts.
    pub(super) told: BTreeMap<&'a str, Timestamp>,
    /// How many found none.
    pub(super) cut: usize,
    count: usize,
    bytes: usize,
}

impl<'a> Room<'a> {
    /// What a text of so many bytes with so many promotions leaves.
    pub(super) fn after(bytes: usize, promotions: usize) -> Self {
        let (count, bytes) =
            (PROMOTIONS_MAX.saturating_sub(promotions), TEXT_BYTES_MAX.saturating_sub(bytes));
        Self { told: BTreeMap::new(), cut: 0, count, bytes }
    }

    /// Takes in promotions, the oldest first; `ends` says when each does.
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
        // In turns, so that who asks for much takes nothing from who asks for little.
        for _ in 0..jobs::PROMOTIONS_ON_NODE_MAX {
            for waiting in users.values_mut() {
                while let Some(one) = waiting.pop_front() {
                    // What is told anyway is no turn.
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

    /// Whether an expression is told already; then its later end counts.
    fn again(&mut self, (metric, until): (&'a str, Timestamp)) -> bool {
        let Some(furthest) = self.told.get_mut(metric) else { return false };
        *furthest = until.max(*furthest);
        true
    }

    fn take(&mut self, one: (&'a str, Timestamp)) {
        if self.again(one) {
            return;
        }
        let bytes = quoted(one.0).len() + FRAME_BYTES;
        if self.told.len() >= self.count || bytes > self.bytes {
            self.cut += 1;
            return;
        }
        self.bytes -= bytes;
        self.told.insert(one.0, one.1);
    }
}

/// Whether an administrator wants it: by a rule, by hand, or by asking the server as one who is no user.
fn is_of_administrators(promotion: &Promotion) -> bool {
    match promotion.origin {
        Origin::Rule | Origin::Hand => true,
        Origin::Api => promotion.uid.is_none(),
        Origin::Job => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::NodeList;

    const UNTIL: Timestamp = Timestamp::from_seconds(1_767_706_500);

    fn promotion(metric: &str, origin: Origin, uid: Option<u32>) -> Promotion {
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

    fn filled<'a>(mut room: Room<'a>, promotions: &'a [Promotion]) -> (Vec<&'a str>, usize) {
        let all: Vec<&Promotion> = promotions.iter().collect();
        room.fill(&all, |until| until.unwrap_or(UNTIL));
        (room.told.into_keys().collect(), room.cut)
    }

    #[test]
    fn who_asks_for_much_takes_no_room_of_others() {
        let names = |of: &str, count: usize| (0..count).map(|n| format!("{of}{n:03}")).collect();
        let (greedy, words): (Vec<String>, Vec<String>) = (names("a", 100), names("b", 100));
        let mut all: Vec<_> =
            greedy.iter().map(|name| promotion(name, Origin::Api, Some(1))).collect();
        all.extend(words.iter().map(|name| promotion(name, Origin::Job, Some(2))));
        all.push(promotion("modest", Origin::Api, Some(3)));
        for (name, origin) in [("z", Origin::Api), ("y", Origin::Rule), ("x", Origin::Hand)] {
            all.push(promotion(name, origin, None));
        }
        let (told, cut) = filled(Room::after(0, 0), &all);
        for name in ["modest", "x", "y", "z"] {
            assert!(told.contains(&name), "{told:?}");
        }
        let of = |first: char| told.iter().filter(|name| name.starts_with(first)).count();
        assert_eq!((of('a'), of('b'), cut), (16, 16, 168));
        // Whatever is left is shared.
        let (told, cut) = filled(Room::after(0, PROMOTIONS_MAX - 6), &all);
        assert_eq!((told, cut), (vec!["a000", "b000", "modest", "x", "y", "z"], 198));
    }

    #[test]
    fn a_text_has_the_bytes_that_a_node_takes() {
        let long = format!("b{}", "\\".repeat(199));
        let all = [promotion(&long, Origin::Api, Some(1)), promotion("c", Origin::Api, Some(2))];
        let left = |bytes| filled(Room::after(TEXT_BYTES_MAX - bytes, 0), &all);
        assert_eq!(left(1000), (vec![&*long, "c"], 0));
        assert_eq!(left(200), (vec!["c"], 1));
        assert_eq!(left(0), (vec![], 2));
    }

    #[test]
    fn of_two_who_ask_for_the_same_the_later_end_counts() {
        let later =
            Promotion { until: Some(UNTIL.plus(5)), ..promotion("a", Origin::Job, Some(2)) };
        let (first, other) =
            (promotion("a", Origin::Api, None), promotion("b", Origin::Job, Some(2)));
        let mut room = Room::after(0, 0);
        room.fill(&[&first, &later, &other], |until| until.unwrap_or(UNTIL));
        let told: Vec<_> = room.told.into_iter().collect();
        assert_eq!(told, [("a", UNTIL.plus(5)), ("b", UNTIL)]);
    }
}
