//! Wakes and ends the maintenance thread.

use crate::files::lock::lock;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Interval of checks for work without a new block.
const LOOK_SECONDS: u64 = 60;

/// Shared by the maintenance thread and the others.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceQueue {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Slot {
    woken: bool,
    closing: bool,
}

impl MaintenanceQueue {
    /// Reports a new block.
    pub(crate) fn wake(&self) {
        lock(&self.slot).woken = true;
        self.changed.notify_all();
    }

    /// Ends the thread; work in progress is given up.
    pub(crate) fn close(&self) {
        lock(&self.slot).closing = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.slot).closing
    }

    /// Waits for work, or some time; false if the store is closing.
    pub(crate) fn wait(&self) -> bool {
        let idle = |slot: &mut Slot| !slot.woken && !slot.closing;
        let look = Duration::from_secs(LOOK_SECONDS);
        let waited = self.changed.wait_timeout_while(lock(&self.slot), look, idle);
        let (mut slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
        slot.woken = false;
        !slot.closing
    }
}
