//! Starts the store's threads.

use crate::maintenance::compactor::Compactor;
use crate::state::shared::Shared;
use crate::writing::block_writer::Flusher;
use crate::writing::log_writer::LogWriter;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// How far the block writer and the maintenance are below the threads of requests, queries and the log (nice(2)).
const BLOCK_NICE: i32 = 5;
const MAINTENANCE_NICE: i32 = 10;
/// Starts the log's writer, the block writer and the maintenance.
pub(super) fn start(
    shared: &Arc<Shared>,
    committer: LogWriter,
    flusher: Flusher,
    compactor: &Arc<Compactor>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let mut started = Vec::new();
    let all = || {
        if shared.settings.background_maintenance {
            let compactor = Arc::clone(compactor);
            let run = move || {
                yield_to_ingest(MAINTENANCE_NICE);
                compactor.run();
            };
            started.push(thread("store-maintain").spawn(run)?);
        }
        let of_flusher = Arc::clone(shared);
        let run = move || {
            yield_to_ingest(BLOCK_NICE);
            flusher.run(&of_flusher);
        };
        started.push(thread("store-block").spawn(run)?);
        started.push(thread("store-log").spawn(move || committer.run())?);
        Ok(())
    };
    let all: io::Result<()> = all();
    if all.is_err() {
        shared.close();
        shared.flushing.close();
    }
    all.map(|()| started)
}

/// Lowers the priority of this thread: acknowledgements do not wait for a processor behind blocks. Without the right or
/// the call it keeps its priority.
fn yield_to_ingest(nice: i32) {
    rustix::process::nice(nice).unwrap_or_default();
}
