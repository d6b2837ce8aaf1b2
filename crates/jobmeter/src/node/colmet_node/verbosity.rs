//! The option `-v` of Colmet's programs: counted by those in Python, and with a level by colmet-rs.

use clap::ArgAction;
use std::ffi::{OsStr, OsString};

/// Levels of the value of `-v`, from 0.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

// No docstring, which would replace the description of the commands.
#[derive(clap::Args, Debug)]
pub(crate) struct Verbosity {
    /// More details in the log, on standard error: -v adds what it does, -vv every step; or a level: -v 0 (errors only) to -v 4
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    #[arg(long, hide = true, value_parser = LEVELS)]
    log_level: Option<String>,
}

impl Verbosity {
    /// The level of the log.
    pub(crate) fn level(&self) -> &str {
        match (&self.log_level, self.verbose) {
            (Some(level), _) => level,
            (None, 0) => "warn",
            (None, 1) => "info",
            (None, _) => "debug",
        }
    }
}

/// The words of a command line, with each `-v LEVEL` as `--log-level=NAME`. These commands have no arguments, so a number
/// behind `-v` can be nothing else.
pub(crate) fn with_levels(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.iter().peekable();
    let mut out = Vec::new();
    while let Some(word) = words.next() {
        let is_flag = word == "-v" || word == "--verbose";
        let text = word.to_str().unwrap_or_default();
        let inner = text.strip_prefix("--verbose=").or_else(|| text.strip_prefix("-v"));
        let level = if is_flag {
            words.next_if(|next| named(next).is_some()).and_then(|next| named(next))
        } else {
            inner.and_then(|number| named(OsStr::new(number)))
        };
        out.push(level.map_or_else(|| word.clone(), |name| format!("--log-level={name}").into()));
    }
    out
}

fn named(number: &OsStr) -> Option<&'static str> {
    let text = number.to_str().filter(|text| text.len() == 1)?;
    text.parse::<usize>().ok().and_then(|number| LEVELS.get(number).copied())
}
