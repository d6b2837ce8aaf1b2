//! State shared by all requests.

use crate::auth::access_settings::Access;
use crate::auth::addresses::agent_addresses::AgentAddresses;
use crate::auth::audit::{Audit, ReadRecorder};
use crate::auth::caller::{Caller, Rights};
use crate::auth::origin_policy::OriginPolicy;
use crate::auth::user_tokens::UserTokens;
use crate::common::counts::{Counts, RecordOutcome};
use crate::common::http_error::HttpError;
use crate::common::limits::Limits;
use crate::common::recent_value::RecentValue;
use crate::http::body::{Bounds, Budgets, HeldBody, Sender, read};
use crate::http::connection_limits::{ConnectionLimits, LimitPerKey};
use crate::http::pg_sessions::PgSessions;
use crate::http::query_executor::QueryExecutor;
use crate::ingest::agent_reports::Agents;
use crate::ingest::decoding::Decoding;
use crate::ingest::node_jobs_cache::NodeJobsCache;
use crate::ingest::poller_reports::PollerReports;
use crate::ingest::push_numbers::PushState;
use crate::ingest::send_limits::SendLimits;
use crate::reloadable_config::ReloadableConfig;
use crate::schedulers::scheduler_poller::PollStatus;
use axum::body::Body;
use axum::http::request::Parts;
use config::{AccessSettings, PromotionSettings};
use control::{NodeSettingsCache, RuleEvaluator};
use jobs::{IngestStats, Reader, RecordUpdate, Registry, RegistryError};
use model::Timestamp;
use outputs::Outputs;
use parking_lot::RwLock;
use query::{ConcurrencyLimit, PollSummary, QueryContext, QueryEngine};
use sql::Sql;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use storage::Storage;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Longest wait for a change of the registry.
const REGISTRY_WAIT_MAX: Duration = Duration::from_secs(120);

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) limits: Limits,
    pub(crate) body_bytes_max: usize,
    pub(crate) live: RwLock<Arc<ReloadableConfig>>,
    pub(crate) store: Arc<dyn Storage>,
    pub(crate) registry: Arc<Registry>,
    /// Limits the concurrent changes of the registry; each occupies a thread that may wait for the disk.
    pub(crate) registry_changes: ConcurrencyLimit,
    /// Limits the concurrent reads of the registry outside queries.
    pub(crate) registry_reads: Arc<Semaphore>,
    pub(crate) on_demand: NodeSettingsCache,
    /// Running value rules.
    pub(crate) rule_evaluator: RuleEvaluator,
    pub(crate) promotions: PromotionSettings,
    /// A local job without a sign of life for this long counts as ended.
    pub(crate) local_silent_max: Duration,
    pub(crate) engine: QueryEngine,
    pub(crate) sql: Sql,
    pub(crate) work: QueryExecutor,
    /// Longest time of a query.
    pub(crate) query_time_max: Duration,
    /// The log reports queries that take at least this long; `None` disables these lines.
    pub(crate) slow_after: Option<Duration>,
    pub(crate) decoding: Decoding,
    pub(crate) counts: Counts,
    pub(crate) seats: ConnectionLimits,
    /// Sessions of PostgreSQL's protocol.
    pub(crate) pg: Arc<PgSessions>,
    /// Limits the concurrent requests of each user.
    pub(crate) requests: LimitPerKey<Arc<str>>,
    /// Limits the bytes of each user's answers that clients have not received yet.
    pub(crate) unsent_answers: LimitPerKey<Arc<str>>,
    /// Whether large answers were built since the heap last returned unused memory.
    pub(crate) had_large_answers: AtomicBool,
    /// Limits the responses that are compressed at once.
    pub(crate) compressing: Arc<ConcurrencyLimit>,
    pub(crate) node_jobs: NodeJobsCache,
    /// Status of each scheduler's poller.
    pub(crate) schedulers: Vec<Arc<PollStatus>>,
    /// Other systems that receive samples.
    pub(crate) outputs: Arc<Outputs>,
    pub(crate) user_tokens: UserTokens,
    pub(crate) audit: Arc<Audit>,
    pub(crate) bodies: Budgets,
    pub(crate) agents: Agents,
    pub(crate) pollers: PollerReports,
    /// Addresses from which agents send.
    pub(crate) agent_addresses: AgentAddresses,
    pub(crate) origin_policy: OriginPolicy,
    pub(crate) send_limits: SendLimits,
    /// Settings and numbers of inserted rows.
    pub(crate) push: PushState,
    /// Counts of polled devices, for `/metrics`.
    pub(crate) poll_summary: RecentValue<PollSummary>,
    pub(crate) started: Instant,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl App {
    /// Returns the reloadable configuration that applies to a request received now.
    pub(crate) fn live(&self) -> Arc<ReloadableConfig> {
        Arc::clone(&self.live.read())
    }

    /// Replaces what `access.staff` resolves to, unless the settings changed meanwhile.
    pub(crate) fn replace_access(&self, settings: &AccessSettings, access: Access) {
        let mut live = self.live.write();
        if live.access_settings == *settings && live.access != access {
            *live = Arc::new(ReloadableConfig { access, ..live.as_ref().clone() });
        }
    }

    /// Replaces the reloadable configuration.
    pub(crate) fn set_live(&self, live: ReloadableConfig) {
        self.sql.set_job_requests(Arc::clone(&live.job_requests.valid));
        *self.live.write() = Arc::new(live);
    }

    /// Whether the server answers requests, that is, is not stopping.
    pub(crate) fn ready(&self) -> bool {
        !*self.stopping.borrow()
    }

    /// Builds the query context of this caller. Callers without read permission never get here; if one did,
    /// the response would be 403. The audit log records the reads of callers who may read everything.
    pub(crate) fn context(&self, caller: &Caller) -> Result<QueryContext, HttpError> {
        let reader: Option<Reader> = caller.reader();
        let reader =
            reader.ok_or_else(|| HttpError::forbidden("this token does not permit reading"))?;
        let mut context = QueryContext::new(reader, self.now());
        context.user_key = caller.actor.user_key();
        context.job_nodes = self.live().access.job_nodes;
        if reader.sees_every_job() {
            let reading = ReadRecorder::new(&self.audit, caller.actor.clone(), context.now);
            context.watch = Some(Arc::new(reading));
        }
        Ok(context)
    }

    pub(crate) fn now(&self) -> Timestamp {
        crate::common::clock::now()
    }

    /// Runs `work` with the registry for the server itself, see [`Self::change_registry`].
    pub(crate) async fn with_registry<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        self.change_registry("the server".into(), work).await
    }

    /// Runs `work` with the registry on a thread that may wait for the disk. Work that has begun runs to its
    /// end, even if the client disconnects.
    ///
    /// The registry has one writer at a time. One caller takes half of the permits at most, so that others wait
    /// for the changes in progress and not for all that this caller has sent.
    pub(crate) async fn change_registry<T: Send + 'static>(
        self: &Arc<Self>,
        caller: Arc<str>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        // The time is long enough for every client's own limit.
        let permit = self
            .registry_changes
            .acquire(&caller, REGISTRY_WAIT_MAX)
            .await
            .map_err(|_| HttpError::busy("the registry of jobs is busy; retry in a moment"))?;
        self.on_thread(permit, work).await
    }

    /// Like [`Self::with_registry`], for work that changes nothing. It does not wait for the writer.
    pub(crate) async fn read_registry<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        let permit = Arc::clone(&self.registry_reads).acquire_owned().await;
        self.on_thread(permit.map_err(|error| HttpError::fault(&error))?, work).await
    }

    /// Runs `work` on a thread that may wait for the disk, and then releases the permit.
    async fn on_thread<T: Send + 'static>(
        self: &Arc<Self>,
        permit: impl Send + 'static,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        let app = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&app);
            drop(permit);
            done
        });
        done.await.map_err(|error| HttpError::fault(&error))
    }

    /// Stores an update of a scheduler's job at once.
    pub(crate) fn take_update(
        &self,
        update: RecordUpdate,
        rights: &Rights,
        now: Timestamp,
    ) -> Result<IngestStats, RegistryError> {
        let stats = match rights {
            Rights::JobReporter(cluster) => {
                self.registry.ingest_limited(update, cluster.as_ref(), now)?
            }
            _ => self.registry.ingest_updates(vec![update], now)?,
        };
        self.count_records(stats);
        Ok(stats)
    }

    /// Counts the outcome of schedulers' records.
    pub(crate) fn count_records(&self, stats: IngestStats) {
        let IngestStats { new, changed, known, rejected, backwards: _, limited, cut } = stats;
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let counts = [new, changed, known, rejected.saturating_sub(limited), limited];
        for (outcome, count) in RecordOutcome::ALL.into_iter().zip(counts.map(size)) {
            self.counts.records.add(outcome, count);
        }
        self.counts.records_cut.add(size(cut));
        if stats.new + stats.changed > 0 {
            self.node_jobs.changed();
        }
    }

    /// Reads the body of a query request.
    pub(crate) async fn question_body(
        &self,
        head: &Parts,
        body: Body,
    ) -> Result<HeldBody, HttpError> {
        let caller = head.extensions.get::<Caller>();
        let caller = caller.ok_or_else(|| HttpError::fault(&"a request without a caller"))?;
        let bounds = Bounds {
            bytes_max: self.limits.question_bytes_max,
            within: self.limits.body_time,
            budget: &self.bodies.engine,
        };
        read(&head.headers, body, bounds, Sender::of(caller)).await
    }
}
