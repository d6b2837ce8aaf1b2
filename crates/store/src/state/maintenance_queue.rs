//! Wakes and ends the maintenance thread.

use parking_lot::{Condvar, Mutex};
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
        self.slot.lock().woken = true;
        self.changed.notify_all();
    }

    /// Ends the thread; work in progress is given up.
    pub(crate) fn close(&self) {
        self.slot.lock().closing = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.slot.lock().closing
    }

    /// Waits for work, or some time; false if the store is closing.
    pub(crate) fn wait(&self) -> bool {
        let idle = |slot: &mut Slot| !slot.woken && !slot.closing;
        let look = Duration::from_secs(LOOK_SECONDS);
        let mut slot = self.slot.lock();
        self.changed.wait_while_for(&mut slot, idle, look);
        slot.woken = false;
        !slot.closing
    }
}
