//! The settings of an agent.

use crate::settings::load::{ConfigError, ValueOrigin, Values, check_cert_and_key};
use crate::settings::setting::{Kind, PERIOD_MAX, PERIOD_MIN, SourceSettings, settings};
use crate::settings::text::{Bytes, Raw, ServerUrl, Spool};
use crate::{FlushOn, LogConfig, MetricPattern, Setting, log_settings};
use model::setting::OptionSpec;
use model::{DeviceId, Timestamp};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// Longest period and longest retention of a burst.
pub(crate) const BURST_PERIOD_MAX: Duration = Duration::from_secs(60);
pub(crate) const BURST_KEEP_MAX: Duration = Duration::from_secs(3600);
/// Permissions that `remote.allow` can grant to the server.
const ALLOW_WORDS: &[&str] = &["sources", "periods", "promotions", "events", "bursts"];
/// Most expressions for the optional metrics of a source.
const OPTIONAL_MAX: usize = 64;
const TIB: u64 = 1 << 40;

settings! {
    /// Settings of sampling.
    AgentSettings, SAMPLING, "Sampling" {
        /// How often the agent reads cheap sources; each tick is a multiple of it since 1970.
        "period" period: Duration = "5s", Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        /// Longer period while no job is on the node; a new job ends it within one such tick.
        "period_idle" period_idle: Option<Duration> = "" or "as with jobs",
            Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        /// Name of this node in every sample.
        "device" device: Option<DeviceId> = "" or "the host's name up to its first dot",
            Kind::Text("NAME");
        /// Longest time of one reading of a source; the agent drops results that arrive later.
        "source_time_max" source_time_max: Option<Duration> = "" or "the source's period, 1s at least",
            Kind::Duration { min: Duration::from_millis(10), max: DAY };
        /// Processor time that one reading of a source should not exceed. A source that reads process by process stops
        /// there and continues at the next tick.
        "source_budget" source_budget: Duration = "50ms",
            Kind::Duration { min: Duration::from_micros(100), max: Duration::from_secs(60) };
        /// Most processor time of a source, in percent of one processor. The agent halves the frequency of a source
        /// that exceeds it, repeatedly if necessary.
        "source_percent_max" source_percent_max: u64 = "10", Kind::Number { min: 1, max: 100 };
    }
}

settings! {
    /// How an agent finds jobs in the cgroups.
    JobSettings, JOBS, "Jobs" {
        /// Schedulers whose jobs the agent finds: `oar`, `slurm` and `local` (jobs of `jobmeter run`).
        "jobs.schedulers" schedulers: Vec<String> = "oar, slurm, local", Kind::List("WORD");
        /// Directories that contain the cgroups of OAR's jobs, instead of the default ones.
        "jobs.oar_roots" oar_roots: Vec<String> = "" or "OAR's default places", Kind::List("CGROUP");
        /// Directories that contain the cgroups of Slurm's jobs, instead of the default ones.
        "jobs.slurm_roots" slurm_roots: Vec<String> = "" or "Slurm's default places",
            Kind::List("CGROUP");
        /// A site's own jobs: the path from a hierarchy's root, each part a regular expression.
        "jobs.patterns" patterns: Vec<String> = "" or "none", Kind::List("CLUSTER:PATTERN");
        /// Users besides root who may own the directories of jobs.
        "jobs.scheduler_uids" scheduler_uids: Vec<u32> = "" or "the user `oar` only", Kind::List("UID");
        /// Whether to show systemd's services and sessions on a machine without a scheduler.
        "jobs.units" units: bool = "true", Kind::Switch;
        /// How often the agent reads all directories, even without a notification.
        "jobs.rescan" rescan: Duration = "30s", Kind::Duration { min: SECOND, max: DAY };
    }
}

settings! {
    /// Where a program sends to.
    ServerSettings, SERVER, "Server" {
        /// URL of the server that receives the batches.
        "server" server: Option<ServerUrl> = "" or "the local server of `jobmeter up`, if one is running",
            Kind::Text("URL");
        /// Users besides root and the caller's own who may own a server that is reached through loopback without TLS.
        "server_uids" server_uids: Vec<u32> = "" or "the owner of /run/jobmeter-server only",
            Kind::List("UID");
        /// File with a token of the server; only its first line counts.
        "token_file" token_file: Option<PathBuf> = "" or "no token", Kind::Text("FILE");
        /// CA certificates (PEM) that verify the server's certificate.
        "ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// Certificate (PEM) that authenticates this node to the server.
        "cert" cert: Option<PathBuf> = "" or "none", Kind::Text("FILE");
        /// Private key (PEM) of that certificate.
        "key" key: Option<PathBuf> = "" or "none", Kind::Text("FILE");
        /// Longest time to wait for a connection.
        "connect_time_max" connect_time_max: Duration = "5s",
            Kind::Duration { min: Duration::from_millis(10), max: Duration::from_secs(300) };
        /// Longest time to wait for an answer.
        "answer_time_max" answer_time_max: Duration = "30s",
            Kind::Duration { min: Duration::from_millis(10), max: Duration::from_secs(3600) };
    }
}

settings! {
    /// The buffer of unsent samples.
    SpoolSettings, SPOOL, "Spool" {
        /// Folder for batches that the server has not acknowledged, or `none`.
        "spool" spool: Option<Spool> = ""
            or "/var/lib/jobmeter/spool as root, else in the XDG state folder", Kind::Text("DIR|none");
        /// Whether each write is synced to the disk, so that it survives a crash of the node.
        "spool_sync" spool_sync: bool = "false", Kind::Switch;
        /// Largest spool; beyond it, the oldest samples are dropped.
        "spool_bytes_max" spool_bytes_max: Bytes = "1GiB", Kind::Bytes { min: 1 << 20, max: TIB };
        /// Oldest sample in the spool.
        "spool_age_max" spool_age_max: Duration = "7d",
            Kind::Duration { min: SECOND, max: Duration::from_secs(366 * 86_400) };
        /// Send rate of the spool, limited so that live samples get through.
        "spool_send_bytes_per_second" spool_send_bytes_per_second: Bytes = "4MiB",
            Kind::Bytes { min: 1 << 10, max: TIB };
        /// Largest folder of batches that a server rejected permanently; beyond it, the oldest are deleted.
        "rejected_bytes_max" rejected_bytes_max: Bytes = "16MiB", Kind::Bytes { min: 0, max: TIB };
    }
}

impl SpoolSettings {
    /// The spool of one command that ended while its server was unavailable. It is sent at full rate.
    pub const fn of_command(folder: PathBuf, bytes_max: u64, age_max: Duration) -> Self {
        Self {
            spool: Some(Spool::Folder(folder)),
            spool_sync: false,
            spool_bytes_max: Bytes(bytes_max),
            spool_age_max: age_max,
            spool_send_bytes_per_second: Bytes(TIB),
            rejected_bytes_max: Bytes(0),
        }
    }
}

settings! {
    /// What the server may change.
    RemoteSettings, REMOTE, "What the server may change" {
        /// What the server may change: `sources` (switch them on and off), `periods`, `promotions` (of optional
        /// metrics), `events` (counted by `perf`) and `bursts`.
        "remote.allow" allow: Vec<String> = "sources, periods, promotions", Kind::List("WORD");
        /// Shortest period that the server may set.
        "remote.period_min" period_min: Duration = "100ms",
            Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        /// Longest duration of a change; it ends by itself.
        "remote.time_max" time_max: Duration = "1d",
            Kind::Duration { min: SECOND, max: Duration::from_secs(366 * 86_400) };
    }
}

settings! {
    /// Sources that an agent reads more often than it sends.
    BurstSettings, BURST, "Bursts" {
        /// Sources that the agent also reads between their ticks. It keeps these samples in memory and sends them when
        /// an event occurs.
        "burst.sources" sources: Vec<String> = "" or "none", Kind::List("SOURCE");
        /// Period of these readings.
        "burst.period" period: Duration = "100ms",
            Kind::Duration { min: PERIOD_MIN, max: BURST_PERIOD_MAX };
        /// How long the agent keeps these samples.
        "burst.keep" keep: Duration = "1m", Kind::Duration { min: SECOND, max: BURST_KEEP_MAX };
        /// Events that send the samples, besides a request of the server: `job_start`, `job_end`.
        "burst.flush_on" flush_on: FlushOn = "job_start, job_end",
            Kind::ListOf("WORD", FlushOn::check);
        /// Most memory for the kept samples of one source, allocated at its first reading; beyond it, the agent drops
        /// the oldest samples early.
        "burst.bytes_max" bytes_max: Bytes = "4MiB", Kind::Bytes { min: 1 << 16, max: 1 << 30 };
    }
}

settings! {
    /// How an agent runs once instead of continuously.
    RunSettings, RUN, "One run" {
        /// Recorded machine to read instead of this one; each further one is the next tick. The agent sends its samples
        /// only if the command line has `--server`.
        "root" root: Vec<PathBuf> = "" or "this machine", Kind::List("DIR");
        /// Whether to read once, for each root, and end.
        "once" once: bool = "false", Kind::Switch;
        /// Whether to print each sample before sending it; with `once`, the agent sends samples only if the command
        /// line has `--server`.
        "print" print: bool = "false", Kind::Switch;
        /// Time of the first tick of a recorded machine.
        "now" now: Option<Timestamp> = "" or "the clock's", Kind::Text("TIME");
    }
}

/// The configuration of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Whether the agent reads it.
    pub enabled: bool,
    /// Its period; `None`: every tick, or the source's own minimum.
    pub period: Option<Duration>,
    /// Its period while no job is on the node; `None`: the general one.
    pub period_idle: Option<Duration>,
    /// Metrics that are collected only during a promotion.
    pub optional: Vec<MetricPattern>,
    /// Its own options, checked.
    pub options: BTreeMap<String, String>,
    /// For a source that runs a program: why the file with the program's name is not trusted, and how to correct it.
    pub distrust: Option<String>,
}

/// The configuration of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// When and how it reads.
    pub sampling: AgentSettings,
    /// How it finds jobs.
    pub jobs: JobSettings,
    /// Where it sends to.
    pub server: ServerSettings,
    /// Its buffer of unsent samples.
    pub spool: SpoolSettings,
    /// What the server may change.
    pub remote: RemoteSettings,
    /// Sources that it reads more often than it sends.
    pub burst: BurstSettings,
    /// Whether it runs continuously.
    pub run: RunSettings,
    /// Its log.
    pub log: LogConfig,
    /// Each source, by name.
    pub sources: BTreeMap<String, SourceConfig>,
    /// Whether samples stay on this machine. Samples of a recorded machine, and of one printed tick, must not
    /// reach the live store because a file or this machine names a server. `--server` on the command line sends them.
    pub local: bool,
}

/// Every setting of an agent with these sources, in the order of the manual.
pub fn agent_settings(sources: &[SourceSettings]) -> Vec<Setting> {
    let mut list = [SAMPLING, SERVER, SPOOL, RUN, JOBS, REMOTE, BURST, log_settings()].concat();
    list.extend(sources.iter().flat_map(SourceSettings::settings));
    list
}

impl AgentConfig {
    /// The checked configuration. Adds all errors to `errors`.
    pub(crate) fn from_values(
        values: &Values,
        sources: &[SourceSettings],
        errors: &mut Vec<ConfigError>,
    ) -> Option<Self> {
        let sampling = AgentSettings::from_values(values, errors);
        let jobs = JobSettings::from_values(values, errors);
        let server = ServerSettings::from_values(values, errors);
        let spool = SpoolSettings::from_values(values, errors);
        let remote = RemoteSettings::from_values(values, errors);
        let burst = BurstSettings::from_values(values, errors);
        let run = RunSettings::from_values(values, errors);
        let log = LogConfig::from_values(values, errors);
        let sources = sources
            .iter()
            .map(|source| Some((source.name.to_owned(), source_config(source, values, errors)?)))
            .collect::<Option<_>>();
        let config = Self {
            sampling: sampling?,
            jobs: jobs?,
            server: server?,
            spool: spool?,
            remote: remote?,
            burst: burst?,
            run: run?,
            log: log?,
            sources: sources?,
            local: false,
        };
        config.check_together(values, errors);
        Some(config.with_local_samples(values))
    }

    /// Removes server and spool if samples stay local. A spool on the command line remains: it is not the
    /// spool of the agent that runs here.
    fn with_local_samples(mut self, values: &Values) -> Self {
        let is_flag = |key| matches!(values.raw(key), Some((_, ValueOrigin::Flag(_))));
        let for_reading = !self.run.root.is_empty() || (self.run.once && self.run.print);
        self.local = for_reading && !is_flag("server");
        if self.local {
            self.server.server = None;
            if !is_flag("spool") {
                self.spool.spool = Some(Spool::None);
            }
        }
        self
    }

    /// Checks combinations of settings.
    fn check_together(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let (cert, key) = (self.server.cert.as_deref(), self.server.key.as_deref());
        check_cert_and_key(cert, key, values, errors);
        check_allowed(&self.remote.allow, values, errors);
        for word in &self.jobs.schedulers {
            if !matches!(word.as_str(), "oar" | "slurm" | "local") {
                let what =
                    format!("`jobs.schedulers` has `{word}`; it accepts oar, slurm and local");
                errors.push(values.error("jobs.schedulers", &what));
            }
        }
        if self.run.root.is_empty() && self.run.now.is_some() {
            errors
                .push(values.error("now", "`now` needs `root`: a live machine uses its own clock"));
        }
        if self.run.root.len() > 1 && !self.run.once {
            errors.push(values.error("root", "several roots need `once`: each is read once"));
        }
    }
}

/// Checks the words of `remote.allow`.
pub(crate) fn check_allowed(words: &[String], values: &Values, errors: &mut Vec<ConfigError>) {
    for word in words.iter().filter(|word| !ALLOW_WORDS.contains(&word.as_str())) {
        let what = format!("`remote.allow` has `{word}`; it accepts {}", ALLOW_WORDS.join(", "));
        errors.push(values.error("remote.allow", &what));
    }
}

fn source_config(
    source: &SourceSettings,
    values: &Values,
    errors: &mut Vec<ConfigError>,
) -> Option<SourceConfig> {
    let key = |name: &str| format!("sources.{}.{name}", source.name);
    let enabled = values.get_or_default(&key("enabled"), errors);
    let period: Option<Option<Duration>> = values.get_or_default(&key("period"), errors);
    let period_idle = values.get_or_default(&key("period_idle"), errors);
    let optional = optional(&key("optional"), values, errors);
    // The source's own period is a minimum; a configured period is exact.
    let by_default = values.is_default(&key("period"));
    let mut options = BTreeMap::new();
    for OptionSpec { name, kind, .. } in source.options {
        let text = match kind {
            Kind::List(_) | Kind::ListOf(..) => {
                values.get_or_default::<Vec<String>>(&key(name), errors)?.join(",")
            }
            Kind::Command(_) => command(&values.raw(&key(name))?.0),
            _ => values.get_or_default(&key(name), errors)?,
        };
        options.insert((*name).to_owned(), text);
    }
    let distrust = values.distrust().filter(|_| source.runs_a_program()).map(str::to_owned);
    let period = period?.filter(|_| !by_default);
    let (enabled, period_idle, optional) = (enabled?, period_idle?, optional?);
    Some(SourceConfig { enabled, period, period_idle, optional, options, distrust })
}

/// The metrics of a source that are collected only on demand: all, none, or those that match.
fn optional(
    key: &str,
    values: &Values,
    errors: &mut Vec<ConfigError>,
) -> Option<Vec<MetricPattern>> {
    let words: Vec<String> = values.get(key, errors)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let words = match *words {
        ["true"] => vec![".*"],
        ["false"] => Vec::new(),
        _ => words,
    };
    let mut wrong = |what: String| errors.push(values.error(key, &format!("`{key}`: {what}")));
    if words.len() > OPTIONAL_MAX {
        wrong(format!("more than {OPTIONAL_MAX} expressions"));
        return None;
    }
    let count = words.len();
    let valid =
        words.into_iter().filter_map(|word| MetricPattern::new(word).map_err(&mut wrong).ok());
    let patterns: Vec<_> = valid.collect();
    (patterns.len() == count).then_some(patterns)
}

/// A command as one text: each word with a terminating NUL.
fn command(raw: &Raw) -> String {
    let words = match raw {
        Raw::One(text) if text.is_empty() => &[],
        Raw::One(text) => std::slice::from_ref(text),
        Raw::Many(texts) => &**texts,
    };
    words.iter().flat_map(|word| [word.as_str(), "\0"]).collect()
}
