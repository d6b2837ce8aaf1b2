//! The SQL engine: runs a statement from its text to its result.

use crate::SqlError;
use crate::common::memory::Memory;
use crate::common::statement_limits::{Ended, Load};
use crate::common::wire::WireStatement;
use crate::common::{complexity, dialect};
use crate::functions::information::without_table;
use crate::functions::job_requests::{DEFAULT_JOB_REQUESTS, JobRequest, read_job_requests};
use crate::statements::encoding::Encoding;
use crate::statements::run::TABLES_MAX;
use crate::statements::table_functions::direct::Direct;
use crate::statements::worker::child::{NewEncoder, STACK_BYTES};
use crate::statements::worker::messages::{Begin, Head};
use crate::statements::worker::pool::{Launch, Pool};
use crate::statements::worker::scan::Scope;
use crate::statements::worker::session::{Message, Session, StatementGuard};
use datafusion::arrow::array::timezone::Tz;
use futures::Stream;
use jobs::Reader;
use parking_lot::RwLock;
use query::{Cancel, ConcurrencyLimit, Format, QueryContext, QueryEngine};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::Builder as Thread;
use std::time::Duration;
use storage::Reads;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// Maximum number of characters of an unknown time zone in an error.
const ZONE_CHARS_MAX: usize = 64;

/// Resource limits of statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a statement in bytes.
    pub statement_bytes_max: usize,
    /// Maximum number of rows in a result.
    pub rows_max: u64,
    /// Maximum time from a statement's permit to its last row. It is also the maximum wait for the permit.
    pub time_max: Duration,
    /// Maximum memory of all statements together in bytes.
    pub memory_bytes_max: usize,
    /// Maximum number of statements that run at once.
    pub statements_max: usize,
    /// Maximum number of statements that wait for their permit. Further ones are rejected.
    pub waiting_max: usize,
    /// Number of threads that process statements.
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
    /// Time limit in seconds, rounded up.
    pub(crate) const fn seconds(&self) -> u64 {
        let more = self.time_max.subsec_nanos() > 0;
        self.time_max.as_secs().saturating_add(if more { 1 } else { 0 })
    }
}

/// The SQL engine, shared between tasks. Workers process the statements. Separate threads read their data, so that
/// an expensive statement does not block other parts of the server.
#[derive(Debug)]
pub struct Sql {
    engine: QueryEngine,
    limits: Arc<Limits>,
    memory: Memory,
    concurrency: ConcurrencyLimit,
    ended: Ended,
    deaths: Arc<AtomicU64>,
    zone: Arc<str>,
    pool: Arc<Pool>,
    /// Encodes the rows of statements that need no worker; `None`: each has one.
    encoder: Option<NewEncoder>,
    runtime: Option<Runtime>,
    /// The site's statements about a job.
    job_requests: RwLock<Arc<[JobRequest]>>,
}

impl Sql {
    /// Creates an engine over a store and a registry. It shows times in the zone of `questions` and reads times
    /// without a zone in it. If that zone has no name, the engine uses UTC. With an encoder, the server itself answers
    /// statements that only call `get_metrics`; their results are the same.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn new(
        engine: QueryEngine,
        limits: Limits,
        launch: Launch,
        encoder: Option<NewEncoder>,
    ) -> Result<Self, SqlError> {
        let name = engine.settings().zone.iana_name().unwrap_or("+00:00");
        let zone = if name.parse::<Tz>().is_ok() { name } else { "+00:00" };
        let zone = Arc::from(zone);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            // Per statement: one thread for each table, and one that starts or ends its worker.
            .max_blocking_threads(limits.statements_max.saturating_mul(TABLES_MAX + 2))
            .thread_name("sql")
            .enable_all()
            .build()
            .map_err(|error| SqlError::Internal(format!("cannot start threads: {error}")))?;
        let concurrency = ConcurrencyLimit::new(limits.statements_max, limits.waiting_max);
        let memory = Memory::new(limits.memory_bytes_max, limits.statements_max);
        let pool = Arc::new(Pool::new(launch, limits.threads));
        let (limits, runtime) = (Arc::new(limits), Some(runtime));
        let (ended, deaths) = (Ended::default(), Arc::default());
        let job_requests = RwLock::new(read_job_requests(DEFAULT_JOB_REQUESTS).0.into());
        Ok(Self {
            engine,
            limits,
            memory,
            concurrency,
            ended,
            deaths,
            zone,
            pool,
            encoder,
            runtime,
            job_requests,
        })
    }

    /// Replaces the statements about a job, for statements from now on. At first they are the default.
    pub fn set_job_requests(&self, requests: Arc<[JobRequest]>) {
        *self.job_requests.write() = requests;
    }

    /// The time zone of statements without one.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Parses statements without running them, within the limit of running statements. The depth of a statement is bounded,
    /// but only a large stack has room for it, and many statements take long: so they have a thread of their own.
    ///
    /// # Errors
    /// The place of the first statement that is not valid SQL or exceeds a limit, with its error.
    pub async fn check(
        &self,
        texts: Vec<String>,
        user_key: &Arc<str>,
    ) -> Result<(), (usize, SqlError)> {
        let permit = self.concurrency.acquire(user_key, self.limits.time_max).await;
        let permit = permit.map_err(|_| (0, SqlError::Busy(self.limits.statements_max)))?;
        let (bytes_max, (to, checked)) = (self.limits.statement_bytes_max, oneshot::channel());
        let ends = Instant::now() + self.limits.time_max;
        let (seconds, place) = (self.limits.seconds(), |place| move |error| (place, error));
        let run = move || {
            let one = |(number, text): (usize, &String)| match Instant::now() < ends {
                true => check_text(text, bytes_max).map_err(place(number)),
                false => Err((number, SqlError::TooSlow(seconds))),
            };
            // The session may have ended meanwhile.
            to.send(texts.iter().enumerate().try_for_each(one)).ok();
            drop(permit);
        };
        let thread = Thread::new().name("sql-check".to_owned()).stack_size(STACK_BYTES).spawn(run);
        let failed = |why: String| (0, SqlError::Internal(why));
        thread.map_err(|error| failed(format!("cannot start a thread: {error}")))?;
        checked.await.unwrap_or_else(|_| Err(failed("the thread of a check ended".to_owned())))
    }

    /// Current load of the statements, and counts of those that ended at a limit.
    pub fn load(&self) -> Load {
        Load {
            running: self.concurrency.running(),
            waiting: self.concurrency.waiting(),
            memory_bytes: self.memory.granted(),
            ended: self.ended.counts(),
            deaths: self.deaths.load(Ordering::Relaxed),
        }
    }

    /// Runs a statement once it has a permit. The result is text in this form. A time zone (a name or an offset)
    /// replaces that of the engine.
    ///
    /// # Errors
    /// The statement is not a SELECT of our tables, the time zone is unknown, or a limit is reached.
    pub async fn query(
        &self,
        text: &str,
        zone: Option<&str>,
        context: QueryContext,
        encoding: Encoding,
    ) -> Result<SqlRows, SqlError> {
        let rows = self.started((text, None), zone, context, encoding).await;
        rows.inspect_err(|error| self.ended.note(error))
    }

    /// Like [`Self::query`], for a statement of PostgreSQL's protocol. The result is its messages.
    ///
    /// # Errors
    /// Those of [`Self::query`], and a parameter that is missing or none of its type.
    pub async fn wire_query(
        &self,
        text: &str,
        statement: WireStatement,
        zone: Option<&str>,
        context: QueryContext,
    ) -> Result<SqlRows, SqlError> {
        let begin = (text, Some(statement));
        let rows = self.started(begin, zone, context, Encoding::default()).await;
        rows.inspect_err(|error| self.ended.note(error))
    }

    async fn started(
        &self,
        (text, wire): (&str, Option<WireStatement>),
        zone: Option<&str>,
        context: QueryContext,
        encoding: Encoding,
    ) -> Result<SqlRows, SqlError> {
        let zone = self.checked(text, zone)?;
        let permit = self.concurrency.acquire(&context.user_key, self.limits.time_max).await;
        let permit = permit.map_err(|_| SqlError::Busy(self.limits.statements_max))?;
        let Some(runtime) = &self.runtime else {
            return Err(SqlError::Internal("the engine has stopped".to_owned()));
        };
        let (deadline, seconds) = (Instant::now() + self.limits.time_max, self.limits.seconds());
        let (cancel, reads) = (context.cancel.clone(), Reads::default());
        let direct =
            self.encoder.and_then(|encoder| Some((encoder, Direct::of(text, wire.as_ref())?)));
        let begin = self.begin((text, wire), zone, &context, encoding);
        let scope = Arc::new(Scope { engine: self.engine.clone(), context, reads: reads.clone() });
        let (to_first, first) = oneshot::channel();
        let (to_rows, rows) = mpsc::channel(1);
        let task = match direct {
            Some((encoder, direct)) => {
                let (head, answer) = direct.start(&begin, encoder, scope, deadline)?;
                // Its receiver waits below.
                to_first.send(Ok(head)).ok();
                let run = move || {
                    let last = answer.run(&to_rows);
                    drop(permit);
                    // Nobody may wait for the rows any more.
                    to_rows.blocking_send(last).ok();
                };
                runtime.spawn_blocking(run).abort_handle()
            }
            None => {
                let grant = self.memory.grant();
                let memory_bytes = u64::try_from(grant.bytes()).unwrap_or(u64::MAX);
                let session = Session {
                    scope,
                    pool: Arc::clone(&self.pool),
                    held: StatementGuard::new(permit, grant, runtime.handle().clone()),
                    deaths: Arc::clone(&self.deaths),
                    begin: Begin { memory_bytes, ..begin },
                    to_rows,
                };
                runtime.spawn(session.run(to_first)).abort_handle()
            }
        };
        let stop = Stop { task, cancel };
        match timeout_at(deadline, first).await {
            Err(_) => Err(SqlError::TooSlow(seconds)),
            Ok(Err(_)) => Err(SqlError::Internal("the statement's task ended".to_owned())),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Ok(Ok(Head { text, times, parameters }))) => Ok(SqlRows {
                first: Some(text),
                times,
                parameters,
                rows,
                patience: Box::pin(sleep_until(deadline)),
                seconds,
                reads,
                limits: self.ended.clone(),
                ended: false,
                _stop: stop,
            }),
        }
    }

    /// Checks the size of a text and a time zone. Returns the time zone, or that of the engine.
    fn checked<'a>(&'a self, text: &str, zone: Option<&'a str>) -> Result<&'a str, SqlError> {
        let zone = zone.unwrap_or(&self.zone);
        if zone.parse::<Tz>().is_err() {
            let name: String = zone.chars().take(ZONE_CHARS_MAX).collect();
            return Err(SqlError::Zone(name.escape_debug().to_string()));
        }
        check_size(text, self.limits.statement_bytes_max).map(|()| zone)
    }

    /// What a worker receives of a statement, without its share of the memory.
    fn begin(
        &self,
        (text, wire): (&str, Option<WireStatement>),
        zone: &str,
        context: &QueryContext,
        encoding: Encoding,
    ) -> Begin {
        Begin {
            text: text.to_owned(),
            zone: zone.to_owned(),
            now: context.now.0,
            csv: encoding.format == Format::Csv,
            like_postgrest: encoding.like_postgrest,
            reports_reads: context.reader == Reader::Everything,
            rows_max: self.limits.rows_max,
            left_ms: u64::try_from(self.limits.time_max.as_millis()).unwrap_or(u64::MAX),
            seconds: self.limits.seconds(),
            memory_bytes: 0,
            job_requests: self.job_requests.read().to_vec(),
            wire,
        }
    }
}

fn check_size(text: &str, bytes_max: usize) -> Result<(), SqlError> {
    if text.len() > bytes_max {
        return Err(SqlError::TooLong(text.len(), bytes_max));
    }
    complexity::check(text)
}

fn check_text(text: &str, bytes_max: usize) -> Result<(), SqlError> {
    check_size(text, bytes_max)?;
    let text = without_table(text);
    dialect::parse(&text).map(drop).map_err(|error| SqlError::of(error, 0))
}

/// Drops the runtime without waiting for its threads, because a statement may still use one.
impl Drop for Sql {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Stops a statement when its result is dropped.
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

/// Text of a result, in pieces. Dropping it stops the statement.
#[derive(Debug)]
pub struct SqlRows {
    first: Option<Vec<u8>>,
    times: Vec<usize>,
    parameters: Vec<u32>,
    rows: mpsc::Receiver<Message>,
    patience: Pin<Box<Sleep>>,
    seconds: u64,
    reads: Reads,
    limits: Ended,
    ended: bool,
    _stop: Stop,
}

impl SqlRows {
    /// Positions of the columns with times in the statement's time zone, from 0.
    pub fn times(&self) -> &[usize] {
        &self.times
    }

    /// Types of the parameters of a statement of PostgreSQL's protocol, as far as they are not given.
    pub fn parameters(&self) -> &[u32] {
        &self.parameters
    }

    /// Counts of the data that the statement reads from blocks.
    pub const fn reads(&self) -> &Reads {
        &self.reads
    }
}

/// A piece of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of rows that begin in this piece.
    pub rows: u64,
    /// Text of the piece.
    pub text: Vec<u8>,
}

/// Yields the pieces. The stream ends after an error, and the result is then incomplete.
impl Stream for SqlRows {
    type Item = Result<Piece, SqlError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(text) = self.first.take() {
            return Poll::Ready(Some(Ok(Piece { rows: 0, text })));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let last = match self.rows.poll_recv(context) {
            Poll::Ready(Some(Message::Text(rows, text))) => {
                return Poll::Ready(Some(Ok(Piece { rows, text })));
            }
            Poll::Ready(Some(Message::End(text))) => Ok(Piece { rows: 0, text }),
            Poll::Ready(Some(Message::Failed(error))) => Err(error),
            Poll::Ready(None) => Err(SqlError::Internal("the statement's task ended".to_owned())),
            Poll::Pending => match self.patience.as_mut().poll(context) {
                Poll::Ready(()) => Err(SqlError::TooSlow(self.seconds)),
                Poll::Pending => return Poll::Pending,
            },
        };
        self.ended = true;
        if let Err(error) = &last {
            self.limits.note(error);
        }
        Poll::Ready(Some(last))
    }
}
