//! The running outputs of a server.

use crate::delivering::fills::{FillError, FillStatus, Fills};
use crate::delivering::set_aside::SetAsideStatus;
use crate::delivering::status::{OutputStatus, Progress};
use crate::delivering::stop::Stop;
use crate::delivering::worker::Worker;
use crate::list::spec_of;
use crate::spec::Spec;
use config::OutputConfig;
use model::{JobKey, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use storage::{Clock, Storage};

/// How long a change waits for the end of a write before it goes on; the next thread of the output waits longer.
const END_TIME: Duration = Duration::from_secs(5);

/// The outputs of a server.
pub struct Outputs {
    store: Arc<dyn Storage>,
    /// The folder with a folder for each output.
    folder: PathBuf,
    clock: Clock,
    /// Held by a change, which may wait.
    changing: Mutex<()>,
    running: Mutex<BTreeMap<Box<str>, Running>>,
}

struct Running {
    config: OutputConfig,
    spec: &'static Spec,
    stop: Arc<Stop>,
    progress: Arc<Mutex<Progress>>,
    fills: Arc<Mutex<Fills>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Outputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outputs").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Outputs {
    /// No output yet. `folder` keeps what must outlive the program.
    pub fn new(store: Arc<dyn Storage>, folder: PathBuf, clock: Clock) -> Self {
        Self { store, folder, clock, changing: Mutex::default(), running: Mutex::default() }
    }

    /// Runs exactly these outputs. One with an unchanged configuration is not disturbed; a changed one continues at its
    /// position. The position of one that is not among them is kept for 7 days.
    pub fn apply(&self, configs: &[OutputConfig]) {
        let _change = self.changing.lock();
        let mut running = self.running.lock();
        let changed = running.extract_if(.., |_, one| !configs.contains(&one.config));
        let mut earlier: BTreeMap<Box<str>, Running> = changed.collect();
        drop(running);
        earlier.values().for_each(|one| one.stop.set());
        wait_for(earlier.values().filter_map(|one| one.thread.as_ref()), END_TIME);
        let names: BTreeSet<&str> = configs.iter().map(|config| &*config.name).collect();
        self.remove_others(&names);
        for config in configs {
            if self.running.lock().contains_key(&config.name) {
                continue;
            }
            let before = earlier.remove(&config.name);
            if let Some(one) = self.start(config, before) {
                self.running.lock().insert(config.name.clone(), one);
            }
        }
    }

    /// Removes the followers of outputs that are not configured.
    fn remove_others(&self, names: &BTreeSet<&str>) {
        let Some(followers) = self.store.followers() else { return };
        let known = match followers.list() {
            Ok(known) => known,
            Err(error) => return log::error!("the positions of outputs: {error}"),
        };
        let others =
            known.iter().filter(|one| one.removed.is_none() && !names.contains(&*one.name));
        for one in others {
            match followers.remove(&one.name) {
                Ok(()) => {
                    log::info!("output `{}` is removed; its position is kept for 7 days", one.name)
                }
                Err(error) => log::error!("removing output `{}`: {error}", one.name),
            }
        }
    }

    /// Starts an output once its earlier thread has ended, and goes on counting.
    fn start(&self, config: &OutputConfig, before: Option<Running>) -> Option<Running> {
        let spec = spec_of(config)?;
        let folder = self.folder.join(&*config.name);
        let (progress, fills, before) = match before {
            Some(before) => (before.progress, before.fills, before.thread),
            None => (Arc::default(), Arc::new(Mutex::new(Fills::new(folder.clone()))), None),
        };
        let stop = Arc::<Stop>::default();
        let worker = Worker {
            config: config.clone(),
            spec,
            folder,
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            stop: Arc::clone(&stop),
            progress: Arc::clone(&progress),
            fills: Arc::clone(&fills),
        };
        let clock = Arc::clone(&self.clock);
        let shown = Arc::clone(&progress);
        let run = move || {
            if let Some(before) = before {
                if !before.is_finished() {
                    let why = "its last write, with the earlier settings, has not ended";
                    shown.lock().wait(why, clock());
                }
                // A panic has ended it, too.
                before.join().ok();
            }
            worker.run();
        };
        match std::thread::Builder::new().name("output".to_owned()).spawn(run) {
            Ok(thread) => {
                let (config, thread) = (config.clone(), Some(thread));
                Some(Running { config, spec, stop, progress, fills, thread })
            }
            Err(error) => {
                log::error!("output `{}`: no thread: {error}", config.name);
                None
            }
        }
    }

    /// Queues a time range (bounds inclusive) that an output sends again from what the store has then, through its selection,
    /// besides its slices and without a change of its position. With a job, only samples of that job. A range that ends later
    /// than now ends now. Samples that a receiver has already come twice; the output `file` writes each range to a new
    /// file, `PATH.fill-FROM-TO.REQUESTED`, with the times in UTC as `20260101T000000Z`.
    ///
    /// Returns at once, after the range is on the disk: a restart continues it. [`Self::status`] shows how far it is. The
    /// range of an output that is removed continues when the output is configured again.
    ///
    /// # Errors
    /// No such output runs, its kind or its options do not permit it, the range is empty, [`crate::FILLS_MAX`] ranges
    /// wait, or the file of ranges cannot be written.
    pub fn fill(
        &self,
        name: &str,
        (from, to): (Timestamp, Timestamp),
        job: Option<&JobKey>,
    ) -> Result<FillStatus, FillError> {
        let running = self.running.lock();
        let one = running.get(name).ok_or_else(|| FillError::Unknown(name.to_owned()))?;
        let unsupported = |why| FillError::Unsupported(name.into(), why);
        (one.spec.fill)(&one.config).map_err(unsupported)?;
        if job.is_some() && !(one.spec.sends_jobs)(&one.config) {
            return Err(unsupported("it sends no samples of jobs"));
        }
        if job.is_some_and(|job| !one.config.jobs.has(Some(job))) {
            return Err(unsupported("its `jobs` does not select this job"));
        }
        let fills = Arc::clone(&one.fills);
        drop(running);
        fills.lock().add((from, to), job, (self.clock)())
    }

    /// The status of each output, ordered by name.
    pub fn status(&self) -> Vec<OutputStatus> {
        let behind: BTreeMap<Box<str>, u64> = self
            .store
            .followers()
            .and_then(|followers| followers.list().ok())
            .map(|list| list.into_iter().map(|one| (one.name, one.behind)).collect())
            .unwrap_or_default();
        let now = (self.clock)();
        let running = self.running.lock();
        let each = running.iter().map(|(name, one)| {
            let progress = one.progress.lock();
            OutputStatus {
                name: name.clone(),
                kind: one.spec.name,
                guarantee: (one.spec.guarantee)(&one.config),
                state: progress.state_at(now),
                behind: behind.get(name).copied(),
                newest: progress.newest,
                samples: progress.samples,
                left_out: progress.left_out.sum(),
                failures: progress.failures,
                samples_lost: progress.lost.samples,
                gaps: progress.lost.gaps(),
                resent: progress.resent,
                fills: one.fills.lock().status(),
                set_aside: progress.set_aside.clone(),
            }
        });
        each.collect()
    }

    /// Whether an output of this name runs.
    pub fn has(&self, name: &str) -> bool {
        self.running.lock().contains_key(name)
    }

    /// Makes an output send again what it has set aside, file by file between its slices: within a second, or when its
    /// present pause ends. What the receiver accepts leaves the folder; the rest remains, with the new message. Returns
    /// what is set aside now; `None`: there is no such output. [`Self::status`] shows the progress: `is_retrying` is true
    /// until all of it was sent once.
    pub fn retry(&self, name: &str) -> Option<SetAsideStatus> {
        let running = self.running.lock();
        let mut progress = running.get(name)?.progress.lock();
        progress.set_aside.is_retrying = true;
        Some(progress.set_aside.clone())
    }

    /// Ends all threads. One that is still writing after this time is left behind.
    pub fn stop(&self, within: Duration) {
        let running = std::mem::take(&mut *self.running.lock());
        running.values().for_each(|one| one.stop.set());
        wait_for(running.values().filter_map(|one| one.thread.as_ref()), within);
        for (name, one) in running {
            if one.thread.is_some_and(|thread| !thread.is_finished()) {
                log::warn!("output `{name}` is still writing; it continues at the next start");
            }
        }
    }
}

/// Waits until threads have ended, at most this long.
fn wait_for<'a>(threads: impl Iterator<Item = &'a JoinHandle<()>> + Clone, time: Duration) {
    const PAUSE: Duration = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    while waited < time && threads.clone().any(|thread| !thread.is_finished()) {
        std::thread::sleep(PAUSE);
        waited += PAUSE;
    }
}
