//! The worker process: plans and runs one statement with rows from the server, and exits.

use super::bytes::read_message;
use super::link::{CancelOnDrop, Link};
use super::messages::{self, Begin, TO_WORKER_MAX, ToWorker};
use crate::SqlError;
use crate::statements::encoding::Form;
use crate::statements::run::Work;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SessionStateDefaults;
use query::Cancel;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::runtime::Builder;

/// Stack size of a thread that parses and plans: enough for the deepest statement that `complexity` accepts.
pub(crate) const STACK_BYTES: usize = 128 << 20;
/// Memory of a worker for parsing and planning, in addition to its share of the statements' memory.
const PLANNING_BYTES: u64 = 64 << 20;
/// Processor time in addition to the statement's time limit.
const SPARE_SECONDS: u64 = 2;

/// Encodes the rows of a result as text.
pub trait Encode: Send {
    /// Encodes the rows of a batch.
    ///
    /// # Errors
    /// A value has no text form.
    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError>;
    /// Returns the text after the last row.
    fn end(&self) -> &'static [u8];
}

/// Creates an encoder for a result, and the text before its first row.
pub type NewEncoder = fn(Form<'_>, &Schema) -> (Box<dyn Encode>, Vec<u8>);

/// Resource limits of a worker, in addition to its use at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerBounds {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Processor time of all threads together in seconds.
    pub processor_seconds: u64,
}

/// Runs the statement that arrives through a socket. `bound` confines the worker before it reads any of the
/// statement. Returns when the server closes the socket.
///
/// # Errors
/// Threads cannot be started, the limits cannot be set, or the socket fails.
pub fn run(
    socket: UnixStream,
    encoder: NewEncoder,
    threads: usize,
    bound: impl FnOnce(WorkerBounds) -> io::Result<()>,
) -> io::Result<()> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("sql")
        .thread_stack_size(STACK_BYTES)
        .enable_time()
        .build()?;
    // Initialized once per process, while no statement waits.
    drop(SessionStateDefaults::default_scalar_functions());
    let mut from = socket.try_clone()?;
    let Some(message) = read_message(&mut from, TO_WORKER_MAX)? else { return Ok(()) };
    let Some(ToWorker::Begin(begin)) = ToWorker::read(&message) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no statement"));
    };
    drop(message);
    let threads_count = u64::try_from(threads.max(1)).unwrap_or(1);
    bound(WorkerBounds {
        memory_bytes: begin.memory_bytes.saturating_add(PLANNING_BYTES),
        processor_seconds: begin
            .seconds
            .saturating_mul(threads_count)
            .saturating_add(SPARE_SECONDS),
    })?;
    let link = Arc::new(Link::new(socket));
    let cancel = Cancel::default();
    let _cancel = CancelOnDrop(cancel.clone());
    runtime.spawn(answer(begin, Arc::clone(&link), encoder, threads, cancel));
    let received = link.receive(from);
    runtime.shutdown_background();
    received
}

/// Runs the statement. A panic of the engine becomes an error result.
async fn answer(
    begin: Begin,
    link: Arc<Link>,
    encoder: NewEncoder,
    threads: usize,
    cancel: Cancel,
) {
    let work = Work { begin, link: Arc::clone(&link), encoder, threads, cancel };
    let last = match tokio::spawn(work.run()).await {
        Ok(Ok(end)) => messages::end(end),
        Ok(Err(error)) => messages::failed(&error),
        Err(error) => messages::failed(&SqlError::Died(panic_text(error))),
    };
    // The server may be gone, and then needs no result.
    link.send(&last).ok();
}

fn panic_text(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "it was stopped".to_owned() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "it panicked".to_owned());
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}
