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
