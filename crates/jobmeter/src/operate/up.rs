//! `jobmeter up`: runs server and agent on this machine, in the foreground, and a poller if a folder is named.
//!
//! It starts the programs from its own directory, forwards its signals to them, and all end together.
//!
//! `up` holds the listening sockets and passes them to the server. After a crash it restarts the server: no other
//! program can take their ports meanwhile, and connections wait. It also restarts a crashed agent or poller,
//! and its spool has the samples that the server did not receive.

mod programs;

pub(crate) use programs::beside;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command as ClapCommand};
use programs::{Holder, POLLER, ProgramStarts, follow, forward_signals, ready, watch};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

/// Number of ports tried after the default one, if that is taken and no port was given.
const PORTS_TRIED: u16 = 100;
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Runs server and agent on this machine, in the foreground, until Ctrl-C
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter up --data .jobmeter --listen 127.0.0.1:8790 --period 1s")]
pub(crate) struct UpArgs {
    /// Data folder [default: /var/lib/jobmeter as root, else in the XDG state folder]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the server; for several, repeat the flag [default: 127.0.0.1:8790, or the next free port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<String>,
    /// Interval between readings of the counters [default: 5s]
    #[arg(long, value_name = "TIME")]
    period: Option<String>,
    /// Name of this node in every sample [default: the host's name]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Poll the devices of this folder of description files, too
    #[arg(long, value_name = "DIR")]
    poll: Option<PathBuf>,
    #[command(flatten)]
    retention: Retention,
}

// The server's retention options, with their values; no docstring, which would replace the description of `up`.
#[derive(Debug)]
struct Retention(Vec<(String, String)>);

/// The server's retention settings, with the flags of the same names.
fn retention() -> Vec<(config::Setting, Arg)> {
    let settings = config::server_settings().into_iter();
    let settings = settings.filter(|setting| setting.key.starts_with("retention."));
    let flag = |setting: config::Setting| {
        let flags = config::flags(std::slice::from_ref(&setting));
        let flag = flags.into_iter().find(|flag| *flag.get_id() == *setting.key);
        flag.map(|flag| (setting, flag))
    };
    settings.filter_map(flag).collect()
}

impl clap::Args for Retention {
    fn augment_args(command: ClapCommand) -> ClapCommand {
        command.args(retention().into_iter().map(|(_, flag)| flag))
    }

    fn augment_args_for_update(command: ClapCommand) -> ClapCommand {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Retention {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = retention().into_iter().filter_map(|(setting, _)| {
            let value = matches.get_one::<String>(&setting.key)?;
            Some((setting.flag(), value.clone()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs both until a signal, or until one of them ends. `verbose` is the number of flags `-v`.
pub(crate) fn up(
    args: &UpArgs,
    verbose: u8,
    client_settings: &config::ClientSettings,
) -> anyhow::Result<ExitCode> {
    let environment = |name: &str| std::env::var(name).ok();
    let root = rustix::process::geteuid().is_root();
    let data = match &args.data {
        Some(dir) => dir.clone(),
        None => config::state_dir(root, &environment)
            .context("no folder for the data; name one with --data")?,
    };
    check_agent(&agent_arguments(args, &data, crate::SERVER_DEFAULT, verbose), &environment)?;
    if let Some(dir) = &args.poll {
        std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    }
    config::paths::outside_of_stores(&data).map_err(anyhow::Error::msg)?;
    kernel::trust::check_way(&data).context("the data folder")?;
    std::fs::create_dir_all(&data).with_context(|| {
        format!("cannot create {}; choose a writable folder with --data", data.display())
    })?;
    // Registers the signal handlers before any program starts, so that no signal is missed.
    let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let (events, received) = sync_channel(8);
    let arguments = server_arguments(args, &data, verbose);
    let listeners = listeners(&arguments, &environment).unwrap_or_default();
    let holder = Holder { listeners, arguments };
    let (mut child, server) = holder.start()?;
    let stdout = child.stdout.take().context("the server's output")?;
    let url = ready(stdout)?;
    watch(server.name, child, events.clone());
    let agent = agent_arguments(args, &data, &url, verbose);
    let mut starts = vec![ProgramStarts::new("jobmeter-agent", agent)];
    starts.extend(
        args.poll
            .iter()
            .map(|dir| ProgramStarts::new(POLLER, poller_arguments(dir, &data, &url, verbose))),
    );
    let mut programs = vec![server];
    for one in &mut starts {
        match one.start(&events) {
            Ok(started) => programs.push(started),
            Err(error) => {
                programs.iter().for_each(|program| program.send(Signal::TERM));
                return Err(error);
            }
        }
    }
    forward_signals(signals, events.clone());
    greet(&url, &crate::requested_server(client_settings), args.device.as_deref())?;
    follow(&received, &events, (&holder, &mut starts), programs)
}

/// Opens the server's listening sockets. `None`: the settings are wrong, or an address is unavailable; the
/// server reports the error itself.
fn listeners(
    arguments: &[OsString],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<Vec<TcpListener>> {
    let words = [OsString::from("jobmeter-server")].into_iter().chain(arguments.iter().cloned());
    let matches = config::server_command().try_get_matches_from(words).ok()?;
    let settings = config::server_settings();
    let flags =
        config::given(&settings, &matches, "server", config::paths::SERVER_FILE, environment);
    let given = config::ConfigInputs { file: flags.file, environment, flags: flags.flags };
    let loaded = config::load_server(&given, &outputs::kinds()).ok()?;
    let named = loaded.values().raw("listen");
    let named = named.is_some_and(|(_, origin)| *origin != config::ValueOrigin::Default);
    loaded.config.listen.listen.iter().map(|address| listener(address.0, named)).collect()
}

fn listener(address: SocketAddr, named: bool) -> Option<TcpListener> {
    let last = if named { address.port() } else { address.port().saturating_add(PORTS_TRIED) };
    let listener = (address.port()..=last)
        .find_map(|port| TcpListener::bind(SocketAddr::new(address.ip(), port)).ok())?;
    // The standard library's backlog is smaller.
    rustix::net::listen(&listener, BACKLOG).ok()?;
    Some(listener)
}

/// Rejects invalid agent settings before any program starts.
fn check_agent(
    arguments: &[OsString],
    environment: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    let sources = agent::source_settings();
    let words = [OsString::from("jobmeter-agent")].into_iter().chain(arguments.iter().cloned());
    let matches = config::agent_command(&sources).try_get_matches_from(words)?;
    let settings = config::agent_settings(&sources);
    let flags = config::given(&settings, &matches, "agent", config::paths::AGENT_FILE, environment);
    agent::load(&config::ConfigInputs { file: flags.file, environment, flags: flags.flags })?;
    Ok(())
}

fn server_arguments(args: &UpArgs, data: &Path, verbose: u8) -> Vec<OsString> {
    let mut arguments = vec!["--data".into(), data.join(config::paths::STORE_DIR).into_os_string()];
    for listen in &args.listen {
        arguments.extend(["--listen".into(), listen.into()]);
    }
    for (flag, value) in &args.retention.0 {
        arguments.extend([flag.into(), value.into()]);
    }
    arguments.extend(verbosity(verbose));
    arguments
}

fn agent_arguments(args: &UpArgs, data: &Path, url: &str, verbose: u8) -> Vec<OsString> {
    let spool = data.join("spool").into_os_string();
    let mut arguments = vec!["--server".into(), url.into(), "--spool".into(), spool];
    for (flag, value) in [("--period", &args.period), ("--device", &args.device)] {
        arguments.extend(value.iter().flat_map(|value| [flag.into(), value.into()]));
    }
    arguments.extend(verbosity(verbose));
    arguments
}

fn poller_arguments(dir: &Path, data: &Path, url: &str, verbose: u8) -> Vec<OsString> {
    let spool = data.join("poller").into_os_string();
    let mut arguments = vec!["poll".into(), dir.into()];
    arguments.extend(["--server".into(), url.into(), "--spool".into(), spool]);
    arguments.extend(verbosity(verbose));
    arguments
}

fn verbosity(verbose: u8) -> Option<OsString> {
    (verbose > 0).then(|| format!("-{}", "v".repeat(verbose.min(3).into())).into())
}

/// Prints the next steps. `asked` is the default server of commands: if it is another one, the printed command
/// line names this server.
fn greet(url: &str, url_wanted: &str, device: Option<&str>) -> io::Result<()> {
    let own = std::env::args().next().unwrap_or_else(|| "jobmeter".to_owned());
    let line = line_to_copy(&own, url, url_wanted, device);
    let mut out = io::stdout().lock();
    writeln!(out, "ready: {url}")?;
    writeln!(
        out,
        "Open it in a browser. To measure a command as a job, type in another terminal:"
    )?;
    writeln!(out, "    {line}")?;
    out.flush()
}

fn line_to_copy(own: &str, url: &str, url_wanted: &str, device: Option<&str>) -> String {
    let server = if url == url_wanted { String::new() } else { format!(" --server {url}") };
    // The job and the agent's samples must use the same node name.
    let device = device.map_or_else(String::new, |device| format!(" --device {device}"));
    format!("{own} run{server}{device} -- make -j2")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    fn parse(words: &[&str]) -> UpArgs {
        let command = UpArgs::augment_args(ClapCommand::new("up").no_binary_name(true));
        UpArgs::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn what_is_kept_is_passed_on_to_the_server() {
        let words = ["--retention-samples-age-max", "2d", "--listen", "127.0.0.1:1"];
        let arguments = server_arguments(&parse(&words), Path::new("/d"), 0);
        let want =
            ["--data", "/d/store", "--listen", "127.0.0.1:1", "--retention-samples-age-max", "2d"];
        assert_eq!(arguments, want);
    }

    #[test]
    fn what_the_agent_would_reject_is_rejected_before_anything_starts() {
        let check = |words: &[&str]| {
            let arguments =
                agent_arguments(&parse(words), Path::new("/d"), crate::SERVER_DEFAULT, 0);
            let file = |name: &str| (name == "JOBMETER_AGENT_FILE").then(|| "/dev/null".to_owned());
            check_agent(&arguments, &file).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(check(&["--period", "1s"]), Ok(()));
        for words in [["--period", "0"], ["--period", "x"]] {
            let error = check(&words).unwrap_err();
            assert!(error.contains(words[0]), "{words:?}: {error}");
        }
    }

    #[test]
    fn the_line_to_copy_queries_this_server() {
        let (here, other) = ("http://127.0.0.1:8791", "http://127.0.0.1:8790");
        assert_eq!(line_to_copy("./jobmeter", here, here, None), "./jobmeter run -- make -j2");
        let line = line_to_copy("./jobmeter", here, other, Some("unode"));
        assert_eq!(
            line,
            "./jobmeter run --server http://127.0.0.1:8791 --device unode -- make -j2"
        );
    }
}
