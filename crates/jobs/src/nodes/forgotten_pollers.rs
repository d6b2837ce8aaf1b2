//! Pollers and feeds that administrators removed. Lists of devices omit their devices until they send again.

use crate::nodes::forgotten_nodes::times_of;
use crate::{Registry, RegistryError};
use model::{DeviceId, Timestamp};
use rusqlite::{TransactionBehavior, params};
use std::collections::HashMap;

/// Maximum number of stored pollers. The most recent ones stay. A poller takes about 50 bytes.
const FORGOTTEN_MAX: i64 = 10_000;

/// The table.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS forgotten_pollers (
    poller TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

impl Registry {
    /// Marks a poller as removed with all data that it sent until `at`. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then.
    pub fn forget_poller(&self, poller: &DeviceId, at: Timestamp) -> Result<(), RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change
            .prepare_cached("INSERT OR REPLACE INTO forgotten_pollers VALUES (?1, ?2)")?
            .execute(params![poller.as_str(), at.0])?;
        change
            .prepare_cached(
                "DELETE FROM forgotten_pollers WHERE poller IN
                     (SELECT poller FROM forgotten_pollers ORDER BY at DESC LIMIT -1 OFFSET ?1)",
            )?
            .execute([FORGOTTEN_MAX])?;
        Ok(change.commit()?)
    }

    /// Returns the removed pollers, each with the time of removal.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn forgotten_pollers(&self) -> Result<HashMap<DeviceId, Timestamp>, RegistryError> {
        times_of(&self.reader.lock(), "SELECT poller, at FROM forgotten_pollers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};

    #[test]
    fn a_forgotten_poller_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let open = || Registry::open(&path, Limits::default(), Users::default).unwrap();
        let poller = DeviceId::new("wattmetre1").unwrap();
        let registry = open();
        registry.forget_poller(&poller, Timestamp(6)).unwrap();
        registry.forget_poller(&poller, Timestamp(7)).unwrap();
        drop(registry);
        let found = open().forgotten_pollers().unwrap();
        assert_eq!(found, HashMap::from([(poller, Timestamp(7))]));
    }
}
