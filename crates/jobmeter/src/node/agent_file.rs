//! The configuration of this node's agent, for commands that read what the agent would read.

use crate::client::plain::note;
use agent::SourcePlan;
use config::{AgentConfig, ConfigErrors, ConfigFile, ConfigInputs, paths};
use std::path::PathBuf;

// The file of the agent's settings; no docstring, which would replace the description of its commands.
#[derive(clap::Args, Debug)]
pub(crate) struct AgentFile {
    /// The agent's settings [default: the file in JOBMETER_AGENT_FILE, else /etc/jobmeter/agent.toml]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

impl AgentFile {
    /// The agent's settings. If they are invalid, reports the errors and returns the defaults.
    pub(crate) fn read_or_defaults(&self) -> anyhow::Result<AgentConfig> {
        let (shown, loaded) = self.read();
        let errors = match loaded {
            Ok(config) => return Ok(config),
            Err(errors) => errors,
        };
        let list: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        note(&format!(
            "the agent's settings are not valid: {}; the following results use the defaults \
             (`jobmeter check {} --for agent` shows all errors)",
            list.join("; "),
            shown.display()
        ))?;
        Ok(defaults()?)
    }

    /// The path and the result of loading the agent's settings: from the file of `--agent` or the agent's
    /// default file, and from the environment.
    pub(crate) fn read(&self) -> (PathBuf, Result<AgentConfig, ConfigErrors>) {
        let environment = |name: &str| delivery::environment(name);
        let named = self.agent.clone();
        let named = named.or_else(|| environment("JOBMETER_AGENT_FILE").map(PathBuf::from));
        let shown = named.clone().unwrap_or_else(|| PathBuf::from(paths::AGENT_FILE));
        let file = named.map_or_else(|| ConfigFile::Default(shown.clone()), ConfigFile::Given);
        let loaded =
            agent::load(&ConfigInputs { file, environment: &environment, flags: Vec::new() });
        (shown, loaded.map(|loaded| loaded.config))
    }
}

/// The default settings of an agent.
pub(crate) fn defaults() -> Result<AgentConfig, ConfigErrors> {
    let none = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags: Vec::new() };
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
