//! What a true value of a metric cannot be: sensors answer with sentinels, stick, and jump.
//!
//! Told of other collectors: a first reading of 53 kW, a use of 1.4e16 %, 0 W for ever. A value that is
//! refused here is counted and told as a gap; it never becomes a sample.

use model::{Metric, Timestamp};
use std::fmt;

/// How often a series whose values go on being refused is told of.
const TOLD_EVERY_US: i64 = 60 * Timestamp::SECOND;

/// No power of a machine that runs stays the same, to the watt, for so long.
pub(crate) const STUCK_SECONDS: i64 = 3600;

/// The bounds of one metric's true values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sane {
    /// Of which.
    pub metric: &'static Metric,
    min: f64,
    max: f64,
    never: &'static [f64],
    rate_max: f64,
    stuck_us: i64,
}

impl Sane {
    /// No bounds yet.
    pub const fn of(metric: &'static Metric) -> Self {
        let (min, max) = (f64::NEG_INFINITY, f64::INFINITY);
        Self { metric, min, max, never: &[], rate_max: f64::INFINITY, stuck_us: i64::MAX }
    }

    /// Values lie between these, bounds inclusive, in the metric's unit.
    #[must_use]
    pub const fn within(mut self, min: f64, max: f64) -> Self {
        (self.min, self.max) = (min, max);
        self
    }

    /// These stand for "no value".
    #[must_use]
    pub const fn never(mut self, sentinels: &'static [f64]) -> Self {
        self.never = sentinels;
        self
    }

    /// A counter grows no faster, per second. One that jumps and goes on from there began anew: its
    /// start is the jump, so that no rate is ever computed across it.
    #[must_use]
    pub const fn rate(mut self, max: f64) -> Self {
        self.rate_max = max;
        self
    }

    /// A sensor that tells the same value, bit by bit, for longer than this tells nothing.
    #[must_use]
    pub const fn stuck(mut self, seconds: i64) -> Self {
        self.stuck_us = seconds * Timestamp::SECOND;
        self
    }
}

/// Why a value is refused.
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
            Self::Sentinel => f.write_str("stands for no value"),
            Self::Rate(rate, max) => {
                write!(f, "grew by {rate:.0} a second, at most {max} are possible")
            }
            Self::Stuck(us) => {
                write!(f, "has not moved for {} s", us / Timestamp::SECOND)
            }
        }
    }
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Good,
    /// It counts since this instant, whatever the source says.
    Since(Timestamp),
    /// It is refused; if it is to be told now, since when there is no good value.
    Refused(Why, Option<Timestamp>),
}

/// Watches one series.
#[derive(Debug)]
pub(crate) struct Watch {
    sane: &'static Sane,
    /// The last good value.
    last: Option<(Timestamp, f64)>,
    /// When it became what it is.
    moved: Timestamp,
    /// A value that was refused because it jumped.
    jump: Option<(Timestamp, f64)>,
    /// A jump from which the counter went on.
    since: Option<Timestamp>,
    /// The last good value's instant, or that of the first that was refused; and when it was told.
    bad: Option<(Timestamp, Timestamp)>,
}

impl Watch {
    pub(crate) const fn new(sane: &'static Sane) -> Self {
        Self { sane, last: None, moved: Timestamp(0), jump: None, since: None, bad: None }
    }

    /// Judges the next value.
    pub(crate) fn judge(&mut self, now: Timestamp, value: f64) -> Verdict {
        match self.why_not(now, value) {
            Some(why) => {
                let from = self.last.map_or(now, |(at, _)| at);
                let (from, told) = self.bad.unwrap_or((from, Timestamp(i64::MIN)));
                let tell = now.0.saturating_sub(told.0) >= TOLD_EVERY_US;
                self.bad = Some((from, if tell { now } else { told }));
                Verdict::Refused(why, tell.then_some(from))
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
        let Sane { min, max, never, rate_max, stuck_us, .. } = *self.sane;
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

/// Growth a second between two readings.
fn rate(at: Timestamp, last: f64, now: Timestamp, value: f64) -> f64 {
    (value - last) / Timestamp(now.since(at).max(1)).seconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Unit;

    static POWER: Metric = Metric::gauge("x_power_watts", Unit::Watts, "");
    static ENERGY: Metric = Metric::counter("x_joules_total", Unit::Joules, "");
    static OF_POWER: Sane = Sane::of(&POWER).within(0.5, 10_000.0).never(&[255.0]).stuck(30);
    static OF_ENERGY: Sane = Sane::of(&ENERGY).rate(1000.0);

    fn at(second: i64) -> Timestamp {
        Timestamp(second * Timestamp::SECOND)
    }

    #[test]
    fn what_no_sensor_means_is_refused_and_told_once_a_minute() {
        let mut watch = Watch::new(&OF_POWER);
        assert_eq!(
            watch.judge(at(1), 53_000.0),
            Verdict::Refused(Why::Range(0.5, 10_000.0), Some(at(1)))
        );
        assert_eq!(watch.judge(at(2), 0.0), Verdict::Refused(Why::Range(0.5, 10_000.0), None));
        assert_eq!(watch.judge(at(3), 255.0), Verdict::Refused(Why::Sentinel, None));
        assert_eq!(watch.judge(at(61), 255.0), Verdict::Refused(Why::Sentinel, Some(at(1))));
        assert_eq!(watch.judge(at(62), 120.0), Verdict::Good);
        assert_eq!(watch.judge(at(63), 255.0), Verdict::Refused(Why::Sentinel, Some(at(62))));
    }

    #[test]
    fn a_sensor_that_sticks_tells_nothing_until_it_moves() {
        let mut watch = Watch::new(&OF_POWER);
        for second in 0..=30 {
            assert_eq!(watch.judge(at(second), 120.0), Verdict::Good, "{second}");
        }
        let Verdict::Refused(why, Some(from)) = watch.judge(at(31), 120.0) else { panic!() };
        assert_eq!((why.to_string(), from), ("has not moved for 31 s".to_owned(), at(30)));
        assert_eq!(watch.judge(at(40), 121.0), Verdict::Good);
    }

    #[test]
    fn a_counter_that_jumps_begins_anew_where_it_goes_on() {
        let mut watch = Watch::new(&OF_ENERGY);
        assert_eq!(watch.judge(at(0), 100.0), Verdict::Good);
        assert_eq!(watch.judge(at(1), 1100.0), Verdict::Good);
        // One wild value, and back.
        assert!(matches!(watch.judge(at(2), 1e12), Verdict::Refused(Why::Rate(..), Some(_))));
        assert_eq!(watch.judge(at(3), 3000.0), Verdict::Good);
        // A jump that stays.
        assert!(matches!(watch.judge(at(4), 9e9), Verdict::Refused(..)));
        assert_eq!(watch.judge(at(5), 9e9 + 500.0), Verdict::Since(at(4)));
        assert_eq!(watch.judge(at(6), 9e9 + 900.0), Verdict::Since(at(4)));
        // Smaller values are the reader's: a counter that is smaller began anew.
        assert_eq!(watch.judge(at(7), 5.0), Verdict::Since(at(4)));
    }
}
