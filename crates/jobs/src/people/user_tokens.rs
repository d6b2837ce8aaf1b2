//! Tokens that people created: user, scope and expiry. Only the SHA-256 of each token is stored.

use crate::{Registry, RegistryError};
use model::Timestamp;
use rusqlite::{Row, TransactionBehavior, params};

/// Maximum number of valid tokens.
const TOKENS_MAX: i64 = 10_000;
/// Maximum number of valid tokens of one user.
const TOKENS_PER_USER_MAX: i64 = 32;
/// How long lists show expired and revoked tokens: 90 days.
const LISTED_US: i64 = 90 * 86_400 * Timestamp::SECOND;

/// The table.
pub(crate) const TABLES: &str = "
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    scope TEXT NOT NULL,
    uid INTEGER,
    note TEXT NOT NULL,
    made INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER,
    used INTEGER
) STRICT;
CREATE INDEX tokens_uid ON tokens (uid);
";

/// A token to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// The scope in the syntax of the token file, with users as user IDs: `read:1000`.
    pub scope: Box<str>,
    /// User ID of the token's owner.
    pub uid: Option<u32>,
    /// The purpose, as free text of its creator.
    pub note: Box<str>,
    /// Time of creation.
    pub made: Timestamp,
    /// The creator.
    pub made_by: Box<str>,
    /// Time of expiry.
    pub expires: Timestamp,
}

/// A stored token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// The token's ID, never reused.
    pub id: i64,
    /// The token's data at creation.
    pub token: NewToken,
    /// Time of revocation, if it was revoked.
    pub revoked: Option<Timestamp>,
    /// Time of the last use, to about 1 h.
    pub used: Option<Timestamp>,
}

impl StoredToken {
    /// Tests whether the token is valid at an instant.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.token.expires
    }
}

impl Registry {
    /// Stores a token and returns its ID. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails, or the limit of tokens is reached, in total or of this user.
    pub fn store_token(&self, token: &NewToken) -> Result<i64, RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = token.made.0;
        change.execute(
            "DELETE FROM tokens WHERE min(expires, coalesce(revoked, expires)) < ?1",
            [now.saturating_sub(LISTED_US)],
        )?;
        let good = "SELECT count(*) FROM tokens WHERE revoked IS NULL AND expires > ?1";
        let all: i64 = change.query_row(good, [now], |row| row.get(0))?;
        let of_user = format!("{good} AND uid = ?2");
        let own: i64 = change.query_row(&of_user, params![now, token.uid], |row| row.get(0))?;
        if all >= TOKENS_MAX {
            return Err(RegistryError::TooManyOf(TOKENS_MAX, "tokens"));
        }
        if own >= TOKENS_PER_USER_MAX {
            return Err(RegistryError::TooManyOf(TOKENS_PER_USER_MAX, "tokens of one user"));
        }
        let id = change
            .prepare_cached(
                "INSERT INTO tokens (hash, scope, uid, note, made, made_by, expires)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .insert(params![
                token.hash,
                token.scope,
                token.uid,
                token.note,
                now,
                token.made_by,
                token.expires.0
            ])?;
        change.commit()?;
        Ok(id)
    }

    /// Returns the tokens, latest first: all, or those of one user. Expired and revoked tokens stay listed
    /// for 90 days.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn tokens(&self, of: Option<u32>) -> Result<Vec<StoredToken>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT id, hash, scope, uid, note, made, made_by, expires, revoked, used FROM tokens
             WHERE ?1 IS NULL OR uid = ?1 ORDER BY id DESC",
        )?;
        let tokens = find.query_map([of], token)?;
        Ok(tokens.collect::<Result<_, _>>()?)
    }

    /// Revokes a token. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), RegistryError> {
        self.writer
            .lock()
            .prepare_cached("UPDATE tokens SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL")?
            .execute(params![id, now.0])?;
        Ok(())
    }

    /// Stores when tokens were last used.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn note_use(&self, used: &[(i64, Timestamp)]) -> Result<(), RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (id, at) in used {
            change
                .prepare_cached(
                    "UPDATE tokens SET used = max(coalesce(used, ?2), ?2) WHERE id = ?1",
                )?
                .execute(params![id, at.0])?;
        }
        change.commit()?;
        Ok(())
    }
}

fn token(row: &Row<'_>) -> rusqlite::Result<StoredToken> {
    let instant =
        |place| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(place)?.map(Timestamp));
    let token = NewToken {
        hash: row.get(1)?,
        scope: row.get(2)?,
        uid: row.get(3)?,
        note: row.get(4)?,
        made: Timestamp(row.get(5)?),
        made_by: row.get(6)?,
        expires: Timestamp(row.get(7)?),
    };
    Ok(StoredToken { id: row.get(0)?, token, revoked: instant(8)?, used: instant(9)? })
}
