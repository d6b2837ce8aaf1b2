//! One read transaction: a connection of its own, with a portal for each scan. All portals see the same state.

use crate::connection::{Connector, DatabaseError, connect};
use crate::shared::Shared;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Portal, Row, SimpleQueryMessage};

/// Rows that one request reads at most.
const ROWS: i32 = 16 << 10;
/// Interval of checks whether the reader of a running statement has left.
const LEFT_EVERY: Duration = Duration::from_millis(250);
/// How long a session waits for a connection.
const WAIT_MAX: Duration = Duration::from_secs(60);
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
        free: &Arc<Semaphore>,
        time_max_ms: u32,
        has_left: Arc<AtomicBool>,
    ) -> Arc<Self> {
        let (requests, received) = mpsc::channel(WAITING);
        let (connector, free) = (Arc::clone(&shared.connector), Arc::clone(free));
        shared.runtime.spawn(async move {
            let reader = Reader { connector: &*connector, has_left, pid: AtomicI32::new(0) };
            serve(received, &reader, free, time_max_ms).await
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

/// Serves the requests of one session until its last user drops it.
async fn serve(
    mut requests: mpsc::Receiver<Request>,
    reader: &Reader<'_>,
    free: Arc<Semaphore>,
    time_max_ms: u32,
) {
    let Some(first) = requests.recv().await else { return };
    let opened = open(reader.connector, free).await;
    let (mut client, _permit) = match opened {
        Ok(opened) => opened,
        Err(error) => return reject(first, error),
    };
    let begun = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await;
    let transaction = match begun {
        Ok(transaction) => transaction,
        Err(error) => return reject(first, error.into()),
    };
    // No partition is dropped, and no row moves between partitions, once the snapshot of this transaction is taken.
    let limit = format!(
        "SET LOCAL statement_timeout = {time_max_ms}; \
         LOCK TABLE ONLY metrics, ONLY jobmeter.job_metrics IN ACCESS SHARE MODE; \
         SELECT pg_backend_pid()"
    );
    match transaction.simple_query(&limit).await {
        Ok(answers) => reader.found(&answers),
        Err(error) => return reject(first, error.into()),
    }
    let mut portals: BTreeMap<u64, Portal> = BTreeMap::new();
    let mut request = Some(first);
    while let Some(one) = request {
        match one {
            Request::Open(number, Query { statement, values }, answer) => {
                let result = async {
                    let statement = transaction.prepare(statement).await?;
                    let values: Vec<&(dyn ToSql + Sync)> =
                        values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
                    let portal = transaction.bind(&statement, &values).await?;
                    let rows = read(&transaction, &portal).await?;
                    Ok((portal, rows))
                };
                let result = reader.unless_gone(result).await.map(|(portal, rows)| {
                    portals.insert(number, portal);
                    rows
                });
                answer.send(result).ok();
            }
            Request::Next(number, answer) => {
                let result = match portals.get(&number) {
                    Some(portal) => reader.unless_gone(read(&transaction, portal)).await,
                    None => Ok(Vec::new()),
                };
                answer.send(result).ok();
            }
            Request::Close(number) => drop(portals.remove(&number)),
        }
        request = requests.recv().await;
    }
}

/// The reader of a session.
struct Reader<'a> {
    connector: &'a dyn Connector,
    has_left: Arc<AtomicBool>,
    /// The process of the session in the database.
    pid: AtomicI32,
}

impl Reader<'_> {
    fn found(&self, answers: &[SimpleQueryMessage]) {
        let pid = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        self.pid.store(pid.unwrap_or(0), Ordering::Relaxed);
    }

    /// Does some work; ends its statement when the reader leaves.
    async fn unless_gone<T>(
        &self,
        work: impl Future<Output = Result<T, DatabaseError>>,
    ) -> Result<T, DatabaseError> {
        let mut work = pin!(work);
        loop {
            if let Ok(result) = tokio::time::timeout(LEFT_EVERY, &mut work).await {
                return result;
            }
            if self.has_left.load(Ordering::Relaxed) {
                let pid = self.pid.load(Ordering::Relaxed);
                // If it fails, the statement ends at its time limit.
                if let Ok(client) = connect(self.connector).await {
                    client.query("SELECT pg_cancel_backend($1)", &[&pid]).await.ok();
                }
                return work.await;
            }
        }
    }
}

async fn open(
    connector: &dyn Connector,
    free: Arc<Semaphore>,
) -> Result<(tokio_postgres::Client, OwnedSemaphorePermit), DatabaseError> {
    let closed = |_| DatabaseError::Unreachable("the store is closing".to_owned());
    // A thread that has a session may wait for another one.
    let busy = |_| DatabaseError::Unreachable(format!("no free connection within {WAIT_MAX:?}"));
    let permit = tokio::time::timeout(WAIT_MAX, free.acquire_owned()).await.map_err(busy)?;
    let permit = permit.map_err(closed)?;
    Ok((connect(connector).await?, permit))
}

fn reject(request: Request, error: DatabaseError) {
    match request {
        Request::Open(_, _, answer) | Request::Next(_, answer) => drop(answer.send(Err(error))),
        Request::Close(_) => {}
    }
}

async fn read(
    transaction: &tokio_postgres::Transaction<'_>,
    portal: &Portal,
) -> Result<Vec<Row>, DatabaseError> {
    Ok(transaction.query_portal(portal, ROWS).await?)
}
