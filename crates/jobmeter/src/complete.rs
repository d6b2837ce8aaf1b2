//! Values for shell completion: jobs, nodes, metrics, sources and accounts. A hidden command requests them from
//! the server.

use crate::server::client::{Client, path};
use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// The hidden command.
pub(crate) const WORD: &str = "complete-values";
/// Kinds of values that a shell can complete.
const KINDS: [&str; 5] = ["jobs", "nodes", "metrics", "sources", "accounts"];
/// Time limit for the server's answer: a shell must not wait longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of completed jobs, the newest ones.
const JOBS: usize = 100;
/// Options, with the kind of their values.
const OPTIONS: [(&str, &str); 7] = [
    ("job", "jobs"),
    ("device", "nodes"),
    ("nodes", "nodes"),
    ("forget", "nodes"),
    ("metric", "metrics"),
    ("source", "sources"),
    ("account", "accounts"),
];
/// Commands, with the kind of their first argument.
const ARGUMENTS: [(&str, &str); 5] = [
    ("job", "jobs"),
    ("explain", "metrics"),
    ("promote", "metrics"),
    ("sources", "sources"),
    ("capture", "sources"),
];

/// Argument names in zsh's script, with the kind of their values.
const NAMED_ARGUMENTS: [(&str, &str); 5] = [
    ("id", "jobs"),
    ("metric", "metrics"),
    ("name", "sources"),
    ("source", "sources"),
    ("account", "accounts"),
];

pub(crate) fn command() -> Command {
    let kind = Arg::new("kind").required(true).value_parser(KINDS).help("Which values");
    Command::new(WORD).hide(true).about("Prints values for shell completion, one a line").arg(kind)
}

/// Prints values; prints nothing if the server does not answer within 1 s.
pub(crate) fn values(ask: &config::AskSettings, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let kind = matches.get_one::<String>("kind").map_or("", String::as_str).to_owned();
    let lines = if kind == "sources" {
        sources::SOURCES.iter().map(|spec| spec.name.to_owned()).collect()
    } else {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let client = crate::client(ask);
        // The thread ends with the process.
        std::thread::Builder::new().spawn(move || {
            let lines = client.and_then(|client| of_server(&client, &kind));
            tell.send(lines.unwrap_or_default()).ok();
        })?;
        told.recv_timeout(PATIENCE).unwrap_or_default()
    };
    let mut out = io::stdout().lock();
    for line in lines.iter().filter(|line| is_word(line)) {
        writeln!(out, "{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a value is safe as a shell word and cannot be parsed as an option. Names come from users and nodes.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/+,@".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain)
}

fn of_server(client: &Client, kind: &str) -> anyhow::Result<Vec<String>> {
    Ok(match kind {
        "jobs" => {
            let limit = ("limit", Some(JOBS.to_string()));
            let jobs: Vec<api::Job> = client.get(&path("/api/v1/jobs", &[limit]))?;
            // The bare ID comes first, because a colon ends a word in bash.
            let names = jobs.iter().map(|job| job.display_id.clone());
            names
                .chain(jobs.iter().map(|job| format!("{}:{}", job.cluster, job.display_id)))
                .collect()
        }
        "nodes" => {
            let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
            nodes.into_iter().map(|node| node.device).collect()
        }
        "metrics" => {
            let metrics: Vec<api::MetricInfo> = client.get("/api/v1/catalogue")?;
            metrics.into_iter().map(|metric| metric.name).collect()
        }
        _ => {
            let accounts: Vec<api::Account> = client.get("/api/v1/accounts")?;
            let names = accounts.iter().map(|account| account.name.clone());
            names.chain(accounts.iter().map(|it| format!("{}:{}", it.cluster, it.name))).collect()
        }
    })
}

/// Adds completion of values from the server to a shell's script.
pub(crate) fn with_values(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => bash(script),
        Shell::Zsh => zsh(script),
        Shell::Fish => fish(script),
        _ => script.to_owned(),
    }
}

fn of<'a>(list: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    list.iter().find(|(of, _)| *of == name).map(|(_, kind)| *kind)
}

/// Adds values to bash's script. An option's block begins with `--NAME)`, and its next line completes files. The
/// words of a command are in `opts`.
fn bash(script: &str) -> String {
    let (mut out, mut option, mut argument) = (String::new(), None, None);
    for line in script.lines() {
        let trimmed = line.trim();
        if let Some(label) = trimmed.strip_suffix(')').filter(|label| !label.contains([' ', '('])) {
            option = label.strip_prefix("--").and_then(|name| of(&OPTIONS, name));
            if let Some(name) =
                label.strip_prefix("jobmeter__subcmd__").or(label.strip_prefix("jobmeter__"))
            {
                argument = of(&ARGUMENTS, name);
            }
        }
        match option.filter(|_| trimmed == "COMPREPLY=($(compgen -f \"${cur}\"))") {
            Some(kind) => {
                out.push_str(&format!(
                    "                    COMPREPLY=($(compgen -W \"$(jobmeter {WORD} {kind} 2>/dev/null)\" -- \"${{cur}}\"))\n"
                ));
                option = None;
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
        if let Some(kind) = argument.filter(|_| trimmed.starts_with("opts=\"")) {
            out.push_str(&format!(
                "            [[ ${{cur}} == -* ]] || opts=\"${{opts}} $(jobmeter {WORD} {kind} 2>/dev/null)\"\n"
            ));
            argument = None;
        }
    }
    out
}

/// Adds values to zsh's script. An option is `'--NAME=[help]:VALUE:_default'`, an argument `':NAME --
/// help:_default'`. The functions of the kinds follow the first line.
fn zsh(script: &str) -> String {
    let mut out = String::new();
    for (place, line) in script.lines().enumerate() {
        let name = line.trim().strip_prefix("'--").and_then(|line| line.split_once("=["));
        let argument = line.strip_prefix("':").and_then(|line| line.split_once(" -- "));
        let argument = argument.map(|(name, _)| name.trim_start_matches(':'));
        let kind = match (name, argument) {
            (Some((name, _)), _) => of(&OPTIONS, name),
            (None, Some(name)) => of(&NAMED_ARGUMENTS, name),
            (None, None) => None,
        };
        out.push_str(&match kind {
            Some(kind) => line.replace(":_default'", &format!(":_jobmeter_{kind}'")),
            None => line.to_owned(),
        });
        out.push('\n');
        if place == 0 {
            for kind in KINDS {
                out.push_str(&format!(
                    "\n_jobmeter_{kind}() {{ compadd -- ${{(f)\"$(jobmeter {WORD} {kind} 2>/dev/null)\"}} }}\n"
                ));
            }
        }
    }
    out
}

/// Adds values to fish's script. An option is a line with `-l NAME`; arguments of commands are separate lines.
fn fish(script: &str) -> String {
    let mut out = String::new();
    for line in script.lines() {
        let name = line.split(" -l ").nth(1).and_then(|rest| rest.split(' ').next());
        out.push_str(line);
        if let Some(kind) =
            name.and_then(|name| of(&OPTIONS, name)).filter(|_| line.contains(" -r"))
        {
            out.push_str(&format!(" -f -a '(jobmeter {WORD} {kind} 2>/dev/null)'"));
        }
        out.push('\n');
    }
    for (command, kind) in ARGUMENTS {
        out.push_str(&format!(
            "complete -c jobmeter -n \"__fish_seen_subcommand_from {command}\" -f -a '(jobmeter {WORD} {kind} 2>/dev/null)'\n"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut crate::cli::command(), "jobmeter", &mut script);
        with_values(shell, &String::from_utf8(script).unwrap())
    }

    #[test]
    fn every_kind_of_value_is_offered_in_every_shell() {
        for kind in KINDS {
            let asks = format!("jobmeter {WORD} {kind} 2>/dev/null");
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                assert!(script(shell).contains(&asks), "{shell}: {kind}");
            }
            assert!(script(Shell::Zsh).contains(&format!(":_jobmeter_{kind}'")), "{kind}");
        }
        for (command, kind) in ARGUMENTS {
            let asks = format!(
                "[[ ${{cur}} == -* ]] || opts=\"${{opts}} $(jobmeter {WORD} {kind} 2>/dev/null)\""
            );
            assert!(script(Shell::Bash).contains(&asks), "{command}");
        }
        // The states are fixed values of the command line.
        assert!(script(Shell::Bash).contains("compgen -W \"waiting running ended failed\""));
    }

    #[test]
    fn a_value_that_a_shell_would_obey_is_not_offered() {
        for text in
            ["", "-rf", "--token-file=x", "a b", "$(reboot)", "`x`", "a;b", "a\"b", "é", "\x1b[m"]
        {
            assert!(!is_word(text), "{text:?}");
        }
        assert!(is_word("slurm:12_3") && is_word("node-1.site"));
    }
}
