//! Schedule for draining a source's kernel queues between its ticks.

use super::Entry;
use crate::reading::one_reading::Task;
use crate::reading::queues::Queues;
use model::Timestamp;
use sources::Source;

/// A drain may come early by the interval divided by this.
const ALONG: i64 = 4;

/// Interval and schedule of a source's drains.
#[derive(Debug, Default)]
pub(super) struct Drains {
    /// Interval between drains; `None` for a source without them.
    every_us: Option<i64>,
    /// Monotonic time of the next drain.
    due_us: i64,
    /// Monotonic time of the last drain.
    last_us: i64,
    /// The next drain waits for data in the queues.
    listens: bool,
    /// One of the source's own queues is or was watched.
    receives_events: bool,
    /// Data in a queue of the source wakes the agent before the next drain.
    wakes: bool,
    /// The source's queues are unwatched while nothing happens in any job.
    is_calm: bool,
}

impl Entry {
    /// Whether the source's kernel queues are due to be drained.
    pub(crate) fn is_drain_due(&self, steady_us: i64) -> bool {
        // A drain that is nearly due comes early: waking up costs more than draining.
        let along_us = self.drains.along_us();
        self.drain_due_us().is_some_and(|due_us| steady_us.saturating_add(along_us) >= due_us)
    }

    /// Monotonic time of the next drain, if one is scheduled.
    pub(crate) fn drain_due_us(&self) -> Option<i64> {
        let is_open = self.enabled && self.source().is_some();
        self.drains.every_us.filter(|_| is_open).map(|_| self.drains.due_us)
    }

    pub(crate) fn take_drain(&mut self, now: Timestamp, steady_us: i64) -> Task {
        self.drained(now, steady_us);
        Task::Drain
    }

    /// Records a drain. Reading a source drains its queues, too.
    pub(super) fn drained(&mut self, now: Timestamp, steady_us: i64) {
        (self.drains.listens, self.drains.last_us) = (false, steady_us);
        // An early drain replaces the one of the next instant.
        let early_us = self.drains.along_us();
        let until_us = self.drains.until_us(now.plus(early_us)).saturating_add(early_us);
        self.drains.due_us = steady_us.saturating_add(until_us);
    }

    /// Updates the drain interval after a reading, as the source may request another one.
    pub(super) fn update_drain_interval(&mut self, steady_us: i64) {
        let every = self.source().and_then(Source::drain_every);
        let every_us =
            every.map(|every| i64::try_from(every.as_micros()).unwrap_or(i64::MAX).max(1));
        if let (Some(us), true) = (every_us, every_us != self.drains.every_us) {
            // The schedule of the earlier interval does not apply.
            self.drains.due_us = self.drains.due_us.min(steady_us.saturating_add(us));
        }
        self.drains.every_us = every_us;
    }

    /// Lets the next drain wait for data, if only data in its queues can require one. On a node whose tasks only
    /// compute, the agent then does not wake ten times per second.
    pub(crate) fn listen(&mut self, queues: &Queues, now: Timestamp, steady_us: i64) {
        self.drains.receives_events &= self.drains.every_us.is_some();
        let quiet = self.source().and_then(Source::quiet);
        let (Some(quiet), Some(every_us)) = (quiet, self.drains.every_us) else { return };
        let own = || quiet.queues.into_iter().flatten();
        if quiet.is_calm && !self.drains.is_calm {
            own().for_each(|queue| queues.unwatch(queue));
        }
        let waking = || own().filter(|_| !quiet.is_calm).chain(quiet.moves);
        for queue in waking() {
            if let Err(errno) = queues.watch(queue) {
                log::debug!(
                    "source {} is drained often: watching its queue: {errno}",
                    self.spec.name
                );
                return;
            }
        }
        let receives_events = self.drains.receives_events || own().next().is_some();
        let (wakes, is_calm) = (waking().next().is_some(), quiet.is_calm);
        let at_most_us = i64::try_from(quiet.at_most.as_micros()).unwrap_or(i64::MAX);
        let along_us = self.drains.along_us();
        let latest = now.plus(at_most_us);
        // Prefer a whole second, because other work wakes the agent then.
        let whole = Timestamp(latest.0.saturating_sub(latest.0.rem_euclid(Timestamp::SECOND)));
        let until = if at_most_us >= Timestamp::SECOND && whole > now.plus(along_us) {
            whole
        } else {
            latest
        };
        let wait_us = steady_us.saturating_add(until.since(now)).saturating_sub(self.drains.due_us);
        let wait_us = wait_us.saturating_sub(along_us).max(0);
        let steps = wait_us.unsigned_abs().div_ceil(every_us.unsigned_abs());
        let put_off_us = i64::try_from(steps).unwrap_or(0).saturating_mul(every_us);
        (self.drains.listens, self.drains.receives_events) = (true, receives_events);
        (self.drains.wakes, self.drains.is_calm) = (wakes, is_calm);
        self.drains.due_us = self.drains.due_us.saturating_add(put_off_us);
    }

    /// Whether the next drain waits for data in the queues.
    pub(crate) fn listens(&self) -> bool {
        self.drains.listens && self.enabled && self.source().is_some()
    }

    /// Whether data in a queue of the source wakes the agent before the next drain.
    pub(crate) fn is_woken(&self) -> bool {
        self.listens() && self.drains.wakes
    }

    /// Whether the source has its own queues, which report the ends of tasks.
    pub(crate) fn receives_events(&self) -> bool {
        self.drains.receives_events && self.enabled && self.source().is_some()
    }

    /// Handles data in a queue or a change of the jobs: the next drain returns to its usual instant.
    pub(crate) fn ring(&mut self, now: Timestamp, steady_us: i64) {
        if std::mem::take(&mut self.drains.listens) {
            let due_us = steady_us.saturating_add(self.drains.until_us(now));
            self.drains.due_us = self.drains.due_us.min(due_us);
        }
    }

    /// Drains a waiting source now, because jobs changed or another source found data in its queue. If it was just
    /// drained, the next drain is at the usual instant.
    pub(crate) fn go_along(&mut self, now: Timestamp, steady_us: i64) {
        let along_us = self.drains.along_us();
        let was_not = steady_us.saturating_sub(self.drains.last_us) >= along_us;
        if self.drains.listens && was_not {
            (self.drains.listens, self.drains.due_us) = (false, steady_us);
        }
        self.ring(now, steady_us);
    }

    /// Drains a source at once, because a job started: it may end before the usual instant.
    pub(crate) fn drain_now(&mut self, steady_us: i64) {
        self.drains.listens = false;
        self.drains.due_us = self.drains.due_us.min(steady_us);
    }

    fn source(&self) -> Option<&dyn Source> {
        self.slot.as_ref()?.source.as_deref()
    }
}

impl Drains {
    /// Time by which a drain may be early.
    fn along_us(&self) -> i64 {
        self.every_us.map_or(0, |every_us| every_us / ALONG)
    }

    /// Time until the next multiple of the drain interval. Ticks and job searches use the same instants, so that
    /// one wake-up serves all.
    fn until_us(&self, now: Timestamp) -> i64 {
        self.every_us.map_or(i64::MAX, |every_us| every_us - now.0.rem_euclid(every_us))
    }
}
