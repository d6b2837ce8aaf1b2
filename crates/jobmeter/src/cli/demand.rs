//! The command lines of `set`, `flush` and `promote`, which change the settings of nodes for a time.

use super::{csv, json, value};
use clap::{Arg, ArgAction, Command};

fn on_nodes() -> Arg {
    value("nodes", "LIST", "The nodes, such as dahu-[1-32],x[01-04],gpu-*")
}

fn undo(help: &'static str) -> Arg {
    value("undo", "N", help).value_parser(clap::value_parser!(u64).range(1..))
}

fn list(help: &'static str) -> Arg {
    Arg::new("list").long("list").action(ArgAction::SetTrue).help(help)
}

/// Options of a change of settings, which exclude `--list` and the end of a change.
const CHANGED: [&str; 9] =
    ["nodes", "for", "source", "period", "enabled", "perf", "burst", "keep", "flush-on"];

/// `jobmeter set`.
pub(super) fn set() -> Command {
    Command::new("set")
        .about("Changes settings of nodes for a time; lists and undoes such changes")
        .args([
            on_nodes(),
            value("for", "TIME", "Duration of the change, such as 30m"),
            value("source", "NAMES", "The sources, separated by commas [default: with --period, those that are read at each tick]"),
            value("period", "TIME", "Interval between their readings, such as 1s"),
            value("enabled", "BOOL", "Read them or not: true or false")
                .value_parser(clap::value_parser!(bool)),
            value("perf", "EVENTS", "Read the source perf and count these events"),
            value("burst", "TIME", "Read them at this interval and keep the last seconds in memory"),
            value("keep", "TIME", "Time range that a burst keeps, such as 60s").requires("burst"),
            value("flush-on", "EVENTS", "Events that send a burst: job_start, job_end").requires("burst"),
            list("List the active changes, and the settings that nodes \
                  rejected").conflicts_with_all(CHANGED),
            undo("End the change of this ID").conflicts_with_all(CHANGED).conflicts_with("list"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter set --nodes 'dahu-[1-32]' --period 1s --for 30m --perf cache_ll,emulation_faults")
}

/// `jobmeter flush`.
pub(super) fn flush() -> Command {
    Command::new("flush")
        .about("Requests the kept burst of a source from nodes")
        .args([
            on_nodes().required(true),
            value("source", "NAME", "The source").required(true),
            json(),
        ])
        .after_help("Example: jobmeter flush --nodes 'dahu-*' --source cpu")
}

/// Options of a promotion, which exclude `--list` and the end of a promotion.
const PROMOTED: [&str; 4] = ["metric", "nodes", "job", "for"];

/// `jobmeter promote`.
pub(super) fn promote() -> Command {
    Command::new("promote")
        .about("Requests optional metrics on the nodes of your running jobs; administrators on any node")
        .args([
            Arg::new("metric").value_name("REGEX").help("The metrics: a regular expression of full names"),
            on_nodes(),
            value("job", "[CLUSTER:]ID", "On the nodes of this job, until it ends"),
            value("for", "TIME", "Duration of the promotion [default: 1h]"),
            list("List the current promotions").conflicts_with_all(PROMOTED),
            undo("End the promotion of this ID").conflicts_with_all(PROMOTED).conflicts_with("list"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter promote 'perf_.*' --job slurm:1234")
}
