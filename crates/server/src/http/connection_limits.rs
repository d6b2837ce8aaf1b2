//! Places for connections: so many in all, and so many for each user or address, so that one that takes
//! all it can get leaves room for the others.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A user of this machine.
    User(u32),
    /// Somebody of this machine whom the kernel does not name.
    Unknown,
    /// Somebody elsewhere.
    Address(IpAddr),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Unknown => f.write_str("a local peer without an owner"),
            Self::Address(ip) => write!(f, "{ip}"),
        }
    }
}

/// The places.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    all: Arc<Semaphore>,
    max: usize,
    max_per_peer: usize,
    by_peer: Arc<Mutex<HashMap<Peer, usize>>>,
}

/// One of a peer's places; free again when dropped.
#[derive(Debug)]
pub(crate) struct PeerSlot {
    peer: Peer,
    by_peer: Arc<Mutex<HashMap<Peer, usize>>>,
}

impl ConnectionLimits {
    pub(crate) fn new(max: usize, max_per_peer: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(max)), max, max_per_peer, by_peer: Arc::default() }
    }

    /// How many there are.
    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    /// How many of them one peer may have.
    pub(crate) const fn max_of_one(&self) -> usize {
        self.max_per_peer
    }

    /// One of all places, if one is free.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).try_acquire_owned().ok()
    }

    /// One of a peer's places, if one is free.
    pub(crate) fn take_of(&self, peer: Peer) -> Option<PeerSlot> {
        let mut by_peer = self.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = by_peer.entry(peer).or_default();
        if *taken >= self.max_per_peer {
            return None;
        }
        *taken += 1;
        Some(PeerSlot { peer, by_peer: Arc::clone(&self.by_peer) })
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.max.saturating_sub(self.all.available_permits())
    }
}

impl Drop for PeerSlot {
    fn drop(&mut self) {
        let mut by_peer = self.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = by_peer.get_mut(&self.peer) {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let seats = ConnectionLimits::new(2, 1);
        let (a, b) = (seats.take(), seats.take());
        assert!(a.is_some() && b.is_some() && seats.take().is_none());
        assert_eq!(seats.taken(), 2);
        drop(a);
        assert!(seats.take().is_some());
        let (one, two) = (Peer::User(1), Peer::Unknown);
        let place = seats.take_of(one);
        assert!(place.is_some() && seats.take_of(one).is_none() && seats.take_of(two).is_some());
        drop(place);
        assert!(seats.take_of(one).is_some());
        assert!(seats.by_peer.lock().unwrap().is_empty());
    }
}
