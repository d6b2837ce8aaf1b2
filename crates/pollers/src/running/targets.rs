//! The loops of all targets, as the description files have them.

use super::target_loop::{LoopStart, Shared, TargetEntries, follow};
use crate::descriptions::{Description, Target};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    entries: watch::Sender<TargetEntries>,
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
        let targets: Vec<(Arc<Target>, TargetEntries)> = numbered(targets).collect();
        let described: HashSet<&Target> = targets.iter().map(|(target, _)| &**target).collect();
        let labels: HashSet<(String, usize)> =
            targets.iter().map(|(target, of)| (target.to_string(), of.nth_of_address)).collect();
        self.running.retain(|target, running| {
            let is_described = described.contains(&**target);
            let nth_of_address = running.entries.borrow().nth_of_address;
            // Another user of the same service goes on with the states of its devices.
            if !is_described && !labels.contains(&(target.to_string(), nth_of_address)) {
                let descriptions = Vec::new();
                running.entries.send_replace(TargetEntries { descriptions, nth_of_address });
            }
            is_described
        });
        for (target, entries) in targets {
            if let Some(running) = self.running.get(&target) {
                running.entries.send_if_modified(|before| {
                    let is_same = is_same(before, &entries);
                    *before = entries;
                    !is_same
                });
                continue;
            }
            let (entries, _) = watch::channel(entries);
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

/// The entries of each target, with its number among those of its address, which follow each other.
fn numbered(
    targets: BTreeMap<Arc<Target>, Vec<Arc<Description>>>,
) -> impl Iterator<Item = (Arc<Target>, TargetEntries)> {
    let (mut before, mut nth_of_address): (Option<Arc<Target>>, _) = (None, 0);
    targets.into_iter().map(move |(target, descriptions)| {
        let is_alike = before.as_ref().is_some_and(|before| before.has_address_of(&target));
        nth_of_address = if is_alike { nth_of_address + 1 } else { 0 };
        before = Some(Arc::clone(&target));
        (target, TargetEntries { descriptions, nth_of_address })
    })
}

fn is_same(before: &TargetEntries, after: &TargetEntries) -> bool {
    before.nth_of_address == after.nth_of_address
        && before.descriptions.len() == after.descriptions.len()
        && before
            .descriptions
            .iter()
            .zip(&after.descriptions)
            .all(|(one, other)| Arc::ptr_eq(one, other) || one.is_like(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;

    #[test]
    fn targets_of_one_address_have_numbers() {
        let entry = |url: &str| format!("- {{name: a, device_id: d, url: '{url}/1.3'}}\n");
        let urls = ["snmp://b@sw", "snmp://a@sw", "snmp://a@sw:162", "snmp://c@sw", "snmp://a@sx"];
        let mut targets: BTreeMap<Arc<Target>, Vec<Arc<Description>>> = BTreeMap::new();
        for one in entries_of(&urls.map(entry).concat()) {
            targets.entry(Arc::clone(&one.target)).or_default().push(Arc::new(one));
        }
        let mut found: Vec<_> = numbered(targets)
            .map(|(target, entries)| (target.to_string(), entries.nth_of_address))
            .collect();
        found.sort();
        let (one, other) = ("snmp://sw:161", "snmp://sw:162");
        let expected = [(one, 0), (one, 1), (one, 2), (other, 0), ("snmp://sx:161", 0)];
        assert_eq!(found, expected.map(|(address, nth)| (address.to_owned(), nth)));
    }
}
