//! The server's end of a statement: its worker, scans and result text.

use super::bytes::length_of;
use super::messages::{
    self, Begin, CREDIT, FROM_WORKER_MAX, Failure, FromWorker, Head, ScanRequest,
};
use super::pool::{Ending, Pool, Worker};
use super::scan::{Scan, ScanError, Scope};
use crate::SqlError;
use crate::common::memory::Grant;
use query::Permit;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Maximum number of open scans of a worker.
const SCANS_MAX: usize = 256;
/// Maximum number of messages to a worker that wait for the socket.
const WAITING: usize = 4;
/// Signals that kill a worker.
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// A part of a result.
#[derive(Debug)]
pub(crate) enum Message {
    /// Number of rows, and their text.
    Text(u64, Vec<u8>),
    /// The text after the last row.
    End(Vec<u8>),
    /// The statement failed, and no further part follows.
    Failed(SqlError),
}

/// Resources of a statement. Its permit and memory are freed only after its worker has exited.
#[derive(Debug)]
pub(crate) struct StatementGuard {
    worker: Option<Worker>,
    /// The memory is freed before the permit, so that the next statement finds memory.
    permit: Option<(Grant, Permit)>,
    runtime: Handle,
}

impl StatementGuard {
    pub(crate) const fn new(permit: Permit, grant: Grant, runtime: Handle) -> Self {
        Self { worker: None, permit: Some((grant, permit)), runtime }
    }
}

impl Drop for StatementGuard {
    fn drop(&mut self) {
        let (worker, permit) = (self.worker.take(), self.permit.take());
        if let Some(worker) = worker {
            self.runtime.spawn_blocking(move || {
                worker.end(false);
                drop(permit);
            });
        }
    }
}

/// A statement that a worker runs.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) scope: Arc<Scope>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) held: StatementGuard,
    pub(crate) deaths: Arc<AtomicU64>,
    pub(crate) begin: Begin,
    pub(crate) to_rows: mpsc::Sender<Message>,
}

/// The scans of a worker. Dropping it ends them.
#[derive(Debug, Default)]
struct Scans {
    open: HashMap<u32, Arc<Semaphore>>,
    error: ScanError,
}

impl Drop for Scans {
    fn drop(&mut self) {
        self.open.values().for_each(|credit| credit.close());
    }
}

type First = oneshot::Sender<Result<Head, SqlError>>;

impl Session {
    /// Runs the statement. Sends the text before the rows or an error to `first`, and then the rows.
    pub(crate) async fn run(mut self, first: First) {
        let mut first = Some(first);
        let last = self.answer(&mut first).await;
        if let Err(SqlError::Died(_)) = &last {
            self.deaths.fetch_add(1, Ordering::Relaxed);
        }
        let Self { held, to_rows, .. } = self;
        drop(held);
        match (first, last) {
            (Some(first), Err(error)) => drop(first.send(Err(error))),
            (_, Err(error)) => drop(to_rows.send(Message::Failed(error)).await),
            (_, Ok(end)) => drop(to_rows.send(Message::End(end)).await),
        }
    }

    async fn answer(&mut self, first: &mut Option<First>) -> Result<Vec<u8>, SqlError> {
        let socket = self.start().await.map_err(|error| {
            SqlError::Internal(format!("cannot start a process for the statement: {error}"))
        })?;
        let (mut from, to) = socket.into_split();
        let (to_worker, messages) = mpsc::channel(WAITING);
        // Ends with the last sender, or with the socket.
        self.held.runtime.spawn(write(to, messages));
        to_worker.send(messages::begin(&self.begin)).await.ok();
        let mut scans = Scans::default();
        loop {
            // A message that is too long, or none: the worker has failed.
            let Ok(Some(message)) = receive(&mut from).await else {
                return Err(self.died().await);
            };
            match message {
                FromWorker::Scan(id, request) => self.scan(id, *request, &mut scans, &to_worker)?,
                FromWorker::More(id) => {
                    scans.open.get(&id).inspect(|credit| credit.add_permits(1));
                }
                FromWorker::Stop(id) => {
                    scans.open.remove(&id).inspect(|credit| credit.close());
                }
                FromWorker::Begins(head) => match first.take() {
                    Some(first) => drop(first.send(Ok(head))),
                    None => return Err(broken()),
                },
                FromWorker::Text(rows, text) if first.is_none() => {
                    self.to_rows.send(Message::Text(rows, text)).await.map_err(|_| broken())?;
                }
                FromWorker::End(text) if first.is_none() => return Ok(text),
                FromWorker::Failed(Failure::Statement(error)) => return Err(error),
                FromWorker::Failed(Failure::Scan) => {
                    let mut error = scans.error.lock();
                    return Err(error.take().map_or_else(broken, SqlError::Query));
                }
                FromWorker::Text(..) | FromWorker::End(_) => return Err(broken()),
            }
        }
    }

    /// Takes a worker, and starts another one for the next statement.
    async fn start(&mut self) -> io::Result<UnixStream> {
        let pool = Arc::clone(&self.pool);
        let taken = self.held.runtime.spawn_blocking(move || pool.take()).await;
        let worker = taken.map_err(io::Error::other)??;
        let pool = Arc::clone(&self.pool);
        self.held.runtime.spawn_blocking(move || pool.refill());
        let socket = worker.socket.try_clone();
        self.held.worker = Some(worker);
        let socket = socket?;
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket)
    }

    fn scan(
        &self,
        id: u32,
        request: ScanRequest,
        scans: &mut Scans,
        to_worker: &mpsc::Sender<Vec<u8>>,
    ) -> Result<(), SqlError> {
        let credit = Arc::new(Semaphore::new(CREDIT));
        if scans.open.len() >= SCANS_MAX || scans.open.insert(id, Arc::clone(&credit)).is_some() {
            return Err(broken());
        }
        let (scope, to_worker) = (Arc::clone(&self.scope), to_worker.clone());
        let scan = Scan { id, request, scope, credit, to_worker, error: Arc::clone(&scans.error) };
        let runtime = self.held.runtime.clone();
        self.held.runtime.spawn_blocking(move || scan.run(&runtime));
        Ok(())
    }

    /// Determines why the worker exited.
    async fn died(&mut self) -> SqlError {
        let Some(worker) = self.held.worker.take() else { return broken() };
        let permit = self.held.permit.take();
        // The permit is freed once the worker has exited, even if the client no longer waits for this result.
        let ending = self.held.runtime.spawn_blocking(move || {
            let ending = worker.end(true);
            drop(permit);
            ending
        });
        let Ending { signal, words } = ending.await.unwrap_or_default();
        if words.contains("memory allocation of") {
            self.deaths.fetch_add(1, Ordering::Relaxed);
            return SqlError::Memory(self.begin.memory_mib());
        }
        if signal == Some(SIGXCPU) {
            self.deaths.fetch_add(1, Ordering::Relaxed);
            return SqlError::TooSlow(self.begin.seconds);
        }
        let words: String = words
            .lines()
            .rev()
            .find(|line| !line.is_empty())
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect();
        SqlError::Died(match signal {
            Some(SIGKILL) => {
                "its process was killed; the machine may be short of memory".to_owned()
            }
            Some(signal) => format!("its process was ended by signal {signal}: {words}"),
            None => format!("its process ended: {words}"),
        })
    }
}

/// Error for a worker that violates the protocol.
fn broken() -> SqlError {
    SqlError::Died("its process sent a message out of turn".to_owned())
}

async fn write(mut to: OwnedWriteHalf, mut messages: mpsc::Receiver<Vec<u8>>) {
    while let Some(message) = messages.recv().await {
        // The read half reports that the worker has exited.
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
    // Otherwise the socket would be shut down, and the worker would assume that the server had dropped the
    // statement.
    to.forget();
}

async fn receive(from: &mut OwnedReadHalf) -> io::Result<Option<FromWorker>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => drop(read?),
    }
    let mut message = vec![0; length_of(length, FROM_WORKER_MAX)?];
    from.read_exact(&mut message).await?;
    match FromWorker::read(&message) {
        Some(message) => Ok(Some(message)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
