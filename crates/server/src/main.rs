//! `jobmeter-server`: adds flags, signals and the runtime file to [`server::Server`].

use anyhow::Context;
use clap::ArgMatches;
use config::{ConfigErrors, ConfigInputs, Loaded, ServerConfig, ValueOrigin, Values, paths};
use server::poller_process::{self, Part};
use server::{Limits, RuntimeFile, Server, Settings};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Time limit for threads that still answer a query after everything else has ended.
const THREADS_TIME: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(server::sql_worker::ARGUMENT) {
        return sql_worker(arguments.next().and_then(|threads| threads.parse().ok()));
    }
    if let [_, word, file, sources] = &std::env::args().collect::<Vec<_>>()[..]
        && word == server::check::ARGUMENT
    {
        let printed = server::check::print(file.as_ref(), sources, &environment);
        return if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let matches = match config::read_command_line(config::server_command()) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    match run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can report a failure to write to standard error.
            writeln!(io::stderr(), "jobmeter-server: {error:#}").ok();
            ExitCode::from(2)
        }
    }
}

/// Runs a worker process that answers one SQL statement. The server reads its standard error after it dies.
fn sql_worker(threads: Option<usize>) -> ExitCode {
    match server::sql_worker::run(threads.unwrap_or(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Loads the configuration from every layer, at startup and on SIGHUP.
fn load(matches: &ArgMatches) -> Result<Loaded<ServerConfig>, ConfigErrors> {
    let settings = config::server_settings();
    let flags = config::given(&settings, matches, "server", paths::SERVER_FILE, &environment);
    let given = ConfigInputs { file: flags.file, environment: &environment, flags: flags.flags };
    config::load_server(&given, &outputs::kinds())
}

fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let unknown = config::unknown_variables(&config::server_settings(), names);
    let loaded = unknown.beside(load(matches))?;
    for line in &unknown.ignored {
        // Nothing can report a failure to write to standard error.
        writeln!(io::stderr(), "jobmeter-server: {line}").ok();
    }
    config::log::set(&loaded.config.log, server::now).context("opening the log")?;
    // Stored data describes every user's jobs, so only the server's user may read the files.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("server")
        .build()
        .context("starting threads")?;
    let ended = runtime.block_on(serve(matches, loaded));
    runtime.shutdown_timeout(THREADS_TIME);
    ended
}

async fn serve(matches: &ArgMatches, loaded: Loaded<ServerConfig>) -> anyhow::Result<()> {
    // Install the handlers before opening anything, so that no signal gets lost meanwhile.
    let mut signals = Signals::new().context("listening to signals")?;
    let root = rustix::process::geteuid().is_root();
    let data = paths::store_dir(loaded.config.keep.data.as_deref(), root, &environment)
        .map_err(anyhow::Error::msg)?;
    let listen_given =
        loaded.values().raw("listen").is_some_and(|(_, origin)| *origin != ValueOrigin::Default);
    let config = &loaded.config;
    let passed =
        kernel::inherited::listeners().context("taking the sockets of the service manager")?;
    if listen_given {
        warn_of_other_addresses(&passed, &config.listen.listen);
    }
    let settings = Settings {
        config: config.clone(),
        data,
        passed: passed.into(),
        listen_given,
        agent_config: config.keep.agent_config.clone(),
        limits: Limits::default(),
        // The running executable itself, even if another file has replaced it meanwhile.
        sql_worker: Some("/proc/self/exe".into()),
    };
    let server = tokio::select! {
        started = Server::start(settings) => started?,
        // The server may be reading a long log; the next startup reads it again.
        () = signals.end() => return Ok(()),
    };
    let url = server.url();
    let recorded = record(root, &url);
    writeln!(io::stdout(), "ready: {url}")
        .context("notifying the service manager that the server is ready")?;
    let (end, ends) = watch::channel(false);
    let parts = [
        loaded.config.poll.metrics_dir.clone().map(Part::Poll),
        loaded.config.inputs.flags().map(Part::Colmet),
    ];
    let parts = parts.into_iter().flatten().map(|part| {
        let starts = server.poller_starts();
        tokio::spawn(poller_process::supervise(part, url.clone(), starts, ends.clone()))
    });
    let parts: Vec<_> = parts.collect();
    loop {
        match signals.next().await {
            Action::End => break,
            Action::Reload => reload(&server, matches, loaded.values()).await,
        }
    }
    end.send_replace(true);
    for part in parts {
        // Before the server: what it still sends is stored.
        part.await.ok();
    }
    if let Some(recorded) = recorded
        && let Err(error) = recorded.remove()
    {
        log::warn!("cannot remove the runtime file: {error}");
    }
    server.stop().await.context("writing the last samples to a block; they are in the log")
}

/// Warns if the passed sockets have other addresses than the setting.
fn warn_of_other_addresses(passed: &[TcpListener], wanted: &[config::Address]) {
    let passed: Vec<SocketAddr> = passed.iter().filter_map(|one| one.local_addr().ok()).collect();
    let has_other = |address: &SocketAddr| {
        !wanted.iter().any(|wanted| is_requested_address(*address, wanted.0))
    };
    if passed.is_empty() || (passed.len() == wanted.len() && !passed.iter().any(has_other)) {
        return;
    }
    let words = |addresses: &[SocketAddr]| {
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let wanted: Vec<SocketAddr> = wanted.iter().map(|address| address.0).collect();
    log::warn!(
        "listening on {}, where the service manager listens, and not on `listen` ({}); set \
         `ListenStream` in jobmeter-server.socket",
        words(&passed),
        words(&wanted)
    );
}

/// Whether the passed socket has the address of the setting; port 0 in the setting matches any port.
fn is_requested_address(passed: SocketAddr, wanted: SocketAddr) -> bool {
    passed.ip() == wanted.ip() && (wanted.port() == 0 || passed.port() == wanted.port())
}

/// Reloads the configuration. If the new one is invalid, the server logs the error and keeps the old one.
///
/// `started` are the values that the server started with.
async fn reload(server: &Server, matches: &ArgMatches, started: &Values) {
    let taken = async {
        let new = load(matches)?;
        server.reload(&new.config).await?;
        config::log::set(&new.config.log, server::now).context("opening the log")?;
        Ok::<_, anyhow::Error>(new)
    };
    match taken.await {
        Ok(new) => {
            let waiting = new.values().changed_keys(started);
            let waiting: Vec<&str> =
                waiting.into_iter().filter(|key| !server::is_reloadable(key)).collect();
            if !waiting.is_empty() {
                log::warn!(
                    "changes of these settings need a restart of the server: {}",
                    waiting.join(", ")
                );
            }
            log::info!("reloaded configuration, tokens and certificates");
        }
        Err(error) => {
            server.reload_rejected();
            log::error!(
                "cannot reload the configuration; the previous one stays in effect: \
                         {error:#}"
            );
        }
    }
}

/// Writes the runtime file. The server also runs without it.
fn record(root: bool, url: &str) -> Option<RuntimeFile> {
    let path = paths::server_file(root, &environment);
    match RuntimeFile::write(&path, url) {
        Ok(recorded) => {
            if recorded.is_none() {
                log::warn!(
                    "{} records another running server; commands for this server need --server \
                     {url}",
                    path.display()
                );
            }
            recorded
        }
        Err(error) => {
            log::warn!("{}: {error}; commands need --server {url}", path.display());
            None
        }
    }
}

/// Raises the soft limit of open files to the hard limit, because each connection uses a file descriptor.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        log::warn!("cannot raise the limit of open files from {:?}: {error}", limit.current);
    }
}

enum Action {
    End,
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that ends the program.
    async fn end(&mut self) {
        while !matches!(self.next().await, Action::End) {}
    }

    async fn next(&mut self) -> Action {
        tokio::select! {
            _ = self.terminate.recv() => Action::End,
            _ = self.interrupt.recv() => Action::End,
            _ = self.hangup.recv() => Action::Reload,
        }
    }
}
