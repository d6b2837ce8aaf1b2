//! The configuration of this node's agent, for commands that read what the agent would read.

use crate::client::plain::note;
use agent::SourcePlan;
use config::{AgentConfig, ConfigErrors, ConfigFile, ConfigInputs, Raw, ValueOrigin, paths};
use std::path::PathBuf;

// The file of the agent's settings; no docstring, which would replace the description of its commands.
#[derive(clap::Args, Debug)]
pub(crate) struct AgentFile {
    /// The agent's settings [default: the file in JOBMETER_AGENT_FILE, else /etc/jobmeter/agent.toml]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

impl AgentFile {
    /// The agent's settings. If they are invalid, reports the errors and returns the defaults. An unreadable file
    /// is an error.
    pub(crate) fn read_or_defaults(&self) -> anyhow::Result<AgentConfig> {
        let (shown, loaded) = self.read(Vec::new());
        let errors = match loaded {
            Ok(config) => return Ok(config),
            Err(errors) => errors,
        };
        if errors.0.iter().any(|error| error.place == ValueOrigin::Default) {
            return Err(anyhow::Error::from(errors).context("the agent's settings"));
        }
        let list: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        note(&format!(
            "the agent's settings are not valid: {}; the following results use the defaults \
             (`jobmeter check {} --for agent` shows all errors)",
            list.join("; "),
            shown.display()
        ))?;
        Ok(defaults(Vec::new())?)
    }

    /// The path and the result of loading the agent's settings: from the file of `--agent` or the agent's
    /// default file, from the environment, and from flags, which win.
    pub(crate) fn read(
        &self,
        flags: Vec<(String, Raw)>,
    ) -> (PathBuf, Result<AgentConfig, ConfigErrors>) {
        let environment = |name: &str| delivery::environment(name);
        let named = self.agent.clone();
        let named = named.or_else(|| environment("JOBMETER_AGENT_FILE").map(PathBuf::from));
        let shown = named.clone().unwrap_or_else(|| PathBuf::from(paths::AGENT_FILE));
        let file = named.map_or_else(|| ConfigFile::Default(shown.clone()), ConfigFile::Given);
        let loaded = agent::load(&ConfigInputs { file, environment: &environment, flags });
        (shown, loaded.map(|loaded| loaded.config).map_err(with_own_flag))
    }
}

/// The errors with this command's flag for the file, instead of the agent program's.
fn with_own_flag(mut errors: ConfigErrors) -> ConfigErrors {
    for error in &mut errors.0 {
        error.what = error.what.replace("another file with --config", "another file with --agent");
    }
    errors
}

/// The default settings of an agent, with these flags.
pub(crate) fn defaults(flags: Vec<(String, Raw)>) -> Result<AgentConfig, ConfigErrors> {
    let none = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
    agent::load(&none).map(|loaded| loaded.config)
}

/// Why a source is not enabled.
pub(crate) fn why_off(source: &SourcePlan) -> String {
    let name = source.spec.name;
    if source.off.is_empty() {
        format!("sources.{name}.enabled is false")
    } else {
        format!("sources.{name} is optional; the agent reads it only while it is promoted")
    }
}
