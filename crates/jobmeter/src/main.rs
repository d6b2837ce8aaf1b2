//! The command `jobmeter`: runs a command as a job, queries a server, shows what a node can measure, and starts
//! the other jobmeter programs.

mod change;
mod cli;
mod complete;
mod look;
mod manual;
mod measure;
mod node;
mod operate;
mod output;
mod server;

use anyhow::Context;
use clap::ArgMatches;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use config::paths;
use delivery::wall as clock;
use kernel::Root;
use model::DeviceId;
use server::client::Client;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Server URL of `jobmeter up` if no server is recorded.
const SERVER_DEFAULT: &str = "http://127.0.0.1:8790";

/// Exit code of a command that failed.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let [_, word, rest @ ..] = &words[..]
        && word == measure::exec::COMMAND
    {
        let Err(error) = measure::exec::become_program(rest);
        return fail(&error);
    }
    if let [_, word, rest @ ..] = &words[..]
        && word == measure::exec::REMOVE
    {
        measure::exec::remove(rest);
        return ExitCode::SUCCESS;
    }
    // The completion command is hidden: it appears in no script, manual or help.
    let matches = match cli::command().subcommand(complete::command()).try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return rejected(error),
    };
    match dispatch(&matches) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// Prints clap's output: help, version, or an error in the arguments.
fn rejected(mut error: clap::Error) -> ExitCode {
    drop_misleading_tips(&mut error);
    let printed = if error.use_stderr() {
        // The message repeats arguments, which may contain any byte.
        let text = error.render().to_string();
        write!(io::stderr(), "{}", server::plain::plain_lines(&text))
    } else {
        error.print().and_then(|()| io::stdout().flush())
    };
    match printed {
        Err(why) if !error.use_stderr() => fail(&why.into()),
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILED)),
    }
}

/// Drops clap's misleading tip to pass an unknown option as an argument.
fn drop_misleading_tips(error: &mut clap::Error) {
    let kind = ContextKind::Suggested;
    let Some(ContextValue::StyledStrs(tips)) = error.remove(kind) else { return };
    let is_right = |tip: &StyledStr| !tip.to_string().contains("as a value, use");
    let tips: Vec<StyledStr> = tips.into_iter().filter(is_right).collect();
    if !tips.is_empty() {
        error.insert(kind, ContextValue::StyledStrs(tips));
    }
}

/// The I/O error kind if standard output failed. Errors of files and of the server name their source first.
fn kind_at_stdout(error: &anyhow::Error) -> Option<io::ErrorKind> {
    let first = error.chain().next()?;
    if let Some(error) = first.downcast_ref::<csv::Error>() {
        return match error.kind() {
            csv::ErrorKind::Io(error) => Some(error.kind()),
            _ => None,
        };
    }
    if let Some(error) = first.downcast_ref::<serde_json::Error>() {
        return error.io_error_kind();
    }
    first.downcast_ref::<io::Error>().map(io::Error::kind)
}

/// Whether the error kind indicates a full standard output.
const fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::WriteZero)
}

fn fail(error: &anyhow::Error) -> ExitCode {
    // A reader may close the pipe early (`| head`): this is no error.
    let kind = kind_at_stdout(error);
    if kind == Some(io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    // A closed or full standard error does not change the exit code.
    let place = if kind.is_some_and(is_full) { "cannot write to standard output: " } else { "" };
    let error_text = format!("{place}{error:#}");
    server::plain::note(&error_text).ok();
    let not_started =
        error.chain().find_map(|cause| cause.downcast_ref::<measure::exec::NotStarted>());
    ExitCode::from(not_started.map_or(FAILED, measure::exec::NotStarted::exit_code))
}

fn dispatch(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    // These commands describe the programs, and read no settings.
    match matches.subcommand() {
        Some(("completions", matches)) => return manual::completions(matches),
        Some(("man", matches)) => return manual::man(matches),
        _ => {}
    }
    let settings = config::client_settings();
    let environment = |name: &str| std::env::var(name).ok();
    let flags = config::given(&settings, matches, "client", paths::CLIENT_FILE, &environment);
    let given = config::Given { file: flags.file, environment: &environment, flags: flags.flags };
    let unknown = config::unknown_variables(&settings, std::env::vars_os().map(|(name, _)| name));
    let config = unknown.beside(config::load_client(&given))?.config;
    for line in &unknown.ignored {
        // The error of a closed standard error is ignored.
        server::plain::note(line).ok();
    }
    config::log::set(&config.log, clock).context("opening the log")?;
    let client = || client(&config.client_settings);
    let done = match matches.subcommand() {
        Some(("up", matches)) => return operate::up::up(matches, &config.client_settings),
        Some(("server", matches)) => return program(matches),
        Some(("run", matches)) => return measure::run::run(&client()?, matches, &device()?),
        Some((complete::COMMAND, matches)) => {
            return complete::values(&config.client_settings, matches, cli::command());
        }
        Some(("jobs", matches)) => return look::jobs::jobs(&client()?, matches),
        Some(("job", matches)) => look::jobs::job(&client()?, matches, &device()?),
        Some(("nodes", matches)) => return look::nodes_command::nodes(&client()?, matches),
        Some(("explain", matches)) => return look::nodes_command::explain(&client()?, matches),
        Some(("get", matches)) => return look::data_queries::get(&client()?, matches),
        Some(("gaps", matches)) => return look::gaps::gaps(&client()?, matches),
        Some(("sql", matches)) => look::data_queries::sql(&client()?, matches),
        Some(("set", matches)) => return change::demand::set(&client()?, matches),
        Some(("flush", matches)) => return change::demand::flush(&client()?, matches),
        Some(("promote", matches)) => return change::demand::promote(&client()?, matches),
        Some(("token", matches)) => change::access::token(&client()?, matches),
        Some(("account", matches)) => change::access::account(&client()?, matches),
        Some(("audit", matches)) => look::audit::audit(&client()?, matches),
        Some(("sources", matches)) => node::sources_of_node::sources(matches, &device()?),
        Some(("top", matches)) if node::top::is_of_server(matches) => {
            node::top::top_of_server(matches, client()?)
        }
        Some(("top", matches)) => node::top::top(matches, &device()?),
        Some(("doctor", matches)) => return node::doctor::doctor(matches, &device()?),
        Some(("capture", matches)) => node::sources_of_node::capture(matches, &device()?),
        Some(("backup", matches)) => operate::backup::backup(matches),
        Some(("check", matches)) => return operate::check::check(matches),
        Some(("verify", matches)) => return operate::verify::verify(matches),
        _ => anyhow::bail!("unknown command; see jobmeter --help"),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The URL of the server that a command queries: the configured one, otherwise the one recorded on this node,
/// otherwise `SERVER_DEFAULT`.
fn requested_server(client_settings: &config::ClientSettings) -> String {
    let environment = |name: &str| std::env::var(name).ok();
    let root = rustix::process::geteuid().is_root();
    let url = client_settings.server.clone().or_else(|| paths::server_here(root, &environment));
    url.map_or_else(|| SERVER_DEFAULT.to_owned(), |url| url.as_str().to_owned())
}

fn client(client_settings: &config::ClientSettings) -> anyhow::Result<Client> {
    let token = client_settings.token_file.as_deref().map(config::Token::read).transpose()?;
    Client::new(&requested_server(client_settings), token, client_settings)
}

/// The node's name in every sample.
fn device() -> anyhow::Result<String> {
    let device = match std::env::var("JOBMETER_DEVICE") {
        Ok(named) => DeviceId::new(&named).context("JOBMETER_DEVICE")?,
        Err(_) => agent::device_of(&Root::live()?)?,
    };
    Ok(device.to_string())
}

/// Replaces this process by the server program in the same directory.
fn program(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let arguments =
        matches.get_many::<std::ffi::OsString>("arguments").unwrap_or_default().cloned();
    let mut words = vec!["--".into(), operate::up::beside("jobmeter-server")?.into_os_string()];
    words.extend(arguments);
    let Err(error) = measure::exec::become_program(&words);
    Err(error)
}
