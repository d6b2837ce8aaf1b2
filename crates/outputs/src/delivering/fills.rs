//! The time ranges that an output sends again on request, in a file of its folder: a restart continues them.

use crate::files::{make, read_if_there, replace_durably};
use crate::row::read_job;
use crate::spec::FillTimes;
use model::{JobKey, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

/// Most ranges of an output that wait or run.
pub const FILLS_MAX: usize = 16;
/// The file.
const FILE: &str = "fills.json";

/// A time range that an output sends again, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillStatus {
    /// Its first instant.
    pub from: Timestamp,
    /// Its last instant.
    pub to: Timestamp,
    /// Only samples of this job.
    pub job: Option<JobKey>,
    /// When it was requested. No two ranges of an output have the same time, so it identifies the range.
    pub requested: Timestamp,
    /// Whether it runs.
    pub state: FillState,
    /// The samples that were sent so far, after the output's selection.
    pub samples: u64,
    /// All samples up to this instant are sent.
    pub sent_to: Option<Timestamp>,
}

/// Whether a range runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillState {
    /// It waits for earlier ranges.
    Queued,
    /// It is being sent.
    Running,
    /// It waits for the receiver or the store, for this reason, and continues by itself.
    Waiting(String),
    /// All of it is sent, at this time.
    Done(Timestamp),
    /// It ended for this reason, because the output was configured otherwise meanwhile.
    Failed(String),
}

/// Why a range is not sent.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// No output of this name is configured.
    #[error("there is no output `{0}`; `jobmeter outputs` lists them")]
    Unknown(String),
    /// The output cannot send a range, for this reason.
    #[error("output `{0}` cannot send a time range again: {1}")]
    Unsupported(Box<str>, &'static str),
    /// The range ends before it begins, or begins later than now.
    #[error("the time range is empty: it must end after it begins, and begin before now")]
    Empty,
    /// Too many ranges wait.
    #[error("{FILLS_MAX} time ranges of this output wait already; `jobmeter outputs` shows them")]
    TooMany,
    /// The file of the ranges cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
}

/// A range as the file has it. Times are in microseconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Fill {
    requested: i64,
    from: i64,
    to: i64,
    job: Option<String>,
    /// The first instant that is not sent; later than `to` after the last one.
    pub(super) next: i64,
    /// The portions of it that were written.
    pub(super) portions: u64,
    samples: u64,
    ended: Option<i64>,
    failure: Option<String>,
}

impl Fill {
    pub(super) fn times(&self) -> FillTimes {
        let [from, to, requested] = [self.from, self.to, self.requested].map(Timestamp);
        FillTimes { from, to, requested }
    }

    pub(super) fn job(&self) -> Option<JobKey> {
        self.job.as_deref().and_then(read_job)
    }

    fn status(&self, state: FillState) -> FillStatus {
        let FillTimes { from, to, requested } = self.times();
        let sent_to = (self.next > self.from).then(|| Timestamp(self.to.min(self.next - 1)));
        FillStatus { from, to, job: self.job(), requested, state, samples: self.samples, sent_to }
    }
}

/// What the file has.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    /// The first one is the present one.
    queue: VecDeque<Fill>,
    /// The one that ended last.
    ended: Option<Fill>,
}

/// The ranges of an output.
#[derive(Debug)]
pub(super) struct Fills {
    folder: PathBuf,
    /// `None`: the file was not read yet.
    kept: Option<Kept>,
    /// What the first one does.
    is_running: bool,
    waits: Option<String>,
}

impl Fills {
    /// Those of an output with this folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, kept: None, is_running: false, waits: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Reads the file once. A damaged one is an error until it is deleted.
    fn kept(&mut self) -> io::Result<&mut Kept> {
        if self.kept.is_none() {
            let damaged = |error| io::Error::other(format!("it is damaged ({error}); delete it"));
            let read = match read_if_there(&self.path())? {
                Some(bytes) => serde_json::from_slice(&bytes).map_err(damaged)?,
                None => Kept::default(),
            };
            self.kept = Some(read);
        }
        Ok(self.kept.get_or_insert_default())
    }

    /// Changes what is kept. If it cannot be written, nothing is changed.
    fn change(&mut self, change: impl FnOnce(&mut Kept)) -> io::Result<()> {
        let kept = self.kept()?;
        let mut new = Kept { queue: kept.queue.clone(), ended: kept.ended.clone() };
        change(&mut new);
        make(&self.folder)?;
        replace_durably(&self.path(), &serde_json::to_vec(&new)?)?;
        self.kept = Some(new);
        Ok(())
    }

    /// Adds a range, durably.
    pub(super) fn add(
        &mut self,
        (from, to): (Timestamp, Timestamp),
        job: Option<&JobKey>,
        now: Timestamp,
    ) -> Result<FillStatus, FillError> {
        let to = to.min(now);
        if from > to {
            return Err(FillError::Empty);
        }
        let path = self.path();
        let failed = |error| FillError::File(path.clone(), error);
        let kept = self.kept().map_err(failed)?;
        if kept.queue.len() >= FILLS_MAX {
            return Err(FillError::TooMany);
        }
        let last = kept.queue.back().or(kept.ended.as_ref()).map_or(i64::MIN, |one| one.requested);
        // Whole seconds, as in the names of files.
        let second = now.0.div_euclid(Timestamp::SECOND).saturating_mul(Timestamp::SECOND);
        let fill = Fill {
            requested: second.max(last.saturating_add(Timestamp::SECOND)),
            from: from.0,
            to: to.0,
            job: job.map(JobKey::to_string),
            next: from.0,
            portions: 0,
            samples: 0,
            ended: None,
            failure: None,
        };
        let status = fill.status(FillState::Queued);
        self.change(|kept| kept.queue.push_back(fill)).map_err(failed)?;
        Ok(status)
    }

    /// The present range, which runs from now on.
    pub(super) fn first(&mut self) -> io::Result<Option<Fill>> {
        let first = self.kept()?.queue.front().cloned();
        self.is_running = first.is_some();
        Ok(first)
    }

    /// Notes durably that a portion of the present range was written.
    pub(super) fn advance(&mut self, next: i64, samples: u64) -> io::Result<()> {
        self.waits = None;
        self.change(|kept| {
            if let Some(first) = kept.queue.front_mut() {
                first.next = next;
                first.portions += 1;
                first.samples += samples;
            }
        })
    }

    /// Notes durably that the present range ended, possibly with a failure.
    pub(super) fn end(&mut self, failure: Option<&str>, now: Timestamp) -> io::Result<()> {
        (self.is_running, self.waits) = (false, None);
        self.change(|kept| {
            if let Some(mut first) = kept.queue.pop_front() {
                (first.ended, first.failure) = (Some(now.0), failure.map(str::to_owned));
                kept.ended = Some(first);
            }
        })
    }

    /// Notes why the present range waits. Returns whether that is new.
    pub(super) fn wait(&mut self, why: &str) -> bool {
        self.waits.replace(why.to_owned()).is_none_or(|before| before != why)
    }

    /// The range that ended last, then those that wait or run, in their order.
    pub(super) fn status(&mut self) -> Vec<FillStatus> {
        let (is_running, waits) = (self.is_running, self.waits.clone());
        let Ok(kept) = self.kept() else { return Vec::new() };
        let ended = kept.ended.iter().map(|fill| {
            fill.status(match &fill.failure {
                Some(why) => FillState::Failed(why.clone()),
                None => FillState::Done(Timestamp(fill.ended.unwrap_or_default())),
            })
        });
        let queue = kept.queue.iter().enumerate().map(|(place, fill)| {
            fill.status(match &waits {
                Some(why) if place == 0 => FillState::Waiting(why.clone()),
                None if place == 0 && is_running => FillState::Running,
                _ => FillState::Queued,
            })
        });
        ended.chain(queue).collect()
    }
}
