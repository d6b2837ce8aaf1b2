//! Sends time ranges again: those that were requested, and after a broken connection what the receiver may have lost.
//!
//! A range is read from the store and sent through a second instance of the output, one portion at a time, so it delays the
//! slices of the follower by one portion at most, and never changes its position. An error begins again at the last portion
//! that was noted, as a restart does.

use crate::delivering::fills::Fill;
use crate::delivering::last_of_window::LastOfWindow;
use crate::delivering::selection::Selection;
use crate::delivering::sent::Sent;
use crate::delivering::worker::{FIRST_PAUSE, ROWS_MAX, Worker, of_store, seed};
use crate::files::make;
use crate::portion::{Portion, slice_of};
use crate::spec::{FillTimes, Output, RejectedItem, WriteError};
use delivery::Backoff;
use model::{JobKey, Timestamp};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;
use storage::{FollowMark, JobSelector, Selector, TimeSlice};

/// Samples after a range that end its last window: those of at most this time later than one window.
const AFTER_WINDOW_US: i64 = 60 * Timestamp::SECOND;

/// Longest pause after an error.
const PAUSE_MAX_US: i64 = 60 * Timestamp::SECOND;

/// Sends the ranges of an output, one after the other.
pub(super) struct Filling<'a> {
    worker: &'a Worker,
    run: Option<Run<'a>>,
    /// The break that is being repaired, and the ranges that remain of it.
    repair: Option<(u64, VecDeque<(i64, i64)>)>,
    backoff: Backoff,
    /// After an error, when it tries again.
    pause_until: Option<Timestamp>,
    /// What the receiver rejected of the last portion.
    rejected: Vec<RejectedItem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Request,
    Break,
}

/// A range that is being sent.
struct Run<'a> {
    worker: &'a Worker,
    cause: Cause,
    times: FillTimes,
    job: Option<JobKey>,
    next: i64,
    portions: u64,
    output: Box<dyn Output>,
    selection: Selection,
    windows: Option<LastOfWindow>,
    folder: PathBuf,
}

impl<'a> Filling<'a> {
    pub(super) fn new(worker: &'a Worker) -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, seed(&worker.config.name));
        let rejected = Vec::new();
        Self { worker, run: None, repair: None, backoff, pause_until: None, rejected }
    }

    /// What the receiver rejected since the last call, with a mark of the range.
    pub(super) fn take_rejected(&mut self) -> Option<(FollowMark, Vec<RejectedItem>)> {
        let mark = self.run.as_ref().map_or((0, 0), |run| (run.times.requested.0, run.portions));
        let mark = FollowMark { begun: mark.0, confirmed: mark.1 };
        let rejected = std::mem::take(&mut self.rejected);
        (!rejected.is_empty()).then_some((mark, rejected))
    }

    /// Sends one portion, if a range waits. Returns whether it sent one. An error delays only the ranges.
    pub(super) fn step(&mut self, sent: Option<&mut Sent>) -> bool {
        let now = (self.worker.clock)();
        // A pause has at most this length: more is a clock that was set back.
        let is_pause = |until: Timestamp| (1..=PAUSE_MAX_US).contains(&until.since(now));
        if self.pause_until.is_some_and(is_pause) {
            return false;
        }
        let step = catch_unwind(AssertUnwindSafe(|| self.send_next(sent)));
        let fault = || Err(WriteError::new("a fault of the program (see the log)"));
        self.worker.progress.lock().writing = None;
        match step.unwrap_or_else(|_| fault()) {
            Ok(is_sent) => {
                self.backoff.reset();
                self.pause_until = None;
                is_sent
            }
            Err(error) => {
                let is_request = self.run.as_ref().is_none_or(|run| run.cause == Cause::Request);
                let is_new = is_request && self.worker.fills.lock().wait(&error.why);
                if is_new {
                    let name = &self.worker.config.name;
                    log::warn!("output `{name}`: sending a time range again waits: {}", error.why);
                }
                (self.run, self.repair) = (None, None);
                self.pause_until = Some(now.plus(micros(self.backoff.failed(error.after))));
                false
            }
        }
    }

    fn send_next(&mut self, mut sent: Option<&mut Sent>) -> Result<bool, WriteError> {
        if self.run.is_none() {
            self.run = self.begin(sent.as_deref_mut())?;
        }
        let Some(run) = &mut self.run else { return Ok(false) };
        let has_broken = run.output.has_broken();
        if let Some(sent) = sent.as_deref_mut().filter(|_| has_broken) {
            sent.note_break();
        }
        if !run.is_finished() {
            let written = run.send_portion(sent.as_deref_mut());
            self.rejected.extend(run.output.take_rejected());
            let has_broken = run.output.has_broken();
            if let Some(sent) = sent.filter(|_| has_broken) {
                sent.note_break();
            }
            return written.map(|()| true);
        }
        let run = self.run.take();
        match (run.map(|run| run.end()), &mut self.repair, sent) {
            (Some(Cause::Request), ..) => {
                let now = (self.worker.clock)();
                self.worker.fills.lock().end(None, now).map_err(self.failed())?;
            }
            (Some(Cause::Break), Some((number, left)), Some(sent)) if left.is_empty() => {
                sent.repair(*number);
                self.repair = None;
                log::info!(
                    "output `{}` has sent again what was sent before its connection broke",
                    self.worker.config.name
                );
            }
            _ => {}
        }
        Ok(true)
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> WriteError {
        WriteError::at(&self.worker.folder)
    }

    /// Begins the next range: after a break, what may be lost; otherwise what was requested first.
    fn begin(&mut self, sent: Option<&mut Sent>) -> Result<Option<Run<'a>>, WriteError> {
        if let Some((number, sent)) = sent.and_then(|sent| Some((sent.pending()?, sent))) {
            let ranges = || sent.ranges().into();
            let (_, left) = self.repair.get_or_insert_with(|| (number, ranges()));
            if let Some((from, to)) = left.pop_front() {
                return self.repair_range(from, to).map(Some);
            }
        }
        let mut fills = self.worker.fills.lock();
        let Some(fill) = fills.first().map_err(self.failed())? else { return Ok(None) };
        drop(fills);
        match (self.worker.spec.fill)(&self.worker.config) {
            Ok(_) => {
                let Fill { next, portions, .. } = fill;
                let range = (fill.times(), fill.job());
                Run::begin(self.worker, Cause::Request, range, (next, portions)).map(Some)
            }
            Err(why) => {
                let now = (self.worker.clock)();
                self.worker.fills.lock().end(Some(why), now).map_err(self.failed())?;
                Ok(None)
            }
        }
    }

    fn repair_range(&self, from: i64, to: i64) -> Result<Run<'a>, WriteError> {
        let requested = (self.worker.clock)();
        let window =
            self.worker.window_us().map_or(0, |window| window.saturating_add(AFTER_WINDOW_US));
        let to = to.saturating_add(window).min(requested.0);
        let times = FillTimes { from: Timestamp(from), to: Timestamp(to), requested };
        Run::begin(self.worker, Cause::Break, (times, None), (from, 0))
    }
}

impl<'a> Run<'a> {
    fn begin(
        worker: &'a Worker,
        cause: Cause,
        (times, job): (FillTimes, Option<JobKey>),
        (next, portions): (i64, u64),
    ) -> Result<Self, WriteError> {
        let config = &worker.config;
        let name = match cause {
            Cause::Request => "fill",
            Cause::Break => "resend",
        };
        let folder = worker.folder.join(name);
        if portions == 0 {
            remove(&folder).map_err(WriteError::at(&folder))?;
        }
        make(&folder).map_err(WriteError::at(&folder))?;
        let open = (worker.spec.fill)(config).map_err(WriteError::new)?;
        let output = open(config, &folder, times)?;
        let windows = LastOfWindow::of_config(worker.window_us(), &folder);
        let selection = Selection::new(config.clone());
        let mut run =
            Self { worker, cause, times, job, next, portions, output, selection, windows, folder };
        let selector = run.selector();
        let before = Timestamp(next);
        observe_before(worker, &mut *run.output, (&mut run.selection, &selector), before)?;
        Ok(run)
    }

    fn selector(&self) -> Selector {
        let job = self.job.clone().map_or(JobSelector::Any, JobSelector::Is);
        Selector { job, ..Selector::default() }
    }

    /// Whether all its samples are sent. The instant after the last one stands for the samples that wait for their window.
    const fn is_finished(&self) -> bool {
        self.next > self.times.to.0.saturating_add(1)
    }

    /// Reads the next portion from the store, and sends it.
    fn send_portion(&mut self, sent: Option<&mut Sent>) -> Result<(), WriteError> {
        let worker = self.worker;
        let now = (worker.clock)();
        let (samples, next) = self.read()?;
        let mark = FollowMark { begun: self.times.requested.0, confirmed: self.portions };
        let mut samples = self.selection.select(samples);
        if let Some(windows) = &mut self.windows {
            // A window at the end of a requested range has its last sample there; others are not over.
            let is_over = self.cause == Cause::Request && next > self.times.to.0.saturating_add(1);
            let ended = is_over.then_some(Timestamp(i64::MAX));
            let taken = windows.take(&samples, mark, (ended, now));
            samples = taken.map_err(WriteError::at(&self.folder))?;
        }
        let mut gaps = Vec::new();
        if self.cause == Cause::Request && self.portions == 0 && self.job.is_none() {
            gaps = worker.store.gaps(self.times.from, self.times.to, None);
            gaps.retain(|gap| self.selection.has_device(&gap.device));
        }
        let portion = Portion { mark, samples, records: Vec::new(), gaps, lost: None };
        let count = portion.samples.times.len() as u64;
        if count > 0 || !portion.gaps.is_empty() {
            worker.progress.lock().writing = Some(now);
            let written = self.output.write(&portion);
            worker.progress.lock().writing = None;
            written?;
            note_sent(worker, sent, &portion.samples);
        }
        match self.cause {
            Cause::Request => {
                let noted = worker.fills.lock().advance(next, count);
                noted.map_err(WriteError::at(&worker.folder))?;
            }
            Cause::Break => worker.progress.lock().resent += count,
        }
        (self.next, self.portions) = (next, self.portions + 1);
        Ok(())
    }

    /// The next samples of the store, and the first instant after them.
    fn read(&self) -> Result<(TimeSlice, i64), WriteError> {
        let to = self.times.to;
        let after = to.0.saturating_add(1);
        let empty = || slice_of(std::iter::empty());
        if self.next > to.0 {
            return Ok((empty(), after.saturating_add(1)));
        }
        let snapshot = self.worker.store.snapshot();
        let mut slices =
            snapshot.scan_by_time(&self.selector(), Timestamp(self.next), to, ROWS_MAX);
        match slices.next() {
            None => Ok((empty(), after)),
            Some(slice) => {
                let slice = slice.map_err(|error| of_store(error.into()))?;
                let next = slice.times.last().map_or(after, |last| last.saturating_add(1));
                Ok((slice, next))
            }
        }
    }

    /// Removes what only this range needed.
    fn end(self) -> Cause {
        if let Err(error) = remove(&self.folder) {
            log::warn!("{}: {error}", self.folder.display());
        }
        self.cause
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn remove(folder: &std::path::Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Notes samples that were sent. A file that cannot be written only makes a restart send less again.
pub(super) fn note_sent(worker: &Worker, sent: Option<&mut Sent>, samples: &TimeSlice) {
    let Some(sent) = sent else { return };
    if let Err(error) = sent.note(&samples.times, (worker.clock)()) {
        log::warn!("{}: {error}", worker.folder.display());
    }
}

/// Lets an output observe the samples before its first one, if it needs them.
///
/// # Errors
/// The store cannot read them.
pub(super) fn observe_before(
    worker: &Worker,
    output: &mut dyn Output,
    (selection, selector): (&mut Selection, &Selector),
    first: Timestamp,
) -> Result<(), WriteError> {
    let lead = micros(output.lead());
    if lead == 0 {
        return Ok(());
    }
    let from = Timestamp(first.0.saturating_sub(lead));
    let to = Timestamp(first.0.saturating_sub(1));
    for slice in worker.store.snapshot().scan_by_time(selector, from, to, ROWS_MAX) {
        let slice = slice.map_err(|error| of_store(error.into()))?;
        output.observe(&selection.select(slice));
    }
    Ok(())
}
