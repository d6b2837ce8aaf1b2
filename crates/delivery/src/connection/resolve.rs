//! Addresses of the server, resolved once instead of for every batch. ureq resolves the name before it checks for
//! an open connection, in a new thread. This would cost a DNS query and a thread per second.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Addresses of the one server of a client. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(Arc<Mutex<Resolved>>);

#[derive(Debug, Default)]
struct Resolved {
    addresses: Vec<SocketAddr>,
    doubted: bool,
}

impl Addresses {
    /// Marks the addresses as doubtful after a failed connection. The name is then resolved again. If that fails,
    /// the old addresses are used.
    pub(crate) fn doubt(&self) {
        self.known().doubted = true;
    }

    fn known(&self) -> MutexGuard<'_, Resolved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(
        &self,
        look_up: impl FnOnce() -> Result<Vec<SocketAddr>, Error>,
    ) -> Result<Vec<SocketAddr>, Error> {
        let mut known = self.known();
        if known.addresses.is_empty() || known.doubted {
            match look_up() {
                Ok(addresses) => *known = Resolved { addresses, doubted: false },
                Err(error) if known.addresses.is_empty() => return Err(error),
                Err(error) => {
                    log::debug!(
                        "cannot resolve the server's name; the last address is \
                                 used: {error}"
                    )
                }
            }
        }
        Ok(known.addresses.clone())
    }
}

impl Resolver for Addresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let look_up = || Ok(DefaultResolver::default().resolve(uri, config, timeout)?.to_vec());
        let mut found = self.empty();
        self.get(look_up)?.into_iter().for_each(|address| found.push(address));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looked_up_once_and_again_when_in_doubt() {
        let addresses = Addresses::default();
        let [first, second] = [1, 2].map(|n| vec![SocketAddr::from(([127, 0, 0, n], 8790))]);
        let lost = || Err(Error::HostNotFound);
        assert!(addresses.get(lost).is_err());
        assert_eq!(addresses.get(|| Ok(first.clone())).unwrap(), first);
        assert_eq!(addresses.get(|| panic!("it is known")).unwrap(), first);
        addresses.clone().doubt();
        assert_eq!(addresses.get(lost).unwrap(), first);
        assert_eq!(addresses.get(|| Ok(second.clone())).unwrap(), second);
        assert_eq!(addresses.get(lost).unwrap(), second);
    }
}
