//! Keys of requests that insert rows: a request with a key that is known has the number of the first one, so that the store
//! recognizes its batch (decision 0043).

use crate::{Registry, RegistryError};
use model::{Boot, Timestamp};
use rusqlite::{OptionalExtension, TransactionBehavior, params};

/// Keys of one sender; beyond, its oldest one is dropped.
const KEYS_PER_SENDER_MAX: i64 = 1_000;
/// How long a key is remembered: 24 h.
const KEPT_US: i64 = 86_400 * Timestamp::SECOND;

/// The table.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS push_keys (
    sender TEXT NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 32),
    body BLOB NOT NULL CHECK (length(body) = 32),
    boot BLOB NOT NULL CHECK (length(boot) = 16),
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (sender, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS push_keys_of_sender ON push_keys (sender, at);
CREATE INDEX IF NOT EXISTS push_keys_at ON push_keys (at);
";

/// The sender of a request, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushKey {
    /// The sender. No sender has the keys of another.
    pub sender: Box<str>,
    /// SHA-256 of the key.
    pub key: [u8; 32],
}

/// The first request with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedPush {
    /// SHA-256 of its body.
    pub body: [u8; 32],
    /// The boot of its batch.
    pub boot: Boot,
    /// The number of its batch.
    pub seq: u64,
    /// When the server received it.
    pub at: Timestamp,
}

impl Registry {
    /// Returns the first request with a key, if it is remembered.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn keyed_push(
        &self,
        of: &PushKey,
        now: Timestamp,
    ) -> Result<Option<KeyedPush>, RegistryError> {
        let reader = self.quick_reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT body, boot, seq, at FROM push_keys WHERE sender = ?1 AND key = ?2 AND at > ?3",
        )?;
        let since = now.0.saturating_sub(KEPT_US);
        let found = find.query_row(params![of.sender, of.key, since], |row| {
            let (seq, at): (i64, i64) = (row.get(2)?, row.get(3)?);
            let (boot, seq) = (Boot(row.get(1)?), u64::try_from(seq).unwrap_or_default());
            Ok(KeyedPush { body: row.get(0)?, boot, seq, at: Timestamp(at) })
        });
        Ok(found.optional()?)
    }

    /// Stores the first request with a key. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn store_keyed_push(&self, of: &PushKey, push: &KeyedPush) -> Result<(), RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let old = push.at.0.saturating_sub(KEPT_US);
        change.prepare_cached("DELETE FROM push_keys WHERE at <= ?1")?.execute([old])?;
        let seq = i64::try_from(push.seq).unwrap_or(i64::MAX);
        change
            .prepare_cached("INSERT OR REPLACE INTO push_keys VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![of.sender, of.key, push.body, push.boot.0, seq, push.at.0])?;
        change
            .prepare_cached(
                "DELETE FROM push_keys WHERE (sender, key) IN (SELECT sender, key FROM push_keys
                     WHERE sender = ?1 ORDER BY at DESC LIMIT -1 OFFSET ?2)",
            )?
            .execute(params![of.sender, KEYS_PER_SENDER_MAX])?;
        Ok(change.commit()?)
    }

    /// Forgets a key, after its request was rejected.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn forget_keyed_push(&self, of: &PushKey) -> Result<(), RegistryError> {
        self.writer
            .lock()
            .prepare_cached("DELETE FROM push_keys WHERE sender = ?1 AND key = ?2")?
            .execute(params![of.sender, of.key])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};

    fn key(sender: &str, key: u16) -> PushKey {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&key.to_le_bytes());
        PushKey { sender: sender.into(), key: bytes }
    }

    fn push(seq: u64, at: i64) -> KeyedPush {
        KeyedPush { body: [7; 32], boot: Boot([8; 16]), seq, at: Timestamp(at) }
    }

    #[test]
    fn a_key_is_of_its_sender_and_is_known_after_a_restart_for_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let open = || Registry::open(&path, Limits::default(), Users::default).unwrap();
        let registry = open();
        registry.store_keyed_push(&key("a", 1), &push(5, 100)).unwrap();
        drop(registry);
        let registry = open();
        let known = |sender, now| registry.keyed_push(&key(sender, 1), Timestamp(now)).unwrap();
        assert_eq!(known("a", 100 + KEPT_US - 1), Some(push(5, 100)));
        assert_eq!((known("a", 100 + KEPT_US), known("b", 100)), (None, None));
        registry.forget_keyed_push(&key("a", 1)).unwrap();
        assert_eq!(known("a", 100), None);
    }

    #[test]
    fn a_sender_displaces_only_its_own_oldest_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
        registry.store_keyed_push(&key("b", 1), &push(0, 1)).unwrap();
        for n in 0..1002 {
            registry.store_keyed_push(&key("a", n), &push(n.into(), 10 + i64::from(n))).unwrap();
        }
        let known =
            |sender, n| registry.keyed_push(&key(sender, n), Timestamp(2000)).unwrap().is_some();
        let kept = (0..1002).filter(|n| known("a", *n)).collect::<Vec<_>>();
        assert_eq!(kept, (2..1002).collect::<Vec<_>>());
        assert!(known("b", 1));
    }

    #[test]
    fn a_file_from_before_the_table_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let open = || Registry::open(&path, Limits::default(), Users::default).unwrap();
        open().writer.lock().execute_batch("DROP TABLE push_keys").unwrap();
        let registry = open();
        registry.store_keyed_push(&key("a", 1), &push(5, 100)).unwrap();
        assert_eq!(registry.keyed_push(&key("a", 1), Timestamp(100)).unwrap(), Some(push(5, 100)));
    }
}
