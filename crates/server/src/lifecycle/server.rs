//! The lifecycle of a server.

use crate::api::router::router;
use crate::app::App;
use crate::auth::addresses::agent_addresses::AgentAddresses;
use crate::auth::name_service::GETENT;
use crate::auth::peer::SocketOwners;
use crate::background::shared_tables;
use crate::background::user_ids::UserIdLookup;
use crate::common::counts::Counts;
use crate::common::limits::Limits;
use crate::common::recent_value::RecentValue;
use crate::common::tasks::Tasks;
use crate::http::body::Budgets;
use crate::http::compression;
use crate::http::connection_limits::{ConnectionLimits, LimitPerKey};
use crate::http::listen::{addresses, listen_everywhere};
use crate::http::pg_sessions::PgSessions;
use crate::http::query_executor::QueryExecutor;
use crate::ingest::decoding::Decoding;
use crate::ingest::node_jobs_cache::NodeJobsCache;
use crate::lifecycle::accept::{Serving, accept};
use crate::lifecycle::data_folder::{self, DataFolder};
use crate::lifecycle::pg::listener::{PgListener, serve_pg};
use crate::lifecycle::sql_worker;
use crate::lifecycle::startup_warnings::{warn_of_openness, warn_of_weak_secret};
use crate::lifecycle::stores::StoreError;
use crate::reloadable_config::{LiveErrors, ReloadError, ReloadableConfig};
use crate::schedulers::configured_schedulers::plans;
use crate::schedulers::database_addresses::SettingError;
use crate::schedulers::scheduler_poller::{Poller, RecordSink};
use config::{OutputConfig, ServerConfig};
use control::DemandError;
use jobs::RegistryError;
use kernel::{ReadError, Root};
use parking_lot::RwLock;
use query::{ConcurrencyLimit, QueryEngine};
use sql::{Launch, Sql, SqlError};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use storage::StorageError;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Requests that may wait for the registry's disk at a time.
const REGISTRY_PERMITS: usize = 4;
/// How long a stop waits for writes of outputs.
const OUTPUTS_TIME: Duration = Duration::from_secs(5);
/// The parameters that a server is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server's configuration.
    pub config: ServerConfig,
    /// Folder for all of the server's data.
    pub data: PathBuf,
    /// Listening sockets that the service manager opened; they replace sockets of the server's own.
    pub passed: Arc<[std::net::TcpListener]>,
    /// Whether the addresses are configured explicitly: then the server uses no other port.
    pub listen_given: bool,
    /// File with the configuration for agents.
    pub agent_config: Option<PathBuf>,
    /// Limits that no configuration sets.
    pub limits: Limits,
    /// Program of the processes that execute SQL. Without it, as in tests, threads execute SQL.
    pub sql_worker: Option<PathBuf>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The tokens, certificates or names are invalid.
    #[error(transparent)]
    ReloadableConfig(#[from] LiveErrors),
    /// The data folder cannot be used.
    #[error(
        "the data folder {}: {error}; choose a writable folder with --data",
        path.display()
    )]
    Data {
        /// The data folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database of the store does not answer.
    #[error("the local jobs that the database knows: {0}")]
    KnownJobs(#[from] StorageError),
    /// The registry of jobs cannot be opened.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The on-demand requests to agents cannot be loaded.
    #[error(transparent)]
    Demand(#[from] DemandError),
    /// The SQL engine does not start.
    #[error("the SQL engine: {0}")]
    Sql(SqlError),
    /// The name of the default cluster is invalid.
    #[error("`cluster`: {0}")]
    Cluster(model::NameError),
    /// The settings of a scheduler are invalid.
    #[error(transparent)]
    Scheduler(#[from] SettingError),
    /// The server cannot listen.
    #[error("listening on {address}: {error}")]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// A socket of the service manager cannot be used.
    #[error("the sockets of the service manager: {0}")]
    Passed(io::Error),
    /// The server cannot listen for PostgreSQL's protocol.
    #[error("`pg.listen`: {place}: {error}")]
    PgListen {
        /// The address or folder.
        place: String,
        /// The system's error.
        error: io::Error,
    },
    /// The files of this machine cannot be read.
    #[error(transparent)]
    Machine(#[from] ReadError),
    /// A thread that opens files panicked.
    #[error("opening the data folder panicked")]
    Panicked,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    tasks: Arc<Tasks>,
    stopping: watch::Sender<bool>,
    /// The addresses that the server listens on, in the order of the setting.
    addresses: Vec<SocketAddr>,
    agent_config: Option<PathBuf>,
    root: Root,
}

impl Server {
    /// The number of starts of the server's own poller, for `/metrics`.
    pub fn poller_starts(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.app.counts.poller_starts)
    }

    /// Opens the data folder, listens, and starts to answer requests.
    ///
    /// # Errors
    /// The configuration is invalid, another server uses the data folder, or the address is in use.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let Settings { config, data, passed, listen_given, agent_config, limits, .. } = settings;
        let wanted = addresses(&passed, &config.listen.listen).map_err(StartError::Passed)?;
        let root = Root::live()?;
        // First, before any change: a server that others could reach without a token must not start.
        let live = load(&config, agent_config.as_deref(), &wanted, &root).await?;
        let rounds: Vec<Poller> =
            plans(&config.schedulers, &config.store)?.into_iter().map(Poller::new).collect();
        let opened = tokio::task::spawn_blocking({
            let (config, root) = (config.clone(), root.clone());
            move || data_folder::open(&data, &config, &root)
        });
        let opened = opened.await.map_err(|_| StartError::Panicked)??;
        let listened = listen_everywhere(&passed, &wanted, listen_given);
        let (addresses, listeners) =
            listened.map_err(|(address, error)| StartError::Listen { address, error })?;
        let pg = PgListener::bind(&config.pg)?;
        let (stopping, stopped) = watch::channel(false);
        let launch = sql_worker::launch(settings.sql_worker);
        let mut app = app(&config, limits, live, (opened, launch), stopped)?;
        app.schedulers = rounds.iter().map(Poller::status).collect();
        let app = Arc::new(app);
        let tasks = Arc::new(Tasks::default());
        for rounds in rounds {
            tasks.start("scheduler", rounds.run(take(&app), app.stopping.clone()));
        }
        serve(&app, &tasks, listeners, root.clone());
        serve_pg(&app, &tasks, pg, root.clone());
        let program = config.access.name_service.then(|| GETENT.to_owned());
        let service = UserIdLookup::new(program);
        tasks.start("name service", crate::background::user_ids::run(Arc::clone(&app), service));
        let staff = crate::background::staff_refresh::run(Arc::clone(&app), root.clone(), GETENT);
        tasks.start("staff", staff);
        if let Some(path) = config.job_file.file.clone() {
            tasks.start(
                "schedulers.file",
                crate::background::job_file::follow(Arc::clone(&app), path),
            );
        }
        warn_of_openness(&app, &config, &addresses);
        warn_of_weak_secret(&app);
        let server = Self { app, tasks, stopping, addresses, agent_config, root };
        server.apply_outputs(config.outputs).await;
        Ok(server)
    }

    /// Runs exactly these outputs. Waits, a few seconds at most, for the end of those that change.
    async fn apply_outputs(&self, configs: Vec<OutputConfig>) {
        let outputs = Arc::clone(&self.app.outputs);
        if tokio::task::spawn_blocking(move || outputs.apply(&configs)).await.is_err() {
            log::error!("changing the outputs failed (see above); they stay as they are");
        }
    }

    /// The addresses that the server listens on, in the order of the setting.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The server's URL for programs on this machine: the first address on loopback, otherwise the first one.
    pub fn url(&self) -> String {
        let scheme = if self.app.live().tls.is_some() { "https" } else { "http" };
        let is_here =
            |address: &&SocketAddr| address.ip().is_unspecified() || address.ip().is_loopback();
        let here = self.addresses.iter().find(is_here).or(self.addresses.first());
        let Some(mut address) = here.copied() else { return String::new() };
        if address.ip().is_unspecified() {
            let v4 = address.is_ipv4();
            address.set_ip(if v4 {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        format!("{scheme}://{address}")
    }

    /// Reloads tokens, certificates, names and the agents' configuration. Connections stay open, and no sample is
    /// lost.
    ///
    /// # Errors
    /// The new configuration is invalid. The server keeps the old one.
    pub async fn reload(&self, config: &ServerConfig) -> Result<(), LiveErrors> {
        let (config, agents) = (config.clone(), self.agent_config.clone());
        let live = load(&config, agents.as_deref(), &self.addresses, &self.root).await?;
        if live.tls.is_some() != self.app.live().tls.is_some() {
            return Err(ReloadError::TlsChanged.into());
        }
        self.app.set_live(live);
        warn_of_weak_secret(&self.app);
        self.apply_outputs(config.outputs.clone()).await;
        self.app.counts.reloads.add(1);
        Ok(())
    }

    /// Counts a reload with an invalid configuration.
    pub fn reload_rejected(&self) {
        self.app.counts.reloads_failed.add(1);
    }

    /// Stops the server: closes the listener, completes open requests, and writes samples in memory to a block.
    ///
    /// # Errors
    /// The block could not be written. The samples are in the log, and the next start reads them.
    pub async fn stop(self) -> Result<(), StorageError> {
        // `send` fails only if no receiver is left: then all connections have ended.
        self.stopping.send(true).ok();
        let late = self.tasks.join(self.app.limits.stop_time).await;
        if late > 0 {
            log::warn!("{late} connections did not end in time and were closed");
        }
        let (store, outputs) = (Arc::clone(&self.app.store), Arc::clone(&self.app.outputs));
        drop(self.app);
        let flush = tokio::task::spawn_blocking(move || {
            outputs.stop(OUTPUTS_TIME);
            store.flush()
        });
        let flush = flush.await;
        config::log::report_repeated();
        flush.unwrap_or(Ok(()))
    }
}

/// Loads the configuration that SIGHUP reloads. Waits for files and for the name service.
async fn load(
    config: &ServerConfig,
    agents: Option<&Path>,
    listen: &[SocketAddr],
    root: &Root,
) -> Result<ReloadableConfig, LiveErrors> {
    let (config, agents, root) = (config.clone(), agents.map(Path::to_owned), root.clone());
    let listen = listen.to_vec();
    let load = move || ReloadableConfig::load(&config, agents.as_deref(), &listen, &root);
    tokio::task::spawn_blocking(load).await.unwrap_or_else(|_| Err(ReloadError::Panicked.into()))
}

fn sql_engine(
    config: &ServerConfig,
    limits: Limits,
    engine: &QueryEngine,
    launch: Launch,
) -> Result<Sql, StartError> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let sql_limits = sql::Limits {
        rows_max: config.query.rows_max,
        time_max: config.query.time_max,
        memory_bytes_max: size(config.query.memory_bytes_max.0),
        statements_max: size(config.query.concurrency_max.into()),
        waiting_max: limits.waiting_questions_max,
        threads,
        ..sql::Limits::default()
    };
    let encoder = crate::common::sql_row_encoder::encoder;
    Sql::new(engine.clone(), sql_limits, launch, Some(encoder)).map_err(StartError::Sql)
}

fn app(
    config: &ServerConfig,
    limits: Limits,
    live: ReloadableConfig,
    (opened, launch): (DataFolder, Launch),
    stopping: watch::Receiver<bool>,
) -> Result<App, StartError> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let running_max = size(config.query.concurrency_max.into());
    let DataFolder {
        store,
        outputs,
        registry,
        on_demand,
        engine,
        user_tokens,
        agents,
        rule_evaluator,
        audit,
    } = opened;
    let sql = sql_engine(config, limits, &engine, launch)?;
    sql.set_job_requests(Arc::clone(&live.job_requests.valid));
    Ok(App {
        limits,
        body_bytes_max: size(config.keep.body_bytes_max.0),
        live: RwLock::new(Arc::new(live)),
        registry,
        registry_changes: ConcurrencyLimit::new(REGISTRY_PERMITS, usize::MAX),
        registry_reads: Arc::new(Semaphore::new(REGISTRY_PERMITS)),
        sql,
        store,
        on_demand,
        rule_evaluator,
        promotions: config.promotions.clone(),
        local_silent_max: config.keep.local_silent_max,
        engine,
        work: QueryExecutor::new(running_max, limits.waiting_questions_max, config.query.time_max),
        query_time_max: config.query.time_max,
        slow_after: (!config.query.slow.is_zero()).then_some(config.query.slow),
        decoding: Decoding::new(threads.min(4), limits.decoded_bytes_max),
        counts: Counts::default(),
        requests: LimitPerKey::new(limits.requests_per_user_max),
        unsent_answers: LimitPerKey::new(limits.unsent_bytes_per_user_max),
        compressing: compression::limit(),
        had_large_answers: AtomicBool::new(false),
        seats: ConnectionLimits::new(
            size(config.listen.connections_max.into()),
            size(config.listen.connections_per_peer_max.into()),
        ),
        pg: Arc::new(PgSessions::new(&config.pg)),
        node_jobs: NodeJobsCache::default(),
        schedulers: Vec::new(),
        outputs,
        user_tokens,
        audit: Arc::new(audit),
        bodies: Budgets::new(&limits),
        agents,
        pollers: Default::default(),
        agent_addresses: AgentAddresses::new(limits.address_new_time),
        origin_policy: crate::auth::origin_policy::OriginPolicy::default(),
        send_limits: crate::ingest::send_limits::SendLimits::of(&config.keep),
        push: crate::ingest::push_numbers::PushState::new(&config.push),
        poll_summary: RecentValue::default(),
        started: Instant::now(),
        stopping,
    })
}

fn serve(app: &Arc<App>, tasks: &Arc<Tasks>, listeners: Vec<TcpListener>, root: Root) {
    let (owners, answering) = SocketOwners::new(root);
    tasks.start("owners", answering);
    let serving = Serving {
        app: Arc::clone(app),
        router: router(Arc::clone(app)),
        owners,
        tasks: Arc::clone(tasks),
    };
    for listener in listeners {
        tasks.start("accept", accept(listener, serving.clone()));
    }
    tasks.start("minute", crate::background::upkeep::every_minute(Arc::clone(app)));
    tasks.start("shared tables", shared_tables::run(Arc::clone(app)));
    tasks.start("on demand", crate::background::demand_follower::run(Arc::clone(app)));
}

/// Returns the sink that stores a scheduler's records in the registry.
fn take(app: &Arc<App>) -> RecordSink {
    let app = Arc::clone(app);
    Arc::new(move |records| {
        let observed = app.registry.ingest(records, app.now())?;
        if observed.new + observed.changed > 0 {
            app.node_jobs.changed();
        }
        Ok(observed)
    })
}
