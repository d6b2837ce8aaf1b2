//! The words of the commands that ask something of nodes for a time.

use super::{csv, json, value};
use clap::{Arg, ArgAction, Command};

fn on_nodes() -> Arg {
    value("nodes", "LIST", "Which nodes, such as dahu-[1-32],x[01-04],gpu-*")
}

fn undo(help: &'static str) -> Arg {
    value("undo", "N", help).value_parser(clap::value_parser!(u64).range(1..))
}

fn list(help: &'static str) -> Arg {
    Arg::new("list").long("list").action(ArgAction::SetTrue).help(help)
}

/// What a change of settings names, and neither the list of them nor an end of one does.
const CHANGED: [&str; 9] =
    ["nodes", "for", "source", "period", "enabled", "perf", "burst", "keep", "flush-on"];

/// `jobmeter set`.
pub(super) fn set() -> Command {
    Command::new("set")
        .about("Changes settings of nodes for a time; shows and undoes such changes")
        .args([
            on_nodes(),
            value("for", "TIME", "For how long, such as 30m"),
            value("source", "WORDS", "Which sources, separated by commas [default: with --period, those that are read at each tick]"),
            value("period", "TIME", "How often they are read, such as 1s"),
            value("enabled", "TRUTH", "Whether they are read: true or false")
                .value_parser(clap::value_parser!(bool)),
            value("perf", "EVENTS", "Reads the source perf, and counts these events"),
            value("burst", "TIME", "Keeps their last seconds in memory, read so often"),
            value("keep", "TIME", "How much a burst keeps, such as 60s").requires("burst"),
            value("flush-on", "WORDS", "What sends a burst by itself: job_start, job_end").requires("burst"),
            list("Shows the changes that hold, and what nodes refused of them").conflicts_with_all(CHANGED),
            undo("Ends the change of this number").conflicts_with_all(CHANGED).conflicts_with("list"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter set --nodes 'dahu-[1-32]' --period 1s --for 30m --perf cache_ll,emulation_faults")
}

/// `jobmeter flush`.
pub(super) fn flush() -> Command {
    Command::new("flush")
        .about("Has nodes send what the burst of a source kept")
        .args([
            on_nodes().required(true),
            value("source", "WORD", "Which source").required(true),
            json(),
        ])
        .after_help("Example: jobmeter flush --nodes 'dahu-*' --source cpu")
}

/// The same of a promotion.
const PROMOTED: [&str; 4] = ["metric", "nodes", "job", "for"];

/// `jobmeter promote`.
pub(super) fn promote() -> Command {
    Command::new("promote")
        .about("Has optional metrics collected, on the nodes of one's running jobs or, for administrators, anywhere")
        .args([
            Arg::new("metric").value_name("REGEX").help("Which metrics: a regular expression of whole names"),
            on_nodes(),
            value("job", "[CLUSTER:]ID", "On the nodes of this job, until it ends"),
            value("for", "TIME", "For how long [default: 1h]"),
            list("Shows the promotions that hold").conflicts_with_all(PROMOTED),
            undo("Ends the promotion of this number").conflicts_with_all(PROMOTED).conflicts_with("list"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter promote 'perf_.*' --job slurm:1234")
}
