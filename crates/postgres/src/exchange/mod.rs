//! Tables that the server shares with people and other programs: the copy of the jobs, and Kwollect's promotions.
//!
//! - `jobs_copy`: the jobs of the registry. `promoted_metrics`: rows of the server and of others.

pub(crate) mod jobs_copy;
pub(crate) mod promoted_metrics;

use crate::connection::{DatabaseError, connect};
use crate::shared::Shared;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use storage::StorageError;
use tokio::sync::Mutex;
use tokio_postgres::{Client, Transaction};

/// Longest time of an exchange.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Another program may hold a lock; then the exchange is repeated.
const LIMITS: &str = "SET statement_timeout = '20s'; SET lock_timeout = '5s'";

/// A connection of its own, so that no batch waits for an exchange.
pub(crate) struct Exchange {
    shared: Arc<Shared>,
    /// Open between two exchanges; closed after a failed one.
    client: Mutex<Option<Client>>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}

impl Exchange {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, client: Mutex::default() }
    }

    /// Runs `work` in a transaction. It commits if `work` succeeds.
    pub(crate) fn run<T>(
        &self,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, StorageError> {
        let done = async {
            let mut open = self.client.lock().await;
            let mut client = match open.take().filter(|client| !client.is_closed()) {
                Some(client) => client,
                None => {
                    let client = connect(&*self.shared.connector).await?;
                    client.batch_execute(LIMITS).await?;
                    client
                }
            };
            let transaction = client.transaction().await?;
            let done = work(&transaction).await?;
            transaction.commit().await?;
            *open = Some(client);
            Ok(done)
        };
        let limited = async { tokio::time::timeout(TIME_MAX, done).await };
        let silent = |_| DatabaseError::Unreachable(format!("no answer within {TIME_MAX:?}"));
        let done: Result<T, DatabaseError> =
            self.shared.runtime.block_on(limited).map_err(silent).and_then(|done| done);
        Ok(done?)
    }
}
