//! The loops of all targets, as the description files have them.

use super::target_loop::{LoopStart, Shared, follow};
use crate::descriptions::{Description, Target};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

/// Time from a panic of a loop to its next start.
const RESTART_DELAY: Duration = Duration::from_secs(10);

/// A running loop.
struct RunningLoop {
    /// The entries that it follows. Without their sender, a loop ends.
    entries: watch::Sender<Vec<Arc<Description>>>,
    /// The instant of its latest exchange, in microseconds.
    polled: Arc<AtomicI64>,
}

/// The running loops.
pub(super) struct Targets {
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    running: HashMap<Arc<Target>, RunningLoop>,
    loops: JoinSet<()>,
    /// The targets of the loops.
    tasks: HashMap<Id, Arc<Target>>,
    /// Whether the poller starts.
    is_start: bool,
}

impl Targets {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (end, _) = watch::channel(false);
        let (running, tasks) = (HashMap::new(), HashMap::new());
        Self { shared, end, running, loops: JoinSet::new(), tasks, is_start: true }
    }

    /// Replaces the targets and their entries.
    pub(super) fn set(&mut self, targets: BTreeMap<Arc<Target>, Vec<Arc<Description>>>) {
        self.running.retain(|target, _| targets.contains_key(target));
        for (target, descriptions) in targets {
            if let Some(RunningLoop { entries, .. }) = self.running.get(&target) {
                entries.send_if_modified(|before| {
                    let is_same = is_same(before, &descriptions);
                    *before = descriptions;
                    !is_same
                });
                continue;
            }
            let (entries, _) = watch::channel(descriptions);
            let running = RunningLoop { entries, polled: Arc::default() };
            self.running.insert(Arc::clone(&target), running);
            self.spawn(target, Duration::ZERO);
        }
        self.is_start = false;
    }

    /// Starts a loop, after a panic with a delay.
    fn spawn(&mut self, target: Arc<Target>, delay: Duration) {
        let Some(RunningLoop { entries, polled }) = self.running.get(&target) else { return };
        // The target was removed and is described again.
        if entries.receiver_count() > 0 {
            return;
        }
        let start = LoopStart {
            target: Arc::clone(&target),
            is_first: self.is_start,
            polled: Arc::clone(polled),
        };
        let (entries, shared) = (entries.subscribe(), Arc::clone(&self.shared));
        let end = self.end.subscribe();
        let task = self.loops.spawn(async move {
            let mut ended = end.clone();
            tokio::select! {
                _ = ended.changed() => {}
                () = tokio::time::sleep(delay) => follow(start, entries, shared, end).await,
            }
        });
        self.tasks.insert(task.id(), target);
    }

    /// Waits without end. A loop that panics is logged, and starts again.
    pub(super) async fn restart_after_panics(&mut self) {
        loop {
            let (id, error) = match self.loops.join_next_with_id().await {
                Some(Ok((id, ()))) => (id, None),
                Some(Err(error)) => (error.id(), Some(error)),
                None => std::future::pending().await,
            };
            if let (Some(target), Some(error)) = (self.tasks.remove(&id), error) {
                log::error!("{target}: its polls failed, and start again: {error}");
                self.spawn(target, RESTART_DELAY);
            }
        }
    }

    /// Ends all loops.
    pub(super) async fn end(mut self) {
        self.end.send_replace(true);
        while self.loops.join_next().await.is_some() {}
    }
}

fn is_same(before: &[Arc<Description>], after: &[Arc<Description>]) -> bool {
    before.len() == after.len()
        && before
            .iter()
            .zip(after)
            .all(|(one, other)| Arc::ptr_eq(one, other) || one.is_like(other))
}
