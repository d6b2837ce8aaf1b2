//! A source's options: declared once, checked once, then read without a doubt.

use crate::SourceSpec;
use model::setting::{OptionSpec, words};
use std::collections::BTreeMap;

/// The checked options of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    texts: BTreeMap<&'static str, String>,
}

/// Why an option is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("source {source_name} has no option `{name}`")]
    Unknown {
        /// The source.
        source_name: String,
        /// What was written.
        name: String,
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

impl Options {
    /// The defaults of a declaration.
    pub fn defaults(specs: &'static [OptionSpec]) -> Self {
        Self { texts: specs.iter().map(|spec| (spec.name, spec.default.to_owned())).collect() }
    }

    /// The options of a source: its defaults, and what was set otherwise, by name.
    ///
    /// # Errors
    /// The source has no such option, or a value does not fit.
    pub fn of<'a>(
        spec: &SourceSpec,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, OptionError> {
        let mut options = Self::defaults(spec.options);
        let mut settings = settings.into_iter();
        settings.try_for_each(|(name, value)| options.set(spec.name, spec.options, name, value))?;
        Ok(options)
    }

    /// Sets one option, checked.
    ///
    /// # Errors
    /// The source has no such option, or the value does not fit.
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

    /// A switch; false if it is not declared.
    pub fn switch(&self, name: &str) -> bool {
        self.texts.get(name).is_some_and(|text| text == "true")
    }

    /// A number; 0 if it is not declared.
    pub fn number(&self, name: &str) -> u64 {
        self.texts.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Words; none if it is not declared.
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
}
