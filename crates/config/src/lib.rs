//! Files, environment and flags as one checked configuration.
//!
//! Each setting is declared once ([`Setting`]). The declaration gives its flag, environment variable, key in
//! the file, default, help and manual entry.
//! [`load_agent`] and [`load_server`] read every layer and report every error with file, line, column and the
//! nearest valid name.
//! They keep the origin of each value; [`Loaded::show`] prints it.

mod programs;
mod settings;

pub use model::nearest;
pub use model::setting::{parse_bytes, parse_duration};
pub use programs::accepted_settings::{
    Burst, FirstReceived, FlushOn, Promotion, RemoteChange, SourceChange, accept_settings,
    burst_setting, source_setting,
};
pub use programs::access_values::{JwtRole, PageOrigin};
pub use programs::agent::{
    AgentConfig, AgentSettings, BurstSettings, JobSettings, RemoteSettings, RunSettings,
    ServerSettings, SourceConfig, SpoolSettings, agent_settings,
};
pub use programs::client::{ClientConfig, ClientSettings, client_settings};
pub use programs::colmet::{ColmetInputSettings, ColmetSettings, Endpoint, Network};
pub use programs::command::{agent_command, read_command_line, server_command};
pub use programs::outputs::{
    JobChoice, JobRange, OUTPUTS_MAX, OutputConfig, OutputKind, OutputStart, settings_of_output,
};
pub use programs::pg::{PgAddress, PgSettings};
pub use programs::poller::{
    FED_SOURCE, POLL_PERIOD_MIN, POLLED_AND_READ_SOURCES, POLLED_SOURCES, PollSettings,
    PollerConfig, PollerRemoteSettings, PollerSettings, colmet_settings, feed_settings,
    is_only_polled, poller_settings, polling_settings,
};
pub use programs::postgres::{StoreKind, StoreSettings};
pub use programs::schedulers::{NodetimeSettings, OarSettings, SchedulerSettings, SlurmSettings};
pub use programs::server::{
    AccessSettings, Anonymous, JobFileSettings, ListenSettings, Loopback, Nodes, PromotionSettings,
    PushSettings, QuerySettings, RetentionSettings, ServerConfig, StorageSettings, UserMetrics,
    server_settings,
};
pub use programs::variables::{UnknownVariables, unknown_variables};
pub use settings::flags::{Flags, flags, given, setting_flags};
pub use settings::load::{
    ConfigError, ConfigErrors, ConfigFile, ConfigInputs, ValueOrigin, Values,
};
pub use settings::log::LogConfig;
pub use settings::paths::state_dir;
pub use settings::pattern::{MetricPattern, bounded_regex};
pub use settings::program_detection::detect_program;
pub use settings::secret_file::{SecretFileError, read_secret_file};
pub use settings::setting::{Kind, PERIOD_MAX, PERIOD_MIN, Setting, SourceSettings};
pub use settings::show::{quoted, reference};
pub use settings::small_file::{
    CERTIFICATES_BYTES_MAX, FILE_BYTES_MAX, as_text, open_regular, read_small, read_whole,
};
pub use settings::text::{Address, Bytes, Raw, ServerUrl, Spool};
pub use settings::token::{Token, TokenError};
pub use settings::{log, paths};

use crate::settings::log::log_settings;

/// A checked configuration with the origin of each value.
#[derive(Clone, Debug)]
pub struct Loaded<C> {
    /// The configuration.
    pub config: C,
    values: Values,
}

impl<C> Loaded<C> {
    /// The configuration as a file that reproduces it, each line with the origin of its value.
    pub fn show(&self) -> String {
        settings::show::show(&self.values)
    }

    /// The value and origin of each key.
    pub const fn values(&self) -> &Values {
        &self.values
    }
}

/// A configuration with errors. Its valid parts are read all the same, so that one run lists every error.
#[derive(Debug)]
pub struct PartialConfig<C> {
    /// The configuration, with the default in place of each invalid value; `None` if it cannot be built.
    pub loaded: Option<Loaded<C>>,
    /// All errors.
    pub errors: Vec<ConfigError>,
}

impl<C> PartialConfig<C> {
    fn new(config: Option<C>, values: Values, errors: Vec<ConfigError>) -> Self {
        Self { loaded: config.map(|config| Loaded { config, values }), errors }
    }

    /// The configuration, if it has no errors.
    ///
    /// # Errors
    /// All errors of the configuration.
    pub fn complete(self) -> Result<Loaded<C>, ConfigErrors> {
        match self.loaded {
            Some(loaded) if self.errors.is_empty() => Ok(loaded),
            _ => Err(ConfigErrors(self.errors)),
        }
    }
}

/// The configuration of an agent with these sources.
///
/// # Errors
/// All errors of the configuration, one entry each.
pub fn load_agent(
    given: &ConfigInputs<'_>,
    sources: &[SourceSettings],
) -> Result<Loaded<AgentConfig>, ConfigErrors> {
    read_agent(given, sources).complete()
}

/// As [`load_agent`], for a configuration that may have errors.
pub fn read_agent(
    given: &ConfigInputs<'_>,
    sources: &[SourceSettings],
) -> PartialConfig<AgentConfig> {
    let mut errors = Vec::new();
    let values = Values::read(agent_settings(sources), given, &mut errors);
    let config = AgentConfig::from_values(&values, sources, &mut errors);
    PartialConfig::new(config, values, errors)
}

/// The configuration of a server with these kinds of outputs.
///
/// # Errors
/// All errors of the configuration, one entry each.
pub fn load_server(
    given: &ConfigInputs<'_>,
    outputs: &[OutputKind],
) -> Result<Loaded<ServerConfig>, ConfigErrors> {
    read_server(given, outputs).complete()
}

/// As [`load_server`], for a configuration that may have errors.
pub fn read_server(
    given: &ConfigInputs<'_>,
    outputs: &[OutputKind],
) -> PartialConfig<ServerConfig> {
    let mut errors = Vec::new();
    let tables = |text: &str| programs::outputs::settings_of(text, outputs);
    let values = Values::read_with_tables(server_settings(), &tables, given, &mut errors);
    let config = ServerConfig::from_values(&values, outputs, &mut errors);
    PartialConfig::new(config, values, errors)
}

/// The configuration of the command `jobmeter`.
///
/// # Errors
/// All errors of the configuration, one entry each.
pub fn load_client(given: &ConfigInputs<'_>) -> Result<Loaded<ClientConfig>, ConfigErrors> {
    read_client(given).complete()
}

/// As [`load_client`], for a configuration that may have errors.
pub fn read_client(given: &ConfigInputs<'_>) -> PartialConfig<ClientConfig> {
    let mut errors = Vec::new();
    let values = Values::read(client_settings(), given, &mut errors);
    let config = ClientConfig::from_values(&values, &mut errors);
    PartialConfig::new(config, values, errors)
}

/// The configuration of a poller.
///
/// # Errors
/// All errors of the configuration, one entry each.
pub fn load_poller(given: &ConfigInputs<'_>) -> Result<Loaded<PollerConfig>, ConfigErrors> {
    read_poller(given).complete()
}

/// As [`load_poller`], for a configuration that may have errors.
pub fn read_poller(given: &ConfigInputs<'_>) -> PartialConfig<PollerConfig> {
    let mut errors = Vec::new();
    let values = Values::read(poller_settings(), given, &mut errors);
    let config = PollerConfig::from_values(&values, &mut errors);
    PartialConfig::new(config, values, errors)
}

#[cfg(test)]
mod tests;
