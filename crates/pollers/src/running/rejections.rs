//! A target that rejects a user or a password. It is tried rarely: a BMC locks an account after a few attempts.

use crate::polling::Failure;
use model::Timestamp;
use std::collections::BTreeSet;

/// Waits after a rejection, which double.
const WAIT_MIN_US: i64 = 300 * Timestamp::SECOND;
const WAIT_MAX_US: i64 = 3600 * Timestamp::SECOND;

/// The rejections of a target in a row. The other descriptions wait, too, because each attempt may lock the account; those
/// that the target accepts beside the rejected ones do not.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    count: u32,
    latest: Option<Failure>,
    /// No attempt before this instant.
    until: Timestamp,
    /// Places of the descriptions that the target accepted at their latest attempts.
    accepted: BTreeSet<usize>,
    /// Places of those that it rejected.
    rejected: BTreeSet<usize>,
    /// Places of those of which there was an attempt.
    tried: BTreeSet<usize>,
    /// Whether a description may be tried for the first time during the wait: the target may accept it beside the others.
    has_first_try: bool,
}

impl Rejections {
    /// The latest rejection, while no attempt is made, except for accepted descriptions.
    pub(super) fn holding(&self, now: Timestamp) -> Option<&Failure> {
        // A clock that is set back must not prolong the wait.
        let wait_us = self.until.since(now);
        self.latest.as_ref().filter(|_| (1..=WAIT_MAX_US).contains(&wait_us))
    }

    /// Whether the target accepted the description at a place.
    pub(super) fn is_accepted(&self, place: usize) -> bool {
        self.accepted.contains(&place)
    }

    /// Whether the description at a place, of which there was no attempt, may be tried during the wait.
    pub(super) fn may_try(&self, place: usize) -> bool {
        self.has_first_try && !self.tried.contains(&place)
    }

    /// Replaces the descriptions. Each comes with its place before, if it had one.
    pub(super) fn set(&mut self, before: &[Option<usize>]) {
        let moved = |places: &BTreeSet<usize>| -> BTreeSet<usize> {
            let is_of = |before: &Option<usize>| before.is_some_and(|one| places.contains(&one));
            let all = before.iter().enumerate();
            all.filter(|(_, before)| is_of(before)).map(|(place, _)| place).collect()
        };
        (self.accepted, self.rejected) = (moved(&self.accepted), moved(&self.rejected));
        self.tried = moved(&self.tried);
    }

    /// Records an attempt: the descriptions that the target accepted, and those that it rejected, with the failure.
    pub(super) fn tried(
        &mut self,
        accepted: &[usize],
        rejected: &[(usize, &Failure)],
        now: Timestamp,
    ) {
        self.tried.extend(accepted.iter().chain(rejected.iter().map(|(place, _)| place)));
        // A description that needs no password says nothing about it.
        if accepted.iter().any(|place| self.rejected.contains(place)) {
            (self.count, self.latest) = (0, None);
            self.rejected.clear();
        }
        self.accepted.extend(accepted);
        let Some((_, failure)) = rejected.first() else { return };
        if accepted.is_empty() && self.count == 0 {
            self.accepted.clear();
        }
        self.rejected.extend(rejected.iter().map(|(place, _)| place));
        self.accepted.retain(|place| rejected.iter().all(|(rejected, _)| rejected != place));
        // One that is rejected during the wait is the last.
        self.has_first_try = self.holding(now).is_none();
        self.latest = Some((*failure).clone());
        let wait_us = WAIT_MIN_US.saturating_mul(1 << self.count.min(16));
        self.count = self.count.saturating_add(1);
        self.until = now.plus(wait_us.min(WAIT_MAX_US));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        Failure::rejected_user("wrong password")
    }

    #[test]
    fn a_rejected_password_is_tried_a_few_times_an_hour() {
        let (failure, mut attempts) = (failure(), 0);
        let mut rejections = Rejections::default();
        rejections.tried(&[0, 1], &[], Timestamp(0));
        for second in 0..3600 {
            let now = Timestamp::from_seconds(second);
            // Two descriptions with periods of their own.
            let place = usize::from(second % 2 == 1);
            if rejections.holding(now).is_none() || rejections.is_accepted(place) {
                attempts += 1;
                rejections.tried(&[], &[(place, &failure)], now);
            }
        }
        assert_eq!(attempts, 4);
        let now = Timestamp::from_seconds(3600);
        assert_eq!(rejections.holding(now), Some(&failure));
        assert_eq!(rejections.holding(now.plus(-2 * WAIT_MAX_US)), None, "the clock was set back");
        rejections.tried(&[0], &[], now);
        assert_eq!(rejections.holding(now), None);
    }

    #[test]
    fn descriptions_that_the_target_accepts_do_not_wait_for_others() {
        let (failure, now) = (failure(), Timestamp::from_seconds(7));
        let mut rejections = Rejections::default();
        rejections.tried(&[1], &[(0, &failure)], now);
        assert_eq!(rejections.holding(now), Some(&failure));
        assert!(rejections.is_accepted(1) && !rejections.is_accepted(0));
        rejections.tried(&[1, 2], &[], now);
        assert_eq!(rejections.holding(now), Some(&failure), "a new one needs no password");
        rejections.set(&[None, None, Some(1), Some(0)]);
        let accepted: Vec<_> = (0..4).filter(|place| rejections.is_accepted(*place)).collect();
        assert_eq!((rejections.holding(now), accepted), (Some(&failure), vec![2]));
    }

    #[test]
    fn a_description_that_was_never_tried_has_one_attempt_beside_a_rejected_one() {
        let (failure, mut now) = (failure(), Timestamp::from_seconds(7));
        let mut rejections = Rejections::default();
        rejections.tried(&[], &[(0, &failure)], now);
        assert!(!rejections.may_try(0) && rejections.may_try(1));
        rejections.tried(&[1], &[], now);
        assert!(rejections.is_accepted(1) && rejections.may_try(2));
        rejections.tried(&[], &[(2, &failure)], now);
        assert!(!rejections.may_try(2) && !rejections.may_try(3), "the account may be locked");
        now = now.plus(WAIT_MAX_US);
        assert_eq!(rejections.holding(now), None);
        rejections.tried(&[], &[(0, &failure)], now);
        assert!(rejections.may_try(3) && rejections.is_accepted(1));
    }
}
