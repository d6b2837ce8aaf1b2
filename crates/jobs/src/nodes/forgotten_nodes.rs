//! Nodes that administrators removed. Lists of nodes omit them until they send data again.

use crate::common::sql_parts::device;
use crate::{Registry, RegistryError};
use model::{DeviceId, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};
use std::collections::HashMap;

/// Maximum number of stored nodes. The most recent ones stay. A node takes about 50 bytes.
const FORGOTTEN_MAX: i64 = 100_000;

/// The table.
pub(crate) const TABLES: &str = "
CREATE TABLE forgotten_nodes (
    device TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX forgotten_nodes_at ON forgotten_nodes (at);
";

impl Registry {
    /// Marks a node as removed with all data that it sent until `at`, and deletes its shutdown notice. On
    /// disk when this returns.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then.
    pub fn forget_node(&self, device: &DeviceId, at: Timestamp) -> Result<(), RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change
            .prepare_cached("INSERT OR REPLACE INTO forgotten_nodes VALUES (?1, ?2)")?
            .execute(params![device.as_str(), at.0])?;
        change
            .prepare_cached("DELETE FROM stopped WHERE origin = ?1")?
            .execute([device.as_str()])?;
        change
            .prepare_cached(
                "DELETE FROM forgotten_nodes WHERE device IN
                     (SELECT device FROM forgotten_nodes ORDER BY at DESC LIMIT -1 OFFSET ?1)",
            )?
            .execute([FORGOTTEN_MAX])?;
        Ok(change.commit()?)
    }

    /// Returns the removed nodes, each with the time of removal.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn forgotten_nodes(&self) -> Result<HashMap<DeviceId, Timestamp>, RegistryError> {
        times_of(&self.reader.lock(), "SELECT device, at FROM forgotten_nodes")
    }
}

/// Returns the names that a query selects, each with a time.
pub(super) fn times_of(
    reader: &Connection,
    select: &str,
) -> Result<HashMap<DeviceId, Timestamp>, RegistryError> {
    let mut find = reader.prepare_cached(select)?;
    let rows = find.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
    let one = |row: rusqlite::Result<(String, i64)>| {
        let (name, at) = row?;
        Ok((device(name)?, Timestamp(at)))
    };
    rows.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};
    use model::Origin;

    #[test]
    fn a_forgotten_node_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let open = || Registry::open(&path, Limits::default(), Users::default).unwrap();
        let (node, agent) = (DeviceId::new("n1").unwrap(), Origin::new("n1").unwrap());
        let registry = open();
        registry.note_stops(&[(agent, true)], Timestamp(5)).unwrap();
        registry.forget_node(&node, Timestamp(6)).unwrap();
        registry.forget_node(&node, Timestamp(7)).unwrap();
        drop(registry);
        let registry = open();
        assert_eq!(registry.forgotten_nodes().unwrap(), HashMap::from([(node, Timestamp(7))]));
        assert_eq!(registry.stopped().unwrap(), []);
    }
}
