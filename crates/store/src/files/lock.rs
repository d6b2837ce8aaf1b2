//! Locks that a panic leaves usable.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a thread panicked that held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
