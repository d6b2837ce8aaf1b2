//! Asks a thread to end.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// A request to end, that a thread waits for.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    /// Waits for the request, at most this long. Returns whether it came.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        self.changed.wait_while_for(&mut is_set, |is_set| !*is_set, time);
        *is_set
    }
}
