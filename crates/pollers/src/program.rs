//! The command line of `jobmeter-poller`.

use crate::PROGRAM;
use crate::colmet_listener;
use crate::descriptions::{
    Directory, Load, Pins, Severity, catalogue_conflicts, manual, pins_file, read_directory,
    summary,
};
use crate::kwollect_config::{self, KWOLLECTOR, Key, KwollectConfig, WATTMETRE};
use crate::polling::{pin, poll_once};
use crate::protocols::PROTOCOLS;
use crate::running::run;
use crate::wattmeter::{self, FeedOptions, LineVersion};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use config::{ConfigInputs, Flags, PollerConfig, Raw, paths};
use delivery::{environment, requested_server};
use model::{NodeList, printable};
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
        /// Pin the certificates that the system's roots do not verify, then end
        #[arg(long, conflicts_with = "once")]
        pin: bool,
        /// The process that starts this one, and ends it when it ends
        #[arg(long, value_name = "PID", hide = true)]
        end_with: Option<u32>,
    },
    /// Reads the lines of a wattmeter from standard input, and sends its power to the server
    ///
    /// Every setting is also a key of /etc/jobmeter/poller.toml and an environment variable. The exit code is 0 if every
    /// sample is stored or in the spool, and 1 if samples are lost at the end.
    Feed {
        /// The program that prints the lines: wattmetre-read
        #[arg(value_name = "FORMAT", value_parser = ["wattmetre"])]
        format: String,
        /// The ID of the meter: its ports are the devices ID-portN
        #[arg(long, value_name = "ID", default_value = "wattmetre")]
        id: String,
        /// The version of the lines
        #[arg(long = "version", value_name = "N", value_parser = ["2", "3"], default_value = "2")]
        line_version: String,
        /// YAML file with the nodes that the ports feed: `node: [ID-port0, …]`
        #[arg(long, value_name = "FILE")]
        mapping: Option<PathBuf>,
        /// Store each sample instead of the means of seconds
        #[arg(long)]
        every_sample: bool,
    },
    /// Receives the messages of Colmet's nodes, and sends their samples and jobs to the server
    ///
    /// Every setting is also a key of /etc/jobmeter/poller.toml and an environment variable. SIGHUP reads the files again that name
    /// counters.
    Colmet {
        /// The process that starts this one, and ends it when it ends
        #[arg(long, value_name = "PID", hide = true)]
        end_with: Option<u32>,
    },
    /// Prints the manual of a protocol: its URLs, values and failures, and the keys of an entry
    Manual {
        /// The protocol
        #[arg(value_name = "PROTOCOL", value_parser = api::POLLED_PROTOCOLS)]
        protocol: String,
    },
    /// Polls as kwollector does, with its configuration file
    Kwollector,
    /// Reads a wattmeter as kwollector-wattmetre does, with its configuration file
    KwollectorWattmetre,
}

/// The setting of the log's level.
const LOG_LEVEL: &str = "log.level";

/// Runs the program.
pub fn main() -> ExitCode {
    let matches = match config::read_command_line(command()) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let of_command = matches.subcommand().map_or(&matches, |(_, matches)| matches);
    let result = match Command::from_arg_matches(&matches) {
        Ok(Command::Check { dir, json }) => check(&dir, json),
        Ok(Command::Poll { dir, once: true, devices, .. }) => {
            poll(&dir, devices.as_deref(), of_command)
        }
        Ok(Command::Poll { dir, pin: true, devices, .. }) => {
            pin_certificates(&dir, devices.as_deref(), of_command)
        }
        Ok(Command::Poll { dir, devices, end_with, .. }) => {
            let config = with_parent(end_with).and_then(|()| configuration(of_command, None));
            config.and_then(|config| follow(&dir, devices.as_deref(), &config))
        }
        Ok(Command::Feed { id, line_version, mapping, every_sample: is_every_sample, .. }) => {
            let version = if line_version == "3" { LineVersion::V3 } else { LineVersion::V2 };
            let options = FeedOptions { id, version, mapping, is_every_sample };
            configuration(of_command, None).and_then(|config| feed(&options, &config))
        }
        Ok(Command::Colmet { end_with }) => {
            let config = with_parent(end_with).and_then(|()| configuration(of_command, None));
            config.and_then(|config| receive_of_colmet(&config))
        }
        Ok(Command::Manual { protocol }) => print_manual(&protocol),
        Ok(Command::Kwollector) => kwollector(of_command),
        Ok(Command::KwollectorWattmetre) => kwollector_wattmetre(of_command),
        Err(error) => Err(io::Error::other(error)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) => {
            for line in error.to_string().lines() {
                writeln!(io::stderr(), "{PROGRAM}: {}", printable(line)).unwrap_or_default();
            }
            ExitCode::from(FAILED)
        }
    }
}

/// Ends this process when the one that started it ends.
fn with_parent(parent: Option<u32>) -> io::Result<()> {
    match parent.map(kernel::parent::end_with).transpose()? {
        Some(false) => Err(io::Error::other("the process that started it has ended")),
        _ => Ok(()),
    }
}

/// The command line, with a flag for each setting.
fn command() -> clap::Command {
    let flags = config::flags(&config::polling_settings());
    let of_colmet = config::flags(&config::colmet_settings());
    let of_feed = config::flags(&config::feed_settings());
    let with_keys = |command: clap::Command, keys: &[Key], flags: Vec<clap::Arg>| {
        // As Python's argparse does.
        command.args(kwollect_config::args(keys)).args(flags).infer_long_args(true)
    };
    Command::command()
        .mut_subcommand("poll", |poll| poll.args(flags.clone()))
        .mut_subcommand("feed", |feed| feed.args(of_feed.clone()))
        .mut_subcommand("colmet", |colmet| colmet.args(of_colmet))
        .mut_subcommand("kwollector", |one| with_keys(one, &KWOLLECTOR[..], flags))
        .mut_subcommand("kwollector-wattmetre", |one| with_keys(one, &WATTMETRE[..], of_feed))
}

/// Polls as the configuration of kwollector states.
fn kwollector(matches: &ArgMatches) -> io::Result<bool> {
    let (kwollect, config) = read_kwollect(&KWOLLECTOR, matches)?;
    follow(&kwollect.metrics_dir(), None, &config)
}

/// Reads a wattmeter as the configuration of kwollector-wattmetre states.
fn kwollector_wattmetre(matches: &ArgMatches) -> io::Result<bool> {
    let (kwollect, config) = read_kwollect(&WATTMETRE, matches)?;
    feed(&kwollect.feed_options(), &config)
}

/// The configuration of an original, and the settings. Without a server, the error has the command that starts one.
fn read_kwollect(
    keys: &'static [Key],
    matches: &ArgMatches,
) -> io::Result<(KwollectConfig, PollerConfig)> {
    let kwollect = KwollectConfig::read(keys, matches).map_err(io::Error::other)?;
    for note in &kwollect.notes {
        writeln!(io::stderr(), "jobmeter-poller: {}", printable(note))?;
    }
    let config = configuration(matches, kwollect.log_level())?;
    if requested_server(&config.server).is_none() {
        return Err(io::Error::other(format!(
            "no server: `server` is not set, and no local server is running. To run one on the \
             database of kwollector, write its password to FILE, and run:\n{}",
            kwollect.server_command()
        )));
    }
    Ok((kwollect, config))
}

/// Reads a wattmeter until its lines end. Returns whether nothing is lost at the end.
fn feed(options: &FeedOptions, config: &PollerConfig) -> io::Result<bool> {
    config::log::set(&config.log, delivery::wall)?;
    wattmeter::run(config, options).map_err(io::Error::other)
}

/// Receives messages of Colmet's nodes until a signal ends the program.
fn receive_of_colmet(config: &PollerConfig) -> io::Result<bool> {
    config::log::set(&config.log, delivery::wall)?;
    colmet_listener::run(config).map_err(io::Error::other)?;
    Ok(true)
}

/// Polls the devices of a folder until a signal ends the program.
fn follow(dir: &Path, devices: Option<&str>, config: &PollerConfig) -> io::Result<bool> {
    config::log::set(&config.log, delivery::wall)?;
    let devices = devices.map(listed).transpose()?;
    run(config, dir, devices.as_ref()).map_err(io::Error::other)?;
    Ok(true)
}

/// The settings of the poller, from its file, the environment and the flags. `log_level` comes before the file and the
/// environment.
fn configuration(matches: &ArgMatches, log_level: Option<&str>) -> io::Result<PollerConfig> {
    let settings = config::poller_settings();
    let names = std::env::vars_os().map(|(name, _)| name);
    let unknown = config::unknown_variables(&settings, names);
    let file = paths::POLLER_FILE;
    let Flags { file, mut flags } = config::given(&settings, matches, "poller", file, &environment);
    if let Some(level) = log_level
        && !flags.iter().any(|(key, _)| key == LOG_LEVEL)
    {
        flags.push((LOG_LEVEL.into(), Raw::One(level.into())));
    }
    let given = ConfigInputs { file, environment: &environment, flags };
    let loaded = unknown.beside(config::load_poller(&given)).map_err(io::Error::other)?;
    for line in &unknown.ignored {
        writeln!(io::stderr(), "jobmeter-poller: {line}")?;
    }
    Ok(loaded.config)
}

fn listed(devices: &str) -> io::Result<NodeList> {
    NodeList::new(devices).map_err(|error| io::Error::other(format!("--devices: {error}")))
}

/// Pins the certificates of a folder's targets. Returns whether all of them are verified from now on.
fn pin_certificates(dir: &Path, devices: Option<&str>, matches: &ArgMatches) -> io::Result<bool> {
    let file = pins_file(&configuration(matches, None)?);
    let file = file.ok_or_else(|| io::Error::other("no folder for the file; set `pins`"))?;
    let directory = read_devices(dir, devices)?;
    in_runtime(pin(&directory.descriptions, &file))
}

/// Polls the devices of a folder once. Returns whether everything was read.
fn poll(dir: &Path, devices: Option<&str>, matches: &ArgMatches) -> io::Result<bool> {
    let mut directory = read_devices(dir, devices)?;
    if let Some(file) = pins_file(&configuration(matches, None)?) {
        let pins = Pins::read(&file).map_err(io::Error::other)?;
        pins.apply(&mut directory.descriptions);
    }
    let is_good = !directory.has_errors();
    let (stdout, mut stderr) = (Box::new(io::stdout()), io::stderr());
    let polled = in_runtime(poll_once(directory.descriptions, stdout, &mut stderr))?;
    Ok(polled && is_good)
}

/// Runs a future to its end.
fn in_runtime(work: impl Future<Output = io::Result<bool>>) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A name that is being looked up must not delay the end.
    runtime.shutdown_background();
    done
}

/// Reads a folder, prints its findings, and selects devices.
fn read_devices(dir: &Path, devices: Option<&str>) -> io::Result<Directory> {
    let mut directory = read(dir)?;
    let mut stderr = io::stderr();
    for finding in &directory.findings {
        writeln!(stderr, "{}", printable(&finding.to_string()))?;
    }
    if let Some(list) = devices {
        let list = listed(list)?;
        let known =
            |name: &&str| directory.descriptions.iter().any(|one| one.device.as_str() == *name);
        let unknown = list.plain().and_then(|names| names.into_iter().find(|name| !known(name)));
        directory.descriptions.retain(|one| list.has(one.device.as_str()));
        let unknown = unknown.or_else(|| directory.descriptions.is_empty().then(|| list.as_str()));
        if let Some(unknown) = unknown {
            let what = format!("no entry has the device {}", unknown.escape_debug());
            return Err(io::Error::other(what));
        }
    }
    Ok(directory)
}

fn read(dir: &Path) -> io::Result<Directory> {
    read_directory(dir).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot read {}: {error}", dir.display()))
    })
}

fn print_manual(protocol: &str) -> io::Result<bool> {
    let spec = PROTOCOLS.iter().find(|spec| spec.name == protocol);
    let spec = spec.ok_or_else(|| io::Error::other("there is no such protocol"))?;
    io::stdout().lock().write_all(manual(spec).as_bytes())?;
    Ok(true)
}

/// Prints the errors of a folder, and its requests. Returns whether there are no errors.
fn check(dir: &Path, json: bool) -> io::Result<bool> {
    let mut directory = read(dir)?;
    directory.findings.extend(catalogue_conflicts(&directory.descriptions));
    directory.sort_findings();
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
