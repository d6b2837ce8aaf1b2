//! Bursts: readings of a source between its ticks, kept in memory until something requests them. The source's sink
//! holds the samples. This module schedules the readings and records which samples were requested.

use crate::common::schedule::{Due, Schedule};
use crate::reading::plan::BurstPlan;
use crate::reading::throttling::Pace;
use model::Timestamp;
use sources::{RingLimits, Sink};
use std::time::Duration;

/// Event that may request burst samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A job started on the node.
    JobStart,
    /// A job ended.
    JobEnd,
    /// The server requested a flush.
    Requested,
}

/// The burst of a source.
#[derive(Debug)]
pub(crate) struct Burst {
    plan: BurstPlan,
    schedule: Schedule,
    pace: Pace,
    /// Samples up to here are requested.
    until: Option<Timestamp>,
    /// Number of requests that had an effect.
    pub(crate) flushes: u64,
    /// Start of that counter.
    pub(crate) since: Timestamp,
}

impl Burst {
    pub(crate) fn new(plan: BurstPlan, now: Timestamp) -> Self {
        let (schedule, pace) = (Schedule::new(plan.keep.period, now), Pace::new());
        Self { plan, schedule, pace, until: None, flushes: 0, since: now }
    }

    pub(crate) const fn plan(&self) -> BurstPlan {
        self.plan
    }

    pub(crate) const fn keep(&self) -> RingLimits {
        self.plan.keep
    }

    /// End of the samples that are requested and not yet sent.
    pub(crate) const fn wanted(&self) -> Option<Timestamp> {
        self.until
    }

    pub(crate) const fn due(&self) -> Timestamp {
        self.schedule.due()
    }

    pub(crate) const fn period_us(&self) -> i64 {
        self.schedule.period_us()
    }

    pub(crate) fn take(&mut self, now: Timestamp) -> Option<Due> {
        self.schedule.take(now)
    }

    pub(crate) fn align(&mut self, now: Timestamp) {
        self.schedule.align(now);
    }

    /// Records the cost of a reading. If the pace changes, returns the new period and its description.
    pub(crate) fn reading(
        &mut self,
        cpu_us: u64,
        percent_max: u64,
        at: Timestamp,
    ) -> Option<(Duration, &'static str)> {
        let period = self.plan.keep.period;
        let period_us = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        self.pace.reading(cpu_us, period_us, percent_max)?;
        let paced = period.saturating_mul(self.pace.factor);
        self.schedule = Schedule::new(paced, at.plus(1));
        Some((paced, self.pace.rate()))
    }

    /// Handles an event. Returns whether it requests the samples.
    pub(crate) fn trigger(&mut self, trigger: Trigger, now: Timestamp) -> bool {
        let wants = match trigger {
            Trigger::JobStart => self.plan.flush_on.job_start,
            Trigger::JobEnd => self.plan.flush_on.job_end,
            Trigger::Requested => true,
        };
        if wants {
            self.until = Some(now);
            self.flushes += 1;
        }
        wants
    }

    /// Moves requested samples, `most` at a time, into the next batch. Returns whether more are left.
    pub(crate) fn release(&mut self, sink: &mut Sink, most: usize) -> bool {
        let Some(until) = self.until else { return false };
        let more = sink.release(until, most);
        if !more {
            self.until = None;
        }
        more
    }
}
