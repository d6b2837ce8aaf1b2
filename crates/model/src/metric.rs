//! Definition of a metric: name, unit, kind, help.

use crate::text::printable::{is_unprintable, printable};
use std::borrow::Cow;

/// Longest metric name, in bytes.
pub const METRIC_NAME_BYTES_MAX: usize = 200;

/// The end of the name of a counter.
const TOTAL: &str = "_total";

/// Units by words of names: those of ours, and the forms that other programs use.
const UNIT_WORDS: [(&str, Unit); 17] = [
    ("ratio", Unit::Ratio),
    ("seconds", Unit::Seconds),
    ("second", Unit::Seconds),
    ("bytes", Unit::Bytes),
    ("byte", Unit::Bytes),
    ("joules", Unit::Joules),
    ("joule", Unit::Joules),
    ("watts", Unit::Watts),
    ("watt", Unit::Watts),
    ("celsius", Unit::Celsius),
    ("hertz", Unit::Hertz),
    ("volts", Unit::Volts),
    ("volt", Unit::Volts),
    ("amperes", Unit::Amperes),
    ("ampere", Unit::Amperes),
    ("amps", Unit::Amperes),
    ("amp", Unit::Amperes),
];

/// Unit of a metric, always a base unit: bytes, not kilobytes; joules, not microjoules. A source converts
/// where it reads the kernel, so that no reader has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// A plain count, which has no word: `process_threads`, `cgroup_page_faults_total`.
    Count,
    /// A share; 1 is the whole.
    Ratio,
    /// Time.
    Seconds,
    /// Information.
    Bytes,
    /// Space used over time, as the kernel's accumulated resident set: byte-seconds.
    ByteSeconds,
    /// Energy.
    Joules,
    /// Power.
    Watts,
    /// Temperature.
    Celsius,
    /// Frequency.
    Hertz,
    /// Voltage.
    Volts,
    /// Current.
    Amperes,
}

impl Unit {
    /// Every unit, in the order of the wire's numbers.
    pub const ALL: [Self; 11] = [
        Self::Count,
        Self::Ratio,
        Self::Seconds,
        Self::Bytes,
        Self::ByteSeconds,
        Self::Joules,
        Self::Watts,
        Self::Celsius,
        Self::Hertz,
        Self::Volts,
        Self::Amperes,
    ];

    /// The word that a metric's name carries, such as `joules` in `rapl_joules_total`; empty for a
    /// plain count.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Ratio => "ratio",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::ByteSeconds => "byte_seconds",
            Self::Joules => "joules",
            Self::Watts => "watts",
            Self::Celsius => "celsius",
            Self::Hertz => "hertz",
            Self::Volts => "volts",
            Self::Amperes => "amperes",
        }
    }

    /// The unit with this word; `count` and the empty word are the plain count.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = if word == "count" { "" } else { word };
        Self::ALL.into_iter().find(|unit| unit.word() == word)
    }

    /// The unit that a name states, by its last word that is one. A word of another scale stands before its unit
    /// (`milli_volts`) and makes it a plain count, because values are not converted.
    pub fn of_name(name: &str) -> Self {
        const SCALES: [&str; 9] =
            ["milli", "micro", "nano", "kilo", "mega", "giga", "kibi", "mebi", "gibi"];
        let name = name.strip_suffix(TOTAL).unwrap_or(name);
        let words: Vec<&str> = name.split('_').collect();
        let known =
            |word: &str| UNIT_WORDS.iter().find(|(known, _)| *known == word).map(|(_, unit)| *unit);
        let Some((place, unit)) =
            words.iter().enumerate().rev().find_map(|(place, word)| Some((place, known(word)?)))
        else {
            return Self::Count;
        };
        let before = place.checked_sub(1).and_then(|before| words.get(before));
        match before {
            Some(scale) if SCALES.contains(scale) => Self::Count,
            Some(&"byte" | &"bytes") if unit == Self::Seconds => Self::ByteSeconds,
            _ => unit,
        }
    }
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// May rise and fall; each value stands alone.
    Gauge,
    /// Only grows since the start in its samples; rates are computed at query time.
    Counter,
}

impl Kind {
    /// `gauge` or `counter`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }

    /// The kind that a name states: `_total` at its end is a counter.
    pub fn of_name(name: &str) -> Self {
        if name.ends_with(TOTAL) { Self::Counter } else { Self::Gauge }
    }
}

/// The definition of a metric: the only place with its name, unit and help.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    /// Unique name, `<source>_<what>_<unit word>[_total]`.
    pub name: Cow<'static, str>,
    /// Unit of every sample.
    pub unit: Unit,
    /// Gauge or counter.
    pub kind: Kind,
    /// One sentence for the user, shown in plots and in the generated manual.
    pub help: Cow<'static, str>,
    /// Steps per unit: 1 000 000 if the kernel counts microseconds. A value that is a whole number of steps
    /// is sent and stored as that number; dividing it restores the value bit by bit.
    pub divisor: u32,
    /// Unit and kind are a guess from the name or an exposition. They yield to declared ones (decision 0039).
    pub assumed: bool,
}

/// Why a metric's definition is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// Empty, too long, with a space at an end, or with a character that lists, quotes or terminals interpret.
    #[error(
        "`{0}` is no metric name: 1 to {METRIC_NAME_BYTES_MAX} bytes of printable characters, without commas, stars, quotes, \
         backslashes, and spaces at its ends"
    )]
    Name(String),
    /// A divisor of 0.
    #[error("metric {0} has the divisor 0; it counts steps in one unit, 1 or more")]
    Divisor(String),
}

impl Metric {
    /// A counter defined at compile time.
    pub const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, unit, Kind::Counter, help)
    }

    /// A gauge defined at compile time.
    pub const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, unit, Kind::Gauge, help)
    }

    const fn new(name: &'static str, unit: Unit, kind: Kind, help: &'static str) -> Self {
        let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
        Self { name, unit, kind, help, divisor: 1, assumed: false }
    }

    /// Whether pollers report a metric of this name about their polls. Its samples have the instants of the poller.
    pub fn is_of_polls(name: &str) -> bool {
        name.starts_with("poll_")
    }

    /// Whether the program's feeds report a metric of this name about wattmeters.
    pub fn is_of_feeds(name: &str) -> bool {
        name.starts_with("wattmetre_")
    }

    /// A metric with the meaning that its name states (decision 0039).
    ///
    /// # Errors
    /// It is no name of a metric.
    pub fn assumed(name: &str) -> Result<Self, MetricError> {
        Self::check_name(name)?;
        let (unit, kind) = (Unit::of_name(name), Kind::of_name(name));
        let name = Cow::Owned(name.to_owned());
        Ok(Self { name, unit, kind, help: "".into(), divisor: 1, assumed: true })
    }

    /// The same metric with this number of steps per unit.
    #[must_use]
    pub const fn steps(mut self, divisor: u32) -> Self {
        self.divisor = divisor;
        self
    }

    /// Whether a text can be the name of a metric.
    ///
    /// # Errors
    /// It is empty, too long, or contains an invalid character.
    pub fn check_name(name: &str) -> Result<(), MetricError> {
        // A name is in lists with commas, and quoted in SQL, JSON and expositions. A star would be taken for a pattern.
        let is_bad = |c: char| {
            is_unprintable(c)
                || matches!(c, ',' | '*' | '"' | '\'' | '`' | '\\')
                || (c.is_whitespace() && c != ' ')
        };
        let length = 1..=METRIC_NAME_BYTES_MAX;
        if !length.contains(&name.len()) || name.contains(is_bad) || name.trim() != name {
            let start: String = name.chars().take(80).collect();
            return Err(MetricError::Name(printable(&start).into_owned()));
        }
        Ok(())
    }

    /// Checks a definition from outside of the program.
    ///
    /// # Errors
    /// The name or the divisor is out of bounds.
    pub fn check(&self) -> Result<(), MetricError> {
        Self::check_name(&self.name)?;
        if self.divisor == 0 {
            return Err(MetricError::Divisor(self.name.to_string()));
        }
        Ok(())
    }

    /// The value as a whole number of steps, if dividing that number restores the value bit by bit.
    ///
    /// Divides and never multiplies by `1e-6`, which would be wrong in the last bit for a third of all values.
    pub fn to_steps(&self, value: f64) -> Option<i64> {
        to_steps(value, self.divisor)
    }

    /// The value of a whole number of steps.
    pub fn from_steps(&self, steps: i64) -> f64 {
        steps as f64 / f64::from(self.divisor)
    }
}

/// Largest number of steps that a double holds exactly.
const STEPS_MAX: f64 = 9_007_199_254_740_992.0;

fn to_steps(value: f64, divisor: u32) -> Option<i64> {
    let scaled = (value * f64::from(divisor)).round();
    if !(-STEPS_MAX..=STEPS_MAX).contains(&scaled) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53, checked above")]
    let steps = scaled as i64;
    ((steps as f64 / f64::from(divisor)).to_bits() == value.to_bits()).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_steps_and_others() {
        let seconds = Metric::counter("cpu_seconds_total", Unit::Seconds, "").steps(1_000_000);
        assert_eq!(seconds.to_steps(8.537362), Some(8_537_362));
        assert_eq!(seconds.from_steps(8_537_362), 8.537362);
        for value in [f64::NAN, f64::INFINITY, -0.0, 1e300, 0.1234567] {
            assert_eq!(seconds.to_steps(value), None, "{value}");
        }
    }

    #[test]
    fn names_are_checked() {
        let named = |name: &'static str| Metric::gauge(name, Unit::Count, "").check();
        assert!(named("wattmetre_power_watt").is_ok());
        for name in
            ["outlet power", "node:cpu/load.1-m", "prom_my metric ü", "P(L1) [W]", "消費電力"]
        {
            assert!(named(name).is_ok(), "{name}");
        }
        for name in ["", " a", "a ", "a,b", "a\"b", "a'b", "a\\b", "a\nb", "a\u{a0}b", "a\u{200b}"]
        {
            assert!(named(name).is_err(), "{name:?}");
        }
        assert!(Metric::check_name(&"ü".repeat(METRIC_NAME_BYTES_MAX / 2)).is_ok());
        assert!(Metric::check_name(&"ü".repeat(METRIC_NAME_BYTES_MAX / 2 + 1)).is_err());
        assert!(Metric::gauge("a", Unit::Count, "").steps(0).check().is_err());
    }

    #[test]
    fn unit_words_round_trip() {
        for unit in Unit::ALL {
            assert_eq!(Unit::from_word(unit.word()), Some(unit));
        }
        assert_eq!(Unit::from_word("furlongs"), None);
    }

    proptest! {
        #[test]
        fn steps_round_trip(steps in -(1_i64 << 53)..(1 << 53), divisor in 1_u32..) {
            let metric = Metric::gauge("x", Unit::Count, "").steps(divisor);
            let value = metric.from_steps(steps);
            // -0.0 and values near 2^53/divisor may not be whole steps, but never change.
            if let Some(back) = metric.to_steps(value) {
                prop_assert_eq!(metric.from_steps(back).to_bits(), value.to_bits());
            }
        }

        #[test]
        fn microseconds_always_are_steps(micros in 0_i64..(1 << 50)) {
            let metric = Metric::gauge("x", Unit::Seconds, "").steps(1_000_000);
            prop_assert_eq!(metric.to_steps(micros as f64 / 1e6), Some(micros));
        }
    }
}
