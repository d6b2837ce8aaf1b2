//! Bounds of a metric's possible values: sensors report sentinels, stick, and jump.
//!
//! Examples from other collectors: a first reading of 53 kW, a use of 1.4e16 %, a constant 0 W. A rejected
//! value is counted and reported as a gap; it never becomes a sample.

use model::{Metric, Timestamp};
use std::fmt;

/// Interval between reports of a series with rejected values.
const REPORT_EVERY_US: i64 = 60 * Timestamp::SECOND;

/// The power of a running machine does not stay the same, to the watt, for this long.
pub(crate) const STUCK_SECONDS: i64 = 3600;

/// The bounds of one metric's possible values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueBounds {
    /// The metric.
    pub metric: &'static Metric,
    min: f64,
    max: f64,
    never: &'static [f64],
    rate_max: f64,
    stuck_us: i64,
}

impl ValueBounds {
    /// No bounds yet.
    pub const fn of(metric: &'static Metric) -> Self {
        let (min, max) = (f64::NEG_INFINITY, f64::INFINITY);
        Self { metric, min, max, never: &[], rate_max: f64::INFINITY, stuck_us: i64::MAX }
    }

    /// Values lie within these bounds (inclusive), in the metric's unit.
    #[must_use]
    pub const fn within(mut self, min: f64, max: f64) -> Self {
        (self.min, self.max) = (min, max);
        self
    }

    /// These values mean "no value".
    #[must_use]
    pub const fn never(mut self, sentinels: &'static [f64]) -> Self {
        self.never = sentinels;
        self
    }

    /// A counter grows by at most `max` per second. If it jumps and continues from there, it was reset: its
    /// start becomes the time of the jump, so that no rate is computed across it.
    #[must_use]
    pub const fn rate(mut self, max: f64) -> Self {
        self.rate_max = max;
        self
    }

    /// Rejects the value of a sensor that reports the same value, bit by bit, for longer than this.
    #[must_use]
    pub const fn stuck(mut self, seconds: i64) -> Self {
        self.stuck_us = seconds * Timestamp::SECOND;
        self
    }
}

/// Why a value is rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Why {
    Range(f64, f64),
    Sentinel,
    Rate(f64, f64),
    Stuck(i64),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(min, max) => write!(f, "is not within {min} and {max}"),
            Self::Sentinel => f.write_str("is a sentinel for no value"),
            Self::Rate(rate, max) => {
                write!(f, "grew by {rate:.0} per second; at most {max} is possible")
            }
            Self::Stuck(us) => {
                write!(f, "has not changed for {} s", us / Timestamp::SECOND)
            }
        }
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Good,
    /// The value is good, and its counter started at this instant instead of the source's start.
    Since(Timestamp),
    /// The value is rejected. If a report is due now: the start of the gap.
    Rejected(Why, Option<Timestamp>),
}

/// Checks the values of one series.
#[derive(Debug)]
pub(crate) struct Watch {
    sane: &'static ValueBounds,
    /// The last good value.
    last: Option<(Timestamp, f64)>,
    /// When the value last changed.
    moved: Timestamp,
    /// A value that was rejected because it jumped.
    jump: Option<(Timestamp, f64)>,
    /// The jump from which the counter continued.
    since: Option<Timestamp>,
    /// Start of the gap (the last good value, else the first rejected one), and time of the last report.
    bad: Option<(Timestamp, Timestamp)>,
}

impl Watch {
    pub(crate) const fn new(sane: &'static ValueBounds) -> Self {
        Self { sane, last: None, moved: Timestamp(0), jump: None, since: None, bad: None }
    }

    /// Checks the next value.
    pub(crate) fn judge(&mut self, now: Timestamp, value: f64) -> Verdict {
        match self.why_not(now, value) {
            Some(why) => {
                let from = self.last.map_or(now, |(at, _)| at);
                let (from, reported) = self.bad.unwrap_or((from, Timestamp(i64::MIN)));
                let is_due = now.0.saturating_sub(reported.0) >= REPORT_EVERY_US;
                self.bad = Some((from, if is_due { now } else { reported }));
                Verdict::Rejected(why, is_due.then_some(from))
            }
            None => {
                if self.last.is_none_or(|(_, last)| last.to_bits() != value.to_bits()) {
                    self.moved = now;
                }
                self.last = Some((now, value));
                (self.bad, self.jump) = (None, None);
                self.since.map_or(Verdict::Good, Verdict::Since)
            }
        }
    }

    fn why_not(&mut self, now: Timestamp, value: f64) -> Option<Why> {
        let ValueBounds { min, max, never, rate_max, stuck_us, .. } = *self.sane;
        if never.contains(&value) {
            return Some(Why::Sentinel);
        }
        if !(min..=max).contains(&value) {
            return Some(Why::Range(min, max));
        }
        let (at, last) = self.last?;
        let rate = rate(at, last, now, value);
        if rate > rate_max {
            let went_on = |&(at, last): &(Timestamp, f64)| {
                last <= value && now > at && self::rate(at, last, now, value) <= rate_max
            };
            let Some((jumped, _)) = self.jump.filter(went_on) else {
                self.jump = Some((now, value));
                return Some(Why::Rate(rate, rate_max));
            };
            self.since = Some(jumped);
        }
        let stood = now.since(self.moved);
        (last.to_bits() == value.to_bits() && stood > stuck_us).then_some(Why::Stuck(stood))
    }
}

/// Growth per second between two readings.
fn rate(at: Timestamp, last: f64, now: Timestamp, value: f64) -> f64 {
    (value - last) / Timestamp(now.since(at).max(1)).seconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Unit;

    static POWER: Metric = Metric::gauge("x_power_watts", Unit::Watts, "");
    static ENERGY: Metric = Metric::counter("x_joules_total", Unit::Joules, "");
    static OF_POWER: ValueBounds =
        ValueBounds::of(&POWER).within(0.5, 10_000.0).never(&[255.0]).stuck(30);
    static OF_ENERGY: ValueBounds = ValueBounds::of(&ENERGY).rate(1000.0);

    fn at(second: i64) -> Timestamp {
        Timestamp(second * Timestamp::SECOND)
    }

    #[test]
    fn impossible_values_are_rejected_and_reported_once_a_minute() {
        let mut watch = Watch::new(&OF_POWER);
        assert_eq!(
            watch.judge(at(1), 53_000.0),
            Verdict::Rejected(Why::Range(0.5, 10_000.0), Some(at(1)))
        );
        assert_eq!(watch.judge(at(2), 0.0), Verdict::Rejected(Why::Range(0.5, 10_000.0), None));
        assert_eq!(watch.judge(at(3), 255.0), Verdict::Rejected(Why::Sentinel, None));
        assert_eq!(watch.judge(at(61), 255.0), Verdict::Rejected(Why::Sentinel, Some(at(1))));
        assert_eq!(watch.judge(at(62), 120.0), Verdict::Good);
        assert_eq!(watch.judge(at(63), 255.0), Verdict::Rejected(Why::Sentinel, Some(at(62))));
    }

    #[test]
    fn a_stuck_sensor_is_rejected_until_its_value_changes() {
        let mut watch = Watch::new(&OF_POWER);
        for second in 0..=30 {
            assert_eq!(watch.judge(at(second), 120.0), Verdict::Good, "{second}");
        }
        let Verdict::Rejected(why, Some(from)) = watch.judge(at(31), 120.0) else { panic!() };
        assert_eq!((why.to_string(), from), ("has not changed for 31 s".to_owned(), at(30)));
        assert_eq!(watch.judge(at(40), 121.0), Verdict::Good);
    }

    #[test]
    fn a_counter_that_continues_after_a_jump_starts_at_the_jump() {
        let mut watch = Watch::new(&OF_ENERGY);
        assert_eq!(watch.judge(at(0), 100.0), Verdict::Good);
        assert_eq!(watch.judge(at(1), 1100.0), Verdict::Good);
        // One wrong value, then the old course.
        assert!(matches!(watch.judge(at(2), 1e12), Verdict::Rejected(Why::Rate(..), Some(_))));
        assert_eq!(watch.judge(at(3), 3000.0), Verdict::Good);
        // A jump from which the counter continues.
        assert!(matches!(watch.judge(at(4), 9e9), Verdict::Rejected(..)));
        assert_eq!(watch.judge(at(5), 9e9 + 500.0), Verdict::Since(at(4)));
        assert_eq!(watch.judge(at(6), 9e9 + 900.0), Verdict::Since(at(4)));
        // A smaller value is left to readers: they treat it as a reset.
        assert_eq!(watch.judge(at(7), 5.0), Verdict::Since(at(4)));
    }
}
