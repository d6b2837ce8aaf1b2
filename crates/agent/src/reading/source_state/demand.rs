//! Demand for a source, which changes while it runs: period, metrics and burst.

use super::{Entry, State};
use crate::common::schedule::Due;
use crate::reading::burst::{Burst, Trigger};
use crate::reading::one_reading::{Task, drop_source};
use crate::reading::plan::SourcePlan;
use crate::reading::throttling::Pace;
use model::Timestamp;
use model::setting::{SourceState, SourceStatus};
use sources::{RingLimits, SourceError};
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of an error text of a source, in characters.
const SOURCE_ERROR_CHARS_MAX: usize = 200;

/// Truncates a text to `SOURCE_ERROR_CHARS_MAX`.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SOURCE_ERROR_CHARS_MAX) {
        text.truncate(end);
    }
    text
}

fn status(source: &str, state: SourceState, reason: String) -> SourceStatus {
    SourceStatus { source: source.to_owned(), state, reason: cut(reason) }
}

/// The status of a source or a part that failed. One that the machine lacks has a status only if options may be the
/// reason.
fn failed(source: &str, error: &SourceError, is_by_options: bool) -> Option<SourceStatus> {
    let (state, reason) = match error {
        SourceError::Absent(_) if !is_by_options => return None,
        SourceError::Absent(what) => (SourceState::Absent, what.to_string()),
        SourceError::Denied { what, grant } => {
            (SourceState::Denied, format!("{what}; grant {grant}"))
        }
        SourceError::Broken(what) => (SourceState::Broken, what.to_string()),
    };
    Some(status(source, state, reason))
}

impl Entry {
    /// Changes how the source is read. Its samples and state are kept.
    pub(crate) fn apply(&mut self, source: &SourcePlan, percent_max: u64, now: Timestamp) {
        let SourcePlan { enabled, period, period_idle, .. } = *source;
        if (period, percent_max) != (self.period, self.percent_max) {
            (self.period, self.percent_max) = (period, percent_max);
            self.pace = Pace::new();
        }
        self.period_idle = period_idle;
        self.reschedule(now);
        if *self.options != *source.options {
            self.options = Arc::clone(&source.options);
            self.retry_us = i64::MIN;
        }
        if self.off != source.off {
            self.off = Arc::clone(&source.off);
        }
        if self.burst.as_ref().map(Burst::plan) != source.burst {
            self.burst = source.burst.map(|plan| Burst::new(plan, now));
        }
        if enabled != self.enabled {
            self.enabled = enabled;
            self.align(now);
            self.outage = None;
            self.last = None;
            self.retry_us = i64::MIN;
            if !enabled {
                self.end_demand();
            }
        }
        if let (None, Some(slot)) = (self.keep(), &mut self.slot) {
            slot.sink.set_keep(None);
        }
    }

    /// Disables the source: closes what it holds open and drops its burst samples.
    pub(super) fn end_demand(&mut self) {
        if let Some(slot) = &mut self.slot {
            drop_source(slot);
            slot.sink.set_keep(None);
        }
    }

    fn slow_period(&self) -> Option<SourceStatus> {
        let (percent, rate) = (self.percent_max, self.pace.rate());
        let every = self.schedule.period_us() as f64 / 1e6;
        let reason = format!(
            "it uses more than {percent} % of a processor; the agent reads it {rate}, every {every} s"
        );
        self.pace.is_throttled().then(|| status(self.spec.name, SourceState::Throttled, reason))
    }

    /// Describes why the source or parts of it give too few samples. The result is empty if the source is disabled or
    /// works, or if the machine lacks it for another reason than its options.
    pub(crate) fn source_errors(&self) -> Vec<SourceStatus> {
        let name = self.spec.name;
        match &self.state {
            _ if !self.enabled => Vec::new(),
            State::New | State::Working => {
                // A part with the name of an option is what the option chooses.
                let is_option = |part| self.spec.options.iter().any(|one| one.name == part);
                let part =
                    |(part, error)| failed(&format!("{name}/{part}"), error, is_option(part));
                self.slow_period().into_iter().chain(self.parts.wrong().filter_map(part)).collect()
            }
            State::Failing(error) => {
                let is_by_options = self.options.choose(self.spec.options);
                failed(name, error, is_by_options).into_iter().collect()
            }
            State::Parked => {
                let reason = "a reading exceeds its time limit".to_owned();
                vec![status(name, SourceState::Parked, reason)]
            }
            State::Off => {
                let reason = format!("it exceeded its time limit {} times", self.parks);
                vec![status(name, SourceState::Off, reason)]
            }
        }
    }

    /// Sets whether the node has no job.
    pub(crate) fn set_idle(&mut self, is_idle: bool, now: Timestamp) {
        self.is_idle = is_idle;
        self.reschedule(now);
    }

    /// Configured period of the source, before throttling.
    pub(crate) fn base(&self) -> Duration {
        self.period_idle.filter(|_| self.is_idle).unwrap_or(self.period)
    }

    /// Aligns the next tick with the current period.
    fn reschedule(&mut self, now: Timestamp) {
        let period = self.base().saturating_mul(self.pace.factor);
        if i64::try_from(period.as_micros()) != Ok(self.schedule.period_us()) {
            self.schedule.change(period, now);
        }
    }

    /// Realigns the schedules after the clock was set.
    pub(crate) fn align(&mut self, now: Timestamp) {
        self.schedule.align(now);
        if let Some(burst) = &mut self.burst {
            burst.align(now);
        }
    }

    /// Time of the next reading of the source.
    pub(crate) fn due(&self) -> Timestamp {
        let between = self.burst.as_ref().map(Burst::due);
        between.into_iter().chain([self.schedule.due()]).min().unwrap_or_default()
    }

    /// Whether a tick or a burst reading of the source is due.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.enabled && now >= self.due()
    }

    /// Burst settings of the source, if it is enabled.
    pub(crate) fn keep(&self) -> Option<RingLimits> {
        self.burst.as_ref().filter(|_| self.enabled).map(Burst::keep)
    }

    /// Takes a burst reading between two ticks.
    pub(super) fn take_between(
        &mut self,
        due: Due,
        now: Timestamp,
        steady_us: i64,
    ) -> Option<Task> {
        let burst = self.burst.as_ref()?;
        if matches!(self.state, State::Parked | State::Off) || steady_us < self.retry_us {
            return None;
        }
        if self.slot.is_none() {
            self.stats.missed += due.missed + 1;
            return None;
        }
        self.stats.missed += due.missed;
        let period_us = burst.period_us();
        self.drained(now, steady_us);
        Some(Task::Collect { scheduled: due.at, period_us, is_between: true })
    }

    /// Throttles the burst readings if they cost too much.
    pub(super) fn keep_burst_pace(&mut self, cpu_us: u64, at: Timestamp) {
        let (name, percent) = (self.spec.name, self.percent_max);
        let Some(burst) = &mut self.burst else { return };
        if let Some((paced, rate)) = burst.reading(cpu_us, percent, at) {
            let every = paced.as_secs_f64();
            log::warn!(
                "the agent reads source {name} {rate} between its ticks, every {every} s, so that \
                 it uses at most {percent} % of a processor"
            );
        }
    }

    /// Handles an event. Returns whether it requests the burst samples.
    pub(crate) fn trigger(&mut self, trigger: Trigger, now: Timestamp) -> bool {
        let burst = self.burst.as_mut().filter(|_| self.enabled);
        burst.is_some_and(|burst| burst.trigger(trigger, now))
    }

    /// Moves requested burst samples, `most` at a time, into the next batch. Returns whether more are left.
    pub(crate) fn release(&mut self, most: usize) -> bool {
        match (&mut self.burst, &mut self.slot) {
            (Some(burst), Some(slot)) => burst.release(&mut slot.sink, most),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_the_machine_lacks_has_a_status_if_its_options_may_be_the_reason() {
        let absent = SourceError::absent("no disk has a name that the option `include` chooses");
        assert_eq!(failed("disk/include", &absent, false), None);
        let status = failed("disk/include", &absent, true).unwrap();
        assert_eq!((&*status.source, status.state), ("disk/include", SourceState::Absent));
        assert!(status.reason.contains("`include`"), "{}", status.reason);
    }
}
