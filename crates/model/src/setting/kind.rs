//! Types and notation of settings and options: the same for files, flags and sources.

use crate::nearest;
use std::time::Duration;

/// One option of a source.
#[derive(Debug)]
pub struct OptionSpec {
    /// Key in `[sources.NAME]`, units last: `budget_ms`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its default, as text.
    pub default: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
}

/// Type of a setting's value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number within bounds.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A time such as `30s`, within bounds.
    Duration {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
    },
    /// A size such as `64MiB`, within bounds.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A text; the word stands for it in the manual: `FILE`, `URL`.
    Text(&'static str),
    /// A text with a check, which returns the error.
    TextOf(&'static str, fn(&str) -> Result<(), String>),
    /// A list of texts, separated by commas where only one text can be given.
    List(&'static str),
    /// Such a list with a check of its words; the check receives the whole list as one text.
    ListOf(&'static str, fn(&str) -> Result<(), String>),
    /// A program with its path from `/`, and its arguments: a list of words that are not interpreted, and
    /// that only a program's own file may set. As one text, each word ends with a zero byte.
    Command(&'static str),
}

/// Terminates each word of a command in one text: no argument of a program can contain it.
pub const WORD_END: char = '\0';

impl Kind {
    /// Checks a text.
    ///
    /// # Errors
    /// A description of valid values.
    pub fn check(self, text: &str) -> Result<(), String> {
        let ok = match self {
            Self::Switch => matches!(text, "true" | "false"),
            Self::Number { min, max } => text.parse().is_ok_and(|n: u64| (min..=max).contains(&n)),
            Self::Duration { min, max } => match parse_duration(text) {
                None => return Err(duration_format(text)),
                Some(duration) => (min..=max).contains(&duration),
            },
            Self::Bytes { min, max } => match parse_bytes(text) {
                None => return Err(bytes_format(text)),
                Some(bytes) => (min..=max).contains(&bytes),
            },
            Self::Choice(words) => {
                return match words.contains(&text) {
                    true => Ok(()),
                    false => Err(self.wants() + &suggestion(text, words)),
                };
            }
            Self::Text(_) | Self::List(_) => true,
            Self::TextOf(_, check) | Self::ListOf(_, check) => return check(text),
            Self::Command(_) => text.is_empty() || text.starts_with('/'),
        };
        if ok { Ok(()) } else { Err(self.wants()) }
    }

    /// Description of valid values.
    pub fn wants(self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Number { min, max: u64::MAX } => format!("a whole number, {min} or more"),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Duration { min, max } => {
                format!("a time from {} to {}", show_duration(min), show_duration(max))
            }
            Self::Bytes { min, max } => {
                format!("a size from {} to {}", show_bytes(min), show_bytes(max))
            }
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Text(word) | Self::TextOf(word, _) => word.to_owned(),
            Self::List(word) | Self::ListOf(word, _) => format!("a list of {word}"),
            Self::Command(word) => format!("the absolute path of a program, then each {word}"),
        }
    }

    /// Whether it is a list.
    pub const fn is_list(self) -> bool {
        matches!(self, Self::List(_) | Self::ListOf(..))
    }

    /// Whether an entry of the list may contain a comma: a path or an expression.
    pub fn has_commas(self) -> bool {
        self.is_list() && matches!(self.word(), "DIR" | "PATTERN" | "CLUSTER:PATTERN")
    }

    /// The word that stands for the value in the manual.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Switch => "true|false",
            Self::Number { .. } => "N",
            Self::Duration { .. } => "TIME",
            Self::Bytes { .. } => "SIZE",
            Self::Choice(_) => "WORD",
            Self::Text(word)
            | Self::TextOf(word, _)
            | Self::List(word)
            | Self::ListOf(word, _)
            | Self::Command(word) => word,
        }
    }
}

/// Suggests the closest known word.
fn suggestion(text: &str, words: &[&'static str]) -> String {
    let near = nearest(text, words.iter().copied());
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// The words of a list in one text, separated by commas.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Parses `500us`, `500ms`, `30s`, `2m`, `1h`, `7d` or their sum, such as `1h30m`; a plain number is seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum, mut smallest) = (text, 0_u64, u64::MAX);
    loop {
        let (number, tail) = leading_number(rest)?;
        let split = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(split)?;
        let micros = match unit.trim() {
            "us" | "µs" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "" if rest.len() == text.len() => 1_000_000,
            "m" | "min" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => return None,
        };
        // In a sum, each unit is smaller than the previous one.
        if micros >= smallest {
            return None;
        }
        sum = sum.checked_add(number.checked_mul(micros)?)?;
        if tail.is_empty() {
            return Some(Duration::from_micros(sum));
        }
        (rest, smallest) = (tail, micros);
    }
}

/// Parses `512KiB` or `512K`, `64MiB`, `1GiB` or `2TiB`, all powers of 1024; a plain number is bytes.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text)?;
    let bytes = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(bytes)
}

/// The format of durations, with the valid text for a fraction or an unknown unit.
pub fn duration_format(text: &str) -> String {
    let units = [
        (&["us", "µs"][..], 1),
        (&["ms"], 1_000),
        (&["", "s", "sec", "second", "seconds"], 1_000_000),
        (&["m", "min", "minute", "minutes"], 60_000_000),
        (&["h", "hour", "hours"], 3_600_000_000),
        (&["d", "day", "days"], 86_400_000_000),
        (&["w", "week", "weeks"], 604_800_000_000),
    ];
    let format = "a time such as 500ms, 30s, 2m or 7d";
    match whole(text, &units) {
        Some(micros) => format!("{format}; write {}", show_duration(Duration::from_micros(micros))),
        None => format.to_owned(),
    }
}

/// The format of sizes, with the valid text for a fraction or an unknown unit.
pub fn bytes_format(text: &str) -> String {
    let units = [
        (&["", "b", "byte", "bytes"][..], 1),
        (&["k", "kb", "kib"], 1 << 10),
        (&["m", "mb", "mib"], 1 << 20),
        (&["g", "gb", "gib"], 1 << 30),
        (&["t", "tb", "tib"], 1 << 40),
    ];
    let format = "a size such as 512KiB, 64MiB or 1GiB, in powers of 1024 (10G is 10GiB)";
    match whole(text, &units) {
        Some(bytes) => format!("{format}; write {}", show_bytes(bytes)),
        None => format.to_owned(),
    }
}

/// The value of `1.5s` in the smallest unit, if it is whole. Units match in any case.
fn whole(text: &str, units: &[(&[&str], u64)]) -> Option<u64> {
    let (number, rest) = leading_number(text)?;
    let (fraction, unit) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at_checked(rest.bytes().take_while(u8::is_ascii_digit).count())?,
        None => ("", rest),
    };
    let unit = unit.trim().to_lowercase();
    let size = units.iter().find(|(names, _)| names.contains(&&*unit))?.1;
    let tenths = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = match fraction {
        "" => 0,
        digits => digits.parse::<u64>().ok()?.checked_mul(size)?,
    };
    let is_whole = part.is_multiple_of(tenths);
    is_whole.then(|| number.checked_mul(size)?.checked_add(part / tenths))?
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(split)?;
    Some((digits.parse().ok()?, rest))
}

/// The shortest text that [`parse_duration`] reads back.
pub fn show_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let units = [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)];
    for (unit, size) in units.into_iter().chain([("ms", 1_000)]) {
        if micros > 0 && micros.is_multiple_of(size) {
            return format!("{}{unit}", micros / size);
        }
    }
    format!("{micros}us")
}

/// The shortest text that [`parse_bytes`] reads back.
pub fn show_bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, bits) in units {
        if bytes > 0 && bytes.trailing_zeros() >= bits {
            return format!("{}{unit}", bytes >> bits);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_describe_valid_values() {
        let day = Duration::from_secs(86_400);
        let period = Kind::Duration { min: Duration::from_millis(1), max: day };
        assert_eq!(period.check("5s"), Ok(()));
        assert_eq!(period.check("2d"), Err("a time from 1ms to 1d".to_owned()));
        let number = Kind::Number { min: 1, max: 9 };
        assert_eq!(number.check("0"), Err("a whole number from 1 to 9".to_owned()));
        let choice = Kind::Choice(&["watts", "joules"]);
        assert_eq!(choice.check("volts"), Err("one of watts, joules".to_owned()));
        let near = "one of watts, joules; did you mean `watts`?";
        assert_eq!(choice.check("wats"), Err(near.to_owned()));
        let none_is_long = |text: &str| match text.len() {
            ..4 => Ok(()),
            _ => Err("it is long".to_owned()),
        };
        let text = Kind::TextOf("WORD", none_is_long);
        assert_eq!((text.check("a"), text.check("long")), (Ok(()), Err("it is long".to_owned())));
        assert!(Kind::Switch.check("yes").is_err());
        assert!(Kind::Bytes { min: 1, max: 8 }.check("1KiB").is_err());
        assert!(Kind::Command("WORD").check("/bin/a\0b\0").is_ok());
        assert!(Kind::Command("WORD").check("a\0").is_err());
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        assert_eq!(parse_duration("7"), Some(Duration::from_secs(7)));
        assert_eq!(parse_duration("7 d"), Some(Duration::from_secs(604_800)));
        assert_eq!(parse_duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_duration("1 d 2 h"), parse_duration("26h"));
        assert_eq!(parse_duration("1d2h3m4s5ms6us"), Some(Duration::from_micros(93_784_005_006)));
        assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_bytes("8G"), parse_bytes("8GiB"));
        assert_eq!((parse_bytes("512K"), parse_bytes("1T")), (Some(512 << 10), Some(1 << 40)));
        for text in [
            "",
            "s",
            "1w",
            "-1s",
            "1.5s",
            "99999999999999999999s",
            "213503982334601d",
            "30m1h",
            "1h1h",
            "1h30",
            "30m1",
            "1hm",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        for text in ["1MB", "GiB", "99999999999TiB", "1 GiB x"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_wrong_format_is_not_out_of_range() {
        let day = Duration::from_secs(86_400);
        let period = Kind::Duration { min: Duration::from_millis(1), max: day };
        for (text, valid) in
            [("1.5s", "1500ms"), ("1w", "7d"), ("2 hours", "2h"), ("0.25", "250ms"), ("5S", "5s")]
        {
            let error = period.check(text).unwrap_err();
            assert!(error.starts_with("a time such as 500ms, "), "{text}: {error}");
            assert!(error.ends_with(&format!("; write {valid}")), "{text}: {error}");
        }
        let size = Kind::Bytes { min: 1, max: 1 << 40 };
        for (text, valid) in [("10GB", "10GiB"), ("1.5GiB", "1536MiB"), ("5 kB", "5KiB")] {
            let error = size.check(text).unwrap_err();
            assert!(error.contains("powers of 1024"), "{text}: {error}");
            assert!(error.ends_with(&format!("; write {valid}")), "{text}: {error}");
        }
        for text in ["soon", "1.3us", "1fortnight", "1.", "99999999999999999999.5s", ""] {
            let error = period.check(text).unwrap_err();
            assert!(text == "1." || error.ends_with("30s, 2m or 7d"), "{text}: {error}");
        }
        assert_eq!(period.check("2d"), Err("a time from 1ms to 1d".to_owned()));
    }

    proptest! {
        #[test]
        fn shown_and_read_back(n in 0_u64..1 << 50) {
            let duration = Duration::from_micros(n);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
            prop_assert_eq!(parse_bytes(&show_bytes(n)), Some(n));
        }

        #[test]
        fn no_text_panics(text in ".{0,20}") {
            parse_duration(&text);
            parse_bytes(&text);
            duration_format(&text);
            bytes_format(&text);
        }
    }
}
