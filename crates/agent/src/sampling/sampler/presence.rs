//! When jobs are looked at whose last process ends without a word of the kernel: those of version 1 of the
//! cgroups. Where a source hears of the ends of tasks, they are looked at when there was one; else ten times a
//! second.

use super::Sampler;
use crate::jobs::finder::Finder;
use crate::reading::source_state::Entry;
use model::Timestamp;

/// Looks after a word of an end: the kernel gives it before the task has left its cgroup.
const LOOKS: u8 = 2;

/// How the ends of such jobs are seen.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Between two looks, in microseconds; `None`: no job needs them.
    every_us: Option<i64>,
    left: u8,
}

impl Sampler {
    /// The finder came back, or a source did that may hear of ends now, or no longer.
    pub(super) fn plan_finds(&mut self) {
        let Some(finder) = &self.finder else { return };
        let hears = self.entries.iter().any(Entry::hears);
        let every = finder.every(self.period, hears);
        self.presence.every_us = presence_us(finder).filter(|_| hears);
        if self.finds.period_us() != super::micros(every) {
            self.finds.change(every, self.clock.wall());
        }
        if self.presence.left > 0 {
            self.presence.left -= 1;
            self.look_soon();
        }
    }

    /// A task ended, perhaps a job's last.
    pub(super) fn heard_of_end(&mut self) {
        self.presence.left = LOOKS - 1;
        self.look_soon();
    }

    /// At the next instant at which other things wake too.
    fn look_soon(&mut self) {
        let Some(every_us) = self.presence.every_us else { return };
        let now = self.clock.wall();
        let at = Timestamp(now.0 - now.0.rem_euclid(every_us)).plus(every_us);
        if at < self.finds.due() {
            self.finds.force(at);
        }
    }
}

fn presence_us(finder: &Finder) -> Option<i64> {
    finder.presence().map(super::micros).filter(|us| *us > 0)
}
