//! A source's options: declared once, checked once, then read without a doubt.

use std::collections::BTreeMap;
use std::time::Duration;

/// One option of a source.
#[derive(Debug)]
pub struct OptionSpec {
    /// Key in `[sources.NAME]`, units last: `budget_ms`.
    pub name: &'static str,
    /// What it may hold.
    pub kind: OptionKind,
    /// Its text when nobody says otherwise.
    pub default: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
}

/// What an option may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// `true` or `false`.
    Switch,
    /// A whole number within bounds.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A time such as `30s`, `500ms`, `2m`.
    Duration,
    /// Words separated by commas; may be none.
    Words,
}

/// The checked options of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    texts: BTreeMap<&'static str, String>,
}

/// Why an option is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("source {source_name} has no option `{name}`{}", meant(.near.as_deref()))]
    Unknown {
        /// The source.
        source_name: String,
        /// What was written.
        name: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// The value does not fit.
    #[error("option {name} of source {source_name} is `{value}`: {want}")]
    Value {
        /// The source.
        source_name: String,
        /// The option.
        name: String,
        /// What was written.
        value: String,
        /// What would do.
        want: String,
    },
}

fn meant(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; is `{near}` meant?"))
}

impl OptionKind {
    /// Whether a text fits; else what would.
    ///
    /// # Errors
    /// What the option wants, in words.
    pub fn check(self, text: &str) -> Result<(), String> {
        let ok = match self {
            Self::Switch => matches!(text, "true" | "false"),
            Self::Number { min, max } => text.parse().is_ok_and(|n: u64| (min..=max).contains(&n)),
            Self::Duration => parse_duration(text).is_some(),
            Self::Words => true,
        };
        if ok {
            return Ok(());
        }
        Err(match self {
            Self::Switch => "true or false".to_owned(),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Duration => "a time such as 500ms, 30s or 2m".to_owned(),
            Self::Words => "words separated by commas".to_owned(),
        })
    }
}

impl Options {
    /// The defaults of a declaration.
    pub fn defaults(specs: &'static [OptionSpec]) -> Self {
        Self { texts: specs.iter().map(|spec| (spec.name, spec.default.to_owned())).collect() }
    }

    /// Sets one option, checked.
    ///
    /// # Errors
    /// The source has no such option, or the value does not fit.
    pub fn set(
        &mut self,
        source_name: &str,
        specs: &'static [OptionSpec],
        name: &str,
        value: &str,
        nearest: impl Fn(&str, &[&str]) -> Option<String>,
    ) -> Result<(), OptionError> {
        let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
            let names: Vec<_> = specs.iter().map(|spec| spec.name).collect();
            let (source_name, near) = (source_name.to_owned(), nearest(name, &names));
            return Err(OptionError::Unknown { source_name, name: name.to_owned(), near });
        };
        if let Err(want) = spec.kind.check(value) {
            let (source_name, name) = (source_name.to_owned(), name.to_owned());
            return Err(OptionError::Value { source_name, name, value: value.to_owned(), want });
        }
        self.texts.insert(spec.name, value.to_owned());
        Ok(())
    }

    /// A switch; false if it is not declared.
    pub fn switch(&self, name: &str) -> bool {
        self.texts.get(name).is_some_and(|text| text == "true")
    }

    /// A number; 0 if it is not declared.
    pub fn number(&self, name: &str) -> u64 {
        self.texts.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// A duration; zero if it is not declared.
    pub fn duration(&self, name: &str) -> Duration {
        self.texts.get(name).and_then(|text| parse_duration(text)).unwrap_or_default()
    }

    /// Words; none if it is not declared.
    pub fn words(&self, name: &str) -> Vec<&str> {
        let text = self.texts.get(name).map_or("", String::as_str);
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
    }
}

/// Reads `500us`, `500ms`, `30s`, `2m` or `1h`; a number alone is seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(split)?;
    let number: u64 = digits.parse().ok()?;
    let micros = match unit.trim() {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    number.checked_mul(micros).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    static SPECS: &[OptionSpec] = &[
        OptionSpec {
            name: "budget_ms",
            kind: OptionKind::Number { min: 1, max: 9 },
            default: "5",
            help: "",
        },
        OptionSpec { name: "every", kind: OptionKind::Duration, default: "30s", help: "" },
        OptionSpec { name: "skip", kind: OptionKind::Words, default: "a, b", help: "" },
    ];

    #[test]
    fn defaults_then_settings() {
        let mut options = Options::defaults(SPECS);
        assert_eq!(options.number("budget_ms"), 5);
        assert_eq!(options.words("skip"), ["a", "b"]);
        let set = |options: &mut Options, name, value| {
            options.set("x", SPECS, name, value, |_, names| Some(names[0].to_owned()))
        };
        set(&mut options, "every", "500ms").unwrap();
        assert_eq!(options.duration("every"), Duration::from_millis(500));
        let error = set(&mut options, "budget_ms", "10").unwrap_err().to_string();
        assert_eq!(error, "option budget_ms of source x is `10`: a whole number from 1 to 9");
        let error = set(&mut options, "budget", "1").unwrap_err().to_string();
        assert_eq!(error, "source x has no option `budget`; is `budget_ms` meant?");
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        assert_eq!(parse_duration("7"), Some(Duration::from_secs(7)));
        for text in ["", "s", "1d", "-1s", "1.5s", "99999999999999999999s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
