//! Options that several commands share.

use clap::Args;

// The flag `--json`. A docstring here would replace the description of each command that has the flag.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct JsonOption {
    /// Print JSON, for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

// The formats of a list; no docstring, as above.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ListFormat {
    /// Print JSON, for scripts
    #[arg(long)]
    pub(crate) json: bool,
    /// Print CSV, for scripts and spreadsheets
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

// A range of time. Each command states in its help what has a time, and the default; no docstring, as above.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TimeRange {
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    #[arg(long, value_name = "TIME")]
    pub(crate) last: Option<String>,
}

/// Parses an ID from a list.
pub(crate) fn listed_id(text: &str) -> Result<u64, String> {
    let id = text.parse().ok().filter(|id| (1..=api::NUMBER_MAX.unsigned_abs()).contains(id));
    id.ok_or_else(|| "expected an ID such as 7; `--list` shows the IDs".to_owned())
}

/// Parses an exit code.
pub(crate) fn exit_code(text: &str) -> Result<i32, String> {
    let code = text.parse().ok().filter(|code| (0..=255).contains(code));
    code.ok_or_else(|| "expected a number from 0 to 255, as in `--exit-code $?`".to_owned())
}
