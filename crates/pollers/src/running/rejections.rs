//! A target that rejects a user or a password. It is tried rarely: a BMC locks an account after a few attempts.

use crate::polling::Failure;
use model::Timestamp;

/// Waits after a rejection, which double.
const WAIT_MIN_US: i64 = 300 * Timestamp::SECOND;
const WAIT_MAX_US: i64 = 3600 * Timestamp::SECOND;

/// The rejections of a target in a row.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    count: u32,
    latest: Option<Failure>,
    /// No attempt before this instant.
    until: Timestamp,
}

impl Rejections {
    /// The latest rejection, while no attempt is made.
    pub(super) fn holding(&self, now: Timestamp) -> Option<&Failure> {
        // A clock that is set back must not prolong the wait.
        let wait_us = self.until.since(now);
        self.latest.as_ref().filter(|_| (1..=WAIT_MAX_US).contains(&wait_us))
    }

    /// Records an attempt: the failure of a target that rejected it.
    pub(super) fn tried(&mut self, rejection: Option<&Failure>, now: Timestamp) {
        self.latest = rejection.cloned();
        if rejection.is_none() {
            self.count = 0;
            return;
        }
        let wait_us = WAIT_MIN_US.saturating_mul(1 << self.count.min(16));
        self.count = self.count.saturating_add(1);
        self.until = now.plus(wait_us.min(WAIT_MAX_US));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Cause;

    #[test]
    fn a_rejected_password_is_tried_a_few_times_an_hour() {
        let failure = Failure { cause: Cause::PermissionLost, what: "wrong password".into() };
        let (mut rejections, mut attempts) = (Rejections::default(), 0);
        for second in 0..3600 {
            let now = Timestamp::from_seconds(second);
            if rejections.holding(now).is_none() {
                attempts += 1;
                rejections.tried(Some(&failure), now);
            }
        }
        assert_eq!(attempts, 4);
        let now = Timestamp::from_seconds(3600);
        assert_eq!(rejections.holding(now), Some(&failure));
        assert_eq!(rejections.holding(now.plus(-2 * WAIT_MAX_US)), None, "the clock was set back");
        rejections.tried(None, now);
        assert_eq!(rejections.holding(now), None);
    }
}
