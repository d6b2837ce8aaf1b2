//! One statement, from its text to its rows.

use crate::SqlError;
use crate::functions::{Label, Operators, UNCOUNTED};
use crate::guard::{Guard, GuardPlans};
use crate::provider::{Provider, Scope};
use crate::run::{Message, TABLES_MAX, Work};
use crate::schema::Table;
use crate::texts::{Joined, Texts, bounded};
use crate::turns::{Ended, Load, Turns};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::config::Dialect;
use datafusion::execution::context::SessionContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder, SessionStateDefaults};
use datafusion::prelude::SessionConfig;
use futures::Stream;
use query::{Asker, Cancel, Questions};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use store::Reads;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// What a statement may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a statement.
    pub statement_bytes_max: usize,
    /// Most rows of an answer.
    pub rows_max: u64,
    /// Longest time from the statement's turn to its last row; so long it may wait for its turn before.
    pub time_max: Duration,
    /// Most memory of all statements together, in bytes.
    pub memory_bytes_max: usize,
    /// Most statements at once.
    pub statements_max: usize,
    /// Most statements that wait for their turn; one more is refused.
    pub waiting_max: usize,
    /// Threads that work on statements.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            statement_bytes_max: 64 << 10,
            rows_max: 1_000_000,
            time_max: Duration::from_secs(60),
            memory_bytes_max: 256 << 20,
            statements_max: 4,
            waiting_max: 64,
            threads: 2,
        }
    }
}

impl Limits {
    pub(crate) const fn memory_mib(&self) -> usize {
        self.memory_bytes_max >> 20
    }

    /// The time limit in seconds, rounded up.
    pub(crate) const fn seconds(&self) -> u64 {
        let more = self.time_max.subsec_nanos() > 0;
        self.time_max.as_secs().saturating_add(if more { 1 } else { 0 })
    }
}

/// The engine. Shared between tasks. Statements run on threads of its own, so that a heavy one holds up
/// no other part of the server.
#[derive(Debug)]
pub struct Sql {
    questions: Questions,
    limits: Arc<Limits>,
    environment: Arc<RuntimeEnv>,
    turns: Turns,
    ended: Ended,
    zone: Arc<str>,
    runtime: Option<Runtime>,
}

impl Sql {
    /// An engine over a store and a registry. Times are shown, and those without a zone are read, in the
    /// zone of the questions, if it has a name; else in UTC.
    ///
    /// # Errors
    /// Its threads cannot be started.
    pub fn new(questions: Questions, limits: Limits) -> Result<Self, SqlError> {
        let name = questions.settings().zone.iana_name().unwrap_or("+00:00");
        let zone = if name.parse::<Tz>().is_ok() { name } else { "+00:00" };
        let zone = Arc::from(zone);
        // What does not fit into memory is refused, not written to files of this machine.
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let environment = RuntimeEnvBuilder::new()
            .with_disk_manager_builder(disk)
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(limits.memory_bytes_max)))
            .build_arc()
            .map_err(|error| SqlError::of(error, limits.memory_mib()))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(limits.threads.max(1))
            .max_blocking_threads(limits.statements_max.saturating_mul(TABLES_MAX))
            .thread_name("sql")
            .enable_time()
            .build()
            .map_err(|error| SqlError::Internal(format!("cannot start threads: {error}")))?;
        let turns = Turns::new(limits.statements_max, limits.waiting_max);
        let (limits, ended, runtime) = (Arc::new(limits), Ended::default(), Some(runtime));
        Ok(Self { questions, limits, environment, turns, ended, zone, runtime })
    }

    /// What the statements take now, and how many ended at a limit.
    pub fn load(&self) -> Load {
        Load {
            running: self.turns.running(),
            waiting: self.turns.waiting(),
            memory_bytes: self.environment.memory_pool.reserved(),
            ended: self.ended.counts(),
        }
    }

    /// Plans a statement and starts it, when its turn comes. Asked within a runtime whose timers are enabled.
    ///
    /// # Errors
    /// It is no SELECT of our tables, or a limit is reached.
    pub async fn query(&self, text: &str, asker: Asker) -> Result<SqlRows, SqlError> {
        let rows = self.started(text, asker).await;
        rows.inspect_err(|error| self.ended.note(error))
    }

    async fn started(&self, text: &str, asker: Asker) -> Result<SqlRows, SqlError> {
        let max = self.limits.statement_bytes_max;
        if text.len() > max {
            return Err(SqlError::TooLong(text.len(), max));
        }
        let turn = self.turns.take(&asker.whose, self.limits.time_max).await;
        let permit = turn.map_err(|_| SqlError::Busy(self.limits.statements_max))?;
        let Some(runtime) = &self.runtime else {
            return Err(SqlError::Internal("the engine has stopped".to_owned()));
        };
        let cancel = asker.cancel.clone();
        let reads = Reads::default();
        let scope = Scope { questions: self.questions.clone(), asker, reads: reads.clone() };
        let scope = Arc::new(scope);
        let (deadline, seconds) = (Instant::now() + self.limits.time_max, self.limits.seconds());
        let guard = Arc::new(Guard { cancel: cancel.clone(), deadline, seconds });
        let texts =
            Texts::new(Arc::clone(&guard), self.limits.memory_bytes_max, self.limits.threads);
        let texts = Arc::new(texts);
        let state = self.state(&scope, guard, &texts)?;
        let (to_schema, schema) = oneshot::channel();
        let (to_rows, rows) = mpsc::channel(1);
        let work = Work {
            text: text.to_owned(),
            state,
            scope,
            texts,
            deadline,
            limits: Arc::clone(&self.limits),
            to_rows,
            permit,
        };
        let task = runtime.spawn(work.run(to_schema));
        let stop = Stop { task: task.abort_handle(), cancel };
        match timeout_at(deadline, schema).await {
            Err(_) => Err(SqlError::TooSlow(seconds)),
            Ok(Err(_)) => Err(SqlError::Internal("the statement's thread ended".to_owned())),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Ok(Ok(schema))) => {
                let patience = Box::pin(sleep_until(deadline));
                let limits = self.ended.clone();
                Ok(SqlRows {
                    schema,
                    rows,
                    patience,
                    seconds,
                    reads,
                    limits,
                    ended: false,
                    _stop: stop,
                })
            }
        }
    }

    /// What a statement finds: our tables, and the engine's functions without those of [`UNCOUNTED`].
    fn state(
        &self,
        scope: &Arc<Scope>,
        guard: Arc<Guard>,
        texts: &Arc<Texts>,
    ) -> Result<SessionState, SqlError> {
        let mut config = SessionConfig::new()
            .with_information_schema(false)
            .with_target_partitions(self.limits.threads.max(1));
        let options = config.options_mut();
        options.sql_parser.dialect = Dialect::PostgreSQL;
        options.execution.time_zone = Some(self.zone.to_string());
        let label = Arc::new(Label::function());
        let mut planners = SessionStateDefaults::default_expr_planners();
        let joined = Arc::new(Joined::function(texts));
        planners.insert(0, Arc::new(Operators { label: Arc::clone(&label), joined }));
        let mut functions = SessionStateDefaults::default_scalar_functions();
        functions.retain(|function| {
            let named = |name: &str| UNCOUNTED.contains(&name);
            !named(function.name()) && !function.aliases().iter().any(|name| named(name))
        });
        let mut functions: Vec<_> =
            functions.into_iter().map(|function| bounded(function, texts)).collect();
        functions.push(label);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(&self.environment))
            .with_expr_planners(planners)
            .with_physical_optimizer_rule(Arc::new(GuardPlans(guard)))
            .with_scalar_functions(functions)
            .with_aggregate_functions(SessionStateDefaults::default_aggregate_functions())
            .with_window_functions(SessionStateDefaults::default_window_functions())
            .build();
        let context = SessionContext::new_with_state(state);
        for table in Table::ALL {
            let provider = Arc::new(Provider::new(table, &self.zone, scope));
            context
                .register_table(table.name(), provider)
                .map_err(|error| SqlError::of(error, self.limits.memory_mib()))?;
        }
        let mut state = context.state();
        let now = timestamp_us_to_datetime(scope.asker.now.0).map(|now| now.and_utc());
        state.execution_props_mut().query_execution_start_time = now;
        Ok(state)
    }
}

/// The runtime's threads are not waited for: a statement may be at work on one.
impl Drop for Sql {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Stops a statement when nobody wants its rows any more.
#[derive(Debug)]
struct Stop {
    task: AbortHandle,
    cancel: Cancel,
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.task.abort();
    }
}

/// The rows of an answer. Dropping it stops the statement.
#[derive(Debug)]
pub struct SqlRows {
    schema: SchemaRef,
    rows: mpsc::Receiver<Message>,
    patience: Pin<Box<Sleep>>,
    seconds: u64,
    reads: Reads,
    limits: Ended,
    ended: bool,
    _stop: Stop,
}

impl SqlRows {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// What is read from blocks for them.
    pub const fn reads(&self) -> &Reads {
        &self.reads
    }
}

/// After an error it ends: what came before is no complete answer.
impl Stream for SqlRows {
    type Item = Result<RecordBatch, SqlError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = match self.rows.poll_recv(context) {
            Poll::Ready(Some(Message::Rows(batch))) => return Poll::Ready(Some(Ok(batch))),
            Poll::Ready(Some(Message::End)) => None,
            Poll::Ready(Some(Message::Failed(error))) => Some(Err(error)),
            Poll::Ready(None) => {
                Some(Err(SqlError::Internal("the statement's thread ended".to_owned())))
            }
            Poll::Pending => match self.patience.as_mut().poll(context) {
                Poll::Ready(()) => Some(Err(SqlError::TooSlow(self.seconds))),
                Poll::Pending => return Poll::Pending,
            },
        };
        self.ended = true;
        if let Some(Err(error)) = &next {
            self.limits.note(error);
        }
        Poll::Ready(next)
    }
}
