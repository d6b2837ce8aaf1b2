//! The options of `set`, `flush` and `promote`.

use crate::output::options::{JsonOption, ListFormat, listed_id};
use crate::output::times::duration;
use anyhow::bail;
use clap::Args;
use std::time::Duration;

/// Options of a change of settings, which exclude `--list` and the end of a change.
const CHANGED: [&str; 9] =
    ["nodes", "time", "source", "period", "enabled", "perf", "burst", "keep", "flush_on"];
/// Options of a promotion, which exclude `--list` and the end of a promotion.
const PROMOTED: [&str; 4] = ["metric", "nodes", "job", "time"];

/// Changes settings of nodes, and periods of polled devices, for a time; lists and undoes such changes
#[derive(Args, Debug)]
#[command(
    after_help = "Example: jobmeter set --nodes 'dahu-[1-32]' --period 1s --for 30m --perf cache_ll,emulation_faults"
)]
pub(crate) struct SetArgs {
    /// The nodes or polled devices, such as dahu-[1-32],x[01-04],gpu-*
    #[arg(long, value_name = "LIST")]
    pub(super) nodes: Option<String>,
    /// Duration of the change, such as 30m
    #[arg(long = "for", value_name = "TIME")]
    pub(super) time: Option<String>,
    /// The sources of agents, or the protocols of pollers, separated by commas [default: with --period, those that are read at each tick]
    #[arg(long, value_name = "NAMES")]
    pub(super) source: Option<String>,
    /// Interval between their readings, such as 1s
    #[arg(long, value_name = "TIME")]
    pub(super) period: Option<String>,
    /// Read them or not: true or false
    #[arg(long, value_name = "BOOL")]
    pub(super) enabled: Option<bool>,
    /// Read the source perf and count these events
    #[arg(long, value_name = "EVENTS")]
    pub(super) perf: Option<String>,
    /// Read them at this interval and keep the last seconds in memory
    #[arg(long, value_name = "TIME")]
    pub(super) burst: Option<String>,
    /// Time range that a burst keeps, such as 60s
    #[arg(long, value_name = "TIME", requires = "burst")]
    pub(super) keep: Option<String>,
    /// Events that send a burst: job_start, job_end
    #[arg(long, value_name = "EVENTS", requires = "burst")]
    pub(super) flush_on: Option<String>,
    /// List the active changes, and the settings that nodes or pollers rejected
    #[arg(long, conflicts_with_all = CHANGED)]
    pub(super) list: bool,
    /// End the change of this ID
    #[arg(
        long, value_name = "N", value_parser = listed_id, allow_negative_numbers = true,
        conflicts_with_all = CHANGED, conflicts_with = "list"
    )]
    pub(super) undo: Option<u64>,
    #[command(flatten)]
    pub(super) format: ListFormat,
}

/// Requests the kept burst of a source from nodes, or the kept samples of wattmeters (--source wattmetre)
#[derive(Args, Debug)]
#[command(after_help = "Example: jobmeter flush --nodes 'dahu-*' --source cpu")]
pub(crate) struct FlushArgs {
    /// The nodes, such as dahu-[1-32],x[01-04],gpu-*
    #[arg(long, value_name = "LIST")]
    pub(super) nodes: String,
    /// The source
    #[arg(long, value_name = "NAME")]
    pub(super) source: String,
    #[command(flatten)]
    pub(super) format: JsonOption,
}

/// Requests optional metrics on the nodes of your running jobs; administrators on any node
#[derive(Args, Debug)]
#[command(after_help = "Example: jobmeter promote 'perf_.*' --job slurm:1234")]
pub(crate) struct PromoteArgs {
    /// The metrics: a regular expression of full names
    #[arg(value_name = "REGEX")]
    pub(super) metric: Option<String>,
    /// The nodes, such as dahu-[1-32],x[01-04],gpu-*
    #[arg(long, value_name = "LIST")]
    pub(super) nodes: Option<String>,
    /// On the nodes of this job, until it ends
    #[arg(long, value_name = "[CLUSTER:]ID")]
    pub(super) job: Option<String>,
    /// Duration of the promotion [default: 1h]
    #[arg(long = "for", value_name = "TIME")]
    pub(super) time: Option<String>,
    /// List the current promotions
    #[arg(long, conflicts_with_all = PROMOTED)]
    pub(super) list: bool,
    /// End the promotion of this ID
    #[arg(
        long, value_name = "N", value_parser = listed_id, allow_negative_numbers = true,
        conflicts_with_all = PROMOTED, conflicts_with = "list"
    )]
    pub(super) undo: Option<u64>,
    #[command(flatten)]
    pub(super) format: ListFormat,
}

/// The words of a list, separated by commas.
pub(super) fn words(list: Option<&str>) -> Vec<String> {
    let words = list.unwrap_or_default().split(',').map(str::trim);
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The duration in the value of an option.
pub(super) fn time(option: &str, value: Option<&str>) -> anyhow::Result<Option<Duration>> {
    value.map(|text| duration(option, text)).transpose()
}

/// Rejects `--csv` without `--list`: the answer to a change is not a list.
pub(super) fn csv_needs_list(format: ListFormat, list: bool) -> anyhow::Result<()> {
    if format.csv && !list {
        bail!("--csv needs --list");
    }
    Ok(())
}
