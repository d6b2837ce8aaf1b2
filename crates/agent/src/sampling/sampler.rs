//! The tick as a state machine: its steps and their results. It reads only the given clock, starts no thread and
//! never waits. Tests can therefore control the time, and a source that hangs blocks only the thread that reads it.

mod demand;
mod job_changes;
mod presence;
mod slow_sources;
mod startup_shutdown;

use crate::common::schedule::Schedule;
use crate::jobs::cgroup_birth_cache::Directories;
use crate::jobs::env_scanner::{EnvScanner, ScanTask};
use crate::jobs::finder::{Finder, Found};
use crate::reading::agent_metrics::AgentMetrics;
use crate::reading::one_reading::{Machine, Read, Reading, Slot, Task};
use crate::reading::plan::Plan;
use crate::reading::queues::Queues;
use crate::reading::source_state::{Entry, State};
use cgroups::Jobs;
use delivery::{Clock, Sealer, Sinks, WantedJobs};
use job_changes::Ended;
use model::setting::SourceStatus;
use model::{DeviceId, Timestamp};
use presence::Presence;
use sources::Sink;
use std::sync::Arc;
use std::time::Duration;

/// A difference between wall clock and monotonic clock above this means that the clock was set.
const CLOCK_STEP_US: i64 = 100_000;
/// Interval of checks whether a source that is read aside is back for its last reading.
const LAST_WAIT_US: i64 = 10_000;
/// Shortest time between two batches.
const SEAL_MIN: Duration = Duration::from_secs(1);

/// The next step.
pub(crate) enum Step {
    /// Read a source; [`Sampler::done`] takes the result.
    Read(Reading),
    /// Search for jobs; [`Sampler::found`] takes the result.
    Find(JobSearch),
    /// Scan a job for an on-demand request; [`Sampler::looked`] takes the result.
    Look(ScanTask),
    /// Wait until this instant, or until a watched directory changes.
    Wait(Timestamp),
    /// Everything is sealed, and no further step follows.
    End,
}

/// A search for jobs that is about to start.
pub(crate) struct JobSearch {
    finder: Box<Finder>,
    machine: Arc<Machine>,
    device: DeviceId,
    now: Timestamp,
}

impl JobSearch {
    /// Searches for jobs. This may take long.
    pub(crate) fn make(self) -> Found {
        self.finder.find(&self.machine.root, &self.device, self.now)
    }
}

/// The step that a thread is making now.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Position of the source; `None` for a search or scan of jobs.
    place: Option<usize>,
    since_us: i64,
    /// Time after which another thread continues with the other sources.
    hand_us: i64,
    /// Time limit of the reading. Later samples would be too old.
    limit_us: i64,
}

/// The sampler: it decides each step of the tick.
pub(crate) struct Sampler {
    pub(crate) clock: Arc<dyn Clock>,
    machine: Arc<Machine>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) jobs: Arc<Jobs>,
    /// Watched queues of quiet sources. With `None`, quiet sources are drained as often as others.
    queues: Option<Arc<Queues>>,
    finder: Option<Box<Finder>>,
    finds: Schedule,
    presence: Presence,
    noted: bool,
    env_scanner: EnvScanner,
    ended: Vec<Ended>,
    wanted_jobs: Option<WantedJobs>,
    turn: usize,
    running: Option<Running>,
    /// Grows with each thread that is set aside. A thread with another generation has been replaced.
    pub(crate) generation: u64,
    sealer: Sealer,
    seals: Schedule,
    sealed_us: i64,
    /// The last batch was sealed early.
    sealed_early: bool,
    agent_metrics: AgentMetrics,
    /// The node has no job.
    is_idle: bool,
    ahead_us: i64,
    period: Duration,
    budget_us: u64,
    source_time_max: Option<Duration>,
    ending: bool,
    /// The sources without their last reading.
    last: Vec<usize>,
}

/// The sinks of the sources and of the agent's own metrics.
struct AllSinks<'a> {
    entries: &'a mut [Entry],
    agent_metrics: &'a mut Sink,
}

impl Sinks for AllSinks<'_> {
    fn each(&mut self, show: &mut dyn FnMut(Option<&mut Sink>)) {
        for entry in &mut *self.entries {
            show(entry.slot.as_mut().map(|slot| &mut slot.sink));
        }
        show(Some(self.agent_metrics));
    }
}

impl Sampler {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        machine: Machine,
        plan: &Plan,
        finder: Finder,
        agent_metrics: AgentMetrics,
        sealer: Sealer,
    ) -> Self {
        let (now, steady_us) = (clock.wall(), clock.steady_us());
        let entries = plan.sources.iter().map(|source| {
            let slot = Slot::new(Sink::of_source(source.spec, agent_metrics.device().clone()));
            Entry::new(source, slot, plan.source_percent_max, now)
        });
        Self {
            machine: Arc::new(machine),
            queues: None,
            entries: entries.collect(),
            jobs: finder.jobs(),
            finds: Schedule::new(finder.every(plan.period, false), now),
            presence: Presence::default(),
            finder: Some(Box::new(finder)),
            noted: true,
            env_scanner: EnvScanner::default(),
            ended: Vec::new(),
            wanted_jobs: None,
            turn: 0,
            running: None,
            generation: 0,
            sealer,
            is_idle: false,
            seals: Schedule::new(plan.period, now),
            sealed_us: steady_us,
            sealed_early: false,
            agent_metrics: agent_metrics.planned(plan, now),
            ahead_us: now.0.saturating_sub(steady_us),
            period: plan.period,
            budget_us: u64::try_from(plan.budget.as_micros()).unwrap_or(u64::MAX),
            source_time_max: plan.source_time_max,
            ending: false,
            last: Vec::new(),
            clock,
        }
        .with_env_scanner(plan)
        .with_seals(now)
    }

    /// Returns the next step.
    pub(crate) fn step(&mut self) -> Step {
        let (now, steady_us) = (self.clock.wall(), self.clock.steady_us());
        self.notice_set_clock(now, steady_us);
        if self.searches()
            && let Some(finding) = self.next_job_search(now, steady_us)
        {
            self.run(None, steady_us);
            return Step::Find(finding);
        }
        if !self.ending {
            if let Some(reading) = self.next_reading(now, steady_us) {
                self.run(Some(reading.place), steady_us);
                return Step::Read(reading);
            }
            self.agent_metrics.collect_if_due(now, &self.entries, &self.sealer.counts);
        }
        if self.ending {
            if let Some(reading) = self.next_last() {
                self.run(Some(reading.place), steady_us);
                return Step::Read(reading);
            }
            if self.waits_for_last() {
                return Step::Wait(now.plus(LAST_WAIT_US));
            }
            self.seal(now, steady_us);
            return Step::End;
        }
        if let Some(due) = self.seals.take(now)
            && !self.put_off(now, steady_us)
        {
            self.sealed_early = due.at.0.rem_euclid(self.seals.period_us()) != 0;
            self.seal(now, steady_us);
        }
        self.next_scan(steady_us).unwrap_or_else(|| Step::Wait(self.next_instant(now, steady_us)))
    }

    /// Takes back a source that a thread of this generation read.
    pub(crate) fn done(&mut self, read: Read, generation: u64) {
        let (place, jobs) = (read.place, read.jobs);
        let Some(entry) = self.entries.get_mut(place) else { return };
        let (steady_us, ended) = (self.clock.steady_us(), matches!(read.task, Task::Ended(_)));
        if generation == self.generation {
            self.running = None;
            entry.record(read, steady_us, self.sealer.notes());
        } else {
            entry.come_back(read, steady_us, self.sealer.notes());
        }
        if let Some(queues) = &self.queues {
            entry.listen(queues, self.clock.wall(), steady_us);
            // The source found data in its queue, or jobs started during its reading. Sources that wait for the
            // queues of others are drained, too.
            if entry.receives_events() && !entry.listens() || jobs != self.jobs.generation() {
                let now = self.clock.wall();
                self.entries.iter_mut().for_each(|entry| entry.go_along(now, steady_us));
                self.observe_end();
            }
        }
        if ended {
            self.seal_soon();
        }
    }

    /// Takes the result of a job search.
    pub(crate) fn found(&mut self, found: Found, generation: u64) {
        if generation == self.generation {
            self.running = None;
        }
        self.finder = Some(found.finder);
        self.plan_job_searches();
        self.trigger_bursts(&found.events, &found.ended);
        self.env_scanner.note(&found.populated, &found.jobs, self.clock.steady_us());
        if !found.events.is_empty() {
            found.events.into_iter().for_each(|event| self.sealer.notes().put_job(event));
            self.seal_soon();
        }
        self.take_ended(&found.ended, &found.jobs);
        if found.jobs.generation() != self.jobs.generation() {
            // Sources are drained so that they follow a job from its start.
            let steady_us = self.clock.steady_us();
            self.entries.iter_mut().for_each(|entry| entry.drain_now(steady_us));
            self.observe_end();
        }
        self.jobs = found.jobs;
        self.notice_idle();
    }

    /// Makes quiet sources wait for data in their queues. Otherwise they are drained ten times per second.
    pub(crate) fn with_queues(mut self, queues: Arc<Queues>) -> Self {
        self.queues = Some(queues);
        self
    }

    /// Whether a source waits for data in its own queue. If none does, data stays in the queues until the next
    /// drain and wakes no thread.
    pub(crate) fn listens(&self) -> bool {
        self.entries.iter().any(Entry::is_woken)
    }

    /// Handles data in a queue: all sources with a queue are drained at once, because the kernel sends it to each. The
    /// other waiting sources follow if it is about a job.
    pub(crate) fn ring(&mut self) {
        let (now, steady_us) = (self.clock.wall(), self.clock.steady_us());
        let woken = self.entries.iter_mut().filter(|entry| entry.is_woken());
        woken.for_each(|entry| entry.ring(now, steady_us));
        self.observe_end();
    }

    /// Records that a watched directory changed.
    pub(crate) const fn note(&mut self) {
        self.noted = true;
    }

    /// Seals the pending samples and ends, without waiting for a reading under way.
    pub(crate) const fn end(&mut self) {
        self.ending = true;
    }

    /// Makes every source due now, for one extra tick.
    pub(crate) fn force(&mut self) {
        let now = self.clock.wall();
        self.noted = true;
        for entry in &mut self.entries {
            entry.schedule.force(now);
        }
    }

    /// Seals a batch now.
    pub(crate) fn seal_now(&mut self) {
        self.seal(self.clock.wall(), self.clock.steady_us());
    }

    /// Sets the jobs that the server sent.
    pub(crate) fn set_jobs(&mut self, wanted_jobs: WantedJobs) {
        self.wanted_jobs = Some(wanted_jobs);
        self.noted = true;
    }

    /// Returns the cgroup creation times for the next start, if the jobs have changed since `generation`.
    pub(crate) fn known(&self, generation: u64) -> Option<(u64, Directories)> {
        let news = self.jobs.generation() != generation;
        self.finder.as_ref().filter(|_| news).map(|finder| finder.known())
    }

    /// Adds a batch without samples: the agent's last one, which announces its end.
    pub(crate) fn seal_end(&mut self) {
        self.sealer.seal_empty();
    }

    /// Lists the sources, or parts of them, that give too few samples.
    pub(crate) fn source_errors(&self) -> Vec<SourceStatus> {
        self.entries.iter().flat_map(Entry::source_errors).collect()
    }

    /// Enables sources again that were switched off.
    pub(crate) fn forgive(&mut self) {
        self.entries.iter_mut().for_each(Entry::forgive);
    }

    fn run(&mut self, place: Option<usize>, since_us: i64) {
        let entry = place.and_then(|place| self.entries.get(place));
        let period_us = entry.map_or(0, |entry| entry.schedule.period_us());
        let limit_us = match self.source_time_max {
            Some(limit) => micros(limit),
            None => period_us.max(Timestamp::SECOND),
        };
        let hand_us = self.hand_us().min(limit_us);
        self.running = Some(Running { place, since_us, hand_us, limit_us });
    }

    /// Detects that the clock was set. The ticks then restart, and none counts as missed.
    fn notice_set_clock(&mut self, now: Timestamp, steady_us: i64) {
        let ahead_us = now.0.saturating_sub(steady_us);
        let step_us = ahead_us.saturating_sub(self.ahead_us);
        self.ahead_us = ahead_us;
        if step_us.abs() < CLOCK_STEP_US {
            return;
        }
        log::warn!("the clock was set by {} ms; ticks go on by its new time", step_us / 1000);
        self.agent_metrics.clock_steps += 1;
        self.entries.iter_mut().for_each(|entry| entry.align(now));
        self.finds.align(now);
        self.seals.align(now);
        self.agent_metrics.align(now);
    }

    fn next_reading(&mut self, now: Timestamp, steady_us: i64) -> Option<Reading> {
        if let Some(reading) = self.next_ended() {
            return Some(reading);
        }
        let (place, task) = self.next_due(now, steady_us)?;
        self.reading(place, task)
    }

    fn reading(&mut self, place: usize, task: Task) -> Option<Reading> {
        let entry = self.entries.get_mut(place)?;
        Some(Reading {
            place,
            spec: entry.spec,
            task,
            slot: entry.slot.take()?,
            options: Arc::clone(&entry.options),
            off: Arc::clone(&entry.off),
            keep: entry.keep(),
            machine: Arc::clone(&self.machine),
            jobs: Arc::clone(&self.jobs),
            budget_us: self.budget_us,
        })
    }

    /// Returns the next source with a due tick or drain. Sources take turns, so that a short period does not starve
    /// the others.
    fn next_due(&mut self, now: Timestamp, steady_us: i64) -> Option<(usize, Task)> {
        let count = self.entries.len();
        for step in 0..count {
            let place = (self.turn + step) % count;
            let entry = self.entries.get_mut(place)?;
            let task = if entry.is_due(now) {
                entry.take_tick(now, steady_us, self.sealer.notes())
            } else if entry.is_drain_due(steady_us) {
                Some(entry.take_drain(now, steady_us))
            } else {
                None
            };
            if let Some(task) = task {
                self.turn = (place + 1) % count;
                return Some((place, task));
            }
        }
        self.turn = 0;
        None
    }

    fn seal(&mut self, now: Timestamp, steady_us: i64) {
        if self.ending {
            let notes = self.sealer.notes();
            self.entries.iter_mut().for_each(|entry| entry.report_outage_at_end(now, notes));
        }
        let more = self.release();
        self.sealed_us = steady_us;
        let (batches, last_wait_us) = (self.sealer.counts.batches, self.agent_metrics.wait_us());
        let agent_metrics = self.agent_metrics.sink();
        self.sealer.seal(&mut AllSinks { entries: &mut self.entries, agent_metrics });
        let wait_us = self.longest_wait_us();
        self.agent_metrics.set_wait_us(wait_us);
        // The wait grew beyond the reported one: an empty batch reports the new one in time.
        if last_wait_us > 0 && wait_us > last_wait_us && self.sealer.counts.batches == batches {
            self.sealer.seal_empty();
        }
        if more {
            self.seal_soon();
        }
    }

    /// Longest time until the next batch: the shortest period of the sources that give samples, at least the interval
    /// between batches.
    fn longest_wait_us(&self) -> i64 {
        let gives =
            |entry: &&Entry| entry.enabled && matches!(entry.state, State::New | State::Working);
        let periods = self.entries.iter().filter(gives).map(|entry| entry.schedule.period_us());
        let shortest = periods.chain(self.agent_metrics.period_us()).min().unwrap_or(0);
        shortest.max(self.seals.period_us())
    }

    /// Seals a batch early: the final usage of ended jobs should not wait for the next tick.
    fn seal_soon(&mut self) {
        let now = self.clock.wall();
        let at = now.plus(self.seal_wait_us(self.clock.steady_us()).max(0));
        if at < self.seals.due() {
            self.seals.force(at);
        }
    }

    /// Postpones a batch that follows an early one. It comes 1 s later, or at the next regular instant if that is
    /// as soon.
    fn put_off(&mut self, now: Timestamp, steady_us: i64) -> bool {
        let wait_us = self.seal_wait_us(steady_us);
        if !self.sealed_early || wait_us <= 0 {
            return false;
        }
        let at = now.plus(wait_us);
        if at.plus(micros(SEAL_MIN)) <= self.seals.due() {
            self.seals.force(at);
        }
        true
    }

    fn seal_wait_us(&self, steady_us: i64) -> i64 {
        micros(SEAL_MIN).saturating_sub(steady_us.saturating_sub(self.sealed_us))
    }

    fn next_instant(&self, now: Timestamp, steady_us: i64) -> Timestamp {
        let ticks = self.entries.iter().filter(|entry| entry.enabled);
        let ticks = ticks.map(Entry::due);
        let drains = self.entries.iter().filter_map(Entry::drain_due_us);
        let drains = drains.chain(self.env_scanner.due_us());
        let drains = drains.map(|at_us| now.plus(at_us.saturating_sub(steady_us).max(0)));
        let finds = self.finder.is_some().then_some(self.finds.due());
        // Last readings of ended jobs may wait for a source.
        let finds =
            finds.into_iter().chain((!self.ended.is_empty()).then(|| now.plus(LAST_WAIT_US)));
        let others = [self.seals.due(), self.agent_metrics.due()].into_iter().chain(finds);
        ticks.chain(drains).chain(others).min().unwrap_or(now)
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
