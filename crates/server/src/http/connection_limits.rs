//! Limits of connections, in total and for each peer, and of each caller's concurrent requests and unsent answers.
//! A greedy client thus leaves capacity for others.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A user of this machine.
    User(u32),
    /// A local peer whose owner the kernel does not report.
    Unknown,
    /// A remote address.
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

/// Counts the slots in use of each key, up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct LimitPerKey<K> {
    max: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

/// Some of a key's slots, released when dropped.
#[derive(Debug)]
pub(crate) struct Slot<K: Eq + Hash> {
    key: K,
    count: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Clone + Eq + Hash> LimitPerKey<K> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, taken: Arc::default() }
    }

    /// Takes one of a key's slots, if one is free.
    pub(crate) fn take(&self, key: K) -> Option<Slot<K>> {
        self.take_several(key, 1)
    }

    /// Takes several of a key's slots, if they are free. A key without any slot gets any number, so that what needs
    /// more than all of them is possible, one at a time.
    pub(crate) fn take_several(&self, key: K, count: usize) -> Option<Slot<K>> {
        self.take_up_to(self.max, key, count)
    }

    /// Takes several of a key's slots, even if they are not free.
    pub(crate) fn take_beyond(&self, key: K, count: usize) -> Option<Slot<K>> {
        self.take_up_to(usize::MAX, key, count)
    }

    fn take_up_to(&self, max: usize, key: K, count: usize) -> Option<Slot<K>> {
        let mut taken = self.taken.lock();
        let sum = taken.entry(key.clone()).or_default();
        if *sum > 0 && sum.saturating_add(count) > max {
            return None;
        }
        *sum = sum.saturating_add(count);
        Some(Slot { key, count, taken: Arc::clone(&self.taken) })
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count = count.saturating_sub(self.count);
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

/// Limits of connections, in total and for each peer.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    all: Arc<Semaphore>,
    max: usize,
    by_peer: LimitPerKey<Peer>,
}

impl ConnectionLimits {
    pub(crate) fn new(max: usize, max_per_peer: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(max)), max, by_peer: LimitPerKey::new(max_per_peer) }
    }

    /// Returns the maximum number of connections.
    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    /// Returns the maximum number of connections per peer.
    pub(crate) const fn max_of_one(&self) -> usize {
        self.by_peer.max
    }

    /// Takes one connection of the total, if one is free.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).try_acquire_owned().ok()
    }

    /// Takes one of a peer's connections, if one is free.
    pub(crate) fn take_of(&self, peer: Peer) -> Option<Slot<Peer>> {
        self.by_peer.take(peer)
    }

    /// Returns the number of connections in use.
    pub(crate) fn taken(&self) -> usize {
        self.max.saturating_sub(self.all.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_more_than_all_slots_gets_them_alone() {
        let bytes = LimitPerKey::new(10);
        let large = bytes.take_several("ann", 100);
        assert!(large.is_some() && bytes.take_several("ann", 1).is_none());
        assert!(bytes.take_several("bob", 1).is_some(), "another key has its own");
        drop(large);
        let (six, four) = (bytes.take_several("ann", 6), bytes.take_several("ann", 4));
        assert!(six.is_some() && four.is_some() && bytes.take_several("ann", 1).is_none());
        drop((six, four));
        assert!(bytes.taken.lock().is_empty());
    }

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
        assert!(seats.by_peer.taken.lock().is_empty());
    }
}
