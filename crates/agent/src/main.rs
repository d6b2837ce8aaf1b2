//! `jobmeter-agent`: samples this node and sends what it finds.

use agent::{StartError, environment};
use clap::{ArgMatches, Command};
use config::{Flags, Given, place};
use std::io::Write;
use std::process::ExitCode;

const EXAMPLE: &str = "\
Example:
  jobmeter-agent --server https://metrics.example --token-file /etc/jobmeter/token --period 1s

Without any setting it samples this machine every 5 seconds and sends to the server that
`jobmeter up` runs here, if one does. Every setting is also a key of the file and a variable
of the environment: --spool-sync, spool_sync = true and JOBMETER_SPOOL_SYNC=true are one.
`-h` leaves out the settings of sources, `--help` shows all.";

fn main() -> ExitCode {
    let settings = config::agent_settings(&agent::source_settings());
    let command = Command::new("jobmeter-agent")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Samples what this node and its jobs use, and sends it to a jobmeter server.")
        .args(config::flags(&settings))
        .after_help(EXAMPLE);
    let matches = command.get_matches();
    match start(settings, matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be told if standard error is closed.
            writeln!(std::io::stderr(), "jobmeter-agent: {error}").ok();
            let is_config = matches!(error, StartError::Config(_));
            ExitCode::from(if is_config { 2 } else { 1 })
        }
    }
}

fn start(settings: Vec<config::Setting>, matches: ArgMatches) -> Result<(), StartError> {
    let load = move || {
        let file = place::AGENT_FILE;
        let Flags { file, flags } = config::given(&settings, &matches, "agent", file, &environment);
        let given = Given { file, environment: &environment, flags };
        agent::load(&given).map(|loaded| loaded.config)
    };
    let config = load()?;
    agent::begin(config, Box::new(load))
}
