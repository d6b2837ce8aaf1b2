//! Delays between retries. The delay doubles after each failure, with a random part so that 1000 nodes do not retry
//! at the same instant.

use std::time::Duration;

/// First delay of a sender.
pub(crate) const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// Delays between retries.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    chance: u64,
}

impl Backoff {
    /// Creates the delays. `seed` is any number that differs between nodes.
    pub const fn new(first: Duration, seed: u64) -> Self {
        Self { first, next: first, chance: seed | 1 }
    }

    /// Resets the delay after a success.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }

    /// Returns the delay after a failure. It is 0.5 to 1.5 times the current delay, or the delay that the server
    /// requests, at most 60 s.
    pub fn failed(&mut self, retry_after: Option<Duration>) -> Duration {
        let half = self.next / 2;
        let thousandths = u32::try_from(self.random() % 1000).unwrap_or(0);
        let wait = half + self.next * thousandths / 1000;
        self.next = (self.next * 2).min(LONGEST);
        retry_after.map_or(wait, |retry_after| wait.max(retry_after.min(2 * LONGEST)))
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
    fn the_server_may_request_a_longer_wait_within_a_limit() {
        let mut a = Backoff::new(FIRST, 7);
        assert_eq!(a.failed(Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(a.failed(Some(Duration::from_secs(7000))), 2 * LONGEST);
    }
}
