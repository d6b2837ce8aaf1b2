//! `jobmeter-agent`: samples this node and sends the samples to the server.

use agent::StartError;
use clap::ArgMatches;
use config::{ConfigInputs, Flags, paths};
use delivery::environment;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let sources = agent::source_settings();
    let matches = match config::read_command_line(config::agent_command(&sources)) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    match start(config::agent_settings(&sources), matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed: there is no other place to report to.
            writeln!(std::io::stderr(), "jobmeter-agent: {error}").ok();
            let is_config = matches!(error, StartError::Config(_));
            ExitCode::from(if is_config { 2 } else { 1 })
        }
    }
}

fn start(settings: Vec<config::Setting>, matches: ArgMatches) -> Result<(), StartError> {
    let unknown = config::unknown_variables(&settings, std::env::vars_os().map(|(name, _)| name));
    let load = move || {
        let file = paths::AGENT_FILE;
        let Flags { file, flags } = config::given(&settings, &matches, "agent", file, &environment);
        let given = ConfigInputs { file, environment: &environment, flags };
        agent::load(&given).map(|loaded| loaded.config)
    };
    let config = unknown.beside(load())?;
    for line in &unknown.ignored {
        // Standard error may be closed.
        writeln!(std::io::stderr(), "jobmeter-agent: {line}").ok();
    }
    agent::begin(config, Box::new(load))
}
