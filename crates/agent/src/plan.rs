//! From the configuration to what the tick reads.

use crate::own;
use cgroups::{LayoutConfig, Pattern};
use config::{AgentConfig, ConfigError, ConfigErrors, Given, Loaded, RemoteChange, SourceSettings};
use model::ClusterId;
use sources::{Every, Options, SOURCES, SourceSpec};
use std::sync::Arc;
use std::time::Duration;

/// How a source is to be read.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// Which.
    pub spec: &'static SourceSpec,
    /// Whether it is read.
    pub enabled: bool,
    /// How often.
    pub period: Duration,
    /// Its checked options.
    pub options: Arc<Options>,
}

/// How everything is to be read.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each source, in the order of reading.
    pub sources: Vec<SourcePlan>,
    /// Period of the tick.
    pub period: Duration,
    /// Whether the agent's own metrics are taken, and how often.
    pub own: Option<Duration>,
    /// Longest time a source may take; its period, and a second at least, where there is none.
    pub source_time_max: Option<Duration>,
    /// Processor time that one reading should not pass.
    pub budget: Duration,
    /// Hundredths of a processor that a source may take; beyond, it is read more rarely.
    pub source_percent_max: u64,
}

/// Every source, that of the agent itself last.
pub fn sources() -> impl Iterator<Item = &'static SourceSpec> {
    SOURCES.iter().copied().chain([&own::SPEC])
}

/// Every source as the configuration sees it.
pub fn source_settings() -> Vec<SourceSettings> {
    let settings = |spec: &'static SourceSpec| SourceSettings {
        name: spec.name,
        help: spec.help,
        period: match spec.every {
            Every::Tick => None,
            Every::AtLeast(period) => Some(period),
        },
        options: spec.options,
    };
    sources().map(settings).collect()
}

/// The checked configuration of an agent, from its file, the environment and flags.
///
/// # Errors
/// All that is wrong with it.
pub fn load(given: &Given<'_>) -> Result<Loaded<AgentConfig>, ConfigErrors> {
    let loaded = config::load_agent(given, &source_settings())?;
    let mut errors = Vec::new();
    if let Err(error) = discovery(&loaded.config) {
        errors.push(loaded.values().error("jobs.patterns", &error));
    }
    if let Err(error) = plan(&loaded.config, None) {
        errors.push(ConfigError { place: config::Origin::Default, what: error });
    }
    if errors.is_empty() { Ok(loaded) } else { Err(ConfigErrors(errors)) }
}

/// What is read, and how often: as configured, and with the change that the server asked for.
///
/// # Errors
/// An option does not fit its source.
pub fn plan(config: &AgentConfig, change: Option<&RemoteChange>) -> Result<Plan, String> {
    let base = config.sampling.period;
    let mut list = Vec::new();
    let mut own = None;
    for spec in sources() {
        let Some(source) = config.sources.get(spec.name) else { continue };
        let (enabled, period) =
            change.and_then(|change| change.sources.get(spec.name)).copied().unwrap_or_default();
        let enabled = enabled.unwrap_or(source.enabled);
        let period = period.or(source.period).unwrap_or(match spec.every {
            Every::Tick => base,
            Every::AtLeast(period) => period.max(base),
        });
        if std::ptr::eq(spec, &own::SPEC) {
            own = enabled.then_some(period);
        } else {
            let settings = source.options.iter().map(|(name, value)| (&**name, &**value));
            let options = Options::of(spec, settings).map_err(|e| e.to_string())?;
            let options = Arc::new(options.distrusted(source.distrust.clone()));
            list.push(SourcePlan { spec, enabled, period, options });
        }
    }
    Ok(Plan {
        sources: list,
        period: base,
        own,
        source_time_max: config.sampling.source_time_max,
        budget: config.sampling.source_budget,
        source_percent_max: config.sampling.source_percent_max,
    })
}

/// Which jobs are looked for, and where.
///
/// # Errors
/// A pattern is none, or a cluster has no name.
pub fn discovery(config: &AgentConfig) -> Result<cgroups::Config, String> {
    let jobs = &config.jobs;
    let looked_for = |name: &str| jobs.schedulers.iter().any(|scheduler| scheduler == name);
    let layout = |name: &str, roots: &[String]| -> Result<_, String> {
        let cluster = ClusterId::new(name).map_err(|e| e.to_string())?;
        Ok(looked_for(name).then(|| LayoutConfig { cluster, roots: roots.to_vec() }))
    };
    let pattern = |text: &String| -> Result<_, String> {
        let want = || {
            format!("`{text}` is no pattern: write CLUSTER:PATTERN, such as pbs:pbs/(?<job>\\d+)")
        };
        let (cluster, pattern) = text.split_once(':').ok_or_else(want)?;
        let cluster = ClusterId::new(cluster).map_err(|e| e.to_string())?;
        Pattern::new(cluster, pattern).map_err(|e| e.to_string())
    };
    Ok(cgroups::Config {
        oar: layout("oar", &jobs.oar_roots)?,
        slurm: layout("slurm", &jobs.slurm_roots)?,
        local: looked_for(ClusterId::LOCAL).then(ClusterId::local),
        patterns: jobs.patterns.iter().map(pattern).collect::<Result<_, _>>()?,
        scheduler_uids: jobs.scheduler_uids.clone(),
        units: jobs.units,
        rescan: jobs.rescan,
        ..cgroups::Config::default()
    })
}
