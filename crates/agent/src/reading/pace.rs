//! How often a source is read when it costs more than it may: half as often, and again, until it costs less.

/// Readings in a row that must cost too much, or little enough, before anything changes: one that met a
/// cold cache or a burst of processes changes nothing.
const READINGS_OVER: u32 = 8;
const READINGS_UNDER: u32 = 64;
/// A source is read no more rarely than once in so many periods.
const FACTOR_MAX: u32 = 1 << (RATES.len() - 1);
/// How often it is read once it is half as often so many times. In words: the log takes texts that differ in digits
/// alone for one fault that repeats, and each step is to be told.
const RATES: [&str; 9] = [
    "as often as it should be",
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
    /// It is read once in so many of its periods.
    pub(crate) factor: u32,
    over: u32,
    under: u32,
}

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Slower,
    Faster,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { factor: 1, over: 0, under: 0 }
    }

    /// How often it is read, in words.
    pub(crate) fn rate(&self) -> &'static str {
        let steps = usize::try_from(self.factor.trailing_zeros()).unwrap_or(usize::MAX);
        RATES.get(steps).copied().unwrap_or_default()
    }

    /// Whether it is read more rarely than it should be.
    pub(crate) const fn is_slowed(&self) -> bool {
        self.factor > 1
    }

    /// Takes what a reading cost in processor time, of a source with this period that may take so many
    /// hundredths of a processor.
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
        // At twice the pace it would still cost less than half of what it may.
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
        // 300 µs a millisecond, of which it may take a tenth.
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
