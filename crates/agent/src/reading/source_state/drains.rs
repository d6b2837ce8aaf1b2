//! When a source's queues in the kernel are to be emptied, between its ticks.

use super::Entry;
use crate::reading::queues::Queues;
use crate::reading::work::Task;
use model::Timestamp;
use sources::Source;

/// The part of the time between two drains by which one may be early.
const ALONG: i64 = 4;

/// How often a source wants its queues emptied, and when that is next.
#[derive(Debug, Default)]
pub(super) struct Drains {
    /// `None`: never.
    every_us: Option<i64>,
    /// By the steady clock.
    due_us: i64,
    /// When the last was, by the same.
    last_us: i64,
    /// It waits for what comes into the queues.
    listens: bool,
    /// A queue of its own is watched.
    hears: bool,
}

impl Entry {
    /// Whether the source wants its queues in the kernel emptied now.
    pub(crate) fn is_drain_due(&self, steady_us: i64) -> bool {
        // One that is nearly due is taken along: waking costs more than emptying.
        let along_us = self.drains.along_us();
        self.drain_due_us().is_some_and(|due_us| steady_us.saturating_add(along_us) >= due_us)
    }

    /// When it does, if ever.
    pub(crate) fn drain_due_us(&self) -> Option<i64> {
        let is_open = self.enabled && self.source().is_some();
        self.drains.every_us.filter(|_| is_open).map(|_| self.drains.due_us)
    }

    pub(crate) fn take_drain(&mut self, now: Timestamp, steady_us: i64) -> Task {
        self.drained(now, steady_us);
        Task::Drain
    }

    /// Reading a source empties its queues too.
    pub(super) fn drained(&mut self, now: Timestamp, steady_us: i64) {
        (self.drains.listens, self.drains.last_us) = (false, steady_us);
        // One that was early was that of the next instant.
        let early_us = self.drains.along_us();
        let until_us = self.drains.until_us(now.plus(early_us)).saturating_add(early_us);
        self.drains.due_us = steady_us.saturating_add(until_us);
    }

    /// The source was read, and may have another wish since.
    pub(super) fn wish_for_drains(&mut self, steady_us: i64) {
        let every = self.source().and_then(Source::drain_every);
        let every_us =
            every.map(|every| i64::try_from(every.as_micros()).unwrap_or(i64::MAX).max(1));
        if let (Some(us), true) = (every_us, every_us != self.drains.every_us) {
            // What it wished for before has no instant of now.
            self.drains.due_us = self.drains.due_us.min(steady_us.saturating_add(us));
        }
        self.drains.every_us = every_us;
    }

    /// Where nothing but what comes into its queues can need a drain, that waits for it: on a node whose tasks
    /// only work, nothing wakes ten times a second.
    pub(crate) fn listen(&mut self, queues: &Queues, now: Timestamp, steady_us: i64) {
        self.drains.hears &= self.drains.every_us.is_some();
        let quiet = self.source().and_then(Source::quiet);
        let (Some(quiet), Some(every_us)) = (quiet, self.drains.every_us) else { return };
        let mut hears = self.drains.hears;
        for queue in quiet.queues.into_iter().flatten() {
            if let Err(errno) = queues.watch(queue) {
                log::debug!(
                    "source {} is drained often: watching its queue: {errno}",
                    self.spec.name
                );
                return;
            }
            hears = true;
        }
        let at_most_us = i64::try_from(quiet.at_most.as_micros()).unwrap_or(i64::MAX);
        let along_us = self.drains.along_us();
        let latest = now.plus(at_most_us);
        // At a whole second if it can be: there other things wake too.
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
        (self.drains.listens, self.drains.hears) = (true, hears);
        self.drains.due_us = self.drains.due_us.saturating_add(put_off_us);
    }

    /// Whether its next drain waits for what comes into its queues.
    pub(crate) fn listens(&self) -> bool {
        self.drains.listens && self.enabled && self.source().is_some()
    }

    /// Whether a queue of its own is watched, so that it hears of what comes.
    pub(crate) fn hears(&self) -> bool {
        self.drains.hears && self.enabled && self.source().is_some()
    }

    /// Something came into a queue, or jobs came or went: the next drain is at its usual instant.
    pub(crate) fn ring(&mut self, now: Timestamp, steady_us: i64) {
        if std::mem::take(&mut self.drains.listens) {
            let due_us = steady_us.saturating_add(self.drains.until_us(now));
            self.drains.due_us = self.drains.due_us.min(due_us);
        }
    }

    /// Jobs came or went, or another source found something in its queue: this one, if it waits, is drained now, or at
    /// the next instant where it just was.
    pub(crate) fn go_along(&mut self, now: Timestamp, steady_us: i64) {
        let along_us = self.drains.along_us();
        let was_not = steady_us.saturating_sub(self.drains.last_us) >= along_us;
        if self.drains.listens && was_not {
            (self.drains.listens, self.drains.due_us) = (false, steady_us);
        }
        self.ring(now, steady_us);
    }

    fn source(&self) -> Option<&dyn Source> {
        self.slot.as_ref()?.source.as_deref()
    }
}

impl Drains {
    /// By how much a drain may be early.
    fn along_us(&self) -> i64 {
        self.every_us.map_or(0, |every_us| every_us / ALONG)
    }

    /// How long until the next multiple of what is wanted, where ticks and looks for jobs are too, so that one
    /// waking does for all.
    fn until_us(&self, now: Timestamp) -> i64 {
        self.every_us.map_or(i64::MAX, |every_us| every_us - now.0.rem_euclid(every_us))
    }
}
