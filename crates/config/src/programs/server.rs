//! What a server can be told.

use crate::programs::schedulers::{SchedulerSettings, scheduler_settings};
use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::{Address, Bytes, Text, values};
use crate::{LogConfig, Setting, log_settings};
use std::path::PathBuf;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const TIB: u64 = 1 << 40;

settings! {
    /// Where a server listens, and to whom.
    ListenSettings, LISTEN, "Listening" {
        /// Address and port to listen on; beyond this machine it needs a token and TLS.
        "listen" listen: Address = "127.0.0.1:8790", Kind::Text("ADDRESS:PORT");
        /// Names besides the address by which browsers and programs call this server.
        "names" names: Vec<String> = "" or "localhost and the host's name", Kind::List("NAME");
        /// File with the tokens: one a line, `SCOPE[:NAME] TOKEN`.
        "token_file" token_file: Option<PathBuf> = "" or "no token", Kind::Text("FILE");
        /// Certificate (PEM) that the server shows.
        "cert" cert: Option<PathBuf> = "" or "no TLS", Kind::Text("FILE");
        /// Private key (PEM) of that certificate.
        "key" key: Option<PathBuf> = "" or "no TLS", Kind::Text("FILE");
        /// Certificates (PEM) that a client's certificate must come from.
        "client_ca" client_ca: Option<PathBuf> = "" or "clients show no certificate",
            Kind::Text("FILE");
        /// Whether to listen beyond this machine without TLS, which lets everyone on the way read.
        "plain" plain: bool = "false", Kind::Switch;
        /// Most connections at a time, of which each agent has one; further ones are closed at once.
        "connections_max" connections_max: u32 = "16384", Kind::Number { min: 1, max: 1_000_000 };
        /// Most of them of one user of this machine, or of one address elsewhere: where agents come
        /// through a proxy, all of them come from one.
        "connections_per_peer_max" connections_per_peer_max: u32 = "4096",
            Kind::Number { min: 1, max: 1_000_000 };
    }
}

/// Who sees what is counted on a node for no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Every user, always.
    Everyone,
    /// A user, while a job that he sees is there.
    Own,
}

values!(Nodes, Anonymous, Loopback);

impl Text for Nodes {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "everyone" => Ok(Self::Everyone),
            "own" => Ok(Self::Own),
            _ => Err(NODES.join(", ")),
        }
    }
}

/// What somebody reads whom nobody names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing.
    None,
    /// What is counted for no job.
    Nodes,
}

impl Text for Anonymous {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "nodes" => Ok(Self::Nodes),
            _ => Err(ANONYMOUS.join(", ")),
        }
    }
}

/// Who a caller on loopback is without a token or certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// The user who owns the other end of the connection, by the kernel.
    User,
    /// Nobody.
    None,
}

impl Text for Loopback {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "user" => Ok(Self::User),
            "none" => Ok(Self::None),
            _ => Err(LOOPBACK.join(", ")),
        }
    }
}

const LOOPBACK: &[&str] = &["user", "none"];
const NODES: &[&str] = &["everyone", "own"];
const ANONYMOUS: &[&str] = &["none", "nodes"];

settings! {
    /// Who may see what.
    AccessSettings, ACCESS, "Access" {
        /// Who sees what is counted on a node for no job: every user, or a user while a job that he sees is
        /// there. Jobs are their users' own by either.
        "access.nodes" nodes: Nodes = "everyone", Kind::Choice(NODES);
        /// What somebody reads who shows no token and whom the kernel does not name: nothing, or what is
        /// counted for no job.
        "access.anonymous" anonymous: Anonymous = "none", Kind::Choice(ANONYMOUS);
        /// Who a caller on loopback is without a token: the user who owns the other end of the connection, or nobody.
        /// Behind a proxy or forwarder on this machine it must be `none`: remote callers come from its user.
        "access.loopback" loopback: Loopback = "user", Kind::Choice(LOOPBACK);
        /// Users and groups who read everything: of this machine, or of the directory that its name service asks
        /// (`getent`). The server resolves groups at startup, on SIGHUP, and every 5 minutes.
        "access.staff" staff: Vec<String> = "" or "none", Kind::List("USER|@GROUP");
        /// How long somebody counts as a member of an account whom nobody put there, since his last job on it
        /// began; while one runs or waits he does.
        "access.member_for" member_for: Duration = "90d",
            Kind::Duration { min: Duration::from_secs(3600), max: Duration::from_secs(3660 * 86_400) };
        /// Ask this machine's name service (`getent passwd NAME`) for the numbers of users of whom schedulers
        /// and nodes tell no more than the name, and for the groups of `access.staff`.
        "access.name_service" name_service: bool = "true", Kind::Switch;
        /// How long a token is good that a user makes for himself, at most.
        "access.token_age_max" token_age_max: Duration = "90d",
            Kind::Duration { min: Duration::from_secs(60), max: Duration::from_secs(3660 * 86_400) };
    }
}

settings! {
    /// What a server takes in and keeps.
    KeepSettings, KEEP, "Samples" {
        /// Folder for everything the server keeps.
        "data" data: Option<PathBuf> = ""
            or "/var/lib/jobmeter/store as root, else `jobmeter/store` in the XDG state folder", Kind::Text("DIR");
        /// Name of the scheduler's jobs where a question names none.
        "cluster" cluster: String = "" or "any whose job has the number", Kind::Text("NAME");
        /// Largest body of a request of batches.
        "body_bytes_max" body_bytes_max: Bytes = "32MiB", Kind::Bytes { min: 1 << 20, max: 1 << 30 };
        /// Settings (TOML) for the agents, which take of them what their own files allow.
        "agent_config" agent_config: Option<PathBuf> = "" or "none", Kind::Text("FILE");
        /// Most series that one origin may have at a time.
        "series_per_origin_max" series_per_origin_max: u64 = "200000",
            Kind::Number { min: 1, max: 100_000_000 };
        /// Most series that all origins may have at a time.
        "series_max" series_max: u64 = "2000000", Kind::Number { min: 1, max: 1_000_000_000 };
        /// Most samples per second that one origin, or one user's commands together, may send; one that sent less
        /// before may send a minute's worth at once. What exceeds it becomes a gap.
        "samples_per_second_max" samples_per_second_max: u64 = "200000",
            Kind::Number { min: 100, max: 1_000_000_000 };
        /// Most agents, pollers and runs of users that are known at a time. Runs have a quarter of this and of
        /// `series_max`.
        "origins_max" origins_max: u64 = "20000", Kind::Number { min: 1, max: 10_000_000 };
        /// Memory for samples that are not in blocks yet; at half of it a block is begun. With millions of
        /// series, more of it makes fewer blocks of more samples a series, which cost less.
        "head_bytes_max" head_bytes_max: Bytes = "256MiB", Kind::Bytes { min: 16 << 20, max: TIB };
        /// Largest log of batches that are not in blocks yet; when it is full, agents keep theirs.
        "store_log_bytes_max" log_bytes_max: Bytes = "4GiB", Kind::Bytes { min: 1 << 20, max: 16 * TIB };
        /// A job of `jobmeter run` without a sign of life for so long has ended: its node is silent, or the
        /// command was killed. Its end is the last sign of life.
        "local_silent_max" local_silent_max: Duration = "30m",
            Kind::Duration { min: Duration::from_secs(60), max: Duration::from_secs(366 * 86_400) };
        /// How long samples stay in memory before they become a block.
        "block_every" block_every: Duration = "10m",
            Kind::Duration { min: SECOND, max: Duration::from_secs(86_400) };
    }
}

settings! {
    /// How long and how much of what was measured is kept.
    RetentionSettings, RETENTION, "Retention" {
        /// Most bytes of samples on disk; beyond, the oldest go.
        "retention.samples_bytes_max" samples_bytes_max: Option<Bytes> = ""
            or "a tenth of the file system, 10 GB at most", Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// Samples that are older go.
        "retention.samples_age_max" samples_age_max: Option<Duration> = "" or "none", AGE;
        /// A folder on another file system, to which samples go that are too many or too old for the data
        /// folder; they are asked as before. It must be there.
        "retention.archive" archive: Option<PathBuf> = "" or "none", Kind::Text("DIR");
        /// Most bytes of samples in it; beyond, the oldest go for good.
        "retention.archive_bytes_max" archive_bytes_max: Option<Bytes> = ""
            or "nine tenths of its file system", Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// Samples that are older go from there.
        "retention.archive_age_max" archive_age_max: Option<Duration> = "" or "none", AGE;
        /// Most bytes of rollups of five minutes.
        "retention.minutes_bytes_max" minutes_bytes_max: Option<Bytes> = "" or "none",
            Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// Rollups of five minutes that are older go.
        "retention.minutes_age_max" minutes_age_max: Option<Duration> = "" or "none", AGE;
        /// Most bytes of rollups of an hour.
        "retention.hours_bytes_max" hours_bytes_max: Option<Bytes> = "" or "none",
            Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// Rollups of an hour that are older go.
        "retention.hours_age_max" hours_age_max: Option<Duration> = "" or "none", AGE;
        /// Late samples are taken for so long; after it rollups are made for good. Samples that have no
        /// room go before.
        "retention.late_max" late_max: Duration = "7d",
            Kind::Duration { min: Duration::from_secs(3600), max: Duration::from_secs(366 * 86_400) };
    }
}

/// How old something may become.
const AGE: Kind =
    Kind::Duration { min: Duration::from_secs(3600), max: Duration::from_secs(100 * 366 * 86_400) };

settings! {
    /// From whom the server hears of jobs, besides its nodes.
    JobFileSettings, JOB_FILE, "Schedulers" {
        /// File that is followed: on each line what is to be said of a job, as `POST /api/v1/jobs` takes it.
        "schedulers.file" file: Option<PathBuf> = "" or "none", Kind::Text("FILE");
    }
}

settings! {
    /// What a question may cost.
    QuerySettings, QUERY, "Questions" {
        /// Most rows of an answer.
        "query.rows_max" rows_max: u64 = "10000000", Kind::Number { min: 1, max: u64::MAX };
        /// Longest time of a question.
        "query.time_max" time_max: Duration = "60s",
            Kind::Duration { min: Duration::from_millis(10), max: Duration::from_secs(86_400) };
        /// Questions that take longer are told in the log; 0: none is.
        "query.slow" slow: Duration = "5s",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) };
        /// Memory that all questions together may use.
        "query.memory_bytes_max" memory_bytes_max: Bytes = "512MiB",
            Kind::Bytes { min: 1 << 20, max: TIB };
        /// Most questions at a time; further ones wait.
        "query.concurrency_max" concurrency_max: u32 = "8", Kind::Number { min: 1, max: 10_000 };
    }
}

settings! {
    /// Who may have optional metrics collected, and for how long.
    PromotionSettings, PROMOTIONS, "Promotions" {
        /// Most promotions of metrics that a user may have at a time.
        "promotions.per_user_max" per_user_max: u64 = "100", Kind::Number { min: 0, max: 1_000_000 };
        /// Longest time for which a promotion may be asked.
        "promotions.time_max" time_max: Duration = "7d",
            Kind::Duration { min: SECOND, max: Duration::from_secs(30 * 86_400) };
        /// Rules (TOML) by which metrics are promoted for jobs and on nodes, and by which values that go beyond
        /// a bound flush bursts and promote.
        "promotions.rules" rules: Option<PathBuf> = "" or "none", Kind::Text("FILE");
    }
}

/// What a server runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it listens, and to whom.
    pub listen: ListenSettings,
    /// Who may see what.
    pub access: AccessSettings,
    /// What it takes in and keeps.
    pub keep: KeepSettings,
    /// How long and how much of it.
    pub retention: RetentionSettings,
    /// What a question may cost.
    pub query: QuerySettings,
    /// The file that tells it of jobs.
    pub job_file: JobFileSettings,
    /// The schedulers that it asks.
    pub schedulers: SchedulerSettings,
    /// Who may have optional metrics collected.
    pub promotions: PromotionSettings,
    /// What it says, and where.
    pub log: LogConfig,
}

/// Every setting of a server, in the order of the manual.
pub fn server_settings() -> Vec<Setting> {
    let schedulers = scheduler_settings();
    [LISTEN, ACCESS, KEEP, RETENTION, QUERY, JOB_FILE, &schedulers, PROMOTIONS, log_settings()]
        .concat()
}

impl ServerConfig {
    /// The checked configuration; what is wrong is told in `errors`, all of it.
    pub(crate) fn from_values(values: &Values, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let listen = ListenSettings::from_values(values, errors);
        let access = AccessSettings::from_values(values, errors);
        let keep = KeepSettings::from_values(values, errors);
        let retention = RetentionSettings::from_values(values, errors);
        let query = QuerySettings::from_values(values, errors);
        let job_file = JobFileSettings::from_values(values, errors);
        let schedulers = SchedulerSettings::from_values(values, errors);
        let promotions = PromotionSettings::from_values(values, errors);
        let log = LogConfig::from_values(values, errors);
        let (listen, keep, retention) = (listen?, keep?, retention?);
        let (access, query, job_file) = (access?, query?, job_file?);
        let (schedulers, promotions, log) = (schedulers?, promotions?, log?);
        let config =
            Self { listen, access, keep, retention, query, job_file, schedulers, promotions, log };
        config.check_together(values, errors);
        Some(config)
    }

    /// What two settings say together: beyond this machine only with a token and TLS.
    fn check_together(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let listen = &self.listen;
        match (&listen.cert, &listen.key) {
            (Some(_), None) => errors.push(values.error("cert", "`cert` needs `key` beside it")),
            (None, Some(_)) => errors.push(values.error("key", "`key` needs `cert` beside it")),
            _ => {}
        }
        if listen.client_ca.is_some() && listen.cert.is_none() {
            let what =
                "`client_ca` needs `cert` and `key`: clients show certificates only over TLS";
            errors.push(values.error("client_ca", what));
        }
        if self.access.anonymous == Anonymous::Nodes && self.access.nodes == Nodes::Own {
            let what = "with `access.nodes = \"own\"` users would see less than somebody whom nobody \
                        names; say `none`";
            errors.push(values.error("access.anonymous", what));
        }
        if self.access.loopback == Loopback::None
            && listen.token_file.is_none()
            && listen.client_ca.is_none()
        {
            let what =
                "`none` needs `token_file` or `client_ca`: without them nobody could do anything";
            errors.push(values.error("access.loopback", what));
        }
        if listen.listen.0.ip().is_loopback() {
            return;
        }
        if listen.token_file.is_none() && listen.client_ca.is_none() {
            let what = "listening beyond this machine needs `token_file` or `client_ca`";
            errors.push(values.error("listen", what));
        }
        if listen.cert.is_none() && !listen.plain {
            let what = "listening beyond this machine needs `cert` and `key`, or `plain` to do \
                        without TLS";
            errors.push(values.error("listen", what));
        }
    }
}
