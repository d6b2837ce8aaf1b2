//! Throttling of sources that cost too much. The interval between readings doubles until the cost is within the
//! limit.

/// Consecutive readings above the limit before the source is throttled. A single one with a cold cache or many new
/// processes has no effect.
const READINGS_OVER: u32 = 8;
const READINGS_UNDER: u32 = 64;
/// Largest factor: a throttled source is read at least once in this number of periods.
const FACTOR_MAX: u32 = 1 << (RATES.len() - 1);
/// Descriptions of the throttled rates, by the number of halvings. They are words, because the log treats texts
/// that differ in digits alone as one repeated fault. Each step must be logged.
const RATES: [&str; 9] = [
    "as often as configured",
    "half as often",
    "a quarter as often",
    "an eighth as often",
    "a sixteenth as often",
    "a thirty-second as often",
    "a sixty-fourth as often",
    "a hundred-and-twenty-eighth as often",
    "a two-hundred-and-fifty-sixth as often",
];

/// The pace of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Interval between readings, in periods of the source.
    pub(crate) factor: u32,
    over: u32,
    under: u32,
}

/// A change of pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Slower,
    Faster,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { factor: 1, over: 0, under: 0 }
    }

    /// The rate in words.
    pub(crate) fn rate(&self) -> &'static str {
        let steps = usize::try_from(self.factor.trailing_zeros()).unwrap_or(usize::MAX);
        RATES.get(steps).copied().unwrap_or_default()
    }

    /// Whether the source is throttled.
    pub(crate) const fn is_throttled(&self) -> bool {
        self.factor > 1
    }

    /// Records the processor time of a reading. `percent` is the limit for a source with this period, in hundredths
    /// of a processor.
    pub(crate) fn reading(
        &mut self,
        cpu_us: u64,
        period_us: u64,
        percent_max: u64,
    ) -> Option<Change> {
        let may_us = period_us.saturating_mul(percent_max) / 100 * u64::from(self.factor);
        if cpu_us > may_us {
            (self.over, self.under) = (self.over + 1, 0);
            if self.over >= READINGS_OVER && self.factor < FACTOR_MAX {
                *self = Self { factor: self.factor * 2, ..Self::new() };
                return Some(Change::Slower);
            }
            return None;
        }
        self.over = 0;
        // At twice the rate the source would still need less than half of its limit.
        self.under = if cpu_us < may_us / 4 { self.under + 1 } else { 0 };
        if self.under >= READINGS_UNDER && self.factor > 1 {
            *self = Self { factor: self.factor / 2, ..Self::new() };
            return Some(Change::Faster);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_costs_too_much_is_read_more_rarely_and_then_again_as_before() {
        let mut pace = Pace::new();
        // 300 µs per millisecond, with a limit of a tenth.
        let slower =
            (0..100).filter(|_| pace.reading(300, 1000, 10) == Some(Change::Slower)).count();
        assert_eq!((slower, pace.factor), (2, 4), "300 of 4000 µs is less than a tenth");
        assert!((0..1000).all(|_| pace.reading(300, 1000, 10).is_none()));
        let faster = (0..300).filter(|_| pace.reading(5, 1000, 10) == Some(Change::Faster)).count();
        assert_eq!((faster, pace.factor), (2, 1));
        assert!((0..1000).all(|_| pace.reading(5, 1000, 10).is_none()));
    }

    #[test]
    fn a_burst_changes_nothing_and_no_source_is_forgotten() {
        let mut pace = Pace::new();
        for _ in 0..100 {
            assert!((1..READINGS_OVER).all(|_| pace.reading(900, 1000, 10).is_none()));
            assert_eq!(pace.reading(90, 1000, 10), None);
        }
        assert_eq!(pace.factor, 1);
        for _ in 0..10_000 {
            pace.reading(u64::MAX, 1000, 10);
        }
        assert_eq!(pace.factor, FACTOR_MAX);
        assert_eq!(pace.factor, 256);
        assert_eq!(pace.rate(), "a two-hundred-and-fifty-sixth as often");
    }
}
