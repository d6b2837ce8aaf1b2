//! The settings of a server.

use crate::programs::access_values::{JwtRole, PageOrigin};
use crate::programs::colmet::{COLMET_INPUT, ColmetInputSettings};
use crate::programs::outputs::{OutputConfig, OutputKind, outputs_of};
use crate::programs::pg::{PG, PgSettings};
use crate::programs::poller::{POLL, PollSettings};
use crate::programs::postgres::{STORE, StoreSettings};
use crate::programs::schedulers::{SchedulerSettings, scheduler_settings};
use crate::settings::load::{ConfigError, Values, check_cert_and_key};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::{Address, Bytes, Text, values};
use crate::{LogConfig, Setting, log_settings};
use model::{ClusterId, SAMPLES_PER_BATCH_MAX};
use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
const TIB: u64 = 1 << 40;

settings! {
    /// Listening addresses and TLS.
    ListenSettings, LISTEN, "Listening" {
        /// Addresses and ports to listen on; one beyond this machine needs a token and TLS.
        "listen" listen: Vec<Address> = "127.0.0.1:8790", Kind::List("ADDRESS:PORT");
        /// Names besides the address by which browsers and programs reach this server.
        "names" names: Vec<String> = "" or "localhost and the host's name", Kind::List("NAME");
        /// Name of the site in the paths of Kwollect's public interface, `/sites/NAME/metrics`.
        "site" site: Option<String> = "" or "no such paths", Kind::Text("NAME");
        /// File with the tokens: one per line, `SCOPE[:NAME] TOKEN`.
        "token_file" token_file: Option<PathBuf> = "" or "no token", Kind::Text("FILE");
        /// Certificate (PEM) of the server.
        "cert" cert: Option<PathBuf> = "" or "no TLS", Kind::Text("FILE");
        /// Private key (PEM) of that certificate.
        "key" key: Option<PathBuf> = "" or "no TLS", Kind::Text("FILE");
        /// CA certificates (PEM) that verify clients' certificates.
        "client_ca" client_ca: Option<PathBuf> = "" or "no client certificates",
            Kind::Text("FILE");
        /// Whether to listen beyond this machine without TLS, which exposes the traffic to the network.
        "plain" plain: bool = "false", Kind::Switch;
        /// Most connections at a time; each agent has one. The server closes further ones at once.
        "connections_max" connections_max: u32 = "16384", Kind::Number { min: 1, max: 1_000_000 };
        /// Most connections of one user of this machine, or of one remote address. Behind a proxy, all agents share
        /// one address.
        "connections_per_peer_max" connections_per_peer_max: u32 = "4096",
            Kind::Number { min: 1, max: 1_000_000 };
    }
}

/// Who sees node samples (not attributed to a job).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Every user, always.
    Everyone,
    /// A user with access to a job on the node, while it is there.
    Own,
}

values!(Nodes, Anonymous, Loopback, UserMetrics, IpAddr);

impl Text for Nodes {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "everyone" => Ok(Self::Everyone),
            "own" => Ok(Self::Own),
            _ => Err(NODES.join(", ")),
        }
    }
}

/// What an unauthenticated client may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing.
    None,
    /// Node samples.
    Nodes,
    /// Node samples, also by the ID of a job: when the job ran, and on which nodes.
    Jobs,
}

impl Text for Anonymous {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "nodes" => Ok(Self::Nodes),
            "jobs" => Ok(Self::Jobs),
            _ => Err(ANONYMOUS.join(", ")),
        }
    }
}

/// Who inserts rows as a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMetrics {
    /// Users whom the kernel or a token identifies.
    Users,
    /// Callers without a token, too, by the address of their node.
    Nodes,
}

impl Text for UserMetrics {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "users" => Ok(Self::Users),
            "nodes" => Ok(Self::Nodes),
            _ => Err(USER_METRICS.join(", ")),
        }
    }
}

impl Text for IpAddr {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse::<Self>()
            .map(|address| address.to_canonical())
            .map_err(|_| "an IP address".into())
    }
}

/// Identity of a caller on loopback without a token or certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// The user who owns the other end of the connection, as the kernel reports.
    User,
    /// None: the caller is unauthenticated.
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
const USER_METRICS: &[&str] = &["users", "nodes"];
const NODES: &[&str] = &["everyone", "own"];
const ANONYMOUS: &[&str] = &["none", "nodes", "jobs"];

settings! {
    /// Access control.
    AccessSettings, ACCESS, "Access" {
        /// Who sees node samples (not attributed to a job): every user, or users with access to a job on the node,
        /// while it is there. In both cases, users see their own jobs only.
        "access.nodes" nodes: Nodes = "everyone", Kind::Choice(NODES);
        /// What a client may read without a token and without a user that the kernel reports: nothing; node samples
        /// (not attributed to a job); or `jobs`: these, also by job ID, which shows when and on which nodes each job ran.
        /// With `jobs` every reader may query by the ID of any job.
        "access.anonymous" anonymous: Anonymous = "none", Kind::Choice(ANONYMOUS);
        /// Identity of a caller on loopback without a token: the user who owns the other end of the
        /// connection, or none.
        /// Behind a proxy or forwarder on this machine it must be `none`: remote callers would act as its user.
        "access.loopback" loopback: Loopback = "user", Kind::Choice(LOOPBACK);
        /// Origins (`https://HOST[:PORT]`) whose pages may read from this server with a browser (CORS). Such a page
        /// needs a token, or reads as an unauthenticated client.
        "access.origins" origins: Vec<PageOrigin> = "" or "only the server's own pages", Kind::List("ORIGIN");
        /// File with the secret of JSON Web Tokens (HS256): one line, at least 32 bytes.
        "access.jwt_secret_file" jwt_secret_file: Option<PathBuf> = "" or "no JSON Web Tokens",
            Kind::Text("FILE");
        /// Scope of a JSON Web Token by its claim `role`: any scope of the token file but `admin`.
        "access.jwt_roles" jwt_roles: Vec<JwtRole> = "kwuser=push", Kind::List("ROLE=SCOPE");
        /// Users and groups who read everything: of this machine, or of the directory behind its name service
        /// (`getent`). The server resolves groups at startup, on SIGHUP, and every 5 minutes.
        "access.staff" staff: Vec<String> = "" or "none", Kind::List("USER|@GROUP");
        /// How long a user counts as a member of an account after the start of their last job on it, unless added
        /// explicitly; a running or waiting job counts too.
        "access.member_for" member_for: Duration = "90d",
            Kind::Duration { min: Duration::from_secs(3600), max: Duration::from_secs(3660 * 86_400) };
        /// Query this machine's name service (`getent passwd NAME`) for the UIDs of users that schedulers and nodes
        /// report by name only, and for the groups of `access.staff`.
        "access.name_service" name_service: bool = "true", Kind::Switch;
        /// Longest validity of a token that users create for themselves.
        "access.token_age_max" token_age_max: Duration = "90d",
            Kind::Duration { min: Duration::from_secs(60), max: Duration::from_secs(3660 * 86_400) };
    }
}

settings! {
    /// Receiving and storing samples.
    StorageSettings, KEEP, "Samples" {
        /// Folder for all data of the server.
        "data" data: Option<PathBuf> = ""
            or "/var/lib/jobmeter/store as root, else `jobmeter/store` in the XDG state folder", Kind::Text("DIR");
        /// Cluster of a job ID in a query that names no cluster.
        "cluster" cluster: String = "" or "any cluster with a job of this ID", Kind::Text("NAME");
        /// Largest body of a request with batches.
        "body_bytes_max" body_bytes_max: Bytes = "32MiB", Kind::Bytes { min: 1 << 20, max: 1 << 30 };
        /// Settings (TOML) for the agents; each applies what its own file allows.
        "agent_config" agent_config: Option<PathBuf> = "" or "none", Kind::Text("FILE");
        /// Most series that one origin may have at a time.
        "series_per_origin_max" series_per_origin_max: u64 = "200000",
            Kind::Number { min: 1, max: 100_000_000 };
        /// Most series that all origins may have at a time.
        "series_max" series_max: u64 = "2000000", Kind::Number { min: 1, max: 1_000_000_000 };
        /// Most samples per second of one origin, or of one user's commands together. After lower use, one may send
        /// a minute's worth at once. The excess becomes a gap.
        "samples_per_second_max" samples_per_second_max: u64 = "200000",
            Kind::Number { min: 100, max: 1_000_000_000 };
        /// Most known agents, pollers, user runs and inserting users at a time. Runs and users have a quarter of this and
        /// of `series_max`, pollers a half of both.
        "origins_max" origins_max: u64 = "20000", Kind::Number { min: 1, max: 10_000_000 };
        /// Most metrics that no source of the program declares. Pollers have half of this, users that insert rows a
        /// quarter.
        "metrics_max" metrics_max: u64 = "20000", Kind::Number { min: 64, max: 10_000_000 };
        /// Memory for samples that are not in blocks yet; at half of it the server begins a block. With millions of
        /// series, more memory makes fewer blocks with more samples per series, which cost less.
        "head_bytes_max" head_bytes_max: Bytes = "256MiB", Kind::Bytes { min: 16 << 20, max: TIB };
        /// Largest log of batches that are not in blocks yet; when it is full, agents keep their batches.
        "store_log_bytes_max" log_bytes_max: Bytes = "4GiB", Kind::Bytes { min: 1 << 20, max: 16 * TIB };
        /// A job of `jobmeter run` without a sign of life for this time has ended: its node is silent, or the
        /// command was killed. Its end is the last sign of life.
        "local_silent_max" local_silent_max: Duration = "30m",
            Kind::Duration { min: Duration::from_secs(60), max: Duration::from_secs(366 * 86_400) };
        /// How long samples stay in memory before they become a block.
        "block_every" block_every: Duration = "10m",
            Kind::Duration { min: SECOND, max: Duration::from_secs(86_400) };
    }
}

settings! {
    /// Rows that programs insert with `insert_metrics` and `insert_user_metrics`.
    PushSettings, PUSH, "Inserted rows" {
        /// Most rows of one request.
        "push.rows_per_request_max" rows_per_request_max: u64 = "10000",
            Kind::Number { min: 1, max: SAMPLES_PER_BATCH_MAX as u64 };
        /// Most rows per second of one token of scope `push`, or of an administrator. After lower use, one may send a
        /// minute's worth at once. The answer to more is 429.
        "push.rows_per_second_max" rows_per_second_max: u64 = "20000",
            Kind::Number { min: 1, max: 1_000_000_000 };
        /// The same for one user.
        "push.user_rows_per_second_max" user_rows_per_second_max: u64 = "500",
            Kind::Number { min: 1, max: 1_000_000_000 };
        /// The same for one node, of all its users together.
        "push.node_rows_per_second_max" node_rows_per_second_max: u64 = "2000",
            Kind::Number { min: 1, max: 1_000_000_000 };
        /// Who inserts with `insert_user_metrics`: `users` with a login or a token, or `nodes`, too: callers without a
        /// token, by the address of a node that has a running job.
        "push.user_metrics" user_metrics: UserMetrics = "users", Kind::Choice(USER_METRICS);
        /// File with the nodes of addresses, a line `ADDRESS NODE` each. Other addresses are those from which an agent with
        /// a token or certificate of its own sends.
        "push.node_addresses" node_addresses: Option<PathBuf> = "" or "those of agents", Kind::Text("FILE");
        /// Addresses of the proxies whose header X-Forwarded-For names such a caller.
        "push.proxies" proxies: Vec<IpAddr> = "" or "none", Kind::List("ADDRESS");
    }
}

settings! {
    /// Retention by age and size.
    RetentionSettings, RETENTION, "Retention" {
        /// Most bytes of samples on disk; beyond, the server deletes the oldest. Samples of the current hour and the
        /// hour before stay, however many there are: their rollups are not final yet.
        "retention.samples_bytes_max" samples_bytes_max: Option<Bytes> = ""
            or "a tenth of the file system, 10 GB at most", Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// The server deletes samples that are older.
        "retention.samples_age_max" samples_age_max: Option<Duration> = "" or "none", AGE;
        /// A folder on another file system that receives samples beyond the limits of the data folder. Queries read
        /// it as before. The folder must exist.
        "retention.archive" archive: Option<PathBuf> = "" or "none", Kind::Text("DIR");
        /// Most bytes of samples in the archive; beyond, the server deletes the oldest permanently.
        "retention.archive_bytes_max" archive_bytes_max: Option<Bytes> = ""
            or "90 % of its file system", Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// The server deletes samples in the archive that are older.
        "retention.archive_age_max" archive_age_max: Option<Duration> = "" or "none", AGE;
        /// Most bytes of rollups of five minutes.
        "retention.minutes_bytes_max" minutes_bytes_max: Option<Bytes> = "" or "none",
            Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// The server deletes rollups of five minutes that are older.
        "retention.minutes_age_max" minutes_age_max: Option<Duration> = "" or "none", AGE;
        /// Most bytes of rollups of an hour.
        "retention.hours_bytes_max" hours_bytes_max: Option<Bytes> = "" or "none",
            Kind::Bytes { min: 1 << 20, max: 1024 * TIB };
        /// The server deletes rollups of an hour that are older.
        "retention.hours_age_max" hours_age_max: Option<Duration> = "" or "none", AGE;
        /// How long the server accepts late samples; then rollups become final. If space runs out, samples are
        /// deleted earlier.
        "retention.late_max" late_max: Option<Duration> = "" or "7d, or none with `store = \"postgres\"`",
            Kind::Duration { min: Duration::from_secs(3600), max: Duration::from_secs(366 * 86_400) };
    }
}

/// Limits of an age.
const AGE: Kind =
    Kind::Duration { min: Duration::from_secs(3600), max: Duration::from_secs(100 * 366 * 86_400) };

settings! {
    /// Job reports from a file.
    JobFileSettings, JOB_FILE, "Schedulers" {
        /// File that the server follows: each line is a job update, as for `POST /api/v1/jobs`.
        "schedulers.file" file: Option<PathBuf> = "" or "none", Kind::Text("FILE");
    }
}

settings! {
    /// Limits of a query.
    QuerySettings, QUERY, "Queries" {
        /// Most rows of an answer.
        "query.rows_max" rows_max: u64 = "10000000", Kind::Number { min: 1, max: u64::MAX };
        /// Longest time of a query.
        "query.time_max" time_max: Duration = "60s",
            Kind::Duration { min: Duration::from_millis(10), max: Duration::from_secs(86_400) };
        /// Log queries that take longer; 0: none.
        "query.slow" slow: Duration = "5s",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) };
        /// Memory for all queries together.
        "query.memory_bytes_max" memory_bytes_max: Bytes = "512MiB",
            Kind::Bytes { min: 1 << 20, max: TIB };
        /// Most queries at a time; further ones wait.
        "query.concurrency_max" concurrency_max: u32 = "8", Kind::Number { min: 1, max: 10_000 };
        /// File with the statements of `get_job_metrics`: one SELECT of the table `jobmetrics` per line.
        "jobmetrics_requests" jobmetrics_requests: Option<PathBuf> = ""
            or "six statements about Kwollect's metrics", Kind::Text("FILE");
    }
}

settings! {
    /// Promotions by users and rules.
    PromotionSettings, PROMOTIONS, "Promotions" {
        /// Most promotions of metrics that a user may have at a time.
        "promotions.per_user_max" per_user_max: u64 = "100", Kind::Number { min: 0, max: 1_000_000 };
        /// Longest time of a promotion.
        "promotions.time_max" time_max: Duration = "7d",
            Kind::Duration { min: SECOND, max: Duration::from_secs(30 * 86_400) };
        /// Rules (TOML) that promote metrics for jobs and on nodes, and rules that flush bursts and promote
        /// when a value crosses a bound.
        "promotions.rules" rules: Option<PathBuf> = "" or "none", Kind::Text("FILE");
    }
}

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Listening addresses and TLS.
    pub listen: ListenSettings,
    /// Access control.
    pub access: AccessSettings,
    /// The store of samples.
    pub store: StoreSettings,
    /// Receiving and storing samples.
    pub keep: StorageSettings,
    /// Clients of PostgreSQL's protocol.
    pub pg: PgSettings,
    /// Rows that programs insert.
    pub push: PushSettings,
    /// Retention by age and size.
    pub retention: RetentionSettings,
    /// Limits of a query.
    pub query: QuerySettings,
    /// The file with job updates.
    pub job_file: JobFileSettings,
    /// The schedulers that it polls.
    pub schedulers: SchedulerSettings,
    /// Promotions by users and rules.
    pub promotions: PromotionSettings,
    /// A poller that it starts.
    pub poll: PollSettings,
    /// Other monitoring systems from which it receives samples.
    pub inputs: ColmetInputSettings,
    /// Other systems to which it delivers samples.
    pub outputs: Vec<OutputConfig>,
    /// Its log.
    pub log: LogConfig,
}

/// Every setting of a server, in the order of the manual.
pub fn server_settings() -> Vec<Setting> {
    let schedulers = scheduler_settings();
    let stored = [LISTEN, ACCESS, PG, STORE, KEEP, PUSH, RETENTION];
    let others = [QUERY, JOB_FILE, &schedulers, PROMOTIONS, POLL, COLMET_INPUT, log_settings()];
    [&stored[..], &others[..]].concat().concat()
}

impl ServerConfig {
    /// The checked configuration. Adds all errors to `errors`.
    pub(crate) fn from_values(
        values: &Values,
        outputs: &[OutputKind],
        errors: &mut Vec<ConfigError>,
    ) -> Option<Self> {
        let listen = ListenSettings::from_values(values, errors);
        let access = AccessSettings::from_values(values, errors);
        let store = StoreSettings::from_values(values, errors);
        let keep = StorageSettings::from_values(values, errors);
        let pg = PgSettings::from_values(values, errors);
        let push = PushSettings::from_values(values, errors);
        let retention = RetentionSettings::from_values(values, errors);
        let query = QuerySettings::from_values(values, errors);
        let job_file = JobFileSettings::from_values(values, errors);
        let schedulers = SchedulerSettings::from_values(values, errors);
        let promotions = PromotionSettings::from_values(values, errors);
        let poll = PollSettings::from_values(values, errors);
        let inputs = ColmetInputSettings::from_values(values, errors);
        let outputs = outputs_of(values, outputs, errors);
        let log = LogConfig::from_values(values, errors);
        let (listen, pg, keep, push, retention) = (listen?, pg?, keep?, push?, retention?);
        let (access, store, query, job_file) = (access?, store?, query?, job_file?);
        let (schedulers, promotions, poll, outputs) = (schedulers?, promotions?, poll?, outputs?);
        let config = Self {
            listen,
            access,
            store,
            keep,
            pg,
            push,
            retention,
            query,
            job_file,
            schedulers,
            promotions,
            poll,
            inputs: inputs?,
            outputs,
            log: log?,
        };
        config.check_together(values, errors);
        Some(config)
    }

    /// Checks combinations of settings: listening beyond this machine needs a token and TLS.
    fn check_together(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let listen = &self.listen;
        self.pg.check(values, errors);
        self.inputs.check(values, errors);
        let (cert, key) = (listen.cert.as_deref(), listen.key.as_deref());
        check_cert_and_key(cert, key, values, errors);
        if listen.client_ca.is_some() && listen.cert.is_none() {
            let what = "`client_ca` needs `cert` and `key`: client certificates need TLS";
            errors.push(values.error("client_ca", what));
        }
        self.store.check(&self.retention, values, errors);
        self.store.check_outputs(&self.outputs, values, errors);
        self.schedulers.check_store(&self.store, values, errors);
        self.check_access(values, errors);
        if self.access.loopback == Loopback::None
            && listen.token_file.is_none()
            && listen.client_ca.is_none()
        {
            let what = "`none` needs `token_file` or `client_ca`: without them no client could authenticate";
            errors.push(values.error("access.loopback", what));
        }
        if let Some(Err(error)) = listen.site.as_deref().map(ClusterId::new) {
            errors.push(
                values.error("site", &format!("`site` is a name as a cluster has it: {error}")),
            );
        }
        let cluster = &self.keep.cluster;
        if !cluster.is_empty()
            && let Err(error) = ClusterId::new(cluster)
        {
            errors.push(values.error("cluster", &format!("`cluster`: {error}")));
        }
        self.check_addresses(values, errors);
    }

    /// Checks combinations of the settings of access control.
    fn check_access(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let access = &self.access;
        if access.anonymous != Anonymous::None && access.nodes == Nodes::Own {
            let what = "with `access.nodes = \"own\"` users would see less than unauthenticated \
                        clients; set `none`";
            errors.push(values.error("access.anonymous", what));
        }
        let mut roles = BTreeSet::new();
        for JwtRole { role, .. } in access.jwt_roles.iter().filter(|one| !roles.insert(&one.role)) {
            let what = format!("`access.jwt_roles` has the role `{role}` twice; remove one");
            errors.push(values.error("access.jwt_roles", &what));
        }
    }

    /// Checks the addresses to listen on, each by itself.
    fn check_addresses(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let listen = &self.listen;
        if listen.listen.is_empty() {
            let what = "`listen` is empty; it needs an address such as 127.0.0.1:8790";
            errors.push(values.error("listen", what));
        }
        let mut earlier = BTreeSet::new();
        let mut is_again = |one: &&Address| one.0.port() != 0 && !earlier.insert(one.0);
        for Address(address) in listen.listen.iter().filter(&mut is_again) {
            let what = format!("`listen` has {address} twice; remove one");
            errors.push(values.error("listen", &what));
        }
        let is_beyond = |address: &&Address| !address.0.ip().to_canonical().is_loopback();
        let Some(Address(beyond)) = listen.listen.iter().find(is_beyond) else { return };
        if listen.token_file.is_none() && listen.client_ca.is_none() {
            let what = format!(
                "listening on {beyond}, beyond this machine, needs `token_file` or `client_ca`"
            );
            errors.push(values.error("listen", &what));
        }
        if listen.cert.is_none() && !listen.plain {
            let what = format!(
                "listening on {beyond}, beyond this machine, needs `cert` and `key`, or `plain` to do without TLS"
            );
            errors.push(values.error("listen", &what));
        }
    }
}
