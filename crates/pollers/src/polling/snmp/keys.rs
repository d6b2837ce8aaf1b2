//! Keys of users of version 3. To derive one from a password takes some milliseconds of a processor.

use crate::polling::reading::Failure;
use crate::protocols::{Auth, Privacy, SnmpSecurity};
use crate::url::Secret;
use async_snmp::{AuthProtocol, MasterKeys, PrivProtocol};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Keys that stay in memory: the agents of a site have few users.
const KEYS_MAX: usize = 256;

/// What keys are derived from.
type Passwords = ((Auth, Secret), Option<(Privacy, Secret)>);

/// Derived keys of all agents. They are derived one after the other, beside the threads of the exchanges.
#[derive(Clone)]
pub(super) struct KeyCache {
    known: Arc<Mutex<Vec<(Passwords, MasterKeys)>>>,
    turn: Arc<Semaphore>,
}

impl Default for KeyCache {
    fn default() -> Self {
        Self { known: Arc::default(), turn: Arc::new(Semaphore::new(1)) }
    }
}

impl KeyCache {
    /// The keys of a user; `None` without authentication.
    pub(super) async fn of(&self, security: &SnmpSecurity) -> Result<Option<MasterKeys>, Failure> {
        let Some(auth) = security.auth.clone() else { return Ok(None) };
        let passwords = (auth, security.privacy.clone());
        if let Some(keys) = self.find(&passwords) {
            return Ok(Some(keys));
        }
        // The semaphore is never closed.
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok();
        let cache = self.clone();
        // It ends with the keys even if the exchange ends before.
        let derived = spawn_blocking(move || {
            let _turn = turn;
            cache.find(&passwords).map_or_else(|| cache.add(passwords), Ok)
        });
        derived.await.map_err(|error| Failure::broken(error.to_string()))?.map(Some)
    }

    fn find(&self, passwords: &Passwords) -> Option<MasterKeys> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(of, _)| of == passwords).map(|(_, keys)| keys.clone())
    }

    fn add(&self, passwords: Passwords) -> Result<MasterKeys, Failure> {
        let keys = derive(&passwords)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEYS_MAX {
            known.remove(0);
        }
        known.push((passwords, keys.clone()));
        Ok(keys)
    }
}

fn derive(((auth, password), privacy): &Passwords) -> Result<MasterKeys, Failure> {
    let protocol = match auth {
        Auth::Md5 => AuthProtocol::Md5,
        Auth::Sha1 => AuthProtocol::Sha1,
        Auth::Sha224 => AuthProtocol::Sha224,
        Auth::Sha256 => AuthProtocol::Sha256,
        Auth::Sha384 => AuthProtocol::Sha384,
        Auth::Sha512 => AuthProtocol::Sha512,
    };
    let keys = MasterKeys::new(protocol, password.reveal().as_bytes());
    let keys = keys.map_err(|error| bad(&error))?;
    let Some((privacy, password)) = privacy else { return Ok(keys) };
    let privacy = match privacy {
        Privacy::Des => PrivProtocol::Des,
        Privacy::Aes128 => PrivProtocol::Aes128,
        Privacy::Aes192 => PrivProtocol::Aes192Blumenthal,
        Privacy::Aes256 => PrivProtocol::Aes256Blumenthal,
    };
    keys.with_privacy(privacy, password.reveal().as_bytes()).map_err(|error| bad(&error))
}

/// The failure of keys that cannot be used.
pub(super) fn bad(error: &dyn Display) -> Failure {
    Failure::denied(format!("user security: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn security(password: &str) -> SnmpSecurity {
        let secret = |text: &str| Secret::new(text.to_owned());
        let privacy = Some((Privacy::Aes128, secret("privpassword")));
        SnmpSecurity {
            auth: Some((Auth::Sha256, secret(password))),
            privacy,
            context: String::new(),
        }
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "measures a duration")]
    async fn the_thread_of_the_exchanges_is_free_while_keys_are_derived_once() {
        let cache = KeyCache::default();
        let one = tokio::spawn({
            let cache = cache.clone();
            async move { cache.of(&security("authpassword")).await.map(|keys| keys.is_some()) }
        });
        // This runtime has one thread: it would not return here before the keys are there.
        tokio::task::yield_now().await;
        assert!(!one.is_finished() && cache.known.lock().unwrap().is_empty());
        assert_eq!(one.await.unwrap(), Ok(true));
        let begun = Instant::now();
        for _ in 0..100 {
            assert!(cache.of(&security("authpassword")).await.unwrap().is_some());
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(cache.known.lock().unwrap().len(), 1);
        assert!(cache.of(&security("short")).await.is_err());
        let none = SnmpSecurity { auth: None, privacy: None, context: String::new() };
        assert_eq!(cache.of(&none).await.map(|keys| keys.is_none()), Ok(true));
    }
}
