//! `jobmeter check`: every error of a configuration file, and what results from it.

use anyhow::bail;
use clap::ArgMatches;
use config::{ConfigErrors, ConfigFile, Given};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of a file with errors; 2 is kept for a check that could not be made.
const WRONG: u8 = 1;

/// Checks a file for a program: the one that is named, else the one that the file is named after.
pub(crate) fn check(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = PathBuf::from(matches.get_one::<String>("file").cloned().unwrap_or_default());
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let program = matches.get_one::<String>("for").cloned().unwrap_or(stem);
    // The environment is the program's own matter: what is checked is the file.
    let given = Given { file: ConfigFile::Given(file), environment: &|_| None, flags: Vec::new() };
    let shown = match &*program {
        "agent" => agent::load(&given).map(|loaded| loaded.show()),
        "server" => config::load_server(&given).map(|loaded| loaded.show()),
        "client" => config::load_client(&given).map(|loaded| loaded.show()),
        _ => bail!("which program is the file for? add --for agent, --for server or --for client"),
    };
    tell(shown)
}

fn tell(shown: Result<String, ConfigErrors>) -> anyhow::Result<ExitCode> {
    match shown {
        Ok(text) => {
            io::stdout().lock().write_all(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            writeln!(io::stderr().lock(), "{errors}")?;
            Ok(ExitCode::from(WRONG))
        }
    }
}
