//! One read transaction: a connection of its own, with a portal for each scan. All portals see the same state.

use crate::connection::{DatabaseError, connect};
use crate::copy::Micros;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_postgres::{Config, Portal};

/// Samples that one request reads at most.
const ROWS: i32 = 16 << 10;
/// Requests that wait for a session.
const WAITING: usize = 8;

/// The series of a scan, column by column: place, device, metric, labels, cluster, job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) places: Vec<i32>,
    pub(crate) devices: Vec<String>,
    pub(crate) metrics: Vec<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) clusters: Vec<Option<String>>,
    pub(crate) jobs: Vec<Option<i64>>,
}

/// Samples as read: the place of the series, the instant, the value.
pub(crate) type ReadRows = Vec<(i32, i64, f64)>;
type Answer = std::sync::mpsc::SyncSender<Result<ReadRows, DatabaseError>>;

enum Request {
    /// Opens the portal of a number, and reads from it.
    Open(u64, Box<Wanted>, (i64, i64), Answer),
    /// Reads on.
    Next(u64, Answer),
    /// Forgets it.
    Close(u64),
}

/// A read transaction. It begins with the first scan, and ends when the last user drops it.
#[derive(Debug)]
pub(crate) struct Session {
    requests: mpsc::Sender<Request>,
    next: std::sync::atomic::AtomicU64,
}

/// The samples of one scan, ordered by place and time.
#[derive(Debug)]
pub(crate) struct RowScan {
    session: Arc<Session>,
    number: u64,
    opening: Option<(Box<Wanted>, (i64, i64))>,
}

/// One branch reads samples of nodes, the other samples of jobs. Rows of one instant come in the order of their storage.
const SCAN: &str = "
WITH wanted AS (SELECT place, device, metric, labels::jsonb AS labels, cluster, job FROM unnest(
    $1::int4[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int8[])
    AS wanted (place, device, metric, labels, cluster, job))
SELECT place, timestamp, value FROM (
    SELECT place, timestamp, coalesce(value, 'NaN') AS value, m.tableoid AS part, m.ctid AS at
    FROM metrics AS m JOIN wanted ON job IS NULL AND device = m.device_id AND metric = m.metric_id
        AND wanted.labels = m.labels
    WHERE m.device_id = ANY ($2) AND m.metric_id = ANY ($3) AND timestamp BETWEEN $7 AND $8
    UNION ALL
    SELECT place, timestamp, value, m.tableoid, m.ctid
    FROM jobmeter.job_metrics AS m JOIN wanted ON job = m.job_id AND wanted.cluster = m.cluster
        AND device = m.device_id AND metric = m.metric_id AND wanted.labels = m.labels
    WHERE m.device_id = ANY ($2) AND m.job_id = ANY ($6) AND timestamp BETWEEN $7 AND $8) AS rows
ORDER BY place, timestamp, part, at";

impl Session {
    /// A session that has not begun.
    pub(crate) fn new(runtime: &Handle, config: &Arc<Config>, free: &Arc<Semaphore>) -> Arc<Self> {
        let (requests, received) = mpsc::channel(WAITING);
        let (config, free) = (Arc::clone(config), Arc::clone(free));
        runtime.spawn(async move { serve(received, &config, free).await });
        Arc::new(Self { requests, next: 0.into() })
    }

    /// The samples of series between two instants, both inclusive.
    pub(crate) fn scan(self: &Arc<Self>, wanted: Wanted, span: (i64, i64)) -> RowScan {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        RowScan { session: Arc::clone(self), number, opening: Some((Box::new(wanted), span)) }
    }
}

impl RowScan {
    /// The next samples; none at the end.
    pub(crate) fn read(&mut self) -> Result<ReadRows, DatabaseError> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let request = match self.opening.take() {
            Some((wanted, span)) => Request::Open(self.number, wanted, span, answer),
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
async fn serve(mut requests: mpsc::Receiver<Request>, config: &Config, free: Arc<Semaphore>) {
    let Some(first) = requests.recv().await else { return };
    let opened = open(config, free).await;
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
    let mut portals: BTreeMap<u64, Portal> = BTreeMap::new();
    let mut request = Some(first);
    while let Some(one) = request {
        match one {
            Request::Open(number, wanted, span, answer) => {
                let result = async {
                    let scan = transaction.prepare(SCAN).await?;
                    let Wanted { places, devices, metrics, labels, clusters, jobs } = &*wanted;
                    let (from, to) = (Micros(span.0), Micros(span.1));
                    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
                        [places, devices, metrics, labels, clusters, jobs, &from, &to];
                    let portal = transaction.bind(&scan, &values).await?;
                    let rows = read(&transaction, &portal).await?;
                    Ok((portal, rows))
                };
                let result = result.await.map(|(portal, rows)| {
                    portals.insert(number, portal);
                    rows
                });
                answer.send(result).ok();
            }
            Request::Next(number, answer) => {
                let result = match portals.get(&number) {
                    Some(portal) => read(&transaction, portal).await,
                    None => Ok(Vec::new()),
                };
                answer.send(result).ok();
            }
            Request::Close(number) => drop(portals.remove(&number)),
        }
        request = requests.recv().await;
    }
}

async fn open(
    config: &Config,
    free: Arc<Semaphore>,
) -> Result<(tokio_postgres::Client, OwnedSemaphorePermit), DatabaseError> {
    let closed = |_| DatabaseError::Unreachable("the store is closing".to_owned());
    let permit = free.acquire_owned().await.map_err(closed)?;
    Ok((connect(config).await?, permit))
}

fn reject(request: Request, error: DatabaseError) {
    match request {
        Request::Open(_, _, _, answer) | Request::Next(_, answer) => drop(answer.send(Err(error))),
        Request::Close(_) => {}
    }
}

async fn read(
    transaction: &tokio_postgres::Transaction<'_>,
    portal: &Portal,
) -> Result<ReadRows, DatabaseError> {
    let mut rows = pin!(transaction.query_portal_raw(portal, ROWS).await?);
    let mut read = Vec::new();
    while let Some(row) = rows.next().await {
        let row = row?;
        read.push((row.try_get(0)?, row.try_get::<_, Micros>(1)?.0, row.try_get(2)?));
    }
    Ok(read)
}
