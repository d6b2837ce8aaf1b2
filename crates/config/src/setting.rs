//! The declaration of a setting, from which come its flag, variable, key, default, help and manual.

use crate::text::{Raw, show_bytes, show_duration};
use std::borrow::Cow;
use std::time::Duration;

/// One setting of a program.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Key in the file, units last: `spool_bytes_max`, or `log.level` for a key in the table `[log]`.
    pub key: Cow<'static, str>,
    /// What it may hold.
    pub kind: Kind,
    /// Its text when nobody says otherwise; empty when there is none.
    pub default: Cow<'static, str>,
    /// What happens when it is empty: `the host's name up to its first dot`.
    pub unset: &'static str,
    /// One sentence for the manual.
    pub help: Cow<'static, str>,
    /// Under which heading the manual lists it.
    pub topic: Cow<'static, str>,
}

/// What a setting may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// A list of texts, separated by commas where only one text can be given.
    List(&'static str),
}

impl Setting {
    /// The flag: `--spool-bytes-max`.
    pub fn flag(&self) -> String {
        format!("--{}", self.flag_name())
    }

    pub(crate) fn flag_name(&self) -> String {
        self.key.replace(['_', '.'], "-")
    }

    /// The environment variable: `JOBMETER_SPOOL_BYTES_MAX`.
    pub fn variable(&self) -> String {
        format!("JOBMETER_{}", self.key.replace(['.', '-'], "_").to_uppercase())
    }
}

impl Kind {
    /// Whether what stands there fits; else what would.
    ///
    /// # Errors
    /// What the setting wants, in words.
    pub fn check(self, raw: &Raw) -> Result<(), String> {
        if matches!(self, Self::List(_)) {
            return Ok(());
        }
        let text = raw.one()?;
        let ok = match self {
            Self::Switch => matches!(text, "true" | "false"),
            Self::Number { min, max } => text.parse().is_ok_and(|n: u64| (min..=max).contains(&n)),
            Self::Duration { min, max } => {
                crate::parse_duration(text).is_some_and(|d| (min..=max).contains(&d))
            }
            Self::Bytes { min, max } => {
                crate::text::parse_bytes(text).is_some_and(|n| (min..=max).contains(&n))
            }
            Self::Choice(words) => words.contains(&text),
            Self::Text(_) | Self::List(_) => true,
        };
        if ok { Ok(()) } else { Err(self.wants()) }
    }

    /// What fits, in words.
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
            Self::Choice(words) => words.join(", "),
            Self::Text(word) => word.to_owned(),
            Self::List(word) => format!("{word}, any number of them"),
        }
    }

    /// The word that stands for the value in the manual.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Switch => "true|false",
            Self::Number { .. } => "N",
            Self::Duration { .. } => "TIME",
            Self::Bytes { .. } => "SIZE",
            Self::Choice(_) => "WORD",
            Self::Text(word) | Self::List(word) => word,
        }
    }
}

/// A source of samples as the configuration sees it. The crate of sources hands these in, so that this
/// crate need not know it.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Its name: the table is `[sources.NAME]`.
    pub name: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
    /// How often it is read at most when nobody says otherwise; `None`: at every tick.
    pub period: Option<Duration>,
    /// Its own options: name, what it may hold, default, help.
    pub options: Vec<(&'static str, Kind, &'static str, &'static str)>,
}

/// Shortest period of a source.
pub const PERIOD_MIN: Duration = Duration::from_millis(1);
/// Longest period of a source.
pub const PERIOD_MAX: Duration = Duration::from_secs(86_400);

impl SourceSettings {
    /// The settings of the source's table.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        let topic: Cow<'static, str> = format!("Source `{}`: {}", self.name, self.help).into();
        let setting =
            |name: &str, kind, default: Cow<'static, str>, unset, help: &'static str| Setting {
                key: format!("sources.{}.{name}", self.name).into(),
                kind,
                default,
                unset,
                help: help.into(),
                topic: topic.clone(),
            };
        let period = Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        let default = self.period.map_or(Cow::Borrowed(""), |period| show_duration(period).into());
        let mut list = vec![
            setting("enabled", Kind::Switch, "true".into(), "", "Whether it is read."),
            setting("period", period, default, "every tick", "How often it is read."),
        ];
        for (name, kind, default, help) in &self.options {
            list.push(setting(name, *kind, (*default).into(), "nothing", help));
        }
        list
    }
}

/// Declares settings and the struct of their checked values: the comment is the help, the literal the
/// key, `=` the default, `or` what an empty one means.
macro_rules! settings {
    (
        $(#[$doc:meta])*
        $struct:ident, $list:ident, $topic:literal {
            $($(#[doc = $help:literal])+
            $key:literal $field:ident: $type:ty = $default:literal $(or $unset:literal)?, $kind:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $struct {
            $($(#[doc = $help])+ pub $field: $type,)*
        }

        /// The settings, in the order of the manual.
        pub(crate) const $list: &[$crate::setting::Setting] = &[$($crate::setting::Setting {
            key: std::borrow::Cow::Borrowed($key),
            kind: $kind,
            default: std::borrow::Cow::Borrowed($default),
            unset: concat!("", $($unset)?),
            help: std::borrow::Cow::Borrowed(concat!($($help),+)),
            topic: std::borrow::Cow::Borrowed($topic),
        }),*];

        impl $struct {
            /// The checked values; those that do not fit are told in `errors`, all of them.
            pub(crate) fn from_values(
                values: &$crate::load::Values,
                errors: &mut Vec<$crate::load::ConfigError>,
            ) -> Option<Self> {
                $(let $field = values.get::<$type>($key, errors);)*
                Some(Self { $($field: $field?),* })
            }
        }
    };
}
pub(crate) use settings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_names() {
        let source = SourceSettings {
            name: "process",
            help: "Processes.",
            period: Some(Duration::from_secs(30)),
            options: vec![("top", Kind::Number { min: 0, max: 9 }, "0", "How many.")],
        };
        let list = source.settings();
        let names: Vec<_> = list.iter().map(|s| (s.flag(), s.variable())).collect();
        assert_eq!(names[1].0, "--sources-process-period");
        assert_eq!(names[2].1, "JOBMETER_SOURCES_PROCESS_TOP");
        assert_eq!(list[1].default, "30s");
    }

    #[test]
    fn kinds_say_what_they_want() {
        let one = |text: &str| Raw::One(text.to_owned());
        let period = Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        assert_eq!(period.check(&one("5s")), Ok(()));
        assert_eq!(period.check(&one("2d")), Err("a time from 1ms to 1d".to_owned()));
        assert_eq!(
            Kind::Number { min: 1, max: 9 }.check(&one("0")).unwrap_err(),
            "a whole number from 1 to 9"
        );
        assert_eq!(Kind::Choice(&["a", "b"]).check(&one("c")).unwrap_err(), "a, b");
        assert!(Kind::Switch.check(&Raw::Many(vec![])).is_err());
        assert!(Kind::Bytes { min: 1, max: 8 }.check(&one("1KiB")).is_err());
    }
}
