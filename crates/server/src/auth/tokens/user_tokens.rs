//! User-created tokens: an in-memory copy of the registry's tokens for the lookup by requests.

use crate::auth::caller::Rights;
use crate::auth::tokens::{Sha256, rights, sha256};
use jobs::{Registry, RegistryError};
use model::Timestamp;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;

/// Minimum interval between two recorded uses of a token: 1 h, in µs.
const NOTED_EVERY_US: i64 = 3600 * Timestamp::SECOND;

/// A token and its expiry.
#[derive(Clone, Debug)]
struct CreatedToken {
    id: i64,
    rights: Rights,
    expires: Timestamp,
}

/// ID and rights of a matching user-created token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundToken {
    pub(crate) id: i64,
    pub(crate) rights: Rights,
}

/// The tokens and their latest uses. The registry's token limit bounds both maps.
#[derive(Debug, Default)]
pub(crate) struct UserTokens {
    known: RwLock<HashMap<Sha256, CreatedToken>>,
    used: Mutex<HashMap<i64, TokenUse>>,
}

#[derive(Clone, Copy, Debug)]
struct TokenUse {
    at: Timestamp,
    noted: bool,
}

impl UserTokens {
    /// Loads the registry's current tokens. May wait for the disk.
    pub(crate) fn load(&self, registry: &Registry) -> Result<(), RegistryError> {
        let mut known = HashMap::new();
        for kept in registry.tokens(None)? {
            if kept.revoked.is_some() {
                continue;
            }
            // These scopes name users by ID, so no passwd file is needed.
            match rights(&kept.token.scope, b"") {
                Ok(rights) => {
                    let (id, expires) = (kept.id, kept.token.expires);
                    known.insert(kept.token.hash, CreatedToken { id, rights, expires });
                }
                Err(why) => log::error!("token {} is unusable: {why}", kept.id),
            }
        }
        *self.known.write() = known;
        Ok(())
    }

    /// Looks up a token that is valid now. The lookup uses its SHA-256, so its duration reveals nothing
    /// about other tokens.
    pub(crate) fn find(&self, token: &str, now: Timestamp) -> Option<FoundToken> {
        let known = self.known.read();
        let made = known.get(&sha256(token)).filter(|made| now < made.expires)?;
        let mut used = self.used.lock();
        let last = used.entry(made.id).or_insert(TokenUse { at: Timestamp(i64::MIN), noted: true });
        if last.at.0.saturating_add(NOTED_EVERY_US) <= now.0 {
            *last = TokenUse { at: now, noted: false };
        }
        Some(FoundToken { id: made.id, rights: made.rights.clone() })
    }

    /// Writes unrecorded token uses to the registry. May wait for the disk.
    pub(crate) fn note(&self, registry: &Registry) -> Result<(), RegistryError> {
        let mut uses = self.used.lock().clone();
        uses.retain(|_, last| !last.noted);
        if uses.is_empty() {
            return Ok(());
        }
        let list: Vec<(i64, Timestamp)> = uses.iter().map(|(id, last)| (*id, last.at)).collect();
        registry.note_use(&list)?;
        let mut used = self.used.lock();
        for (id, at) in list {
            used.entry(id).and_modify(|last| last.noted |= last.at == at);
        }
        Ok(())
    }
}
