//! The reading thread and its watchdog. If a source is slow, another thread continues the tick.

use crate::reading::queues::Queues;
use crate::sampling::sampler::{Sampler, Step};
use crate::sampling::waiter::{Bell, Waiter};
use delivery::{Clock, or_end};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Stack of a reading thread. It is small because the buffers are on the heap.
const STACK_BYTES: usize = 512 * 1024;
/// Shortest time between two checks of the watchdog.
const WATCH_MIN_US: u64 = 5_000;
/// Shortest time between two job searches that watched directories trigger.
const NOTED_EVERY_US: i64 = 10_000;

/// The reading thread. The watchdog may replace it.
#[derive(Clone)]
pub(crate) struct Sampling {
    shared: Arc<Shared>,
}

struct Shared {
    sampler: Mutex<Sampler>,
    ended: Mutex<bool>,
    end: Condvar,
    /// No thread reads, because none could be started.
    lacking: AtomicBool,
    bell: Bell,
    queues: Arc<Queues>,
    clock: Arc<dyn Clock>,
}

impl Sampling {
    /// Starts the reading thread.
    ///
    /// # Errors
    /// No thread or file descriptor is available.
    pub(crate) fn start(sampler: Sampler) -> io::Result<Self> {
        let (clock, queues) = (Arc::clone(&sampler.clock), Arc::new(Queues::new()?));
        let shared = Shared {
            sampler: Mutex::new(sampler.with_queues(Arc::clone(&queues))),
            ended: Mutex::new(false),
            end: Condvar::new(),
            lacking: AtomicBool::new(false),
            bell: Bell::new()?,
            queues,
            clock,
        };
        let sampling = Self { shared: Arc::new(shared) };
        sampling.spawn(0)?;
        Ok(sampling)
    }

    fn spawn(&self, generation: u64) -> io::Result<()> {
        let waiter = Waiter::new()?;
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(format!("read-{generation}"))
            .stack_size(STACK_BYTES)
            .spawn(move || or_end(|| shared.read_on(generation, &waiter)))?;
        // Never joined: a source that hangs may block its thread forever.
        drop(thread);
        Ok(())
    }

    /// Lets another thread continue if a source is slow. Returns the time until the next check.
    pub(crate) fn watch(&self, at_most: Duration) -> Duration {
        let mut sampler = self.shared.sampler();
        let lacking = self.shared.lacking.swap(false, Ordering::Relaxed);
        if (sampler.watch() || lacking)
            && let Err(e) = self.spawn(sampler.generation)
        {
            log::error!("cannot start another reading thread: {e}");
            self.shared.lacking.store(true, Ordering::Relaxed);
        }
        let left_us = sampler.watch_us().saturating_sub(self.shared.clock.steady_us());
        at_most.min(Duration::from_micros(u64::try_from(left_us).unwrap_or(0).max(WATCH_MIN_US)))
    }

    /// Changes the sampler, and wakes the reading thread.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Sampler) -> T) -> T {
        let result = change(&mut self.shared.sampler());
        self.shared.bell.ring();
        result
    }

    /// Reads from the sampler without a change.
    pub(crate) fn look<T>(&self, query: impl FnOnce(&Sampler) -> T) -> T {
        query(&self.shared.sampler())
    }

    /// Ends sampling and seals the last samples. A reading under way gets a grace period of `patience`.
    pub(crate) fn end(&self, patience: Duration) {
        self.with(Sampler::finish);
        let ended = self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.end.wait_timeout_while(ended, patience, |ended| !*ended);
        let ended = match waited {
            Ok((ended, _)) => *ended,
            Err(poisoned) => *poisoned.into_inner().0,
        };
        let mut sampler = self.shared.sampler();
        if !ended {
            sampler.give_up();
            sampler.seal_now();
        }
        sampler.seal_end();
    }
}

impl Shared {
    fn sampler(&self) -> MutexGuard<'_, Sampler> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until the end, or until another thread replaces this one.
    fn read_on(&self, generation: u64, waiter: &Waiter) {
        let mut noting: Option<OwnedFd> = None;
        let mut noted_us = 0;
        let mut waiting = false;
        loop {
            let (step, listens) = {
                let mut sampler = self.sampler();
                if sampler.generation != generation {
                    return;
                }
                (sampler.step(), sampler.listens())
            };
            match step {
                Step::Read(reading) => {
                    let read = reading.make(&*self.clock);
                    self.sampler().done(read, generation);
                }
                Step::Find(finding) => {
                    let found = finding.make();
                    if noting.is_none() {
                        noting = found.finder.fd();
                    }
                    noted_us = self.clock.steady_us();
                    waiting = false;
                    self.sampler().found(found, generation);
                }
                Step::Look(looking) => {
                    let looked = looking.make();
                    self.sampler().looked(looked, generation);
                }
                Step::Wait(mut until) => {
                    // Many jobs that start at once are found in one search.
                    let quiet_us = noted_us + NOTED_EVERY_US - self.clock.steady_us();
                    if waiting && quiet_us <= 0 {
                        waiting = false;
                        // The search may have to wait for the last readings of ended jobs.
                        noted_us = self.clock.steady_us();
                        self.sampler().note();
                        continue;
                    }
                    if waiting {
                        until = until.min(self.clock.wall().plus(quiet_us));
                    }
                    let watched = noting.as_ref().filter(|_| !waiting).map(AsFd::as_fd);
                    let queues_fd = listens.then(|| self.queues.fd());
                    match waiter.wait(until, &self.bell, [watched, queues_fd]) {
                        Ok([noted, rings]) => {
                            waiting |= noted;
                            if rings {
                                self.sampler().ring();
                            }
                        }
                        Err(e) => {
                            log::error!("waiting for the next tick: {e}");
                            std::thread::sleep(Duration::from_secs(1));
                        }
                    }
                }
                Step::End => {
                    *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    self.end.notify_all();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
