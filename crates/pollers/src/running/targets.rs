//! The loops of all targets, as the description files have them.

use super::target_loop::{Shared, follow};
use crate::descriptions::{Description, Target};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The running loops.
pub(super) struct Targets {
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    /// The entries that each loop follows. Without its sender, a loop ends.
    entries: HashMap<Arc<Target>, watch::Sender<Vec<Arc<Description>>>>,
    loops: JoinSet<()>,
    /// Whether the poller starts.
    is_start: bool,
}

impl Targets {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (end, _) = watch::channel(false);
        Self { shared, end, entries: HashMap::new(), loops: JoinSet::new(), is_start: true }
    }

    /// Replaces the targets and their entries.
    pub(super) fn set(&mut self, targets: BTreeMap<Arc<Target>, Vec<Arc<Description>>>) {
        self.entries.retain(|target, _| targets.contains_key(target));
        for (target, descriptions) in targets {
            // A loop that panicked receives nothing, and starts again.
            let running = self.entries.get(&target).filter(|entries| !entries.is_closed());
            if let Some(entries) = running {
                entries.send_if_modified(|before| {
                    let is_same = is_same(before, &descriptions);
                    *before = descriptions;
                    !is_same
                });
                continue;
            }
            let (entries, receiver) = watch::channel(descriptions);
            let shared = Arc::clone(&self.shared);
            let start = (Arc::clone(&target), self.is_start);
            self.loops.spawn(follow(start, receiver, shared, self.end.subscribe()));
            self.entries.insert(target, entries);
        }
        self.is_start = false;
    }

    /// Waits without end. A loop that panics is logged: its target is not polled until the files are read again.
    pub(super) async fn report_panics(&mut self) {
        loop {
            match self.loops.join_next().await {
                Some(Err(error)) => log::error!("a target is not polled any more: {error}"),
                Some(Ok(())) => {}
                None => std::future::pending().await,
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
