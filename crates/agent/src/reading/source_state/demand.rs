//! What is wanted of a source, as it changes while it runs: how often, which metrics, what is kept.

use super::{Entry, State};
use crate::common::schedule::Due;
use crate::reading::burst::{Burst, Trigger};
use crate::reading::pace::Pace;
use crate::reading::plan::SourcePlan;
use crate::reading::work::{Task, drop_source};
use model::Timestamp;
use sources::{Keep, SourceError};
use std::sync::Arc;
use std::time::Duration;

/// Longest words on what is wrong with a source.
const TROUBLE_CHARS_MAX: usize = 200;

/// What stands between two of them, of one source or of several.
pub(crate) const BETWEEN: &str = " | ";

/// Words that are not too long.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TROUBLE_CHARS_MAX) {
        text.truncate(end);
    }
    text
}

impl Entry {
    /// Changes how the source is read; what it has stays.
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
            self.hole = None;
            self.last = None;
            self.retry_us = i64::MIN;
            if !enabled {
                self.let_go();
            }
        }
        if let (None, Some(slot)) = (self.keep(), &mut self.slot) {
            slot.sink.set_keep(None);
        }
    }

    /// Nobody wants the source: what it holds open is closed, what is kept of it is forgotten.
    pub(super) fn let_go(&mut self) {
        if let Some(slot) = &mut self.slot {
            drop_source(slot);
            slot.sink.set_keep(None);
        }
    }

    fn slowed(&self) -> Option<String> {
        let (name, percent, rate) = (self.spec.name, self.percent_max, self.pace.rate());
        let every = self.schedule.period_us() as f64 / 1e6;
        self.pace.is_slowed().then(|| {
            format!(
                "{name} slowed: it takes more than {percent} % of a processor, and is read {rate}, every {every} s"
            )
        })
    }

    /// Why the source, or a part of it, gives no samples or fewer than it should, though this machine has it and it is
    /// wanted, if so.
    pub(crate) fn trouble(&self) -> Option<String> {
        let name = self.spec.name;
        let text = match &self.state {
            _ if !self.enabled => return None,
            State::Failing(SourceError::Absent(_)) => return None,
            State::New | State::Working => {
                let part = |(part, error)| cut(format!("{name}/{part} {error}"));
                let troubles: Vec<_> =
                    self.slowed().into_iter().chain(self.parts.wrong().map(part)).collect();
                return (!troubles.is_empty()).then(|| troubles.join(BETWEEN));
            }
            State::Failing(error) => format!("{name} {error}"),
            State::Parked => format!("{name} parked: a reading takes longer than it may"),
            State::Off => format!("{name} off: it took longer than it may {} times", self.parks),
        };
        Some(cut(text))
    }

    /// Whether no job is on the node.
    pub(crate) fn set_idle(&mut self, is_idle: bool, now: Timestamp) {
        self.is_idle = is_idle;
        self.reschedule(now);
    }

    /// How often the source is read, but for what it costs.
    pub(crate) fn base(&self) -> Duration {
        self.period_idle.filter(|_| self.is_idle).unwrap_or(self.period)
    }

    /// The next tick is one of the period that holds now.
    fn reschedule(&mut self, now: Timestamp) {
        let period = self.base().saturating_mul(self.pace.factor);
        if i64::try_from(period.as_micros()) != Ok(self.schedule.period_us()) {
            self.schedule.change(period, now);
        }
    }

    /// The clock was set: what is due begins anew.
    pub(crate) fn align(&mut self, now: Timestamp) {
        self.schedule.align(now);
        if let Some(burst) = &mut self.burst {
            burst.align(now);
        }
    }

    /// When the source is to be read next.
    pub(crate) fn due(&self) -> Timestamp {
        let between = self.burst.as_ref().map(Burst::due);
        between.into_iter().chain([self.schedule.due()]).min().unwrap_or_default()
    }

    /// Whether a tick of the source has come, or a reading between two.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.enabled && now >= self.due()
    }

    /// What is to be kept of the source.
    pub(crate) fn keep(&self) -> Option<Keep> {
        self.burst.as_ref().filter(|_| self.enabled).map(Burst::keep)
    }

    /// Takes a reading between two ticks.
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

    /// Reads it more rarely between its ticks if that costs more than it may.
    pub(super) fn keep_burst_pace(&mut self, cpu_us: u64, at: Timestamp) {
        let (name, percent) = (self.spec.name, self.percent_max);
        let Some(burst) = &mut self.burst else { return };
        if let Some((paced, rate)) = burst.reading(cpu_us, percent, at) {
            let every = paced.as_secs_f64();
            log::warn!(
                "source {name} is read {rate} between its ticks, every {every} s, to take no more than {percent} % of \
                 a processor"
            );
        }
    }

    /// Something happened: whether what is kept of the source is wanted.
    pub(crate) fn trigger(&mut self, trigger: Trigger, now: Timestamp) -> bool {
        let burst = self.burst.as_mut().filter(|_| self.enabled);
        burst.is_some_and(|burst| burst.trigger(trigger, now))
    }

    /// Moves of what is kept what is wanted, so many samples at once, to what is sealed next. Whether more
    /// is left.
    pub(crate) fn release(&mut self, most: usize) -> bool {
        match (&mut self.burst, &mut self.slot) {
            (Some(burst), Some(slot)) => burst.release(&mut slot.sink, most),
            _ => false,
        }
    }
}
