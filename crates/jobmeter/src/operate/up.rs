//! `jobmeter up`: runs server and agent on this machine, in the foreground.
//!
//! It starts the two programs from its own directory, forwards its signals to them, and all three end together.
//!
//! `up` holds the listening socket and passes it to the server. After a crash it restarts the server: no other
//! program can take the port meanwhile, and connections wait. It also restarts a crashed agent, whose spool has what the
//! server lacks.

use crate::measure::exec::Steps;
use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command as ClapCommand};
use kernel::clock::monotonic_us;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Pause before the restart of a crashed program.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Restarts of an agent that crashes again within [`STEADY_US`] of its start. Then it would crash again.
const AGENT_RESTARTS_MAX: u32 = 5;
/// After this time an agent counts as steady.
const STEADY_US: u64 = 60_000_000;
/// Number of ports tried after the default one, if that is taken and no port was given.
const PORTS_TRIED: u16 = 100;
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Time limit for a program to end before it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(20);

enum Event {
    Signal(i32),
    /// The restarted server answers.
    Ready,
    Ended(&'static str, io::Result<std::process::ExitStatus>),
}

struct Program {
    name: &'static str,
    pid: Pid,
}

impl Program {
    fn send(&self, signal: Signal) {
        // The process may have ended meanwhile; the error is ignored.
        rustix::process::kill_process(self.pid, signal).ok();
    }
}

/// Path of a program in this program's directory.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!(
            "{} not found; build it with `make run`, or install it with `make install`",
            path.display()
        );
    }
    Ok(path)
}

/// Runs server and agent on this machine, in the foreground, until Ctrl-C
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter up --data .jobmeter --listen 127.0.0.1:8790 --period 1s")]
pub(crate) struct UpArgs {
    /// Data folder [default: /var/lib/jobmeter as root, else in the XDG state folder]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the server [default: 127.0.0.1:8790, or the next free port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Interval between readings of the counters [default: 5s]
    #[arg(long, value_name = "TIME")]
    period: Option<String>,
    /// Name of this node in every sample [default: the host's name]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
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
    config::paths::outside_of_stores(&data).map_err(anyhow::Error::msg)?;
    kernel::trust::check_way(&data).context("the data folder")?;
    std::fs::create_dir_all(&data).with_context(|| {
        format!("cannot create {}; choose a writable folder with --data", data.display())
    })?;
    // Registers the signal handlers before any program starts, so that no signal is missed.
    let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let (events, received) = sync_channel(8);
    let arguments = server_arguments(args, &data, verbose);
    let holder = Holder { listener: listener(&arguments, &environment), arguments };
    let (mut child, server) = holder.start()?;
    let stdout = child.stdout.take().context("the server's output")?;
    let url = ready(stdout)?;
    watch(server.name, child, events.clone());
    let mut starts = AgentStarts::new(agent_arguments(args, &data, &url, verbose));
    let agent = match starts.start(&events) {
        Ok(started) => started,
        Err(error) => {
            server.send(Signal::TERM);
            return Err(error);
        }
    };
    forward_signals(signals, events.clone());
    greet(&url, &crate::requested_server(client_settings), args.device.as_deref())?;
    follow(&received, &events, (&holder, &mut starts), [server, agent])
}

/// The server's socket, and the arguments of the server.
struct Holder {
    /// `None`: the server opens its own socket, and reports why it cannot.
    listener: Option<TcpListener>,
    arguments: Vec<OsString>,
}

impl Holder {
    fn start(&self) -> anyhow::Result<(Child, Program)> {
        let socket = self.listener.as_ref().map(TcpListener::try_clone).transpose()?;
        start("jobmeter-server", &self.arguments, socket.map(OwnedFd::from))
    }

    /// Restarts the server; `Ready` follows when it answers.
    fn start_again(&self, events: &SyncSender<Event>) -> anyhow::Result<Program> {
        let (mut child, server) = self.start()?;
        let stdout = child.stdout.take().context("the server's output")?;
        let events_of_program = events.clone();
        std::thread::spawn(move || {
            // A server that does not become ready ends, which is a separate event.
            if ready(stdout).is_ok() {
                events_of_program.send(Event::Ready).ok();
            }
        });
        watch(server.name, child, events.clone());
        Ok(server)
    }
}

/// The starts of the agent, and its arguments.
struct AgentStarts {
    arguments: Vec<OsString>,
    /// Time of the latest start, see [`monotonic_us`].
    last_us: u64,
    /// Restarts since the agent was steady.
    again: u32,
}

impl AgentStarts {
    fn new(arguments: Vec<OsString>) -> Self {
        Self { arguments, last_us: monotonic_us(), again: 0 }
    }

    fn start(&mut self, events: &SyncSender<Event>) -> anyhow::Result<Program> {
        let (child, agent) = start("jobmeter-agent", &self.arguments, None)?;
        self.last_us = monotonic_us();
        watch(agent.name, child, events.clone());
        Ok(agent)
    }

    /// Whether an agent that crashed now may start once more; counts the restart.
    fn may_restart(&mut self) -> bool {
        if monotonic_us().saturating_sub(self.last_us) >= STEADY_US {
            self.again = 0;
        }
        self.again += 1;
        self.again <= AGENT_RESTARTS_MAX
    }
}

/// Opens the server's listening socket. `None`: the settings are wrong, or the address is unavailable; the
/// server reports the error itself.
fn listener(
    arguments: &[OsString],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<TcpListener> {
    let words = [OsString::from("jobmeter-server")].into_iter().chain(arguments.iter().cloned());
    let matches = config::server_command().try_get_matches_from(words).ok()?;
    let settings = config::server_settings();
    let flags =
        config::given(&settings, &matches, "server", config::paths::SERVER_FILE, environment);
    let given = config::ConfigInputs { file: flags.file, environment, flags: flags.flags };
    let loaded = config::load_server(&given).ok()?;
    let address = loaded.config.listen.listen.0;
    let named = loaded.values().raw("listen");
    let named = named.is_some_and(|(_, origin)| *origin != config::ValueOrigin::Default);
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
    if let Some(listen) = &args.listen {
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

fn verbosity(verbose: u8) -> Option<OsString> {
    (verbose > 0).then(|| format!("-{}", "v".repeat(verbose.min(3).into())).into())
}

/// Starts a program in its own process group: only this program receives Ctrl-C, and forwards it once.
fn start(
    name: &'static str,
    arguments: &[OsString],
    socket: Option<OwnedFd>,
) -> anyhow::Result<(Child, Program)> {
    let steps = Steps { end_with_us: true, listen: socket.is_some(), ..Steps::default() };
    let mut command = steps.command(beside(name)?.as_os_str(), arguments)?;
    let stdout = if name == "jobmeter-server" { Stdio::piped() } else { Stdio::inherit() };
    let stdin = socket.map_or_else(Stdio::null, Stdio::from);
    let child = command.process_group(0).stdin(stdin).stdout(stdout).spawn();
    let child = child.with_context(|| format!("starting {name}"))?;
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("the program's process ID")?;
    Ok((child, Program { name, pid }))
}

/// The URL in the server's line `ready: URL`; passes its other output on.
fn ready(stdout: std::process::ChildStdout) -> anyhow::Result<String> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some(url) = line.strip_prefix("ready: ") {
            let url = url.to_owned();
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    writeln!(io::stdout(), "{line}").ok();
                }
            });
            return Ok(url);
        }
        writeln!(io::stdout(), "{line}")?;
    }
    bail!("the server ended before it was ready; its messages above have the cause")
}

fn watch(name: &'static str, mut child: Child, events: SyncSender<Event>) {
    std::thread::spawn(move || {
        let status = child.wait();
        events.send(Event::Ended(name, status)).ok();
    });
}

fn forward_signals(mut signals: signal_hook::iterator::Signals, events: SyncSender<Event>) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
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

fn follow(
    received: &Receiver<Event>,
    events: &SyncSender<Event>,
    (holder, starts): (&Holder, &mut AgentStarts),
    mut programs: [Program; 2],
) -> anyhow::Result<ExitCode> {
    let (mut code, mut ended, mut ending, mut ready) = (0, 0, false, true);
    while ended < programs.len() {
        let event =
            if ending { received.recv_timeout(END_TIME_MAX).ok() } else { received.recv().ok() };
        match event {
            Some(Event::Signal(SIGHUP)) => {
                programs.iter().for_each(|program| program.send(Signal::HUP))
            }
            Some(Event::Signal(_)) => {
                ending = true;
                programs.iter().for_each(|program| program.send(Signal::TERM));
            }
            Some(Event::Ready) => ready = true,
            Some(Event::Ended(name, status)) => {
                let status = status?;
                let [server, agent] = &mut programs;
                let crashed = !status.success() && !ending;
                let is_server = name == server.name;
                // A server that crashed before it was ready would crash again.
                let again = crashed
                    && if is_server {
                        ready && holder.listener.is_some()
                    } else {
                        starts.may_restart()
                    };
                if again {
                    log::error!("{name} ended ({status}); it is started again");
                    std::thread::sleep(RESTART_PAUSE);
                    match is_server {
                        true => {
                            *server = holder.start_again(events)?;
                            ready = false;
                        }
                        false => *agent = starts.start(events)?,
                    }
                    continue;
                }
                ended += 1;
                if !ending {
                    log::error!("{name} ended ({status}); the other is ended too");
                    code = status.code().filter(|code| *code != 0).unwrap_or(1);
                    ending = true;
                    programs.iter().filter(|p| p.name != name).for_each(|p| p.send(Signal::TERM));
                }
            }
            None => {
                log::error!(
                    "a program did not end within {} s and is ended",
                    END_TIME_MAX.as_secs()
                );
                programs.iter().for_each(|program| program.send(Signal::KILL));
                code = 1;
            }
        }
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
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
    fn an_agent_that_crashes_at_each_start_is_restarted_a_few_times() {
        let mut starts = AgentStarts::new(Vec::new());
        let restarts = (0..9).filter(|_| starts.may_restart()).count();
        assert_eq!(restarts, 5);
        starts.last_us = monotonic_us().saturating_sub(STEADY_US);
        assert!(starts.may_restart(), "it was steady");
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
