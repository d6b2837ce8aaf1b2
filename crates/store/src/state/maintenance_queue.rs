//! How other threads wake and end the thread that maintains the blocks.

use crate::files::lock::lock;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often it is looked for work that no new block brings.
const LOOK_SECONDS: u64 = 60;

/// What the thread that tends the blocks and the others tell each other.
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
    /// There is a new block.
    pub(crate) fn wake(&self) {
        lock(&self.slot).woken = true;
        self.changed.notify_all();
    }

    /// Ends the thread; work that is begun is given up.
    pub(crate) fn close(&self) {
        lock(&self.slot).closing = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.slot).closing
    }

    /// Waits for work, or some time; false when the store is closing.
    pub(crate) fn wait(&self) -> bool {
        let idle = |slot: &mut Slot| !slot.woken && !slot.closing;
        let look = Duration::from_secs(LOOK_SECONDS);
        let waited = self.changed.wait_timeout_while(lock(&self.slot), look, idle);
        let (mut slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
        slot.woken = false;
        !slot.closing
    }
}
