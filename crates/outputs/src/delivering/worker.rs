//! The thread of an output: follows the store, writes portions, confirms them.

use crate::delivering::filling::{Filling, note_sent, observe_before};
use crate::delivering::fills::Fills;
use crate::delivering::last_of_window::LastOfWindow;
use crate::delivering::recording::Recording;
use crate::delivering::selection::Selection;
use crate::delivering::sent::Sent;
use crate::delivering::set_aside::SetAside;
use crate::delivering::status::{Lost, Progress};
use crate::delivering::stop::Stop;
use crate::files::{make, read_if_there, replace_durably};
use crate::portion::Portion;
use crate::records::LeftOut;
use crate::spec::{Output, RejectedItem, Spec, WriteError};
use config::{OutputConfig, OutputStart};
use delivery::Backoff;
use model::Timestamp;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::{Clock, FollowError, FollowFrom, FollowMark, Followers, Selector, Storage};

/// Most samples of a portion: bounds the memory of an output.
pub(super) const ROWS_MAX: usize = 50_000;
/// Pause after everything is delivered.
const IDLE: Duration = Duration::from_secs(1);
/// First pause after a failure.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// After everything was delivered, a series that is silent for longer sends nothing more of a window.
const SILENT_US: i64 = 60 * Timestamp::SECOND;
/// The file with lost samples.
const LOST: &str = "lost.json";

/// The thread's data.
pub(super) struct Worker {
    pub(super) config: OutputConfig,
    pub(super) spec: &'static Spec,
    /// The output's own folder.
    pub(super) folder: PathBuf,
    pub(super) store: Arc<dyn Storage>,
    pub(super) clock: Clock,
    pub(super) stop: Arc<Stop>,
    pub(super) progress: Arc<Mutex<Progress>>,
    pub(super) fills: Arc<Mutex<Fills>>,
}

/// What delivers. It begins again after a panic.
struct Delivery<'a> {
    worker: &'a Worker,
    followers: &'a dyn Followers,
    output: Box<dyn Output>,
    selection: Selection,
    last_of_window: Option<LastOfWindow>,
    recording: Option<Recording>,
    /// What a broken connection may lose; `None`: nothing, or nothing is sent again.
    sent: Option<Sent>,
    /// Whether the output has observed the samples before its first ones.
    has_observed: bool,
    /// The slice that is being delivered.
    open: Option<Open>,
    /// When everything was delivered last.
    caught_up: Option<Timestamp>,
    set_aside: SetAside,
    /// Rejected items that are not in the folder yet, with the mark of their slice.
    rejected: Option<(FollowMark, Vec<RejectedItem>)>,
    /// The next and the last file of a retry.
    retry: Option<(u64, u64)>,
}

struct Open {
    number: u64,
    portion: Portion,
    left_out: LeftOut,
    is_written: bool,
}

enum Step {
    Delivered,
    Idle,
}

impl Worker {
    /// Runs until it is asked to stop.
    pub(super) fn run(self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, seed(&self.config.name));
        while !self.stop.is_set() {
            let run = catch_unwind(AssertUnwindSafe(|| self.run_until_failure(&mut backoff)));
            let error = match run {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) => WriteError::new("a fault of the program (see the log); it begins again"),
            };
            self.pause(&error, &mut backoff);
        }
    }

    /// # Errors
    /// The output cannot begin.
    fn run_until_failure(&self, backoff: &mut Backoff) -> Result<(), WriteError> {
        let mut delivery = Delivery::begin(self)?;
        let mut filling = Filling::new(self);
        while !self.stop.is_set() {
            match delivery.step() {
                Ok(step) => {
                    backoff.reset();
                    if let Some(since) = self.progress.lock().work() {
                        log::info!(
                            "output `{}` works again; it waited since {since}",
                            self.config.name
                        );
                    }
                    let has_filled = filling.step(delivery.sent.as_mut());
                    if let Some(rejected) = filling.take_rejected() {
                        delivery.rejected = Some(rejected);
                    }
                    if matches!(step, Step::Idle) && !has_filled {
                        self.stop.wait(IDLE);
                    }
                }
                Err(error) => self.pause(&error, backoff),
            }
        }
        Ok(())
    }

    /// The length of the windows of which each series sends one sample.
    pub(super) fn window_us(&self) -> Option<i64> {
        self.config.every.map(|every| i64::try_from(every.as_micros()).unwrap_or(i64::MAX))
    }

    fn pause(&self, error: &WriteError, backoff: &mut Backoff) {
        let mut progress = self.progress.lock();
        // A panic within a write has ended it.
        progress.writing = None;
        progress.failures += 1;
        let is_new = progress.wait(&error.why, (self.clock)());
        drop(progress);
        if is_new {
            log::warn!("output `{}` waits: {}", self.config.name, error.why);
        }
        self.stop.wait(backoff.failed(error.after));
    }
}

/// A number that differs between outputs and starts.
pub(super) fn seed(name: &str) -> u64 {
    let bytes =
        name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    bytes ^ u64::from(std::process::id()) << 20
}

impl<'a> Delivery<'a> {
    fn begin(worker: &'a Worker) -> Result<Self, WriteError> {
        let Worker { config, folder, store, spec, .. } = worker;
        let no_followers = || WriteError::new("the store has no followers");
        let followers = store.followers().ok_or_else(no_followers)?;
        make(folder).map_err(WriteError::at(folder))?;
        let from = match config.from {
            OutputStart::Now => FollowFrom::Now,
            OutputStart::All => FollowFrom::All,
            OutputStart::Time(at) => FollowFrom::Time(at),
        };
        followers.follow(&config.name, from).map_err(of_store)?;
        worker.progress.lock().lost = read_lost(folder)?;
        let selection = Selection::new(config.clone());
        let output = (spec.open)(config, folder)?;
        let last_of_window = LastOfWindow::of_config(worker.window_us(), folder);
        let layout = (spec.records)(config);
        let recording = layout.map(|layout| Recording::new(layout, &config.name, folder));
        let sent = (spec.resend)(config).map(|keep| Sent::open(keep, folder, (worker.clock)()));
        let sent = sent.transpose().map_err(WriteError::at(folder))?;
        let mut set_aside = SetAside::open(folder).map_err(WriteError::at(folder))?;
        set_aside.show(&mut worker.progress.lock().set_aside);
        Ok(Self {
            worker,
            followers,
            output,
            selection,
            last_of_window,
            recording,
            sent,
            has_observed: false,
            open: None,
            caught_up: None,
            set_aside,
            rejected: None,
            retry: None,
        })
    }

    /// Delivers a slice, or what is left of it.
    fn step(&mut self) -> Result<Step, WriteError> {
        let Worker { config: OutputConfig { name, .. }, folder, .. } = self.worker;
        // Somebody may have deleted it.
        make(folder).map_err(WriteError::at(folder))?;
        self.set_aside_rejected()?;
        self.retry()?;
        if self.open.is_none() {
            self.open = self.next()?;
        }
        self.note_break();
        let Some(open) = &self.open else {
            self.caught_up = Some((self.worker.clock)());
            return Ok(Step::Idle);
        };
        let number = open.number;
        self.write_open()?;
        match self.followers.confirm(name, number) {
            Ok(()) => {}
            Err(error @ (FollowError::Void(_) | FollowError::Unknown(_))) => {
                // It comes again: the output replaces what it has written.
                self.open = None;
                self.forget();
                return Err(of_store(error));
            }
            Err(error) => return Err(of_store(error)),
        }
        if let Some(Open { portion, left_out, .. }) = self.open.take() {
            let values = self.output.left_out();
            self.note_left_out(LeftOut { values, ..left_out });
            self.note(&portion)?;
        }
        Ok(Step::Delivered)
    }

    /// Notes that the connection broke.
    fn note_break(&mut self) {
        let has_broken = self.output.has_broken();
        if let Some(sent) = self.sent.as_mut().filter(|_| has_broken) {
            sent.note_break();
        }
    }

    /// Writes the open slice, if that is not done, and stores what the receiver rejected of it.
    fn write_open(&mut self) -> Result<(), WriteError> {
        let Some(open) = self.open.as_mut().filter(|open| !open.is_written) else { return Ok(()) };
        let samples = &open.portion.samples;
        if let Some(first) = samples.times.first().filter(|_| !self.has_observed) {
            let all = (&mut self.selection, &Selector::default());
            observe_before(self.worker, &mut *self.output, all, Timestamp(*first))?;
            self.has_observed = true;
        }
        let progress = &self.worker.progress;
        progress.lock().writing = Some((self.worker.clock)());
        let written = self.output.write(&open.portion);
        progress.lock().writing = None;
        open.is_written = written.is_ok();
        if open.is_written {
            note_sent(self.worker, self.sent.as_mut(), samples);
        }
        let rejected = self.output.take_rejected();
        if !rejected.is_empty() {
            self.rejected = Some((open.portion.mark, rejected));
        }
        if written.is_err() {
            self.note_break();
        }
        self.set_aside_rejected()?;
        written
    }

    /// Stores what the receiver rejected. Without that, the slice is not confirmed.
    fn set_aside_rejected(&mut self) -> Result<(), WriteError> {
        let Some((mark, items)) = &self.rejected else { return Ok(()) };
        let (name, folder) = (&self.worker.config.name, &self.worker.folder);
        self.set_aside.add(items, *mark).map_err(WriteError::at(folder))?;
        if let Some(item) = items.first() {
            log::warn!(
                "output `{name}`: the receiver rejects {} items, which are set aside; the first: {}",
                items.len(),
                item.message
            );
        }
        self.rejected = None;
        self.set_aside.show(&mut self.worker.progress.lock().set_aside);
        Ok(())
    }

    /// Sends the next file of what is set aside again, if that was requested.
    fn retry(&mut self) -> Result<(), WriteError> {
        if !self.worker.progress.lock().set_aside.is_retrying {
            return Ok(());
        }
        let folder = &self.worker.folder;
        let failed = || WriteError::at(folder);
        // Files that come meanwhile are not part of it, so it ends.
        let (next, last) = self.retry.unwrap_or((0, self.set_aside.last_file()));
        if let Some(number) = self.set_aside.next_file(next, last) {
            let items = self.set_aside.read(number).map_err(failed())?;
            let rejected = self.output.retry(items)?;
            self.set_aside.replace(number, &rejected).map_err(failed())?;
            self.retry = Some((number + 1, last));
        } else {
            self.retry = None;
        }
        let mut progress = self.worker.progress.lock();
        progress.set_aside.is_retrying = self.retry.is_some();
        self.set_aside.show(&mut progress.set_aside);
        Ok(())
    }

    /// Reads the next slice.
    fn next(&mut self) -> Result<Option<Open>, WriteError> {
        let name = &self.worker.config.name;
        let slice = self.followers.next(name, ROWS_MAX).map_err(of_store)?;
        let Some(slice) = slice else { return Ok(None) };
        let mut samples = self.selection.select(slice.samples);
        let now = (self.worker.clock)();
        let ended = self.caught_up.take().map(|at| at.plus(-SILENT_US));
        let failed = || WriteError::at(&self.worker.folder);
        if let Some(windows) = &mut self.last_of_window {
            samples = windows.take(&samples, slice.at, (ended, now)).map_err(failed())?;
        }
        let (mut records, mut left_out) = (Vec::new(), LeftOut::default());
        if let Some(recording) = &mut self.recording {
            match recording.take(&samples, slice.at, (ended, now)) {
                Ok(taken) => (records, left_out) = taken,
                Err(error) => {
                    self.forget();
                    return Err(failed()(error));
                }
            }
        }
        let mut gaps = slice.gaps;
        gaps.retain(|gap| self.selection.has_device(&gap.device));
        let portion = Portion { mark: slice.at, samples, records, gaps, lost: slice.lost };
        Ok(Some(Open { number: slice.number, portion, left_out, is_written: false }))
    }

    /// Forgets what the last slice changed: it comes again.
    fn forget(&mut self) {
        if let Some(windows) = &mut self.last_of_window {
            windows.forget();
        }
        if let Some(recording) = &mut self.recording {
            recording.forget();
        }
    }

    /// Counts samples that no record has. The log has the first of each cause.
    fn note_left_out(&self, left_out: LeftOut) {
        let LeftOut { jobs, limit, values } = left_out;
        let name = &self.worker.config.name;
        let mut progress = self.worker.progress.lock();
        if jobs > 0 && progress.left_out.jobs == 0 {
            log::warn!("output `{name}` leaves out samples of jobs of other clusters");
        }
        if limit > 0 && progress.left_out.limit == 0 {
            log::warn!(
                "output `{name}` leaves out samples: too many devices, jobs and counters for one output; select fewer"
            );
        }
        if values > 0 && progress.left_out.values == 0 {
            log::warn!(
                "output `{name}` leaves out what its receiver cannot take: values that are no numbers, or names that are too long"
            );
        }
        progress.left_out.values += values;
        progress.left_out.jobs += jobs;
        progress.left_out.limit += limit;
    }

    /// Counts a delivered portion.
    fn note(&self, portion: &Portion) -> Result<(), WriteError> {
        let mut progress = self.worker.progress.lock();
        progress.samples += portion.samples.times.len() as u64;
        let newest = portion.samples.times.last().map(|at| Timestamp(*at));
        progress.newest = progress.newest.max(newest);
        let Some(lost) = &portion.lost else { return Ok(()) };
        log::warn!(
            "output `{}` lost {} samples between {} and {}: {}",
            self.worker.config.name,
            lost.samples,
            lost.from,
            lost.to,
            lost.why
        );
        progress.lost.add(lost);
        let path = self.worker.folder.join(LOST);
        let bytes = serde_json::to_vec(&progress.lost).map_err(io::Error::other);
        bytes.and_then(|bytes| replace_durably(&path, &bytes)).map_err(WriteError::at(&path))
    }
}

pub(super) fn of_store(error: FollowError) -> WriteError {
    WriteError::new(format!("the store: {error}"))
}

/// What an earlier start lost. A damaged file is only logged: it tells nothing about samples to come.
fn read_lost(folder: &std::path::Path) -> Result<Lost, WriteError> {
    let path = folder.join(LOST);
    let Some(bytes) = read_if_there(&path).map_err(WriteError::at(&path))? else {
        return Ok(Lost::default());
    };
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        log::warn!("{}: {error}; counting lost samples from 0", path.display());
        Lost::default()
    }))
}
