//! One read transaction: a connection of the pool, with a portal for each scan. All portals see the same state.
//!
//! If the connection ends before the first rows, the transaction begins again on a new one: no reader has seen its state.

use crate::connection::read_pool::{ReadPool, Reader};
use crate::connection::{DatabaseError, LOCK_LIMIT};
use crate::shared::Shared;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Portal, Row, SimpleQueryMessage, Transaction};

/// Rows that one request reads at most.
const ROWS: i32 = 16 << 10;
/// Interval of checks whether the reader of a running statement has left.
const LEFT_EVERY: Duration = Duration::from_millis(250);
/// Longest time of the statements that begin and end a transaction, and of the end of a cancelled one.
const BOUND_MAX: Duration = Duration::from_secs(5);
/// Requests that wait for a session.
const WAITING: usize = 8;

/// A statement with its values.
pub(crate) struct Query {
    pub(crate) statement: &'static str,
    pub(crate) values: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Query")
    }
}

type Answer = std::sync::mpsc::SyncSender<Result<Vec<Row>, DatabaseError>>;

enum Request {
    /// Opens the portal of a number, and reads from it.
    Open(u64, Query, Answer),
    /// Reads on.
    Next(u64, Answer),
    /// Forgets it.
    Close(u64),
}

/// A read transaction. It begins with the first scan, and ends when the last user drops it.
#[derive(Debug)]
pub(crate) struct Session {
    requests: mpsc::Sender<Request>,
    next: AtomicU64,
    /// The series of rows from this instant on are in the book; `None`: not read yet.
    pub(super) looked: Mutex<Option<i64>>,
}

/// The rows of one query, part by part.
#[derive(Debug)]
pub(crate) struct RowScan {
    session: Arc<Session>,
    number: u64,
    opening: Option<Query>,
}

impl Session {
    /// A session that has not begun.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        of: Reader,
        time_max_ms: u32,
        has_left: Arc<AtomicBool>,
    ) -> Arc<Self> {
        let (requests, received) = mpsc::channel(WAITING);
        let pool = Arc::clone(&shared.read_pool);
        shared.runtime.spawn(async move {
            let serving = Serving { pool: &pool, time_max_ms, has_left };
            serving.serve(received, of).await
        });
        Arc::new(Self { requests, next: 0.into(), looked: Mutex::default() })
    }

    /// The rows of a query.
    pub(crate) fn query(self: &Arc<Self>, query: Query) -> RowScan {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        RowScan { session: Arc::clone(self), number, opening: Some(query) }
    }
}

impl RowScan {
    /// The next rows; none at the end.
    pub(crate) fn read(&mut self) -> Result<Vec<Row>, DatabaseError> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let request = match self.opening.take() {
            Some(query) => Request::Open(self.number, query, answer),
            None => Request::Next(self.number, answer),
        };
        let ended = || DatabaseError::Unreachable("its connection ended".to_owned());
        self.session.requests.blocking_send(request).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())?
    }
}

impl Drop for RowScan {
    fn drop(&mut self) {
        // A full channel belongs to a session that ends with its last user, and the portal with it.
        self.session.requests.try_send(Request::Close(self.number)).ok();
    }
}

/// How a transaction on one connection ended.
enum End {
    /// Its last user dropped it, and the connection has no transaction any more.
    Done,
    /// The connection cannot be used further.
    Broken,
    /// The connection ended before any rows were read: the first request is to be answered yet.
    Unanswered(Request, DatabaseError),
}

/// The task of a session.
struct Serving<'a> {
    pool: &'a ReadPool,
    time_max_ms: u32,
    has_left: Arc<AtomicBool>,
}

impl Serving<'_> {
    /// Serves the requests of one session until its last user drops it.
    async fn serve(&self, mut requests: mpsc::Receiver<Request>, of: Reader) {
        let Some(mut first) = requests.recv().await else { return };
        let _permit = match self.pool.permit(of).await {
            Ok(permit) => permit,
            Err(error) => return reject(first, error),
        };
        let mut kept = self.pool.take();
        for is_last in [false, true] {
            let connected = match kept.take() {
                Some(client) => Ok(client),
                None => self.pool.connect().await,
            };
            let mut client = match connected {
                Ok(client) => client,
                Err(error) => return reject(first, error),
            };
            match self.answer_all(&mut client, first, &mut requests).await {
                End::Done => return self.pool.keep(client),
                End::Broken => return,
                End::Unanswered(request, error) if is_last => return reject(request, error),
                End::Unanswered(request, _) => first = request,
            }
        }
    }

    /// Answers all requests in one transaction.
    async fn answer_all(
        &self,
        client: &mut Client,
        first: Request,
        requests: &mut mpsc::Receiver<Request>,
    ) -> End {
        let (transaction, pid) = match self.begin(client).await {
            Ok(begun) => begun,
            Err(error @ DatabaseError::Unreachable(_)) => return End::Unanswered(first, error),
            Err(error) => {
                reject(first, error);
                return End::Broken;
            }
        };
        let mut portals: BTreeMap<u64, Portal> = BTreeMap::new();
        let (mut is_whole, mut has_answered) = (true, false);
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                Request::Open(number, query, answer) => {
                    let opened = self.unless_gone(pid, open(&transaction, &query)).await;
                    if let (Err(DatabaseError::Unreachable(why)), false) = (&opened, has_answered) {
                        let error = DatabaseError::Unreachable(why.clone());
                        return End::Unanswered(Request::Open(number, query, answer), error);
                    }
                    (is_whole, has_answered) = (is_whole && opened.is_ok(), true);
                    let rows = opened.map(|(portal, rows)| {
                        portals.insert(number, portal);
                        rows
                    });
                    answer.send(rows).ok();
                }
                Request::Next(number, answer) => {
                    let rows = match portals.get(&number) {
                        Some(portal) => self.unless_gone(pid, read(&transaction, portal)).await,
                        None => Ok(Vec::new()),
                    };
                    is_whole &= rows.is_ok();
                    answer.send(rows).ok();
                }
                Request::Close(number) => drop(portals.remove(&number)),
            }
            next = requests.recv().await;
        }
        drop(portals);
        // A cancellation may still be under way to a connection with an error.
        let ended = tokio::time::timeout(BOUND_MAX, transaction.rollback()).await;
        if is_whole && matches!(ended, Ok(Ok(()))) { End::Done } else { End::Broken }
    }

    /// Begins a transaction. Returns it with the process of the session in the database.
    async fn begin<'c>(
        &self,
        client: &'c mut Client,
    ) -> Result<(Transaction<'c>, i32), DatabaseError> {
        let silent = |_| DatabaseError::Unreachable(format!("no answer within {BOUND_MAX:?}"));
        let begin = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .read_only(true)
            .start();
        let transaction = tokio::time::timeout(BOUND_MAX, begin).await.map_err(silent)??;
        // No partition is dropped, and no row moves between partitions, once the snapshot of this transaction is taken.
        // A nested loop would read the samples of a device once for each of its series: the planner expects few rows.
        let limit = format!(
            "SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = '{LOCK_LIMIT}'; SET LOCAL jit = off; \
             SET LOCAL enable_nestloop = off; \
             LOCK TABLE ONLY metrics, ONLY jobmeter.job_metrics IN ACCESS SHARE MODE; \
             SELECT pg_backend_pid()",
            self.time_max_ms
        );
        let answers = transaction.simple_query(&limit).await?;
        let pid = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        Ok((transaction, pid.unwrap_or(0)))
    }

    /// Does some work; ends its statement when the reader leaves.
    async fn unless_gone<T>(
        &self,
        pid: i32,
        work: impl Future<Output = Result<T, DatabaseError>>,
    ) -> Result<T, DatabaseError> {
        let mut work = pin!(work);
        loop {
            if let Ok(result) = tokio::time::timeout(LEFT_EVERY, &mut work).await {
                return result;
            }
            if self.has_left.load(Ordering::Relaxed) {
                // If it fails, the statement ends at its time limit.
                if let Ok(client) = self.pool.connect().await {
                    client.query("SELECT pg_cancel_backend($1)", &[&pid]).await.ok();
                }
                let left = || DatabaseError::Rejected("its reader left".to_owned());
                let ended = tokio::time::timeout(BOUND_MAX, work).await;
                // A statement that ends by itself meanwhile leaves a cancellation under way.
                return Err(ended.ok().and_then(Result::err).unwrap_or_else(left));
            }
        }
    }
}

fn reject(request: Request, error: DatabaseError) {
    match request {
        Request::Open(_, _, answer) | Request::Next(_, answer) => drop(answer.send(Err(error))),
        Request::Close(_) => {}
    }
}

/// Opens a portal, and reads its first rows.
async fn open(
    transaction: &Transaction<'_>,
    Query { statement, values }: &Query,
) -> Result<(Portal, Vec<Row>), DatabaseError> {
    let statement = transaction.prepare(statement).await?;
    let values: Vec<&(dyn ToSql + Sync)> =
        values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
    let portal = transaction.bind(&statement, &values).await?;
    let rows = read(transaction, &portal).await?;
    Ok((portal, rows))
}

async fn read(transaction: &Transaction<'_>, portal: &Portal) -> Result<Vec<Row>, DatabaseError> {
    Ok(transaction.query_portal(portal, ROWS).await?)
}
