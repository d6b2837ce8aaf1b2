//! What an agent can be told.

use crate::settings::load::{ConfigError, Origin, Values};
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
/// Longest period of a burst, and longest time that it keeps.
pub(crate) const BURST_PERIOD_MAX: Duration = Duration::from_secs(60);
pub(crate) const BURST_KEEP_MAX: Duration = Duration::from_secs(3600);
/// What the server may be allowed.
const ALLOW_WORDS: &[&str] = &["sources", "periods", "promotions", "events", "bursts"];
/// Most expressions for the optional metrics of a source.
const OPTIONAL_MAX: usize = 64;
const TIB: u64 = 1 << 40;

settings! {
    /// What an agent runs with.
    AgentSettings, SAMPLING, "Sampling" {
        /// How often the sources are read that cost little; each tick is a multiple of it since 1970.
        "period" period: Duration = "5s", Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        /// How often they are read while no job is on the node, if more rarely; a job that comes ends that
        /// within one tick of its own.
        "period_idle" period_idle: Option<Duration> = "" or "as with jobs",
            Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        /// Name of this node in every sample.
        "device" device: Option<DeviceId> = "" or "the host's name up to its first dot",
            Kind::Text("NAME");
        /// Longest time a reading of a source may take; what it gives later is too old and left out.
        "source_time_max" source_time_max: Option<Duration> = "" or "the source's period, 1s at least",
            Kind::Duration { min: Duration::from_millis(10), max: DAY };
        /// Processor time that one reading of a source should not pass; a source that reads process by
        /// process stops there and goes on at the next tick where it stopped.
        "source_budget" source_budget: Duration = "50ms",
            Kind::Duration { min: Duration::from_micros(100), max: Duration::from_secs(60) };
        /// Hundredths of one processor that a source may take; one that takes more is read half as often,
        /// and so on, until it does not.
        "source_percent_max" source_percent_max: u64 = "10", Kind::Number { min: 1, max: 100 };
    }
}

settings! {
    /// Which jobs an agent looks for in the cgroups.
    JobSettings, JOBS, "Jobs" {
        /// Whose jobs are looked for, of `oar`, `slurm` and `local` (those of `jobmeter run`).
        "jobs.schedulers" schedulers: Vec<String> = "oar, slurm, local", Kind::List("WORD");
        /// Directories in which OAR's jobs have theirs, instead of the default places.
        "jobs.oar_roots" oar_roots: Vec<String> = "" or "OAR's default places", Kind::List("DIR");
        /// Directories in which Slurm's jobs have theirs, instead of the default places.
        "jobs.slurm_roots" slurm_roots: Vec<String> = "" or "Slurm's default places",
            Kind::List("DIR");
        /// A site's own jobs: the way from a hierarchy's root, each part a regular expression.
        "jobs.patterns" patterns: Vec<String> = "" or "none", Kind::List("CLUSTER:PATTERN");
        /// Users besides root who may own the directories of jobs.
        "jobs.scheduler_uids" scheduler_uids: Vec<u32> = "" or "the user `oar` only", Kind::List("UID");
        /// Whether systemd's services and sessions are shown on a machine without a scheduler.
        "jobs.units" units: bool = "true", Kind::Switch;
        /// How often all directories are looked at, even if nothing was noted.
        "jobs.rescan" rescan: Duration = "30s", Kind::Duration { min: SECOND, max: DAY };
    }
}

settings! {
    /// Where an agent sends to.
    ServerSettings, SERVER, "Server" {
        /// Where the batches go.
        "server" server: Option<ServerUrl> = "" or "the server that `jobmeter up` runs here, if one does",
            Kind::Text("URL");
        /// Users besides root and the caller's own who may own a server that is reached through loopback without TLS.
        "server_uids" server_uids: Vec<u32> = "" or "the owner of /run/jobmeter-server only",
            Kind::List("UID");
        /// File with the token that the server knows; only its first line counts.
        "token_file" token_file: Option<PathBuf> = "" or "no token", Kind::Text("FILE");
        /// Certificates (PEM) that the server's certificate must come from.
        "ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// Certificate (PEM) that this node shows to the server.
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
    /// What an agent keeps of what it could not send.
    SpoolSettings, SPOOL, "Spool" {
        /// Folder for what the server has not acknowledged, or `none`.
        "spool" spool: Option<Spool> = ""
            or "/var/lib/jobmeter/spool as root, else in the XDG state folder", Kind::Text("DIR");
        /// Whether each write is forced to the disk, so that it survives a crash of the node too.
        "spool_sync" spool_sync: bool = "false", Kind::Switch;
        /// Largest spool; the oldest samples go first.
        "spool_bytes_max" spool_bytes_max: Bytes = "1GiB", Kind::Bytes { min: 1 << 20, max: TIB };
        /// Oldest sample in the spool.
        "spool_age_max" spool_age_max: Duration = "7d",
            Kind::Duration { min: SECOND, max: Duration::from_secs(366 * 86_400) };
        /// How fast the spool is sent, so that live samples get through beside it.
        "spool_send_bytes_per_second" spool_send_bytes_per_second: Bytes = "4MiB",
            Kind::Bytes { min: 1 << 10, max: TIB };
        /// Largest folder of batches that a server refused for good; the oldest go first.
        "refused_bytes_max" refused_bytes_max: Bytes = "16MiB", Kind::Bytes { min: 0, max: TIB };
    }
}

settings! {
    /// What the server may change.
    RemoteSettings, REMOTE, "What the server may change" {
        /// What the server may change, of `sources` (switch them on and off), `periods`, `promotions` (of what
        /// is optional), `events` (what `perf` counts) and `bursts`.
        "remote.allow" allow: Vec<String> = "sources, periods, promotions", Kind::List("WORD");
        /// Shortest period that the server may ask for.
        "remote.period_min" period_min: Duration = "100ms",
            Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX };
        /// Longest time after which a change ends by itself.
        "remote.time_max" time_max: Duration = "1d",
            Kind::Duration { min: SECOND, max: Duration::from_secs(366 * 86_400) };
    }
}

settings! {
    /// What an agent reads more often than it sends.
    BurstSettings, BURST, "Bursts" {
        /// Sources that are read between their ticks too: what that gives is kept in memory, and sent when
        /// something happens.
        "burst.sources" sources: Vec<String> = "" or "none", Kind::List("SOURCE");
        /// How often they are read.
        "burst.period" period: Duration = "100ms",
            Kind::Duration { min: PERIOD_MIN, max: BURST_PERIOD_MAX };
        /// How long what was read is kept.
        "burst.keep" keep: Duration = "1m", Kind::Duration { min: SECOND, max: BURST_KEEP_MAX };
        /// What has it sent beside the server's asking: `job_start`, `job_end`.
        "burst.flush_on" flush_on: FlushOn = "job_start, job_end",
            Kind::ListOf("WORD", FlushOn::check);
        /// Most memory for what is kept of one source, taken when its first reading is kept; beyond, the
        /// oldest goes before its time.
        "burst.bytes_max" bytes_max: Bytes = "4MiB", Kind::Bytes { min: 1 << 16, max: 1 << 30 };
    }
}

settings! {
    /// What an agent does once, instead of running on.
    RunSettings, RUN, "One run" {
        /// Recorded machine to read instead of this one; each further one is the next tick. Its samples are sent
        /// only where the command line has `--server`.
        "root" root: Vec<PathBuf> = "" or "this machine", Kind::List("DIR");
        /// Whether to read once, for each root, and end.
        "once" once: bool = "false", Kind::Switch;
        /// Whether to print each sample before it is sent; with `once`, samples are sent only where the command
        /// line has `--server`.
        "print" print: bool = "false", Kind::Switch;
        /// The time of the first tick, where the machine is a recorded one.
        "now" now: Option<Timestamp> = "" or "the clock's", Kind::Text("TIME");
    }
}

/// What an agent was told about one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Whether it is read.
    pub enabled: bool,
    /// How often; `None`: at every tick, or as rarely as the source itself wants.
    pub period: Option<Duration>,
    /// How often while no job is on the node; `None`: as the rest.
    pub period_idle: Option<Duration>,
    /// The metrics that are collected only while a promotion asks for them.
    pub optional: Vec<MetricPattern>,
    /// Its own options, checked.
    pub options: BTreeMap<String, String>,
    /// Of a source that runs a program: why the file that names it is not believed, and how to make it so.
    pub distrust: Option<String>,
}

/// What an agent runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// When and how it reads.
    pub sampling: AgentSettings,
    /// Which jobs it looks for.
    pub jobs: JobSettings,
    /// Where it sends to.
    pub server: ServerSettings,
    /// What it keeps.
    pub spool: SpoolSettings,
    /// What the server may change.
    pub remote: RemoteSettings,
    /// What it reads more often than it sends.
    pub burst: BurstSettings,
    /// Whether it runs on.
    pub run: RunSettings,
    /// What it says, and where.
    pub log: LogConfig,
    /// Each source, by its name.
    pub sources: BTreeMap<String, SourceConfig>,
    /// Whether samples stay here: a recorded machine, or one tick that is printed, must never reach the live
    /// store because a file or this machine names a server. `--server` on the command line asks for it.
    pub local: bool,
}

/// Every setting of an agent with these sources, in the order of the manual.
pub fn agent_settings(sources: &[SourceSettings]) -> Vec<Setting> {
    let mut list = [SAMPLING, SERVER, SPOOL, RUN, JOBS, REMOTE, BURST, log_settings()].concat();
    list.extend(sources.iter().flat_map(SourceSettings::settings));
    list
}

impl AgentConfig {
    /// The checked configuration; what is wrong is told in `errors`, all of it.
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
        Some(config.kept_local(values))
    }

    /// Without server and spool where samples stay here. A spool that the command line names stays: it is not the
    /// one of the agent that runs here.
    fn kept_local(mut self, values: &Values) -> Self {
        let is_flag = |key| matches!(values.raw(key), Some((_, Origin::Flag(_))));
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

    /// What two settings say together.
    fn check_together(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        match (&self.server.cert, &self.server.key) {
            (Some(_), None) => errors.push(values.error("cert", "`cert` needs `key` beside it")),
            (None, Some(_)) => errors.push(values.error("key", "`key` needs `cert` beside it")),
            _ => {}
        }
        for word in &self.remote.allow {
            if !ALLOW_WORDS.contains(&word.as_str()) {
                let known = ALLOW_WORDS.join(", ");
                let what = format!("`remote.allow` has `{word}`; it knows {known}");
                errors.push(values.error("remote.allow", &what));
            }
        }
        for word in &self.jobs.schedulers {
            if !matches!(word.as_str(), "oar" | "slurm" | "local") {
                let what = format!("`jobs.schedulers` has `{word}`; it knows oar, slurm and local");
                errors.push(values.error("jobs.schedulers", &what));
            }
        }
        if self.run.root.is_empty() && self.run.now.is_some() {
            errors.push(values.error("now", "`now` needs `root`: a live machine has its own time"));
        }
        if self.run.root.len() > 1 && !self.run.once {
            errors.push(values.error("root", "several roots need `once`: each is read once"));
        }
    }
}

fn source_config(
    source: &SourceSettings,
    values: &Values,
    errors: &mut Vec<ConfigError>,
) -> Option<SourceConfig> {
    let key = |name: &str| format!("sources.{}.{name}", source.name);
    let enabled = values.get(&key("enabled"), errors);
    let period: Option<Option<Duration>> = values.get(&key("period"), errors);
    let period_idle = values.get(&key("period_idle"), errors);
    let optional = optional(&key("optional"), values, errors);
    // The source's own wish is a lower bound, what somebody wrote is exact.
    let by_default = values.is_default(&key("period"));
    let mut options = BTreeMap::new();
    for OptionSpec { name, kind, .. } in source.options {
        let text = match kind {
            Kind::List(_) | Kind::ListOf(..) => {
                values.get::<Vec<String>>(&key(name), errors)?.join(",")
            }
            Kind::Command(_) => command(&values.raw(&key(name))?.0),
            _ => values.get(&key(name), errors)?,
        };
        options.insert((*name).to_owned(), text);
    }
    let distrust = values.distrust().filter(|_| source.runs_a_program()).map(str::to_owned);
    let period = period?.filter(|_| !by_default);
    let (enabled, period_idle, optional) = (enabled?, period_idle?, optional?);
    Some(SourceConfig { enabled, period, period_idle, optional, options, distrust })
}

/// Which metrics of a source are collected only when they are asked for: all, none, or those that are named.
fn optional(
    key: &str,
    values: &Values,
    errors: &mut Vec<ConfigError>,
) -> Option<Vec<MetricPattern>> {
    let words: Vec<String> = values.get(key, errors)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let patterns: Result<Vec<_>, String> = match *words {
        ["true"] => MetricPattern::new(".*").map(|all| vec![all]),
        [] | ["false"] => Ok(Vec::new()),
        _ if words.len() > OPTIONAL_MAX => Err(format!("more than {OPTIONAL_MAX} expressions")),
        _ => words.into_iter().map(MetricPattern::new).collect(),
    };
    patterns.map_err(|what| errors.push(values.error(key, &format!("`{key}`: {what}")))).ok()
}

/// A command as one text: each word with what ends it.
fn command(raw: &Raw) -> String {
    let words = match raw {
        Raw::One(text) if text.is_empty() => &[],
        Raw::One(text) => std::slice::from_ref(text),
        Raw::Many(texts) => &**texts,
    };
    words.iter().flat_map(|word| [word.as_str(), "\0"]).collect()
}
