//! `jobmeter check`: every error of a configuration file, for an agent also what does not fit this machine, and what
//! results from it.

use anyhow::{Context, bail};
use clap::ArgMatches;
use config::{AskSettings, ConfigError, ConfigErrors, ConfigFile, Given, ServerSettings, Token};
use kernel::Root;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code of a file with errors; 2 is kept for a check that could not be made.
const WRONG: u8 = 1;

/// The programs that have a file.
const PROGRAMS: [&str; 3] = ["agent", "server", "client"];

/// Checks a file for a program: the one that is named, else the one that the file is named after, else
/// the one that alone knows some of its keys.
pub(crate) fn check(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = PathBuf::from(matches.get_one::<String>("file").cloned().unwrap_or_default());
    let named = matches.get_one::<String>("for").cloned();
    let program = match named.or_else(|| by_name(&file)) {
        None => by_keys(&file)?,
        known => known,
    };
    let Some(program) = program else {
        bail!(
            "{}: neither its name nor its keys tell which program it is for; add --for agent, --for server \
             or --for client",
            file.display()
        );
    };
    // The environment is the program's own matter: what is checked is the file.
    let given = Given { file: ConfigFile::Given(file), environment: &|_| None, flags: Vec::new() };
    let shown = match &*program {
        "agent" => {
            let root = Root::live()?;
            agent::load(&given).and_then(|loaded| {
                let ServerSettings { token_file, ca, cert, key, .. } = &loaded.config.server;
                let files = Files { token_file, ca, cert, key };
                let mut errors = files.errors(|key, what| loaded.values().error(key, what));
                errors.extend(
                    agent::check_here(&loaded, &root).err().into_iter().flat_map(|all| all.0),
                );
                if errors.is_empty() { Ok(loaded.show()) } else { Err(ConfigErrors(errors)) }
            })
        }
        "server" => config::load_server(&given).map(|loaded| loaded.show()),
        _ => config::load_client(&given).and_then(|loaded| {
            let AskSettings { token_file, ca, cert, key, .. } = &loaded.config.ask;
            let files = Files { token_file, ca, cert, key };
            let errors = files.errors(|key, what| loaded.values().error(key, what));
            if errors.is_empty() { Ok(loaded.show()) } else { Err(ConfigErrors(errors)) }
        }),
    };
    tell(shown)
}

/// The files that an agent or a command reads before it sends.
struct Files<'a> {
    token_file: &'a Option<PathBuf>,
    ca: &'a Option<PathBuf>,
    cert: &'a Option<PathBuf>,
    key: &'a Option<PathBuf>,
}

impl Files<'_> {
    /// What the program would reject of them: each by itself, so that one run lists all.
    fn errors(&self, error: impl Fn(&str, &str) -> ConfigError) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let token = self.token_file.as_deref().map(Token::read);
        if let Some(Err(why)) = token {
            errors.push(error("token_file", &why.to_string()));
        }
        if self.ca.is_some()
            && let Err(why) = agent::tls(self.ca.as_deref(), None, None)
        {
            errors.push(error("ca", &why.to_string()));
        }
        if self.cert.is_some()
            && self.key.is_some()
            && let Err(why) = agent::tls(None, self.cert.as_deref(), self.key.as_deref())
        {
            errors.push(error("cert", &why.to_string()));
        }
        errors
    }
}

fn by_name(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    PROGRAMS.contains(&stem).then(|| stem.to_owned())
}

fn by_keys(file: &Path) -> anyhow::Result<Option<String>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let agent = config::agent_settings(&agent::source_settings());
    let settings = [agent, config::server_settings(), config::client_settings()];
    let programs: Vec<_> = PROGRAMS.into_iter().zip(settings).collect();
    Ok(config::whose(&text, &programs).map(str::to_owned))
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
