//! The help of `jobmeter` itself, with its commands grouped by purpose.

use clap::Command;
use std::fmt::Write as _;

/// Width of the list in columns.
const WIDTH: usize = 80;
/// Columns before a command's description.
const INDENT: usize = 15;

/// Commands in the help, in their order.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Measure", &["up", "run", "job"]),
    ("Look", &["jobs", "nodes", "devices", "get", "sql", "top"]),
    ("Change", &["set", "flush", "promote", "token", "account"]),
    (
        "Operate",
        &[
            "server",
            "check",
            "import",
            "db",
            "backup",
            "verify",
            "audit",
            "outputs",
            "fill",
            "extract",
            "compare",
            "dashboards",
            "completions",
            "man",
        ],
    ),
    ("Devices", &["poll", "feed", "kwollector", "kwollector-wattmetre"]),
    ("Colmet", &["colmet-node", "colmet-collector"]),
    ("Diagnose", &["explain", "gaps", "doctor", "sources", "capture"]),
];

/// Adds a help text with grouped commands to the command. The help of each subcommand does not change.
pub(super) fn with_groups(command: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        // Writing to a string cannot fail.
        write!(text, "\n{title}:\n").ok();
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let is_long = name.len() > INDENT - 3;
            let end = if is_long { format!("\n{:INDENT$}", "") } else { String::new() };
            let about = wrapped(&about);
            writeln!(text, "  {name:<width$}{end}{about}", width = INDENT - 2).ok();
        }
    }
    let mut bare =
        command.clone().mut_subcommands(|inner| inner.hide(true)).help_template("{all-args}");
    let options = bare.render_help();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let help = format!(
        "{about}\n\nUsage: jobmeter [OPTIONS] <COMMAND>\n{text}\n`jobmeter COMMAND --help` shows the options of a command.\n\n\
         {options}\n{after}\n"
    );
    command.override_help(help)
}

/// Wraps a text to the width beside the command names.
fn wrapped(text: &str) -> String {
    let (mut out, mut column) = (String::new(), INDENT);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > INDENT && column + 1 + length > WIDTH {
            write!(out, "\n{:INDENT$}", "").ok();
            column = INDENT;
        } else if column > INDENT {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::cli::command();
        let names = command.get_subcommands().filter(|one| !one.is_hide_set());
        let names: BTreeSet<&str> = names.map(Command::get_name).collect();
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), names);
        assert_eq!(listed.len(), names.len(), "each once");
    }

    #[test]
    fn help_shows_groups_and_options() {
        let help = crate::cli::command().render_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
        let titles = ["Measure", "Look", "Change", "Operate", "Devices", "Diagnose"];
        let places = titles.map(|title| at(&format!("\n{title}:\n")));
        assert!(places.is_sorted() && at("\n  run ") < places[1] && at("--server") > places[5]);
        assert!(!help.contains("Commands:") && help.contains("\nExample: jobmeter run"), "{help}");
        let list = help.get(..at("Options:")).unwrap();
        assert!(list.lines().all(|line| line.chars().count() <= WIDTH), "{list}");
        let inner =
            crate::cli::command().find_subcommand_mut("get").unwrap().render_help().to_string();
        assert!(inner.contains("--metric"), "{inner}");
    }
}
