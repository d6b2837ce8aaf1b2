//! The worker that executes one SQL statement: this program, started by the server with [`ARGUMENT`].

use kernel::confine::{self, Bounds};
use sql::Launch;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The first argument of a worker; the second is its number of threads.
pub const ARGUMENT: &str = "sql-worker";

/// Returns how the server starts workers: as processes of this program, or as threads in tests.
pub(crate) fn launch(program: Option<PathBuf>) -> Launch {
    match program {
        Some(path) => Launch::Program(path, vec![ARGUMENT.into()]),
        None => Launch::Threads(crate::common::sql_row_encoder::encoder),
    }
}

/// Executes one statement. Standard input is the socket to the server.
///
/// # Errors
/// The process cannot be confined, or the socket fails.
pub fn run(threads: usize) -> io::Result<()> {
    confine::give_up()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    sql::run_worker(socket, crate::common::sql_row_encoder::encoder, threads, |bounds| {
        let sql::WorkerBounds { memory_bytes, processor_seconds } = bounds;
        confine::bound(Bounds { memory_bytes, processor_seconds })
    })
}
