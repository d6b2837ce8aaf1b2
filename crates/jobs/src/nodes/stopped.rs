//! Agents that announced a requested shutdown. A restarted server thus distinguishes stopped nodes from
//! silent ones.

use crate::{Registry, RegistryError};
use model::{Origin, Timestamp};
use rusqlite::{TransactionBehavior, params};

/// Maximum number of stored agents. The most recent ones stay. An agent takes about 50 bytes.
const STOPPED_MAX: i64 = 100_000;

/// The table.
pub(crate) const TABLES: &str = "
CREATE TABLE stopped (
    origin TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX stopped_at ON stopped (at);
";

impl Registry {
    /// Stores which agents announced a shutdown or came back. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails. Nothing is stored then.
    pub fn note_stops(
        &self,
        stops: &[(Origin, bool)],
        now: Timestamp,
    ) -> Result<(), RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (origin, stopped) in stops {
            if *stopped {
                change
                    .prepare_cached("INSERT OR REPLACE INTO stopped VALUES (?1, ?2)")?
                    .execute(params![origin.as_str(), now.0])?;
            } else {
                change
                    .prepare_cached("DELETE FROM stopped WHERE origin = ?1")?
                    .execute([origin.as_str()])?;
            }
        }
        change
            .prepare_cached(
                "DELETE FROM stopped WHERE origin IN
                     (SELECT origin FROM stopped ORDER BY at DESC LIMIT -1 OFFSET ?1)",
            )?
            .execute([STOPPED_MAX])?;
        Ok(change.commit()?)
    }

    /// Returns the agents that announced a shutdown and have not come back.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn stopped(&self) -> Result<Vec<Origin>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare("SELECT origin FROM stopped")?;
        let names = find.query_map([], |row| row.get::<_, String>(0))?;
        let origin = |name: rusqlite::Result<String>| {
            let name = name?;
            Origin::new(&name).map_err(|_| RegistryError::Damaged(name))
        };
        names.map(origin).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};

    #[test]
    fn who_stopped_is_known_after_a_restart_until_he_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let open = || Registry::open(&path, Limits::default(), Users::default).unwrap();
        let origin = |name: &str| Origin::new(name).unwrap();
        let registry = open();
        let stops = [(origin("n1"), true), (origin("n2"), true), (origin("n3"), false)];
        registry.note_stops(&stops, Timestamp(5)).unwrap();
        drop(registry);
        let registry = open();
        assert_eq!(registry.stopped().unwrap(), [origin("n1"), origin("n2")]);
        registry.note_stops(&[(origin("n1"), false), (origin("n2"), true)], Timestamp(6)).unwrap();
        assert_eq!(registry.stopped().unwrap(), [origin("n2")]);
        // The table keeps the most recent ones.
        let many: Vec<_> = (0..STOPPED_MAX).map(|n| (origin(&format!("x{n}")), true)).collect();
        registry.note_stops(&many, Timestamp(7)).unwrap();
        let kept = registry.stopped().unwrap();
        assert_eq!(i64::try_from(kept.len()).unwrap(), STOPPED_MAX);
        assert!(!kept.contains(&origin("n2")));
    }
}
