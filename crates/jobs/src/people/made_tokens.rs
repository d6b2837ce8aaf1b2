//! Tokens that people made: who may come with them, until when. Only the SHA-256 of each is kept.

use crate::common::registry::lock;
use crate::{Registry, RegistryError};
use model::Timestamp;
use rusqlite::{Row, TransactionBehavior, params};

/// Most tokens that can be used at a time.
const TOKENS_MAX: i64 = 10_000;
/// Most that one user may have at a time.
const TOKENS_PER_USER_MAX: i64 = 32;
/// Tokens that have ended are told for so long.
const TOLD_US: i64 = 90 * 86_400 * Timestamp::SECOND;

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

/// A token that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// What it is good for, as a line of the token file begins, users by number: `read:1000`.
    pub scope: Box<str>,
    /// Whose it is.
    pub uid: Option<u32>,
    /// What it is for, in its maker's words.
    pub note: Box<str>,
    /// When it is made.
    pub made: Timestamp,
    /// By whom.
    pub made_by: Box<str>,
    /// Until when it is good.
    pub expires: Timestamp,
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptToken {
    /// Its number, which no other gets.
    pub id: i64,
    /// What was made.
    pub token: NewToken,
    /// Since when it is good no more, before its time.
    pub revoked: Option<Timestamp>,
    /// When it was used last, to about an hour.
    pub used: Option<Timestamp>,
}

impl KeptToken {
    /// Whether it is good at an instant.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.token.expires
    }
}

impl Registry {
    /// Keeps a token and gives its number. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails, or there are too many, of this user or of all.
    pub fn keep_token(&self, token: &NewToken) -> Result<i64, RegistryError> {
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = token.made.0;
        change.execute(
            "DELETE FROM tokens WHERE min(expires, coalesce(revoked, expires)) < ?1",
            [now.saturating_sub(TOLD_US)],
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

    /// The tokens, the newest first: all, or those of a user. Those that have ended are told for 90 days.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn tokens(&self, of: Option<u32>) -> Result<Vec<KeptToken>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT id, hash, scope, uid, note, made, made_by, expires, revoked, used FROM tokens
             WHERE ?1 IS NULL OR uid = ?1 ORDER BY id DESC",
        )?;
        let tokens = find.query_map([of], token)?;
        Ok(tokens.collect::<Result<_, _>>()?)
    }

    /// Ends a token before its time. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), RegistryError> {
        lock(&self.writer)
            .prepare_cached("UPDATE tokens SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL")?
            .execute(params![id, now.0])?;
        Ok(())
    }

    /// Notes when tokens were used.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn note_use(&self, used: &[(i64, Timestamp)]) -> Result<(), RegistryError> {
        let mut writer = lock(&self.writer);
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

fn token(row: &Row<'_>) -> rusqlite::Result<KeptToken> {
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
    Ok(KeptToken { id: row.get(0)?, token, revoked: instant(8)?, used: instant(9)? })
}
