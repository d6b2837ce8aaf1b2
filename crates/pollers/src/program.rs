//! The command line of `jobmeter-poller`.

use crate::descriptions::{Directory, Load, Severity, read_directory, summary};
use crate::polling::poll_once;
use crate::running::run;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use config::{ConfigInputs, Flags, PollerConfig, paths};
use delivery::environment;
use model::{expand_hosts, printable};
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code of a folder with errors.
const WRONG: u8 = 1;
/// Exit code of a command that failed.
const FAILED: u8 = 2;

/// Reads devices outside of the nodes: PDUs, BMCs, switches, exporters, meters
#[derive(clap::Parser, Debug)]
#[command(name = "jobmeter-poller", version)]
enum Command {
    /// Checks description files: lists all errors, then the requests and the rows per second
    Check {
        /// The folder of description files
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Polls the devices of description files, and sends the samples to the server
    ///
    /// Every setting is also a key of /etc/jobmeter/poller.toml and an environment variable. With --once --print it
    /// polls every device once and prints the samples as `jobmeter-agent --print` does; it then sends nothing.
    Poll {
        /// The folder of description files
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Poll once, then end
        #[arg(long, requires = "print")]
        once: bool,
        /// Print the samples
        #[arg(long, requires = "once")]
        print: bool,
        /// Only these devices, such as pdu-[1-8],node-1-bmc [default: all]
        #[arg(long, value_name = "LIST")]
        devices: Option<String>,
    },
}

/// Devices of a list.
const DEVICES_MAX: usize = 65_536;

/// Runs the program.
pub fn main() -> ExitCode {
    let settings = config::poller_settings();
    let flags = config::flags(&settings);
    let program = Command::command().mut_subcommand("poll", |poll| poll.args(flags));
    let matches = match config::read_command_line(program) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let result = match Command::from_arg_matches(&matches) {
        Ok(Command::Check { dir, json }) => check(&dir, json),
        Ok(Command::Poll { dir, once: true, devices, .. }) => poll(&dir, devices.as_deref()),
        Ok(Command::Poll { dir, devices, .. }) => follow(&dir, devices.as_deref(), &matches),
        Err(error) => Err(io::Error::other(error)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) => {
            let shown = printable(&error.to_string()).into_owned();
            writeln!(io::stderr(), "jobmeter-poller: {shown}").unwrap_or_default();
            ExitCode::from(FAILED)
        }
    }
}

/// Polls the devices of a folder until a signal ends the program.
fn follow(dir: &Path, devices: Option<&str>, matches: &ArgMatches) -> io::Result<bool> {
    let matches = matches.subcommand_matches("poll").unwrap_or(matches);
    let config = configuration(matches)?;
    config::log::set(&config.log, delivery::wall)?;
    let devices = devices.map(names).transpose()?;
    run(&config, dir, devices.as_deref()).map_err(io::Error::other)?;
    Ok(true)
}

/// The settings of the poller, from its file, the environment and the flags.
fn configuration(matches: &ArgMatches) -> io::Result<PollerConfig> {
    let settings = config::poller_settings();
    let names = std::env::vars_os().map(|(name, _)| name);
    let unknown = config::unknown_variables(&settings, names);
    let file = paths::POLLER_FILE;
    let Flags { file, flags } = config::given(&settings, matches, "poller", file, &environment);
    let given = ConfigInputs { file, environment: &environment, flags };
    let loaded = unknown.beside(config::load_poller(&given)).map_err(io::Error::other)?;
    for line in &unknown.ignored {
        writeln!(io::stderr(), "jobmeter-poller: {line}")?;
    }
    Ok(loaded.config)
}

/// The names of a list of devices.
fn names(list: &str) -> io::Result<Vec<String>> {
    expand_hosts(list, DEVICES_MAX).map_err(|error| io::Error::other(format!("--devices: {error}")))
}

/// Polls the devices of a folder once. Returns whether everything was read.
fn poll(dir: &Path, devices: Option<&str>) -> io::Result<bool> {
    let mut directory = read(dir)?;
    let mut stderr = io::stderr();
    for finding in &directory.findings {
        writeln!(stderr, "{}", printable(&finding.to_string()))?;
    }
    if let Some(list) = devices {
        let names = names(list)?;
        let known =
            |name: &&String| directory.descriptions.iter().any(|one| one.device.as_str() == **name);
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            let what = format!("no entry has the device {}", unknown.escape_debug());
            return Err(io::Error::other(what));
        }
        directory.descriptions.retain(|one| names.iter().any(|name| name == one.device.as_str()));
    }
    let is_good = !directory.has_errors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stdout = Box::new(io::stdout());
    let polled = runtime.block_on(poll_once(directory.descriptions, stdout, &mut stderr))?;
    // A name that is being looked up must not delay the end.
    runtime.shutdown_background();
    Ok(polled && is_good)
}

fn read(dir: &Path) -> io::Result<Directory> {
    read_directory(dir).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot read {}: {error}", dir.display()))
    })
}

/// Prints the errors of a folder, and its requests. Returns whether there are no errors.
fn check(dir: &Path, json: bool) -> io::Result<bool> {
    let directory = read(dir)?;
    let is_good = !directory.has_errors();
    if json {
        writeln!(io::stdout().lock(), "{}", as_json(&directory))?;
        return Ok(is_good);
    }
    let mut stderr = io::stderr().lock();
    for finding in &directory.findings {
        writeln!(stderr, "{}", printable(&finding.to_string()))?;
    }
    let mut stdout = io::stdout().lock();
    for line in summary(&directory).lines() {
        writeln!(stdout, "{}", printable(line))?;
    }
    Ok(is_good)
}

fn as_json(directory: &Directory) -> Value {
    let findings = directory.findings.iter().map(|finding| {
        json!({
            "file": &*finding.file,
            "line": (finding.line > 0).then_some(finding.line),
            "severity": if finding.severity == Severity::Error { "error" } else { "warning" },
            "what": finding.what,
        })
    });
    let requests = directory.descriptions.iter().map(|one| {
        let meaning = one.meaning();
        json!({
            "file": &*one.file,
            "line": one.line,
            "metric": one.name,
            "device": one.device.as_str(),
            "target": one.target.to_string(),
            "period_seconds": one.period.as_secs_f64(),
            "optional": one.is_optional,
            "kind": meaning.map(|meaning| meaning.kind.word()),
            "unit": meaning.map(|meaning| meaning.unit.word()),
            "meaning": meaning.map(|m| if m.is_declared { "declared" } else { "assumed" }),
            "labels": serde_json::from_str::<Value>(one.labels.as_str()).unwrap_or_default(),
        })
    });
    let load = Load::of(&directory.descriptions);
    json!({
        "good": !directory.has_errors(),
        "files": directory.files,
        "findings": findings.collect::<Vec<_>>(),
        "requests": requests.collect::<Vec<_>>(),
        "rows_per_second": load.always,
        "rows_per_second_promoted": load.always + load.promoted,
        "entries_of_unknown_rows": load.exporters,
        "rejected_by_kwollect": directory.rejected_by_kwollect,
    })
}
