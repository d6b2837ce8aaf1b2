//! The worker's end of the socket. It sends scan requests and receives their rows.

use super::bytes::read_message;
use super::messages::{self, CREDIT, ROWS_AT, ReadSoFar, ScanRequest, TO_WORKER_MAX, ToWorker};
use super::rows;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use futures::Stream;
use parking_lot::Mutex;
use query::{Cancel, QueryError};
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;

/// A message for a scan.
#[derive(Debug)]
enum Event {
    Rows(Vec<u8>),
    End,
    Failed,
}

/// The worker's end of the socket.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Mutex<UnixStream>,
    scans: Mutex<HashMap<u32, mpsc::Sender<Event>>>,
    next: AtomicU32,
    read: Mutex<ReadSoFar>,
}

impl Link {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            socket: Mutex::new(socket),
            scans: Mutex::default(),
            next: AtomicU32::new(0),
            read: Mutex::default(),
        }
    }

    /// Sends a message. If the server does not read, the worker blocks: it has nothing else to do.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        self.socket.lock().write_all(message)
    }

    /// Amount that the server has read from blocks, as last reported.
    pub(crate) fn read_so_far(&self) -> ReadSoFar {
        *self.read.lock()
    }

    /// Passes messages to their scans until the server closes the socket.
    pub(crate) fn receive(&self, mut from: impl io::Read) -> io::Result<()> {
        while let Some(message) = read_message(&mut from, TO_WORKER_MAX)? {
            let (scan, event) = match ToWorker::read(&message) {
                Some(ToWorker::Rows(scan)) => (scan, Event::Rows(message)),
                Some(ToWorker::ScanEnd(scan, read)) => {
                    *self.read.lock() = read;
                    (scan, Event::End)
                }
                Some(ToWorker::ScanFailed(scan)) => (scan, Event::Failed),
                Some(ToWorker::Begin(_)) | None => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown message"));
                }
            };
            // A stopped scan is no longer in the map. The credit of a scan bounds its queue.
            if let Some(to) = self.scans.lock().get(&scan) {
                to.try_send(event).ok();
            }
        }
        Ok(())
    }

    /// Requests the rows of a table.
    pub(crate) fn scan(
        self: &Arc<Self>,
        request: ScanRequest,
        schema: SchemaRef,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + 'static> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // Capacity for the credit and the end message.
        let (to, events) = mpsc::channel(CREDIT + 1);
        self.scans.lock().insert(id, to);
        let scan = Scan { link: Arc::clone(self), id, events, request, schema };
        self.send(&messages::scan(id, &scan.request)).map_err(gone)?;
        Ok(futures::stream::unfold(Some(scan), async |scan| {
            let mut scan = scan?;
            match scan.next().await {
                Ok(Some(batch)) => Some((Ok(batch), Some(scan))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        }))
    }
}

/// Error for a closed socket: the server no longer waits for the result.
fn gone(_: io::Error) -> DataFusionError {
    DataFusionError::External(Box::new(QueryError::Cancelled))
}

/// A scan of the worker. Dropping it stops the scan.
#[derive(Debug)]
struct Scan {
    link: Arc<Link>,
    id: u32,
    events: mpsc::Receiver<Event>,
    request: ScanRequest,
    schema: SchemaRef,
}

impl Scan {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self.events.recv().await {
            Some(Event::Rows(message)) => {
                let rows = message.get(ROWS_AT..).unwrap_or_default();
                let ScanRequest { table, kept, .. } = &self.request;
                let batch = rows::batch(rows, *table, kept, &self.schema)?;
                self.link.send(&messages::more(self.id)).map_err(gone)?;
                Ok(Some(batch))
            }
            Some(Event::End) => Ok(None),
            // The server knows the cause and reports it itself.
            Some(Event::Failed) | None => Err(gone(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.link.scans.lock().remove(&self.id);
        self.link.send(&messages::stop(self.id)).ok();
    }
}

/// Cancels a statement when the connection to its server ends.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
