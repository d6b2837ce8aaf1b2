//! The command lines of node and server operation: sources, files and folders.

use super::{PROGRAMS, csv, json, value};
use clap::{Arg, ArgAction, Command};

/// `jobmeter sources`.
pub(super) fn sources() -> Command {
    Command::new("sources")
        .about("Lists every source on this node: state, missing permissions, cost")
        .args([
            Arg::new("name").value_name("NAME").help(
                "Show the manual of this source and its state on this node; with --json only the \
                 state",
            ),
            value("root", "DIR", "A recorded machine instead of this one"),
            Arg::new("markdown")
                .long("markdown")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["name", "root", "json", "csv"])
                .help("Print the reference of all sources as Markdown"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter sources cgroup")
}

/// The option for the agent's configuration file, which states what the agent reads.
fn agent_file() -> Arg {
    value(
        "agent",
        "FILE",
        "The agent's settings [default: the file in JOBMETER_AGENT_FILE, else \
         /etc/jobmeter/agent.toml]",
    )
}

/// `jobmeter doctor`.
pub(super) fn doctor() -> Command {
    Command::new("doctor")
        .about(
            "Finds what this node cannot measure and why: sources, missing permissions, costs, \
                and the machine",
        )
        .args([
            value("for", "TIME", "Time to measure the cost of each source [default: 1m]"),
            agent_file(),
            value("root", "DIR", "A recorded machine instead of this one; no cost is measured"),
            json(),
        ])
        .after_help("Example: jobmeter doctor --for 10s")
}

/// `jobmeter capture`.
pub(super) fn capture() -> Command {
    Command::new("capture")
        .about("Records the files that this node's agent reads, names scrubbed, for a bug report or a test")
        .args([
            Arg::new("source")
                .value_name("SOURCE")
                .help("The source [default: all that the agent's settings do not switch off]"),
            value("out", "DIR", "Folder to write; it must not exist").required(true),
            agent_file(),
            value("root", "DIR", "A recorded machine instead of this one"),
            json(),
        ])
        .after_help("Example: jobmeter capture --out report; tar czf report.tar.gz report")
}

/// `jobmeter check`.
pub(super) fn check() -> Command {
    Command::new("check")
        .about("Checks a configuration file: lists its errors, or prints the resulting settings; changes nothing")
        .args([
            Arg::new("file").required(true).value_name("FILE").help("The file"),
            value(
                "for",
                "PROGRAM",
                "agent, server or client [default: by the file's name, else by its keys]",
            )
            .value_parser(["agent", "server", "client"]),
            json(),
        ])
        .after_help("Example: jobmeter check /etc/jobmeter/agent.toml --for agent")
}

/// `jobmeter verify`.
pub(super) fn verify() -> Command {
    Command::new("verify")
        .about("Checks a server's data folder for damage and its consequences; changes nothing")
        .args([value("data", "DIR", "The server's --data, or that of `up`").required(true), json()])
        .after_help("Example: jobmeter verify --data /var/lib/jobmeter")
}

/// `jobmeter backup`.
pub(super) fn backup() -> Command {
    Command::new("backup")
        .about("Copies a server's data folder, also while the server runs")
        .args([
            value("data", "DIR", "The server's --data, or that of `up`").required(true),
            value("to", "DIR", "Folder of the copy; it must not exist").required(true),
            json(),
        ])
        .after_help("Example: jobmeter backup --data /var/lib/jobmeter --to /backup/2026-01-06")
}

/// `jobmeter completions`.
pub(super) fn completions() -> Command {
    Command::new("completions")
        .about("Prints the completion script of a program for a shell")
        .args([
            Arg::new("shell")
                .required(true)
                .value_name("SHELL")
                .value_parser(["bash", "zsh", "fish"])
                .help("The shell"),
            Arg::new("program")
                .value_name("PROGRAM")
                .value_parser(PROGRAMS)
                .default_value("jobmeter")
                .help("The program"),
        ])
        .after_help("Example: jobmeter completions bash > ~/.local/share/bash-completion/completions/jobmeter")
}

/// `jobmeter man`.
pub(super) fn man() -> Command {
    Command::new("man")
        .about("Writes the manual pages of all programs, or prints that of `jobmeter`")
        .arg(Arg::new("dir").value_name("DIR").help("Folder to write them to; it must be there"))
        .after_help("Example: jobmeter man | man -l -")
}

/// A command that starts another program.
pub(super) fn beside(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).disable_help_flag(true).arg(
        Arg::new("arguments")
            .num_args(0..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_parser(clap::value_parser!(std::ffi::OsString)),
    )
}
