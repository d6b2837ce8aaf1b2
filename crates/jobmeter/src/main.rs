//! The command `jobmeter`: runs a command as a job, queries a server, shows what a node can measure, and starts
//! the other jobmeter programs.

mod change;
mod cli;
mod client;
mod compare;
mod complete;
mod look;
mod manual;
mod measure;
mod node;
mod operate;
mod output;

use anyhow::Context;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, FromArgMatches as _};
use cli::Commands;
use client::http_client::{Client, Rejected};
use complete::ValuesArgs;
use config::{ConfigErrors, ValueOrigin, paths};
use delivery::wall as clock;
use kernel::Root;
use measure::run::options::RunArgs;
use model::DeviceId;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Server URL of `jobmeter up` if no server is recorded.
const SERVER_DEFAULT: &str = "http://127.0.0.1:8790";

/// Exit code of a command for something that does not exist.
const NOT_FOUND: u8 = 1;
/// Exit code of a command that failed.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let words = own_words(std::env::args_os().collect());
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
    // Its options are Colmet's: some have the names of this program's own.
    if let [_, word, rest @ ..] = &words[..] {
        let ended = match word.to_str() {
            Some(node::colmet_node::COMMAND) => Some(node::colmet_node::run(rest)),
            Some(operate::colmet_collector::COMMAND) => Some(operate::colmet_collector::run(rest)),
            _ => None,
        };
        if let Some(ended) = ended {
            return ended.unwrap_or_else(|error| fail(&error));
        }
    }
    // The completion command is hidden: it appears in no script, manual or help.
    let matches = match cli::command().subcommand(complete::command()).try_get_matches_from(&words)
    {
        Ok(matches) => matches,
        Err(error) => return rejected(cli::misplaced_words::with_advice(error, &words)),
    };
    match dispatch(&matches) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// The words of the command line. A link to the program that is named `colmet_extract` is the command `extract`.
fn own_words(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_stem());
    if name.is_some_and(|name| name == look::extract::NAME) {
        // Its usage is then that of a command that exists.
        if let Some(name) = words.first_mut() {
            *name = "jobmeter".into();
        }
        words.insert(1, "extract".into());
    }
    words
}

/// Prints clap's output: help, version, or an error in the arguments.
fn rejected(mut error: clap::Error) -> ExitCode {
    drop_misleading_tips(&mut error);
    let printed = if error.use_stderr() {
        // The message repeats arguments, which may contain any byte.
        let text = client::plain::short_words(&error.render().to_string());
        write!(io::stderr(), "{}", client::plain::plain_lines(&text))
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
    client::plain::note(&error_text).ok();
    let not_started =
        error.chain().find_map(|cause| cause.downcast_ref::<measure::exec::NotStarted>());
    let is_not_found = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<Rejected>().is_some_and(Rejected::is_not_found)
    };
    let failed = if error.chain().any(is_not_found) { NOT_FOUND } else { FAILED };
    ExitCode::from(not_started.map_or(failed, measure::exec::NotStarted::exit_code))
}

fn dispatch(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    // Values for shell completion come from a hidden command beside the others.
    if let Some((complete::COMMAND, values)) = matches.subcommand() {
        let (config, values) = (client_config(matches)?, ValuesArgs::from_arg_matches(values)?);
        return complete::values(&config.client_settings, &values, cli::command());
    }
    let command = Commands::from_arg_matches(matches)?;
    match &command {
        // These commands describe the programs, and read no settings.
        Commands::Completions(args) => manual::completions(args, cli::command()),
        Commands::Man(args) => manual::man(args, cli::command()),
        Commands::Dashboards(args) => operate::dashboards::dashboards(args),
        Commands::ColmetNode(args) => args.run(),
        Commands::Import(args) => operate::import::import(args),
        Commands::ColmetCollector(args) => args.run(),
        Commands::Extract(args) => look::extract::extract(args),
        Commands::Run(args) => run(args, matches),
        // The poller reads its own settings.
        Commands::Poll(args) => match operate::poll::poll(args, &poller_flags(matches))? {},
        Commands::Feed(args) => match operate::poll::feed(args, &poller_flags(matches))? {},
        Commands::Kwollector(args) => {
            match operate::poll::kwollector(args, &poller_flags(matches))? {}
        }
        Commands::KwollectorWattmetre(args) => {
            match operate::poll::kwollector_wattmetre(args, &poller_flags(matches))? {}
        }
        _ => execute(&command, matches, &client_config(matches)?),
    }
}

/// The settings of the command, from its file, the environment and the options of `matches`.
fn client_config(matches: &ArgMatches) -> anyhow::Result<config::ClientConfig> {
    let settings = config::client_settings();
    let environment = |name: &str| std::env::var(name).ok();
    let flags = config::given(&settings, matches, "client", paths::CLIENT_FILE, &environment);
    let given =
        config::ConfigInputs { file: flags.file, environment: &environment, flags: flags.flags };
    let unknown = config::unknown_variables(&settings, std::env::vars_os().map(|(name, _)| name));
    let config = unknown.beside(config::load_client(&given))?.config;
    for line in &unknown.ignored {
        // The error of a closed standard error is ignored.
        client::plain::note(line).ok();
    }
    Ok(config)
}

/// `jobmeter run`. A faulty settings file, or a faulty file that it names, does not stop the command: it runs without a
/// server.
fn run(args: &RunArgs, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let defaults = || config::ConfigInputs {
        file: config::ConfigFile::None,
        environment: &|_| None,
        flags: Vec::new(),
    };
    let (config, mut failure) = match client_config(matches) {
        Err(error) if is_of_file(&error) => (config::load_client(&defaults())?.config, Some(error)),
        loaded => (loaded?, None),
    };
    config::log::set(&config.log, clock).context("opening the log")?;
    let with = |settings| client(settings);
    let client = match with(&config.client_settings) {
        Err(error) => {
            failure = Some(error);
            with(&config::load_client(&defaults())?.config.client_settings)?
        }
        client => client?,
    };
    if let Some(error) = &failure {
        client::plain::note(&format!("{error:#}; the command runs without a server")).ok();
    }
    measure::run::run(&client, failure.is_none(), args, &device()?)
}

/// Whether an error of the settings is one of their file, not of a flag or a variable.
fn is_of_file(error: &anyhow::Error) -> bool {
    let is_of_file = |error: &config::ConfigError| {
        matches!(error.place, ValueOrigin::File { .. } | ValueOrigin::Default)
    };
    error.downcast_ref::<ConfigErrors>().is_some_and(|errors| errors.0.iter().all(is_of_file))
}

/// Executes a command that has settings.
fn execute(
    command: &Commands,
    matches: &ArgMatches,
    config: &config::ClientConfig,
) -> anyhow::Result<ExitCode> {
    config::log::set(&config.log, clock).context("opening the log")?;
    let settings = &config.client_settings;
    let client = || client(settings);
    let done = match command {
        Commands::Up(args) => {
            return operate::up::up(args, matches.get_count("verbose"), settings);
        }
        Commands::Server { arguments } => return program(arguments),
        Commands::Jobs(args) => return look::jobs::jobs(&client()?, args),
        Commands::Job(args) => look::job::job(&client()?, args, &device()?),
        Commands::Nodes(args) => return look::nodes_command::nodes(&client()?, args),
        Commands::Devices(args) => return look::devices::devices(&client()?, args),
        Commands::Explain(args) => return look::explain::explain(&client()?, args),
        Commands::Get(args) => return look::data_queries::get(&client()?, args),
        Commands::Gaps(args) => return look::gaps::gaps(&client()?, args),
        Commands::Sql(args) => look::data_queries::sql(&client()?, args),
        Commands::Set(args) => return change::demand::set(&client()?, args),
        Commands::Flush(args) => return change::demand::flush(&client()?, args),
        Commands::Promote(args) => return change::demand::promote(&client()?, args),
        Commands::Token(args) => change::access::token(&client()?, args),
        Commands::Account(args) => change::access::account(&client()?, args),
        Commands::Audit(args) => look::audit::audit(&client()?, args),
        Commands::Compare(args) => {
            return compare::compare(args, settings, &requested_server(settings));
        }
        Commands::Outputs(args) => return look::outputs::outputs(&client()?, args),
        Commands::Fill(args) => look::outputs::fill(&client()?, args),
        Commands::Sources(args) => node::sources_of_node::sources(args, &device()?)
            .and_then(|protocol| protocol.map_or(Ok(()), operate::poll::manual)),
        Commands::Top(args) if args.cluster || matches.contains_id("server") => {
            node::top::top_of_server(args, client()?)
        }
        Commands::Top(args) => node::top::top(args, &device()?),
        Commands::Doctor(args) => {
            return node::doctor::doctor(args, &connection_flags(matches), &device()?);
        }
        Commands::Capture(args) => node::sources_of_node::capture(args, &device()?),
        Commands::Backup(args) => operate::backup::backup(args),
        Commands::Db(args) => operate::db::db(args),
        Commands::Check(args) => return operate::check::check(args),
        Commands::Verify(args) => return operate::verify::verify(args),
        // `dispatch` executes them.
        Commands::Completions(_)
        | Commands::Man(_)
        | Commands::Dashboards(_)
        | Commands::ColmetNode(_)
        | Commands::Import(_)
        | Commands::ColmetCollector(_)
        | Commands::Extract(_)
        | Commands::Run(_)
        | Commands::Poll(_)
        | Commands::Feed(_)
        | Commands::Kwollector(_)
        | Commands::KwollectorWattmetre(_) => Ok(()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The flags of this call that name a server and the files for it, not the variables and the file.
fn connection_flags(matches: &ArgMatches) -> Vec<(String, config::Raw)> {
    let mut flags = client_flags(matches);
    flags.retain(|(key, _)| !key.starts_with("log."));
    flags
}

/// The flags of this call that a poller accepts, with the file of its settings.
fn poller_flags(matches: &ArgMatches) -> Vec<(String, config::Raw)> {
    let settings = config::poller_settings();
    let of_command = matches.subcommand().map_or(matches, |(_, matches)| matches);
    let mut flags = config::given(&settings, of_command, "poller", "", &|_| None).flags;
    let file = matches.get_one::<String>("config").cloned();
    flags.extend(file.map(|file| ("config".to_owned(), config::Raw::One(file))));
    flags
}

fn client_flags(matches: &ArgMatches) -> Vec<(String, config::Raw)> {
    let settings = config::client_settings();
    config::given(&settings, matches, "client", paths::CLIENT_FILE, &|_| None).flags
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
fn program(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut words = vec!["--".into(), operate::up::beside("jobmeter-server")?.into_os_string()];
    words.extend_from_slice(arguments);
    let Err(error) = measure::exec::become_program(&words);
    Err(error)
}
