//! Connections of queries. A few remain open between queries, so that a query need not connect.

use crate::connection::{Connector, DatabaseError, connect};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_postgres::Client;

/// Most connections that read at once.
const READERS_MAX: usize = 24;
/// Further connections for single statements of a thread that may have one of the others.
const QUICK_READERS_MAX: usize = 4;
/// How long a query waits for a free connection.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Most connections that remain open without a query.
const KEPT_MAX: usize = 8;
/// They are closed after this time without a query.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// What a query reads with its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// Any number of statements.
    Query,
    /// One quick statement of a thread that may have another connection.
    Quick,
}

/// Counts since the start of the process, and the number of connections without a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolCounts {
    pub(crate) opened: u64,
    pub(crate) waits: u64,
    pub(crate) kept: u64,
}

/// The connections.
pub(crate) struct ReadPool {
    connector: Arc<dyn Connector>,
    /// Connections without a query, with the time since when; the latest is last.
    kept: Mutex<Vec<(Client, Instant)>>,
    readers: Arc<Semaphore>,
    quick_readers: Arc<Semaphore>,
    opened: AtomicU64,
    waits: AtomicU64,
}

impl fmt::Debug for ReadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadPool").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl ReadPool {
    pub(crate) fn new(connector: Arc<dyn Connector>) -> Self {
        Self {
            connector,
            kept: Mutex::default(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            quick_readers: Arc::new(Semaphore::new(QUICK_READERS_MAX)),
            opened: 0.into(),
            waits: 0.into(),
        }
    }

    /// Waits until a further connection may be used.
    pub(crate) async fn permit(&self, of: Reader) -> Result<OwnedSemaphorePermit, DatabaseError> {
        let permits = match of {
            Reader::Query => &self.readers,
            Reader::Quick => &self.quick_readers,
        };
        if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let closed = |_| DatabaseError::Unreachable("the store is closing".to_owned());
        // A thread that has a session may wait for another one.
        let busy =
            |_| DatabaseError::Unreachable(format!("no free connection within {WAIT_MAX:?}"));
        let permit = tokio::time::timeout(WAIT_MAX, Arc::clone(permits).acquire_owned()).await;
        permit.map_err(busy)?.map_err(closed)
    }

    /// A connection that was kept. The database may have closed it.
    pub(crate) fn take(&self) -> Option<Client> {
        let mut kept = self.kept.lock();
        kept.retain(is_usable);
        kept.pop().map(|(client, _)| client)
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<Client, DatabaseError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        connect(&*self.connector).await
    }

    /// Keeps a connection without a transaction for later queries.
    pub(crate) fn keep(&self, client: Client) {
        let mut kept = self.kept.lock();
        if !client.is_closed() && kept.len() < KEPT_MAX {
            kept.push((client, Instant::now()));
        }
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        PoolCounts {
            opened: self.opened.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            kept: self.kept.lock().len() as u64,
        }
    }
}

/// Whether a connection without a query since then may be used again.
fn is_usable((client, since): &(Client, Instant)) -> bool {
    !client.is_closed() && since.elapsed() < IDLE_MAX
}

/// Closes connections that no query used for a while, as long as the pool exists.
pub(crate) async fn close_idle(pool: Weak<ReadPool>) {
    let mut ticks = tokio::time::interval(IDLE_MAX / 3);
    loop {
        ticks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        pool.kept.lock().retain(is_usable);
    }
}
