//! The points of followers in the order of storing: no file may span one, and what follows one is kept for it.

use crate::files::point::Point;
use std::ops::Range;

/// The points that some followers have, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Points {
    /// Ordered.
    known: Vec<Point>,
    /// Any point up to this one may be one, too: the positions cannot be read.
    until: Option<Point>,
}

impl Points {
    pub(crate) fn new(mut known: Vec<Point>, until: Option<Point>) -> Self {
        known.sort_unstable();
        known.dedup();
        Self { known, until }
    }

    /// Whether no follower has a position.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.until.is_none()
    }

    /// Whether one may separate two neighbours, given by their starts: they must not become one.
    pub(crate) fn is_between(&self, before: Point, next: Point) -> bool {
        let inside = |point: &Point| before < *point && *point <= next;
        self.until.is_some_and(|until| before < until) || self.known.iter().any(inside)
    }

    /// Whether one may be at a point or before it.
    pub(crate) fn is_before(&self, point: Point) -> bool {
        self.until.is_some() || self.known.first().is_some_and(|first| *first <= point)
    }

    /// The known ones within a range, its start excluded; ordered.
    pub(crate) fn within(&self, range: &Range<Point>) -> Vec<Point> {
        let inside = |point: &&Point| range.start < **point && **point < range.end;
        self.known.iter().filter(inside).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_points_separate_all_neighbours_up_to_the_end_of_the_log_at_the_start() {
        let [one, two, three, four] = [1, 2, 3, 4].map(Point::of_segment);
        let known = Points::new(vec![three, one, three], None);
        assert!(known.is_between(two, three) && !known.is_between(one, two));
        assert!(!known.is_between(three, four) && known.is_before(one));
        assert!(!known.is_before(Point::START));
        assert_eq!(known.within(&(one..four)), [three]);
        let unknown = Points::new(Vec::new(), Some(three));
        assert!(unknown.is_between(one, two) && unknown.is_between(two, four));
        assert!(!unknown.is_between(three, four) && unknown.is_before(Point::START));
        assert!(unknown.within(&(one..four)).is_empty() && !unknown.is_empty());
        assert!(Points::default().is_empty() && !Points::default().is_before(four));
    }
}
