//! The plan: sources, periods and options that the sampler uses, derived from the configuration.

use crate::reading::agent_metrics;
use cgroups::{LayoutConfig, Pattern};
use config::{
    AgentConfig, ConfigError, ConfigErrors, ConfigInputs, FlushOn, Loaded, MetricPattern,
    PartialConfig, RemoteChange, SourceChange, SourceConfig, SourceSettings,
};
use kernel::Root;
use model::{ClusterId, Metric, nearest};
use sources::{Every, Options, RingLimits, SOURCES, SourceSpec};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of sources with bursts in the node's own file.
const BURSTS_MAX: usize = 4;
/// Reason why a source can have no burst.
pub(crate) const NO_BURST: &str = "does not support bursts: it reports some things only once, or \
                                   queries other programs";

/// Settings for reading one source.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// The source.
    pub spec: &'static SourceSpec,
    /// Whether it is read.
    pub enabled: bool,
    /// Interval between readings.
    pub period: Duration,
    /// Interval between readings while the node has no job, if it differs.
    pub period_idle: Option<Duration>,
    /// Optional metrics that no promotion enables now.
    pub off: Arc<[&'static Metric]>,
    /// Burst between the ticks, if there is one.
    pub burst: Option<BurstPlan>,
    /// Checked options of the source.
    pub options: Arc<Options>,
}

/// Settings of a burst: readings of a source between its ticks, kept in memory until an event requests them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstPlan {
    /// Interval, duration and memory limit of the samples.
    pub keep: RingLimits,
    /// Events that request the samples.
    pub flush_on: FlushOn,
}

/// Settings for reading all sources.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Settings of each source, in the order of reading.
    pub sources: Vec<SourcePlan>,
    /// Period of the tick.
    pub period: Duration,
    /// Interval of the agent's own metrics, if they are enabled.
    pub agent_metrics: Option<Duration>,
    /// Optional metrics of the agent that no promotion enables now.
    pub own_off: Arc<[&'static Metric]>,
    /// Longest time that a source may take. The default is its period, at least 1 s.
    pub source_time_max: Option<Duration>,
    /// Processor time that one reading should not exceed.
    pub budget: Duration,
    /// Limit of a source in hundredths of a processor. A source above it is throttled.
    pub source_percent_max: u64,
    /// Whether the agent reads `JOBMETER_MONITOR` of jobs. Without promotions it does not.
    pub environments: bool,
}

/// Returns every source. The agent's own metrics come last.
pub fn sources() -> impl Iterator<Item = &'static SourceSpec> {
    SOURCES.iter().copied().chain([&agent_metrics::SPEC])
}

/// Returns the settings of every source for the configuration.
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

/// Loads and checks the agent's configuration from its file, the environment and flags.
///
/// # Errors
/// Lists all errors of the configuration.
pub fn load(given: &ConfigInputs<'_>) -> Result<Loaded<AgentConfig>, ConfigErrors> {
    read(given).complete()
}

/// Reads a configuration like `load`, and also returns one with errors.
pub fn read(given: &ConfigInputs<'_>) -> PartialConfig<AgentConfig> {
    let mut partly = config::read_agent(given, &source_settings());
    let PartialConfig { loaded: Some(loaded), errors } = &mut partly else { return partly };
    if let Err(error) = discovery(&loaded.config) {
        errors.push(loaded.values().error("jobs.patterns", &error));
    }
    if let Err(error) = bursts(&loaded.config) {
        errors.push(loaded.values().error("burst.sources", &error));
    }
    if let Err(error) = plan(&loaded.config, None) {
        errors.push(ConfigError { place: config::ValueOrigin::Default, what: error });
    }
    partly
}

/// Checks a configuration against this machine, for example PMUs that the kernel lacks or unknown users. An agent
/// starts despite such errors and reports the affected sources.
///
/// # Errors
/// Lists all errors.
pub fn check_here(loaded: &Loaded<AgentConfig>, root: &Root) -> Result<(), ConfigErrors> {
    let mut errors = Vec::new();
    for spec in sources() {
        let source = loaded.config.sources.get(spec.name).filter(|source| source.enabled);
        let Some(Ok(options)) = source.map(|it| options(spec, it, &SourceChange::default())) else {
            continue;
        };
        for (option, what) in (spec.check)(root, &options) {
            let key = format!("sources.{}.{option}", spec.name);
            errors.push(loaded.values().error(&key, &format!("`{key}`: {what}")));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ConfigErrors(errors)) }
}

/// Builds the plan from the configuration and the server's change.
///
/// # Errors
/// An option is invalid for its source.
pub fn plan(config: &AgentConfig, change: Option<&RemoteChange>) -> Result<Plan, String> {
    let base = config.sampling.period;
    let (mut list, mut agent_metrics, mut own_off) = (Vec::new(), None, Arc::default());
    for spec in sources() {
        let Some(source) = config.sources.get(spec.name) else { continue };
        let requested = change.and_then(|change| change.sources.get(spec.name));
        let requested = requested.cloned().unwrap_or_default();
        // If the server enables a source, all of its metrics are enabled.
        let all = requested.enabled == Some(true);
        let off = if all { Arc::default() } else { off(spec, &source.optional, change) };
        // A source without an enabled metric is not read.
        let wanted = off.is_empty() || off.len() < spec.metrics.len();
        let enabled = requested.enabled.unwrap_or(source.enabled) && wanted;
        let period = requested.period.or(source.period).unwrap_or(match spec.every {
            Every::Tick => base,
            Every::AtLeast(period) => period.max(base),
        });
        if std::ptr::eq(spec, &agent_metrics::SPEC) {
            (agent_metrics, own_off) = (enabled.then_some(period), off);
            continue;
        }
        // The server's period applies with and without jobs.
        let idle = source.period_idle.or(config.sampling.period_idle);
        let period_idle = idle.filter(|_| requested.period.is_none()).map(|idle| idle.max(period));
        let options = options(spec, source, &requested)?;
        let burst = burst(spec.name, config, change);
        list.push(SourcePlan { spec, enabled, period, period_idle, off, burst, options });
    }
    Ok(Plan {
        sources: list,
        period: base,
        agent_metrics,
        own_off,
        source_time_max: config.sampling.source_time_max,
        budget: config.sampling.source_budget,
        source_percent_max: config.sampling.source_percent_max,
        environments: config.remote.allow.iter().any(|word| word == "promotions"),
    })
}

/// Returns the optional metrics of a source that no promotion enables.
pub(crate) fn off(
    spec: &SourceSpec,
    optional: &[MetricPattern],
    change: Option<&RemoteChange>,
) -> Arc<[&'static Metric]> {
    let is_off = |metric: &&&'static Metric| {
        let name = &*metric.name;
        let mut promotions = change.iter().flat_map(|change| &change.promotions);
        optional.iter().any(|one| one.matches(name))
            && !promotions.any(|promotion| promotion.metric.matches(name))
    };
    spec.metrics.iter().filter(is_off).copied().collect()
}

fn options(
    spec: &'static SourceSpec,
    source: &SourceConfig,
    requested: &SourceChange,
) -> Result<Arc<Options>, String> {
    let of_file = source.options.iter().map(|(name, value)| (&**name, &**value));
    let requested = requested.events.iter().map(|events| ("events", &**events));
    let options = Options::of(spec, of_file.chain(requested)).map_err(|e| e.to_string())?;
    Ok(Arc::new(options.distrusted(source.distrust.clone())))
}

/// Returns the burst of a source. The server's settings take precedence over the node's own file.
fn burst(name: &str, config: &AgentConfig, change: Option<&RemoteChange>) -> Option<BurstPlan> {
    let of_file = &config.burst;
    let requested = change.and_then(|change| change.bursts.get(name));
    let requested = requested.map(|burst| (burst.keep, burst.period, burst.flush_on));
    let is_mine = of_file.sources.iter().any(|source| source == name);
    let mine = is_mine.then_some((of_file.keep, of_file.period, of_file.flush_on));
    let (time, period, flush_on) = requested.or(mine)?;
    let bytes_max = usize::try_from(of_file.bytes_max.0).unwrap_or(usize::MAX);
    Some(BurstPlan { keep: RingLimits { time, period, bytes_max }, flush_on })
}

/// Returns whether the source with this name may have a burst.
pub fn may_burst(source: &str) -> bool {
    sources().find(|spec| spec.name == source).is_none_or(|spec| spec.may_burst)
}

/// Checks the burst settings of the node's own file.
fn bursts(config: &AgentConfig) -> Result<(), String> {
    let names = &config.burst.sources;
    if names.len() > BURSTS_MAX {
        return Err(format!("`burst.sources` has more than {BURSTS_MAX} sources"));
    }
    for name in names {
        if !config.sources.contains_key(name) {
            let near = nearest(name, config.sources.keys().map(String::as_str));
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!("`burst.sources` has the unknown source `{name}`{meant}"));
        }
        if !may_burst(name) {
            return Err(format!("`burst.sources` has `{name}`, which {NO_BURST}"));
        }
    }
    Ok(())
}

/// Returns the settings for finding jobs.
///
/// # Errors
/// A pattern is invalid, or a cluster name is invalid.
pub fn discovery(config: &AgentConfig) -> Result<cgroups::Config, String> {
    let jobs = &config.jobs;
    let looked_for = |name: &str| jobs.schedulers.iter().any(|scheduler| scheduler == name);
    let layout = |name: &str, roots: &[String]| -> Result<_, String> {
        let cluster = ClusterId::new(name).map_err(|e| e.to_string())?;
        Ok(looked_for(name).then(|| LayoutConfig { cluster, roots: roots.to_vec() }))
    };
    let pattern = |text: &String| -> Result<_, String> {
        let want = || {
            format!(
                "`{text}` is not a pattern; write CLUSTER:PATTERN, such as \
                     pbs:pbs/(?<job>\\d+)"
            )
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

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Burst, ConfigFile, Promotion};
    use model::Timestamp;

    fn config(text: &str) -> AgentConfig {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let file = ConfigFile::Given(file);
        load(&ConfigInputs { file, environment: &|_| None, flags: Vec::new() }).unwrap().config
    }

    fn of(plan: &Plan, name: &str) -> SourcePlan {
        plan.sources.iter().find(|source| source.spec.name == name).unwrap().clone()
    }

    fn off(plan: &Plan, name: &str) -> Vec<String> {
        of(plan, name).off.iter().map(|metric| metric.name.to_string()).collect()
    }

    fn promoting(metric: &str) -> RemoteChange {
        let metric = MetricPattern::new(metric).unwrap();
        let promotions = vec![Promotion { metric, until: Timestamp::from_seconds(60) }];
        RemoteChange { promotions, ..RemoteChange::default() }
    }

    #[test]
    fn where_nothing_is_promoted_no_environment_is_read() {
        let reads = |text: &str| plan(&config(text), None).unwrap().environments;
        assert!(reads("") && reads("[remote]\nallow = [\"promotions\"]\n"));
        assert!(!reads("[remote]\nallow = [\"sources\", \"periods\"]\n"));
    }

    #[test]
    fn optional_metrics_are_read_while_a_promotion_requests_them() {
        let text =
            "[sources.load]\noptional = true\n[sources.uptime]\noptional = [\"uptime_idle.*\"]\n";
        let config = config(text);
        let before = plan(&config, None).unwrap();
        assert!(!of(&before, "load").enabled, "a source of which nothing is wanted is not read");
        assert!(of(&before, "uptime").enabled && of(&before, "cpu").off.is_empty());
        assert!(off(&before, "uptime").iter().all(|name| name.starts_with("uptime_idle")));
        let mut change = promoting("load_1m");
        let with = plan(&config, Some(&change)).unwrap();
        assert!(of(&with, "load").enabled);
        assert!(!off(&with, "load").contains(&"load_1m".to_owned()));
        assert!(off(&with, "load").contains(&"load_5m".to_owned()));
        let on = SourceChange { enabled: Some(true), ..SourceChange::default() };
        let on = RemoteChange { sources: [("load".to_owned(), on)].into(), ..change.clone() };
        let all = plan(&config, Some(&on)).unwrap();
        assert!(of(&all, "load").enabled && of(&all, "load").off.is_empty());
        assert!(change.expire(Timestamp::from_seconds(60)));
        assert!(!of(&plan(&config, Some(&change)).unwrap(), "load").enabled);
    }

    #[test]
    fn nothing_is_optional_without_a_setting() {
        let plan = plan(&config(""), None).unwrap();
        assert!(plan.sources.iter().all(|source| source.off.is_empty() && source.burst.is_none()));
        assert!(plan.sources.iter().all(|source| source.period_idle.is_none()));
        assert!(plan.own_off.is_empty());
    }

    #[test]
    fn an_idle_node_is_read_no_faster_and_as_the_server_requests() {
        let text = "period_idle = \"1m\"\n[sources.load]\nperiod_idle = \"1s\"\n[sources.filesystem]\n\
                    period = \"5m\"\n";
        let config = config(text);
        let before = plan(&config, None).unwrap();
        let idle = |plan: &Plan, name| of(plan, name).period_idle.map(|idle| idle.as_secs());
        assert_eq!(idle(&before, "cpu"), Some(60));
        assert_eq!(idle(&before, "load"), Some(5), "not faster than with jobs");
        assert_eq!(idle(&before, "filesystem"), Some(300));
        let requested = SourceChange { period: Some(Duration::from_secs(1)), ..Default::default() };
        let sources = [("cpu".to_owned(), requested)].into();
        let change = RemoteChange { sources, ..RemoteChange::default() };
        assert_eq!(idle(&plan(&config, Some(&change)).unwrap(), "cpu"), None);
    }

    #[test]
    fn what_perf_counts_and_what_bursts_keep() {
        let config = config("[burst]\nsources = [\"cpu\"]\nbytes_max = \"1MiB\"\n");
        let requested =
            SourceChange { events: Some("emulation_faults".to_owned()), ..Default::default() };
        let (keep, period) = (Duration::from_secs(10), Duration::from_millis(50));
        let (flush_on, until) = (FlushOn::default(), Timestamp::from_seconds(60));
        let change = RemoteChange {
            sources: [("perf".to_owned(), requested)].into(),
            bursts: [("load".to_owned(), Burst { period, keep, flush_on, until })].into(),
            ..RemoteChange::default()
        };
        let (before, with) = (plan(&config, None).unwrap(), plan(&config, Some(&change)).unwrap());
        assert_eq!(of(&with, "perf").options.words("events"), ["emulation_faults"]);
        assert_eq!(of(&before, "perf").options.words("events"), [""; 0]);
        assert_ne!(of(&with, "perf").options, of(&before, "perf").options);
        let cpu = of(&with, "cpu").burst.unwrap();
        assert_eq!((cpu.keep.period.as_millis(), cpu.keep.bytes_max), (100, 1 << 20));
        let load = of(&with, "load").burst.unwrap();
        assert_eq!(load.keep, RingLimits { time: keep, period, bytes_max: 1 << 20 });
        assert_eq!(of(&before, "load").burst, None);
    }

    #[test]
    fn what_cannot_be_kept_is_no_configuration() {
        for (names, part) in [
            ("\"lod\"", "did you mean `load`?"),
            ("\"exec\"", "only once"),
            ("\"cpu\", \"load\", \"disk\", \"memory\", \"network\"", "more than 4"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("agent.toml");
            std::fs::write(&file, format!("[burst]\nsources = [{names}]\n")).unwrap();
            let file = ConfigFile::Given(file);
            let given = ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
            let error = load(&given).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("agent.toml:2:"), "{error}");
        }
    }
}
