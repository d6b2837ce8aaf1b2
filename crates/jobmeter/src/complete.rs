//! Values for shell completion: jobs, nodes, metrics, sources and accounts. A hidden command requests them from
//! the server.

use crate::client::http_client::{Client, path};
use clap::{Args as _, Command};
use clap_complete::Shell;
use config::paths::CLIENT_FILE;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// The hidden command.
pub(crate) const COMMAND: &str = "complete-values";
/// Kinds of values that a shell can complete.
const KINDS: [&str; 6] = ["jobs", "running", "nodes", "metrics", "sources", "accounts"];
/// Time limit for the server's answer: a shell must not wait longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of completed jobs, the newest ones.
const JOBS: usize = 100;
/// Options, with the kind of their values.
const OPTIONS: [(&str, &str); 8] = [
    ("job", "jobs"),
    ("device", "nodes"),
    ("node", "nodes"),
    ("nodes", "nodes"),
    ("forget", "nodes"),
    ("metric", "metrics"),
    ("source", "sources"),
    ("account", "accounts"),
];
/// Commands, with the kind of their first argument.
const ARGUMENTS: [(&str, &str); 11] = [
    ("job", "jobs"),
    ("job end", "running"),
    ("explain", "metrics"),
    ("promote", "metrics"),
    ("sources", "sources"),
    ("capture", "sources"),
    ("account show", "accounts"),
    ("account allow", "accounts"),
    ("account add", "accounts"),
    ("account remove", "accounts"),
    ("account delete", "accounts"),
];

/// Prints values for shell completion, one a line
#[derive(clap::Args, Debug)]
pub(crate) struct ValuesArgs {
    /// Which values
    #[arg(value_parser = KINDS)]
    kind: String,
    /// The command line up to the cursor
    #[arg(allow_hyphen_values = true)]
    line: Option<String>,
}

pub(crate) fn command() -> Command {
    ValuesArgs::augment_args(Command::new(COMMAND).hide(true))
}

/// Prints values; prints nothing if the server does not answer within 1 s. Each value begins with the list that the
/// last word of the command line already has.
pub(crate) fn values(
    client_settings: &config::ClientSettings,
    args: &ValuesArgs,
    commands: Command,
) -> anyhow::Result<ExitCode> {
    let (kind, line) = (args.kind.clone(), args.line.as_deref().unwrap_or_default());
    let head = list_before(line);
    if !head.is_empty() && !is_word(head) {
        return Ok(ExitCode::SUCCESS);
    }
    let lines = if kind == "sources" {
        sources::SOURCES.iter().map(|spec| spec.name.to_owned()).collect()
    } else {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let of_line = settings_on(line, &kind, commands);
        let client = crate::client(of_line.as_ref().unwrap_or(client_settings));
        // The thread ends with the process.
        std::thread::Builder::new().spawn(move || {
            let lines = client.and_then(|client| of_server(&client, &kind));
            sender.send(lines.unwrap_or_default()).ok();
        })?;
        receiver.recv_timeout(PATIENCE).unwrap_or_default()
    };
    let mut out = io::stdout().lock();
    for line in lines.iter().filter(|line| is_word(line)) {
        writeln!(out, "{head}{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The finished part of a list in the last word of a command line: `a,b,` of `--metric=a,b,c`.
fn list_before(line: &str) -> &str {
    let word = line.rsplit(char::is_whitespace).next().unwrap_or_default();
    let value = match word.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => word,
    };
    value.rfind(',').and_then(|comma| value.get(..=comma)).unwrap_or_default()
}

/// The settings with the options of a command line, such as `--server`, if it has any.
fn settings_on(line: &str, kind: &str, commands: Command) -> Option<config::ClientSettings> {
    let settings = config::client_settings();
    let is_setting =
        |word: &str| word == "--config" || settings.iter().any(|setting| setting.flag() == word);
    let (done, _) = line.rsplit_once(char::is_whitespace)?;
    let mut words = done.split_whitespace();
    let mut given = Vec::new();
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        if is_setting(option)
            && let Some(value) = value.or_else(|| words.next())
        {
            given.push(format!("{option}={}", value.trim_matches(['"', '\''])));
        }
    }
    if given.is_empty() {
        return None;
    }
    let words = ["jobmeter".to_owned()].into_iter().chain(given);
    let words = words.chain([COMMAND.to_owned(), kind.to_owned()]);
    let matches = commands.subcommand(command()).try_get_matches_from(words).ok()?;
    let environment = |name: &str| std::env::var(name).ok();
    let flags = config::given(&settings, &matches, "client", CLIENT_FILE, &environment);
    let given =
        config::ConfigInputs { file: flags.file, environment: &environment, flags: flags.flags };
    config::load_client(&given).ok().map(|loaded| loaded.config.client_settings)
}

/// Whether a value is safe as a shell word and cannot be parsed as an option. Names come from users and nodes.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/+,@".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain)
}

fn of_server(client: &Client, kind: &str) -> anyhow::Result<Vec<String>> {
    Ok(match kind {
        "jobs" | "running" => {
            let limit = ("limit", Some(JOBS.to_string()));
            let state = ("state", (kind == "running").then(|| kind.to_owned()));
            let jobs: Vec<api::Job> = client.get(&path("/api/v1/jobs", &[limit, state]))?;
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

/// Whether the server completes the values of an option.
pub(crate) fn has_values(option: &str) -> bool {
    of(&OPTIONS, option).is_some()
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
    let mut out = format!(
        "_jobmeter_values() {{\n    jobmeter {COMMAND} \"$1\" \"${{COMP_LINE:0:${{COMP_POINT}}}}\" 2>/dev/null\n}}\n\n"
    );
    let (mut option, mut argument) = (None, None);
    for line in script.lines() {
        let trimmed = line.trim();
        if let Some(label) = trimmed.strip_suffix(')').filter(|label| !label.contains([' ', '('])) {
            option = label.strip_prefix("--").and_then(|name| of(&OPTIONS, name));
            if let Some(name) = label.strip_prefix("jobmeter__subcmd__") {
                argument = of(&ARGUMENTS, &name.replace("__subcmd__", " "));
            }
        }
        match option.filter(|_| trimmed == "COMPREPLY=($(compgen -f \"${cur}\"))") {
            Some(kind) => {
                out.push_str(&format!(
                    "                    COMPREPLY=($(compgen -W \"$(_jobmeter_values {kind})\" -- \"${{cur}}\"))\n"
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
                "            [[ ${{cur}} == -* ]] || opts=\"${{opts}} $(_jobmeter_values {kind})\"\n"
            ));
            argument = None;
        }
    }
    out
}

/// Adds values to zsh's script. An option is `'--NAME=[help]:VALUE:_default'`, an argument `':NAME --
/// help:_default'`. A command's block begins with `(COMMAND)`, after that of its outer command. The functions of the
/// kinds follow the first line.
fn zsh(script: &str) -> String {
    let (mut out, mut outer, mut command) = (String::new(), String::new(), String::new());
    for (place, line) in script.lines().enumerate() {
        if let Some(label) = line.strip_prefix('(').and_then(|line| line.strip_suffix(')')) {
            let nested = format!("{outer} {label}");
            let is_outer = !ARGUMENTS.iter().any(|(path, _)| *path == nested);
            if ARGUMENTS.iter().any(|(path, _)| path.split(' ').next() == Some(label)) {
                outer = label.to_owned();
            }
            command = if is_outer { label.to_owned() } else { nested };
        }
        let name = line.trim().strip_prefix("'--").and_then(|line| line.split_once("=["));
        // The values of the first argument; further ones are users.
        let is_first = line.starts_with("':") && !line.starts_with("':sees ");
        let kind = match name {
            Some((name, _)) => of(&OPTIONS, name),
            None if is_first => of(&ARGUMENTS, &command),
            None => None,
        };
        out.push_str(&match kind {
            Some(kind) => line.replace(":_default'", &format!(":_jobmeter_{kind}'")),
            None => line.to_owned(),
        });
        out.push('\n');
        if place == 0 {
            for kind in KINDS {
                out.push_str(&format!(
                    "\n_jobmeter_{kind}() {{ compadd -- ${{(f)\"$(jobmeter {COMMAND} {kind} \"${{LBUFFER}}\" 2>/dev/null)\"}} }}\n"
                ));
            }
        }
    }
    out
}

/// Adds values to fish's script. An option is a line with `-l NAME`; arguments of commands are separate lines.
fn fish(script: &str) -> String {
    let client_settings =
        |kind: &str| format!("-f -a '(jobmeter {COMMAND} {kind} (commandline -cp) 2>/dev/null)'");
    let mut out = String::new();
    for line in script.lines() {
        let name = line.split(" -l ").nth(1).and_then(|rest| rest.split(' ').next());
        out.push_str(line);
        if let Some(kind) =
            name.and_then(|name| of(&OPTIONS, name)).filter(|_| line.contains(" -r"))
        {
            out.push_str(&format!(" {}", client_settings(kind)));
        }
        out.push('\n');
    }
    for (path, kind) in ARGUMENTS {
        let seen = path.split(' ').map(|word| format!("__fish_seen_subcommand_from {word}"));
        let inner = ARGUMENTS.iter().filter_map(|(other, _)| {
            let word = other.strip_prefix(path)?.strip_prefix(' ')?;
            Some(format!("not __fish_seen_subcommand_from {word}"))
        });
        let when = seen.chain(inner).collect::<Vec<_>>().join("; and ");
        out.push_str(&format!("complete -c jobmeter -n \"{when}\" {}\n", client_settings(kind)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_completed_as_files() {
        let bash = script(Shell::Bash);
        let completion = |option: &str| {
            let (_, rest) = bash.split_once(&format!("                --{option})\n")).unwrap();
            rest.lines().next().unwrap().trim().to_owned()
        };
        for option in ["user", "cluster"] {
            assert_eq!(completion(option), "COMPREPLY=(\"${cur}\")", "{option}");
        }
        assert!(completion("root").contains("compgen -f"), "a folder");
        assert!(completion("token-file").contains("compgen -f"), "a file");
    }

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut crate::cli::command(), "jobmeter", &mut script);
        with_values(shell, &String::from_utf8(script).unwrap())
    }

    #[test]
    fn every_kind_of_value_is_offered_in_every_shell() {
        for kind in KINDS {
            for (shell, script_call) in [
                (Shell::Bash, format!("$(_jobmeter_values {kind})")),
                (Shell::Zsh, format!("jobmeter {COMMAND} {kind} \"${{LBUFFER}}\" 2>/dev/null")),
                (Shell::Fish, format!("jobmeter {COMMAND} {kind} (commandline -cp) 2>/dev/null")),
            ] {
                assert!(script(shell).contains(&script_call), "{shell}: {kind}");
            }
            assert!(script(Shell::Zsh).contains(&format!(":_jobmeter_{kind}'")), "{kind}");
        }
        for (command, kind) in ARGUMENTS {
            let block = format!("jobmeter__subcmd__{})", command.replace(' ', "__subcmd__"));
            let script_call = format!("|| opts=\"${{opts}} $(_jobmeter_values {kind})\"");
            let script = script(Shell::Bash);
            let (_, after) = script.split_once(&format!("        {block}\n")).unwrap();
            assert!(after.lines().take(2).any(|line| line.ends_with(&script_call)), "{command}");
        }
        // An argument of the same name elsewhere is something else: `token revoke ID`.
        let revoke = script(Shell::Zsh);
        let (_, revoke) = revoke.split_once("\n(revoke)\n").unwrap();
        let id = revoke.lines().find(|line| line.starts_with("':id ")).unwrap().trim_end();
        assert!(id.ends_with(":_default' \\"), "{id}");
        // The states are fixed values of the command line.
        assert!(script(Shell::Bash).contains("compgen -W \"waiting running ended failed\""));
    }

    #[test]
    fn a_list_is_continued_and_options_of_the_line_apply() {
        for (line, head) in [
            ("jobmeter get --metric a,b", "a,"),
            ("jobmeter get --metric=a,b,", "a,b,"),
            ("jobmeter get --metric load", ""),
            ("jobmeter get --metric a,b --device ", ""),
            ("", ""),
        ] {
            assert_eq!(list_before(line), head, "{line}");
        }
        let server = |line: &str| {
            settings_on(line, "jobs", crate::cli::command())
                .and_then(|client_settings| client_settings.server)
        };
        let url = "http://127.0.0.1:9";
        for line in [
            "jobmeter --server http://127.0.0.1:9 job end ",
            "jobmeter job end --server='http://127.0.0.1:9' 12",
        ] {
            assert_eq!(server(line).unwrap().as_str(), url, "{line}");
        }
        assert_eq!(server("jobmeter job end "), None);
        // The word at the cursor is not finished.
        assert_eq!(server("jobmeter job end --server http://127.0.0.1:9"), None);
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
