//! A job or a unit, and the files of its cgroups.

use super::below::Below;
use super::files::{File, Look, Only, Part, Telling};
use cgroups::{Hierarchy, JobDir};
use kernel::{KeptFile, ReadError, Root, cgroup};
use model::Timestamp;
use rustc_hash::FxHasher;
use std::hash::Hasher as _;

/// How long after a cgroup was made its files may still come: a scheduler enables controllers once
/// it is there.
const NEW_US: i64 = 30 * Timestamp::SECOND;

/// How long between two looks at all that is looked at: a second, one of which may begin a little early.
const LOOK_ALL_US: u64 = 900_000;

/// Longest text that is kept from a look: 100 disks of a job.
const LAST_BYTES_MAX: usize = 16 << 10;

/// How many files are kept open, and how many may be.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) kept: usize,
    pub(super) kept_max: usize,
    /// Readings for which a file was opened as no more may be kept.
    pub(super) unkept: u64,
}

/// What reading needs beside the subject.
pub(super) struct Reading<'a> {
    pub(super) root: &'a Root,
    pub(super) now: Timestamp,
    /// It is one of a burst, whose samples are kept back.
    pub(super) is_between: bool,
    /// Which family of version 1's files of transfers counts.
    pub(super) blkio: Option<usize>,
    pub(super) budget: &'a mut Budget,
    pub(super) path: &'a mut String,
    pub(super) text: &'a mut Vec<u8>,
}

/// A job's or unit's files.
#[derive(Debug)]
pub(super) struct Subject {
    created: Timestamp,
    dirs: Vec<JobDir>,
    slots: Vec<Slot>,
    /// Of version 1, kills in the directories below the job's.
    below: Below,
    /// Since when they count, and what had been counted then, of a job that is older than its first reading: what
    /// went with directories that are gone is not known.
    below_since: Option<(Timestamp, u64)>,
    /// Whether they were looked at.
    is_below_known: bool,
    /// When all was looked at last.
    looked: Timestamp,
    last_reading: LastReading,
}

/// What is known of the end of a job: whether everything it used was read before its cgroup went.
#[derive(Debug, Default)]
struct LastReading {
    /// When the first file, which has processor time, was read last; `None`: never.
    at: Option<Timestamp>,
    /// A hash of what that reading found.
    found: u64,
    /// The same hash, of a reading made when the last process had ended.
    complete: Option<u64>,
    /// That file is gone.
    is_gone: bool,
    is_reported: bool,
}

impl LastReading {
    fn take(&mut self, now: Timestamp, text: &[u8]) {
        let mut hasher = FxHasher::default();
        hasher.write(text);
        (self.at, self.found) = (Some(now), hasher.finish());
    }
}

#[derive(Debug)]
struct Slot {
    file: &'static File,
    /// Place in the list of directories.
    dir: usize,
    state: State,
    /// What it said since it was told last, as a look between two readings found it; empty: nothing.
    last: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// To be opened.
    Closed,
    Kept(KeptFile),
    /// Not there.
    Absent,
    /// Its cgroup was removed while it was open: what has its path from now on is another run's.
    Gone,
    /// Closed to us.
    Denied,
}

/// What came of a file.
#[derive(Debug)]
pub(super) enum Outcome {
    Told,
    Absent,
    Denied,
    Broken(String),
}

impl Subject {
    /// The files that a cgroup has by its directories.
    pub(super) fn new(created: Timestamp, dirs: &[JobDir], files: &'static [File]) -> Self {
        let in_hierarchy = |hierarchy| dirs.iter().position(|dir| dir.hierarchy == hierarchy);
        let slot = |file: &'static File| {
            if file.unless.is_some_and(|hierarchy| in_hierarchy(hierarchy).is_some()) {
                return None;
            }
            let dir = file.of.iter().find_map(|hierarchy| in_hierarchy(*hierarchy))?;
            Some(Slot { file, dir, state: State::Closed, last: Vec::new() })
        };
        let slots = files.iter().filter_map(slot).collect();
        Self {
            created,
            dirs: dirs.to_vec(),
            slots,
            below: Below::new(),
            below_since: None,
            is_below_known: false,
            looked: Timestamp(0),
            last_reading: LastReading::default(),
        }
    }

    /// Whether this is the cgroup made then, with these directories or some that have gone since, or all. What was
    /// counted by the files of one hierarchy is not counted on by those of another, which count by another clock.
    pub(super) fn is(&self, created: Timestamp, dirs: &[JobDir]) -> bool {
        self.created == created && dirs.iter().all(|dir| self.dirs.contains(dir))
    }

    /// It has these directories now. What has the path of one that has gone is another run's, and is not read; what
    /// the last look found in it is told.
    pub(super) fn keep_to(&mut self, dirs: &[JobDir], budget: &mut Budget) {
        for slot in &mut self.slots {
            if !self.dirs.get(slot.dir).is_some_and(|dir| dirs.contains(dir)) {
                slot.close(budget, State::Gone);
            }
        }
        self.retry();
    }

    /// Closes its files.
    pub(super) fn close(&mut self, budget: &mut Budget) {
        for slot in &mut self.slots {
            slot.close(budget, State::Closed);
        }
    }

    /// Tries again what was absent or denied.
    fn retry(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot.state, State::Absent | State::Denied) {
                slot.state = State::Closed;
            }
        }
    }

    /// Reads every file and tells what it says; `outcome` is shown what came of each.
    pub(super) fn read(
        &mut self,
        reading: &mut Reading<'_>,
        telling: &mut Telling<'_, '_>,
        mut outcome: impl FnMut(Part, Outcome),
    ) {
        if reading.now.since(self.created) < NEW_US {
            self.retry();
        }
        self.look_below(reading);
        let (start, before) = self.below_since.unwrap_or((self.created, 0));
        telling.kills_below = (self.below.kills().saturating_sub(before), start);
        let mut gone = None;
        let mut is_first = true;
        for slot in &mut self.slots {
            if !slot.is_read(reading.blkio) {
                slot.close_if_kept(reading.budget);
                continue;
            }
            let Some(dir) = self.dirs.get(slot.dir) else { continue };
            let read = slot.text(dir, reading);
            if std::mem::take(&mut is_first) {
                match read {
                    Ok(true) => self.last_reading.take(reading.now, reading.text),
                    Ok(false) => self.last_reading.is_gone = true,
                    Err(_) => {}
                }
            }
            if matches!(read, Ok(false)) {
                // Its cgroup was removed: what a look found there is the last that was counted.
                reading.text.clone_from(&slot.last);
            }
            if !reading.is_between {
                slot.last.clear();
            } else if matches!(read, Ok(true)) {
                // What it tells may never be sent.
                slot.keep(reading.text);
            }
            let came = match read {
                Ok(true) => slot.tell(telling, reading),
                Ok(false) if !reading.text.is_empty() => slot.tell(telling, reading),
                Ok(false) => Outcome::Absent,
                Err(ReadError::Denied { .. }) => Outcome::Denied,
                Err(error) => Outcome::Broken(error.to_string()),
            };
            if matches!(slot.state, State::Gone) {
                gone = Some(slot.dir);
            }
            outcome(slot.file.part, came);
        }
        if let Some(dir) = gone {
            for slot in self.slots.iter_mut().filter(|slot| slot.dir == dir) {
                slot.close(reading.budget, State::Gone);
            }
        }
    }

    /// The job ended, or its last process did, and was just read: the seconds before its end that no reading covers,
    /// once, where its cgroup was removed before.
    pub(super) fn unread_seconds(&mut self, now: Timestamp) -> Option<f64> {
        let last = &mut self.last_reading;
        if !last.is_gone && !self.slots.is_empty() {
            // Where nothing runs afterwards, this reading was the last that was needed.
            last.complete = last.at.filter(|at| *at == now).map(|_| last.found);
            return None;
        }
        if last.complete == Some(last.found) || std::mem::replace(&mut last.is_reported, true) {
            return None;
        }
        Some(now.since(last.at.unwrap_or(self.created)).max(0) as f64 / 1e6)
    }

    /// Keeps what the files say whose values are lost with the cgroup: processor time, memory and kills at each look,
    /// transfers, which cost more to read and are mostly counted when they reach a disk, once a second. The next
    /// reading reports it where the cgroup was removed meanwhile, as schedulers do within milliseconds of a job's last
    /// process.
    pub(super) fn look(&mut self, reading: &mut Reading<'_>) {
        if reading.now.since(self.created) < NEW_US {
            self.retry();
        }
        // A clock that was set back has not looked either.
        let all = reading.now.since(self.looked).unsigned_abs() >= LOOK_ALL_US;
        if all {
            self.looked = reading.now;
        }
        self.look_below(reading);
        let is_due = |slot: &&mut Slot| match slot.file.look {
            Look::No => false,
            Look::EachSecond => all,
            Look::Each => true,
        };
        let mut is_first = true;
        for slot in self.slots.iter_mut().filter(is_due) {
            let Some(dir) = self.dirs.get(slot.dir) else { continue };
            if slot.is_read(reading.blkio) && matches!(slot.text(dir, reading), Ok(true)) {
                if std::mem::take(&mut is_first) {
                    self.last_reading.take(reading.now, reading.text);
                }
                slot.keep(reading.text);
            }
        }
    }

    /// When the cgroup was made.
    /// Limits how many directories below the job's are looked at.
    pub(super) fn limit_below(&mut self, directories_max: usize) {
        self.below.limit(directories_max);
    }

    pub(super) const fn created(&self) -> Timestamp {
        self.created
    }

    /// Its directories in which memory is counted, also those that are gone.
    pub(super) fn memory_dirs(&self) -> impl Iterator<Item = &str> {
        let counts =
            |dir: &&JobDir| matches!(dir.hierarchy, Hierarchy::Memory | Hierarchy::Unified);
        self.dirs.iter().filter(counts).map(|dir| dir.path.as_str())
    }

    /// Looks at the directories below version 1's directory of memory, each of which counts its own kills.
    fn look_below(&mut self, reading: &mut Reading<'_>) {
        let memory = self.slots.iter().find(|slot| slot.file.only == Only::WithBelow);
        let Some(dir) = memory.and_then(|slot| self.dirs.get(slot.dir)) else { return };
        self.below.look(reading.root, &dir.path, reading.path, reading.text);
        let is_first = !std::mem::replace(&mut self.is_below_known, true);
        if is_first && self.below.is_any() && reading.now.since(self.created) > NEW_US {
            self.below_since = Some((reading.now, self.below.kills()));
        }
    }
}

impl Slot {
    fn is_read(&self, blkio: Option<usize>) -> bool {
        match self.file.only {
            Only::Always | Only::WithBelow => true,
            Only::Blkio(family) => blkio == Some(family),
        }
    }

    /// Keeps what was not told, or may not have been.
    fn keep(&mut self, text: &Vec<u8>) {
        if self.file.look != Look::No && text.len() <= LAST_BYTES_MAX {
            self.last.clone_from(text);
        }
    }

    /// Tells what the text says.
    fn tell(&self, telling: &mut Telling<'_, '_>, reading: &Reading<'_>) -> Outcome {
        match (self.file.push)(telling, reading.text) {
            Ok(true) => Outcome::Told,
            Ok(false) => Outcome::Absent,
            Err(error) => Outcome::Broken(format!("/{}: {error}", reading.path)),
        }
    }

    /// Reads the file's text; false if there is none.
    fn text(&mut self, dir: &JobDir, reading: &mut Reading<'_>) -> Result<bool, ReadError> {
        reading.path.clear();
        reading.path.push_str(&dir.path);
        reading.path.push('/');
        reading.path.push_str(self.file.name);
        let (path, text) = (reading.path.as_str(), &mut *reading.text);
        match &self.state {
            State::Absent | State::Gone => return Ok(false),
            State::Denied => return Err(ReadError::Denied { path: String::new() }),
            State::Kept(file) => {
                let read = cgroup::read(file, path, text)?;
                if !read {
                    self.close(reading.budget, State::Gone);
                }
                return Ok(read);
            }
            State::Closed => {}
        }
        let file = match reading.root.open(path) {
            Ok(file) => file,
            Err(ReadError::Absent { .. }) => {
                self.state = State::Absent;
                return Ok(false);
            }
            Err(error) => {
                if matches!(error, ReadError::Denied { .. }) {
                    self.state = State::Denied;
                }
                return Err(error);
            }
        };
        if !cgroup::read(&file, path, text)? {
            self.state = State::Absent;
            return Ok(false);
        }
        if reading.budget.kept < reading.budget.kept_max {
            reading.budget.kept += 1;
            self.state = State::Kept(file);
        } else {
            reading.budget.unkept += 1;
        }
        Ok(true)
    }

    fn close_if_kept(&mut self, budget: &mut Budget) {
        if matches!(self.state, State::Kept(_)) {
            self.close(budget, State::Closed);
        }
    }

    fn close(&mut self, budget: &mut Budget, state: State) {
        if matches!(self.state, State::Kept(_)) {
            budget.kept = budget.kept.saturating_sub(1);
        }
        self.state = state;
    }
}
