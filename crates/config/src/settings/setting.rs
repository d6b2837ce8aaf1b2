//! The declaration of a setting: the source of its flag, variable, key, default, help and manual.

use crate::settings::text::Raw;
use model::setting::{OptionSpec, show_duration};
use std::borrow::Cow;
use std::time::Duration;

pub use model::setting::Kind;

/// One setting of a program.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Key in the file, units last: `spool_bytes_max`, or `log.level` for a key in the table `[log]`.
    pub key: Cow<'static, str>,
    /// Its type and limits.
    pub kind: Kind,
    /// Its default as text; empty if there is none.
    pub default: Cow<'static, str>,
    /// The meaning of an empty value: `the host's name up to its first dot`.
    pub unset: &'static str,
    /// One sentence for the manual.
    pub help: Cow<'static, str>,
    /// Its heading in the manual.
    pub topic: Cow<'static, str>,
    /// Whether only the program's own file may set it: it has no flag and no variable.
    pub in_file_only: bool,
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

    /// Whether it is a path of this machine, or a list of them.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self.kind, Kind::Text("FILE" | "FILE|-" | "DIR" | "DIR|none") | Kind::List("DIR"))
    }

    /// Whether this text is a word in place of a path, such as `none` for the kind `DIR|none`.
    pub(crate) fn is_word(&self, text: &str) -> bool {
        self.kind.word().split('|').skip(1).any(|word| word == text)
    }

    /// Checks a value.
    ///
    /// # Errors
    /// What a valid value is.
    pub(crate) fn check(&self, raw: &Raw) -> Result<(), String> {
        match self.kind {
            Kind::List(_) => Ok(()),
            Kind::ListOf(_, check) => check(&raw.list().join(",")),
            kind @ Kind::Command(_) => match raw {
                Raw::One(text) => kind.check(text),
                Raw::Many(texts) => kind.check(texts.first().map_or("", String::as_str)),
            },
            kind => kind.check(raw.one()?),
        }
    }
}

/// A source of samples, as the configuration sees it. The crate `sources` passes these in, so that this crate
/// does not depend on it.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Its name: the table is `[sources.NAME]`.
    pub name: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
    /// Its shortest default period; `None`: every tick.
    pub period: Option<Duration>,
    /// Its own options.
    pub options: &'static [OptionSpec],
}

/// Shortest period of a source.
pub const PERIOD_MIN: Duration = Duration::from_millis(1);
/// Longest period of a source.
pub const PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// Settings of every source, beside its own options. They do not affect the program that a source runs.
const COMMON: &[&str] = &["enabled", "period", "period_idle", "optional"];
const IDLE_HELP: &str = "Period while no job is on the node.";
const OPTIONAL_HELP: &str = "Whether to read it only during a promotion: `true`, or expressions \
    for the names of those metrics that are.";

impl SourceSettings {
    /// Whether it runs a program of the configuration: only the node's own file may change such a source.
    pub(crate) fn runs_a_program(&self) -> bool {
        self.options.iter().any(|option| matches!(option.kind, Kind::Command(_)))
    }

    /// The settings of the source's table.
    pub fn settings(&self) -> Vec<Setting> {
        let topic: Cow<'static, str> = format!("Source `{}`: {}", self.name, self.help).into();
        let setting =
            |name: &str, kind, default: Cow<'static, str>, unset, help: &'static str| Setting {
                key: format!("sources.{}.{name}", self.name).into(),
                kind,
                default,
                unset,
                help: help.into(),
                topic: topic.clone(),
                in_file_only: self.runs_a_program() && !COMMON.contains(&name),
            };
        let period = Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        let default = self.period.map_or(Cow::Borrowed(""), |period| show_duration(period).into());
        let mut list = vec![
            setting("enabled", Kind::Switch, "true".into(), "", "Whether the agent reads it."),
            setting("period", period, default, "every tick", "Its period."),
            setting("period_idle", period, "".into(), "as `period_idle` of all", IDLE_HELP),
            setting("optional", Kind::List("PATTERN"), "false".into(), "nothing", OPTIONAL_HELP),
        ];
        for OptionSpec { name, kind, default, help } in self.options {
            list.push(setting(name, *kind, (*default).into(), "nothing", help));
        }
        list
    }
}

/// Declares settings and the struct of their checked values. The comment is the help, the literal the key,
/// `=` the default, `or` the meaning of an empty value.
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
        pub(crate) const $list: &[$crate::settings::setting::Setting] = &[$($crate::settings::setting::Setting {
            key: std::borrow::Cow::Borrowed($key),
            kind: $kind,
            default: std::borrow::Cow::Borrowed($default),
            unset: concat!("", $($unset)?),
            help: std::borrow::Cow::Borrowed(concat!($($help),+)),
            topic: std::borrow::Cow::Borrowed($topic),
            in_file_only: false,
        }),*];

        impl $struct {
            /// The checked values. Adds all invalid ones to `errors`.
            pub(crate) fn from_values(
                values: &$crate::settings::load::Values,
                errors: &mut Vec<$crate::settings::load::ConfigError>,
            ) -> Option<Self> {
                $(let $field = values.get_or_default::<$type>($key, errors);)*
                Some(Self { $($field: $field?),* })
            }
        }
    };
}
pub(crate) use settings;

#[cfg(test)]
mod tests {
    use super::*;

    static TOP: OptionSpec = OptionSpec {
        name: "top",
        kind: Kind::Number { min: 0, max: 9 },
        default: "0",
        help: "How many.",
    };

    fn process() -> Vec<Setting> {
        let (name, help) = ("process", "Processes.");
        let period = Some(Duration::from_secs(30));
        SourceSettings { name, help, period, options: std::slice::from_ref(&TOP) }.settings()
    }

    #[test]
    fn key_flag_and_variable() {
        let list = process();
        let names: Vec<_> = list.iter().map(|s| (s.flag(), s.variable())).collect();
        assert_eq!(names[1].0, "--sources-process-period");
        assert_eq!(names[4].1, "JOBMETER_SOURCES_PROCESS_TOP");
        assert_eq!(list[1].default, "30s");
    }

    #[test]
    fn values_are_checked() {
        let one = |text: &str| Raw::One(text.to_owned());
        let [enabled, period, _, _, top] = &process()[..] else { panic!("five settings") };
        assert_eq!(period.check(&one("5s")), Ok(()));
        assert_eq!(period.check(&one("2d")), Err("a time from 1ms to 1d".to_owned()));
        assert_eq!(top.check(&one("10")), Err("a whole number from 0 to 9".to_owned()));
        assert_eq!(enabled.check(&Raw::Many(vec![])), Err("one value, not a list".to_owned()));
        let list = Setting { kind: Kind::List("WORD"), ..top.clone() };
        assert_eq!(list.check(&Raw::Many(vec![])), Ok(()));
        let none_is_long = |text: &str| match text.split(',').find(|word| word.len() > 3) {
            Some(word) => Err(format!("`{word}` is long")),
            None => Ok(()),
        };
        let list = Setting { kind: Kind::ListOf("WORD", none_is_long), ..top.clone() };
        assert_eq!(list.check(&one("a, b")), Ok(()));
        let both = Raw::Many(vec!["a".to_owned(), "long".to_owned()]);
        assert_eq!(list.check(&both), Err("`long` is long".to_owned()));
        let command = Setting { kind: Kind::Command("WORD"), ..top.clone() };
        assert_eq!(command.check(&Raw::Many(vec!["/bin/a".to_owned(), "b".to_owned()])), Ok(()));
        assert!(command.check(&Raw::Many(vec!["a".to_owned()])).is_err());
    }
}
