//! How long to wait before trying again: twice as long after each failure, with a part left to chance so
//! that a thousand nodes do not come back at the same instant.

use std::time::Duration;

/// The first waiting time of a sender.
pub(crate) const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// Waiting times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    next: Duration,
    chance: u64,
}

impl Backoff {
    /// `seed`: anything that differs from node to node.
    pub(crate) const fn new(first: Duration, seed: u64) -> Self {
        Self { first, next: first, chance: seed | 1 }
    }

    /// It worked: the next failure is the first again.
    pub(crate) const fn reset(&mut self) {
        self.next = self.first;
    }

    /// It failed: how long to wait, from half of the present time to one and a half of it, or as long as
    /// the server asks for, a minute at most.
    pub(crate) fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let half = self.next / 2;
        let thousandths = u32::try_from(self.random() % 1000).unwrap_or(0);
        let wait = half + self.next * thousandths / 1000;
        self.next = (self.next * 2).min(LONGEST);
        asked.map_or(wait, |asked| wait.max(asked.min(2 * LONGEST)))
    }

    /// Xorshift (Marsaglia, "Xorshift RNGs", 2003).
    const fn random(&mut self) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_and_longer_up_to_a_limit_and_never_the_same() {
        let mut a = Backoff::new(FIRST, 7);
        let mut base = FIRST;
        for _ in 0..12 {
            let wait = a.failed(None);
            assert!(wait >= base / 2 && wait <= base * 3 / 2, "{wait:?} of {base:?}");
            base = (base * 2).min(LONGEST);
        }
        a.reset();
        assert!(a.failed(None) <= FIRST * 3 / 2);
        assert_ne!(Backoff::new(FIRST, 8).failed(None), Backoff::new(FIRST, 1 << 40).failed(None));
    }

    #[test]
    fn the_server_may_ask_for_more_and_not_for_ever() {
        let mut a = Backoff::new(FIRST, 7);
        assert_eq!(a.failed(Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(a.failed(Some(Duration::from_secs(7000))), 2 * LONGEST);
    }
}
