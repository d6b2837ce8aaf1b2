//! Jobs that came and jobs that ended, between two looks for them: what each asks for by its environment, and who is
//! told of the end.

use super::{Sampler, Step};
use crate::jobs::env_scanner::{Looked, Looking};
use crate::reading::plan::Plan;
use crate::reading::source_state::Entry;
use crate::reading::work::Task;
use std::sync::Arc;

impl Sampler {
    /// Reads what jobs ask for, if the plan says so.
    pub(super) fn with_wishes(mut self, plan: &Plan) -> Self {
        self.wishes.set(plan.environments, &self.jobs, self.clock.steady_us());
        self
    }

    /// The next look at what a job asks for, after what is due of everything else.
    pub(super) fn next_look(&mut self, steady_us: i64) -> Option<Step> {
        let key = self.wishes.next(steady_us)?;
        let (jobs, machine) = (Arc::clone(&self.jobs), Arc::clone(&self.machine));
        self.run(None, steady_us);
        Some(Step::Look(Looking { key, jobs, machine, device: self.own.device().clone() }))
    }

    /// Takes back what a job asks for.
    pub(crate) fn looked(&mut self, looked: Looked, generation: u64) {
        if generation == self.generation {
            self.running = None;
        }
        self.wishes.take(&looked, self.clock.steady_us());
        if let Some(event) = looked.event {
            self.sealer.notes().put_job(event);
            self.seal_soon();
        }
    }

    /// Once every source was told of the ended jobs, what is there now is looked for again before anything
    /// else is read: a job that got an ended one's number is found then.
    pub(super) fn forget_ended(&mut self) {
        let Some(ended) = &self.ended else { return };
        let waits = |entry: &Entry| {
            entry.enabled && entry.slot.as_ref().is_some_and(|slot| slot.source.is_some())
        };
        if !self.entries.iter().skip(ended.next).any(waits) {
            self.ended = None;
            self.noted = true;
        }
    }

    /// The next source to be told of ended jobs.
    pub(super) fn next_ended(&mut self) -> Option<(usize, Task)> {
        let ended = self.ended.as_mut()?;
        while let Some(entry) = self.entries.get(ended.next) {
            let place = ended.next;
            ended.next += 1;
            let open = entry.slot.as_ref().is_some_and(|slot| slot.source.is_some());
            if entry.enabled && open {
                return Some((place, Task::Ended(Arc::clone(&ended.keys))));
            }
        }
        self.ended = None;
        None
    }
}
