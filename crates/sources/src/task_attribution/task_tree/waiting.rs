//! Ends that wait for the place of another task to become known.

use super::{TaskNo, TaskStats};
use kernel::taskstats::Counter;

/// Maximum number of waiting ends.
const WAITING_MAX: usize = 1024;

/// A task by its ID, and by its number among the tasks with this ID; `None`: any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) tid: u32,
    pub(super) no: Option<TaskNo>,
}

/// The end of a task that is not attributed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) no: TaskNo,
    pub(super) start_us: u64,
    pub(super) tgid: Option<u32>,
    pub(super) stats: TaskStats,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    on: Who,
    since_us: u64,
    end: End,
}

/// The ends that wait, in no order.
#[derive(Debug, Default)]
pub(super) struct WaitingEnds {
    /// The ID that each waits for: searched at every end of the machine, so kept compact.
    on: Vec<u32>,
    ends: Vec<Waiting>,
}

impl WaitingEnds {
    pub(super) fn reserve(&mut self, ends: usize) {
        self.on.reserve(ends);
        self.ends.reserve(ends);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.on.is_empty()
    }

    /// Whether a further end would displace another.
    #[cfg(test)]
    pub(super) const fn is_full(&self) -> bool {
        self.ends.len() == WAITING_MAX
    }

    /// Adds an end; if there is no room, returns another one.
    #[must_use]
    pub(super) fn push(&mut self, on: Who, end: End, now_us: u64) -> Option<End> {
        let given_up = if self.ends.len() < WAITING_MAX { None } else { self.remove(0) };
        self.on.push(on.tid);
        self.ends.push(Waiting { on, since_us: now_us, end });
        given_up
    }

    /// Whether the end of this task waits.
    pub(super) fn has(&self, task: Option<TaskNo>) -> bool {
        self.ends.iter().any(|it| Some(it.end.no) == task)
    }

    /// Removes an end that waits for a task.
    pub(super) fn take(&mut self, who: Who) -> Option<End> {
        let same = |it: &Waiting| it.on.no == who.no || it.on.no.is_none() || who.no.is_none();
        let is_it = |(tid, it): (&u32, &Waiting)| *tid == who.tid && same(it);
        let place = self.on.iter().zip(&self.ends).position(is_it)?;
        self.remove(place)
    }

    /// Removes an end that has waited for longer than this.
    pub(super) fn take_old(&mut self, now_us: u64, wait_us: u64) -> Option<End> {
        let is_old = |it: &Waiting| now_us.saturating_sub(it.since_us) > wait_us;
        let place = self.ends.iter().position(is_old)?;
        self.remove(place)
    }

    /// Nanoseconds of processor time of all of them.
    pub(super) fn cpu_ns(&self) -> u64 {
        let each = self.ends.iter().map(|it| it.end.stats.counters.get(Counter::CpuRunVirtual));
        each.fold(0, u64::saturating_add)
    }

    fn remove(&mut self, place: usize) -> Option<End> {
        if place >= self.ends.len() {
            return None;
        }
        self.on.swap_remove(place);
        Some(self.ends.swap_remove(place).end)
    }
}
