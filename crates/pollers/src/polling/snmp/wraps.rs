//! Counters of 32 bits that wrap.
//!
//! If such a counter falls, it has wrapped, or it was reset. It was reset if the agent's sysUpTime restarted. Without a
//! reset, three samples state the growth: the value beyond the wrap, NaN one microsecond later, then the counter as the
//! agent shows it. No growth is computed from or to a NaN. So the growth is exact without a state that outlives the
//! poller, and the samples are the agent's (docs/decisions/0046-counters-of-devices.md).

use async_snmp::Oid;
use model::Timestamp;
use std::collections::HashMap;

/// The range of a counter of 32 bits (RFC 2578, section 7.1.6).
const RANGE: u64 = 1 << 32;
/// Growth from one value to the next beyond which a fall counts as a reset: the number of wraps is then unknown.
const GROWTH_MAX: u64 = 1 << 31;
/// Allowed difference between the growth of sysUpTime and the time that passed, in hundredths of a second.
const DRIFT_MAX: u64 = 500;

/// The counters of an agent when they were last read.
#[derive(Debug, Default)]
pub(super) struct Wraps {
    counters: HashMap<Oid, Reading>,
}

/// A counter's value, with the sysUpTime of the same response and the instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) value: u32,
    /// In hundredths of a second.
    pub(super) uptime: u32,
    pub(super) at: Timestamp,
}

impl Wraps {
    /// Takes a counter's reading. Returns the value beyond the wrap, if it has wrapped since the reading before.
    pub(super) fn beyond_wrap(&mut self, oid: &Oid, now: Reading) -> Option<f64> {
        let before = self.counters.insert(oid.clone(), now)?;
        let passed = u64::try_from(now.at.since(before.at) / 10_000).unwrap_or(0);
        // sysUpTime itself wraps after 497 days.
        let ran = u64::from(now.uptime.wrapping_sub(before.uptime));
        let is_same_run = ran.abs_diff(passed) <= DRIFT_MAX;
        let growth = u64::from(now.value.wrapping_sub(before.value));
        let has_wrapped = now.value < before.value && is_same_run && growth <= GROWTH_MAX;
        #[expect(clippy::as_conversions, reason = "33 bits fit a double")]
        has_wrapped.then_some((RANGE + u64::from(now.value)) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Point, increase};

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * Timestamp::SECOND)
    }

    /// The growth that samples of these readings state: uptime in seconds, and value.
    fn growth(readings: &[(u32, u32)]) -> f64 {
        let (mut wraps, mut points, oid) = (Wraps::default(), Vec::new(), Oid::from_slice(&[1, 3]));
        let mut add = |at: Timestamp, value: f64| points.push(Point { at, value, start: None });
        for ((uptime, value), second) in readings.iter().zip(0..) {
            let now = at(second * 10);
            let reading = Reading { value: *value, uptime: uptime.wrapping_mul(100), at: now };
            if let Some(beyond) = wraps.beyond_wrap(&oid, reading) {
                add(now, beyond);
                add(now.plus(1), f64::NAN);
                add(now.plus(2), f64::from(*value));
            } else {
                add(now, f64::from(*value));
            }
        }
        points.windows(2).map(|two| increase(two[0], two[1]).amount).sum()
    }

    #[test]
    fn a_wrap_is_exact_and_a_reset_is_none() {
        let last = u32::MAX;
        assert_eq!(growth(&[(100, last - 9), (110, 40), (120, 90)]), 100.0, "a wrap");
        assert_eq!(growth(&[(100, last - 9), (5, 40), (15, 90)]), 90.0, "a restart of the device");
        assert_eq!(growth(&[(100, 500), (110, 40), (120, 90)]), 90.0, "a counter that was cleared");
        let day = 24 * 3600;
        let end = 497 * day;
        assert_eq!(growth(&[(end, last - 9), (end + 10, 40)]), 50.0, "sysUpTime wraps at any time");
        let near = u32::MAX / 100 - 5;
        assert_eq!(growth(&[(near, last - 9), (near.wrapping_add(10), 40)]), 50.0);
    }
}
