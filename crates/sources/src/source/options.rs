//! A source's options: declared once, checked once, then read without errors.

use crate::{SourceError, SourceSpec};
use model::setting::{OptionSpec, WORD_END, parse_duration, words};
use std::collections::BTreeMap;
use std::time::Duration;

/// The checked options of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    texts: BTreeMap<&'static str, String>,
    distrust: Option<String>,
}

/// Why an option is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("source {source_name} has no option `{name}`")]
    Unknown {
        /// The source.
        source_name: String,
        /// The name as written.
        name: String,
    },
    /// The value is not valid.
    #[error("option {name} of source {source_name} is `{value}`: {want}")]
    Value {
        /// The source.
        source_name: String,
        /// The option.
        name: String,
        /// The value as written.
        value: String,
        /// Description of a valid value.
        want: String,
    },
}

impl Options {
    /// The defaults of a declaration.
    pub fn defaults(specs: &'static [OptionSpec]) -> Self {
        let texts = specs.iter().map(|spec| (spec.name, spec.default.to_owned())).collect();
        Self { texts, distrust: None }
    }

    /// The options of a source: its defaults, overridden by settings.
    ///
    /// # Errors
    /// The source has no such option, or a value is not valid.
    pub fn of<'a>(
        spec: &SourceSpec,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, OptionError> {
        let mut options = Self::defaults(spec.options);
        let mut settings = settings.into_iter();
        settings.try_for_each(|(name, value)| options.set(spec.name, spec.options, name, value))?;
        Ok(options)
    }

    /// Checks and sets one option.
    ///
    /// # Errors
    /// The source has no such option, or the value is not valid.
    pub(crate) fn set(
        &mut self,
        source_name: &str,
        specs: &'static [OptionSpec],
        name: &str,
        value: &str,
    ) -> Result<(), OptionError> {
        let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
            let (source_name, name) = (source_name.to_owned(), name.to_owned());
            return Err(OptionError::Unknown { source_name, name });
        };
        if let Err(want) = spec.kind.check(value) {
            let (source_name, name) = (source_name.to_owned(), name.to_owned());
            return Err(OptionError::Value { source_name, name, value: value.to_owned(), want });
        }
        self.texts.insert(spec.name, value.to_owned());
        Ok(())
    }

    /// Marks the options as coming from a file that is not trusted to name programs to run. `why` explains it
    /// and how to repair it.
    #[must_use]
    pub fn distrusted(mut self, why: Option<String>) -> Self {
        self.distrust = why;
        self
    }

    /// Whether every option has its default.
    pub fn are_defaults(&self, specs: &'static [OptionSpec]) -> bool {
        self.texts == Self::defaults(specs).texts
    }

    /// Whether an option that lists what to read is not at its default.
    pub fn choose(&self, specs: &'static [OptionSpec]) -> bool {
        let is_set = |spec: &OptionSpec| self.text(spec.name) != spec.default;
        specs.iter().filter(|spec| spec.kind.is_list()).any(is_set)
    }

    /// Chooses the message for a source that found nothing to read: `chosen` if one of the options in
    /// `chooses` was set, as it may be the reason; else `any`.
    pub(crate) fn nothing(
        &self,
        spec: &SourceSpec,
        chooses: &[&str],
        [any, chosen]: [&'static str; 2],
    ) -> &'static str {
        let is_set = |option: &OptionSpec| {
            chooses.contains(&option.name) && self.text(option.name) != option.default
        };
        if spec.options.iter().any(is_set) { chosen } else { any }
    }

    /// A program and its arguments; empty if the option is not declared or not set.
    ///
    /// # Errors
    /// A user other than root can write the file that names the program.
    pub(crate) fn command(&self, name: &str) -> Result<Vec<String>, SourceError> {
        let text = self.texts.get(name).map_or("", String::as_str);
        let words = text.split_terminator(WORD_END).map(str::to_owned).collect::<Vec<_>>();
        match &self.distrust {
            Some(why) if !words.is_empty() => {
                let what = "users other than root can write the file that names a program to run";
                Err(SourceError::denied(what, format!("it to root alone; {why}")))
            }
            _ => Ok(words),
        }
    }

    /// A text; empty if the option is not declared.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }

    /// A duration; zero if the option is not declared.
    pub(crate) fn duration(&self, name: &str) -> Duration {
        parse_duration(self.text(name)).unwrap_or_default()
    }

    /// A switch; false if the option is not declared.
    pub fn switch(&self, name: &str) -> bool {
        self.texts.get(name).is_some_and(|text| text == "true")
    }

    /// A number; 0 if the option is not declared.
    pub fn number(&self, name: &str) -> u64 {
        self.texts.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Words; empty if the option is not declared.
    pub fn words(&self, name: &str) -> Vec<&str> {
        self.texts.get(name).map_or_else(Vec::new, |text| words(text).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::setting::Kind;

    static SPECS: &[OptionSpec] = &[
        OptionSpec {
            name: "budget_ms",
            kind: Kind::Number { min: 1, max: 9 },
            default: "5",
            help: "",
        },
        OptionSpec { name: "cores", kind: Kind::Switch, default: "false", help: "" },
        OptionSpec { name: "skip", kind: Kind::List("WORD"), default: "a, b", help: "" },
    ];

    #[test]
    fn defaults_then_settings() {
        let mut options = Options::defaults(SPECS);
        assert_eq!(options.number("budget_ms"), 5);
        assert_eq!(options.words("skip"), ["a", "b"]);
        options.set("x", SPECS, "cores", "true").unwrap();
        assert!(options.switch("cores"));
        let error = options.set("x", SPECS, "budget_ms", "10").unwrap_err().to_string();
        assert_eq!(error, "option budget_ms of source x is `10`: a whole number from 1 to 9");
        let error = options.set("x", SPECS, "budget", "1").unwrap_err().to_string();
        assert_eq!(error, "source x has no option `budget`");
    }

    #[test]
    fn a_command_keeps_its_words_and_is_accepted_from_root_only() {
        static RUN: &[OptionSpec] =
            &[OptionSpec { name: "command", kind: Kind::Command("WORD"), default: "", help: "" }];
        let mut options = Options::defaults(RUN).distrusted(Some("chown it".to_owned()));
        assert_eq!(options.command("command"), Ok(Vec::new()));
        options.set("x", RUN, "command", "/bin/a\0b, c\0\0").unwrap();
        let error = options.command("command").unwrap_err();
        assert!(error.state() == "denied" && error.to_string().ends_with("chown it"), "{error}");
        let words = options.distrusted(None).command("command").unwrap();
        assert_eq!(words, ["/bin/a", "b, c", ""]);
    }
}
