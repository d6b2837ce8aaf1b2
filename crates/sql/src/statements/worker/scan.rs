//! A scan that a worker requested. A thread of the server reads it with the permissions of the statement's user.

use super::messages::{self, ReadSoFar, ScanRequest};
use super::rows::{put_cells, put_samples};
use crate::common::schema::Table;
use crate::statements::columns::Cell;
use crate::statements::metadata_tables;
use crate::statements::scan_filter::ScanFilter;
use crate::statements::scan_request::query;
use parking_lot::Mutex;
use query::{GetMetrics, QueryContext, QueryEngine, QueryError, Rows};
use std::sync::Arc;
use storage::Reads;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

/// User and data sources of a statement.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) engine: QueryEngine,
    pub(crate) context: QueryContext,
    /// Counts of the data read for the statement.
    pub(crate) reads: Reads,
}

/// First error of a statement's scans.
pub(crate) type ScanError = Arc<Mutex<Option<QueryError>>>;

/// Number of rows of a small table in one message.
const CELL_ROWS: usize = 4096;

/// A running scan.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) id: u32,
    pub(crate) request: ScanRequest,
    pub(crate) scope: Arc<Scope>,
    pub(crate) credit: Arc<Semaphore>,
    pub(crate) to_worker: mpsc::Sender<Vec<u8>>,
    pub(crate) error: ScanError,
}

/// The worker needs no more rows, or has exited.
struct ScanStopped;

/// Adds the conditions on metrics. The engine checks them again, so that none may be left to the query.
fn narrow_metrics(query: &mut GetMetrics, narrow: &ScanFilter) {
    let Some(metrics) = &narrow.metrics else { return };
    let is_given = |name: &&Arc<str>| {
        query.metrics.is_empty() || query.metrics.iter().any(|one| **one == ***name)
    };
    let metrics: Vec<String> = metrics.iter().filter(is_given).map(ToString::to_string).collect();
    // An empty list would be all metrics.
    if !metrics.is_empty() {
        query.metrics = metrics;
    }
}

impl Scan {
    /// Reads and sends rows until the end, a limit, or a stop by the worker. Runs on a thread that may block.
    pub(crate) fn run(self, runtime: &Handle) {
        let scope = Arc::clone(&self.scope);
        let last = match scope.reads.during(|| self.send_rows(runtime)) {
            Ok(Ok(())) => messages::scan_end(self.id, self.read_so_far()),
            Ok(Err(ScanStopped)) => return,
            Err(error) => {
                let mut first = self.error.lock();
                first.get_or_insert(error);
                messages::scan_failed(self.id)
            }
        };
        // A worker that has exited needs no end message.
        runtime.block_on(self.to_worker.send(last)).ok();
    }

    fn read_so_far(&self) -> ReadSoFar {
        let read = self.scope.reads.counts();
        ReadSoFar { bytes: read.bytes, rows: read.rows, row_groups: read.row_groups }
    }

    fn send_rows(&self, runtime: &Handle) -> Result<Result<(), ScanStopped>, QueryError> {
        let ScanRequest { table, arguments, kept, narrow, .. } = &self.request;
        if matches!(table, Table::GetMetrics | Table::JobMetrics) {
            let rate = (*table == Table::JobMetrics).then_some(("as_rate", "auto"));
            let pairs = arguments.iter().map(|(name, text)| (&**name, &**text));
            let mut query = GetMetrics::from_pairs(pairs.chain(rate))?;
            narrow_metrics(&mut query, narrow);
            let rows = self.scope.engine.get_metrics_rows(&query, &self.scope.context)?;
            return self.send_samples(rows, runtime);
        }
        let Some((view, summary)) = table.view() else {
            let rows: Vec<Vec<Cell>> =
                metadata_tables::rows(*table, arguments, narrow, &self.scope)?;
            for rows in rows.chunks(CELL_ROWS) {
                let mut message = messages::rows(self.id);
                put_cells(&mut message, kept, rows);
                if let Err(ScanStopped) = self.send(runtime, message.finish()) {
                    return Ok(Err(ScanStopped));
                }
            }
            return Ok(Ok(()));
        };
        let Some(query) = query(view, summary, narrow, &self.scope)? else {
            return Ok(Ok(()));
        };
        self.send_samples(self.scope.engine.rows(&query, &self.scope.context)?, runtime)
    }

    fn send_samples(
        &self,
        rows: Rows,
        runtime: &Handle,
    ) -> Result<Result<(), ScanStopped>, QueryError> {
        let ScanRequest { table, kept, limit, .. } = &self.request;
        let mut left = limit.unwrap_or(usize::MAX);
        for rows in rows {
            let rows = rows?;
            let mut message = messages::rows(self.id);
            put_samples(&mut message, *table, kept, &rows);
            if let Err(ScanStopped) = self.send(runtime, message.finish()) {
                return Ok(Err(ScanStopped));
            }
            left = left.saturating_sub(rows.len());
            if left == 0 {
                break;
            }
        }
        Ok(Ok(()))
    }

    fn send(&self, runtime: &Handle, message: Vec<u8>) -> Result<(), ScanStopped> {
        runtime.block_on(async {
            // The semaphore closes when the worker stops the scan or the statement ends.
            self.credit.acquire().await.map_err(|_| ScanStopped)?.forget();
            self.to_worker.send(message).await.map_err(|_| ScanStopped)
        })
    }
}
