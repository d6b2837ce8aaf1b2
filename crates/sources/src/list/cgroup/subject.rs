//! A job or a unit, and the files of its cgroups.

use super::files::{File, Look, Output, Part, ReadCondition};
use super::nested_oom_kills::SubDirectories;
use cgroups::{Hierarchy, JobDir};
use kernel::{OpenFile, ReadError, Root, cgroup};
use model::Timestamp;
use rustc_hash::FxHasher;
use std::hash::Hasher as _;

/// Time after the creation of a cgroup in which its files may still appear: a scheduler enables controllers
/// afterwards.
const NEW_US: i64 = 30 * Timestamp::SECOND;

/// Interval of looks at the files of [`Look::EachSecond`]: 1 s, less tolerance for a look that begins early.
const LOOK_ALL_US: u64 = 900_000;

/// Maximum text kept from a look: 100 disks of a job.
const LAST_BYTES_MAX: usize = 16 << 10;

/// Number of files kept open, and its limit.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) kept: usize,
    pub(super) kept_max: usize,
    /// Readings that opened a file because the limit was reached.
    pub(super) unkept: u64,
}

/// Parameters of a reading, common to all subjects.
pub(super) struct Reading<'a> {
    pub(super) root: &'a Root,
    pub(super) now: Timestamp,
    /// This is a reading of a burst; its samples are held back.
    pub(super) is_between: bool,
    /// The family of version 1's transfer files that counts.
    pub(super) blkio: Option<usize>,
    pub(super) budget: &'a mut Budget,
    pub(super) path: &'a mut String,
    pub(super) text: &'a mut Vec<u8>,
}

/// The cgroup files of a job or unit.
#[derive(Debug)]
pub(super) struct Subject {
    created: Timestamp,
    dirs: Vec<JobDir>,
    slots: Vec<Slot>,
    /// Version 1: kills in the directories below the job's.
    below: SubDirectories,
    /// For a job older than its first reading: start of the count of these kills, and the kills before
    /// it. Kills in directories removed earlier are unknown.
    below_since: Option<(Timestamp, u64)>,
    /// Whether these directories were read.
    is_below_known: bool,
    /// Time of the last look at all files.
    looked: Timestamp,
    last_reading: LastReading,
}

/// The end of a job: whether a reading covers all its use up to the removal of its cgroup.
#[derive(Debug, Default)]
struct LastReading {
    /// Time of the last reading of the first file, which has processor time.
    at: Option<Timestamp>,
    /// Hash of the text of that reading.
    found: u64,
    /// Hash of the text of a reading after the last process ended.
    complete: Option<u64>,
    /// The first file is gone.
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
    /// Index in the list of directories.
    dir: usize,
    state: State,
    /// Text of the last look, if it is newer than the last pushed one; else empty.
    last: Vec<u8>,
    /// Time of the last reading or look.
    read_at: Option<Timestamp>,
}

/// Seconds before a job's end that no reading covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    /// Of processor time.
    pub(super) cpu: f64,
    /// Of pressure, if any was ever read.
    pub(super) pressure: Option<f64>,
    /// Of transfers, if any were ever read.
    pub(super) io: Option<f64>,
}

#[derive(Debug)]
enum State {
    /// Not opened yet.
    Closed,
    Kept(OpenFile),
    /// The file does not exist.
    Absent,
    /// The cgroup was removed while the file was open: a new file at this path belongs to another run.
    Gone,
    /// The agent may not open it.
    Denied,
}

/// Outcome of reading a file.
#[derive(Debug)]
pub(super) enum Outcome {
    Pushed,
    Absent,
    Denied,
    Broken(String),
}

impl Subject {
    /// The files of a cgroup with these directories.
    pub(super) fn new(created: Timestamp, dirs: &[JobDir], files: &'static [File]) -> Self {
        let in_hierarchy = |hierarchy| dirs.iter().position(|dir| dir.hierarchy == hierarchy);
        let slot = |file: &'static File| {
            if file.unless.is_some_and(|hierarchy| in_hierarchy(hierarchy).is_some()) {
                return None;
            }
            let dir = file.of.iter().find_map(|hierarchy| in_hierarchy(*hierarchy))?;
            Some(Slot { file, dir, state: State::Closed, last: Vec::new(), read_at: None })
        };
        let slots = files.iter().filter_map(slot).collect();
        Self {
            created,
            dirs: dirs.to_vec(),
            slots,
            below: SubDirectories::new(),
            below_since: None,
            is_below_known: false,
            looked: Timestamp(0),
            last_reading: LastReading::default(),
        }
    }

    /// Whether this is the cgroup created at that time, with all or some of its directories. Counts from
    /// files of one hierarchy are not continued by files of another, which count by another clock.
    pub(super) fn is(&self, created: Timestamp, dirs: &[JobDir]) -> bool {
        self.created == created && dirs.iter().all(|dir| self.dirs.contains(dir))
    }

    /// Restricts the subject to these directories. A new directory at the path of a removed one belongs
    /// to another run and is not read; values of the last look in the removed one are still pushed.
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

    /// Retries absent and denied files.
    fn retry(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot.state, State::Absent | State::Denied) {
                slot.state = State::Closed;
            }
        }
    }

    /// Reads every file and pushes its values; calls `outcome` with the outcome of each.
    pub(super) fn read(
        &mut self,
        reading: &mut Reading<'_>,
        output: &mut Output<'_, '_>,
        mut outcome: impl FnMut(Part, Outcome),
    ) {
        if reading.now.since(self.created) < NEW_US {
            self.retry();
        }
        self.look_below(reading);
        let (start, before) = self.below_since.unwrap_or((self.created, 0));
        output.kills_below = (self.below.kills().saturating_sub(before), start);
        let mut gone = None;
        let mut is_first = true;
        for slot in &mut self.slots {
            if !slot.is_read(reading.blkio) {
                slot.close_if_kept(reading.budget);
                continue;
            }
            let Some(dir) = self.dirs.get(slot.dir) else { continue };
            let read = slot.text(dir, reading);
            if matches!(read, Ok(true)) {
                slot.read_at = Some(reading.now);
            }
            if std::mem::take(&mut is_first) {
                match read {
                    Ok(true) => self.last_reading.take(reading.now, reading.text),
                    Ok(false) => self.last_reading.is_gone = true,
                    Err(_) => {}
                }
            }
            if matches!(read, Ok(false)) {
                // The cgroup was removed: the text of the last look has its final values.
                reading.text.clone_from(&slot.last);
            }
            if !reading.is_between {
                slot.last.clear();
            } else if matches!(read, Ok(true)) {
                // The samples of this reading may never be sent.
                slot.keep(reading.text);
            }
            let came = match read {
                Ok(true) => slot.push(output, reading),
                Ok(false) if !reading.text.is_empty() => slot.push(output, reading),
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

    /// To be called after the reading at the end of a job or of its last process. Returns the seconds
    /// before the end that no reading covers, once, if the cgroup was removed before. Without an observed process, no
    /// reading was made: processes may have come and gone between two looks.
    pub(super) fn unread_seconds(&mut self, now: Timestamp, populated: bool) -> Option<Unread> {
        let last = &mut self.last_reading;
        last.is_gone |= !populated;
        if !last.is_gone && !self.slots.is_empty() {
            // If no process runs afterwards, this reading is complete.
            last.complete = last.at.filter(|at| *at == now).map(|_| last.found);
            return None;
        }
        if last.complete == Some(last.found) || std::mem::replace(&mut last.is_reported, true) {
            return None;
        }
        let since = |at: Timestamp| now.since(at).max(0) as f64 / 1e6;
        let cpu = since(last.at.unwrap_or(self.created));
        let of = |part| {
            let slots = self.slots.iter().filter(|slot| slot.file.part == part);
            slots.filter_map(|slot| slot.read_at).min().map(since)
        };
        Some(Unread { cpu, pressure: of(Part::Pressure), io: of(Part::Io) })
    }

    /// Keeps the text of files with values that are lost with the cgroup. Processor time, memory,
    /// kills and pressure are read at each look. Transfers are read once a second: they cost more, and mostly count
    /// when they reach a disk. The next reading reports these values if the cgroup was removed meanwhile,
    /// as schedulers do within milliseconds of a job's last process.
    pub(super) fn look(&mut self, reading: &mut Reading<'_>) {
        let is_new = reading.now.since(self.created) < NEW_US;
        if is_new {
            self.retry();
        }
        // After a clock was set back, a look is due.
        let all = reading.now.since(self.looked).unsigned_abs() >= LOOK_ALL_US;
        if all {
            self.looked = reading.now;
        }
        let is_due = |slot: &&mut Slot| match slot.file.look {
            Look::No => false,
            Look::EachSecond => all,
            Look::Each => true,
        };
        let before = self.last_reading.at.map(|_| self.last_reading.found);
        let mut is_first = true;
        for place in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(place).filter(|slot| is_due(slot)) else {
                continue;
            };
            let Some(dir) = self.dirs.get(slot.dir) else { continue };
            if slot.is_read(reading.blkio) && matches!(slot.text(dir, reading), Ok(true)) {
                slot.read_at = Some(reading.now);
                slot.keep(reading.text);
                if std::mem::take(&mut is_first) {
                    self.last_reading.take(reading.now, reading.text);
                    let is_cpu = slot.file.part == Part::Cpu;
                    if is_cpu && !is_new && before == Some(self.last_reading.found) {
                        return self.note_idle(reading.now);
                    }
                }
            }
        }
        self.look_below(reading);
    }

    /// A look found the same processor time as before: nothing ran in the job, so its memory, kills and throttling are
    /// the same, too. Transfers and pressure may have grown: the kernel writes later, and tasks wait.
    fn note_idle(&mut self, now: Timestamp) {
        for slot in &mut self.slots {
            if !matches!(slot.file.part, Part::Io | Part::Pressure) && slot.file.look != Look::No {
                slot.read_at = slot.read_at.map(|_| now);
            }
        }
    }

    /// Limits the number of tracked directories below the job's.
    pub(super) fn limit_below(&mut self, directories_max: usize) {
        self.below.limit(directories_max);
    }

    /// Creation time of the cgroup.
    pub(super) const fn created(&self) -> Timestamp {
        self.created
    }

    /// Its directories in the memory hierarchy, including removed ones.
    pub(super) fn memory_dirs(&self) -> impl Iterator<Item = &str> {
        let counts =
            |dir: &&JobDir| matches!(dir.hierarchy, Hierarchy::Memory | Hierarchy::Unified);
        self.dirs.iter().filter(counts).map(|dir| dir.path.as_str())
    }

    /// Reads the kill counts of the directories below version 1's memory directory.
    fn look_below(&mut self, reading: &mut Reading<'_>) {
        let memory = self.slots.iter().find(|slot| slot.file.only == ReadCondition::WithBelow);
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
            ReadCondition::Always | ReadCondition::WithBelow => true,
            ReadCondition::Blkio(family) => blkio == Some(family),
        }
    }

    /// Keeps a text with values that were not pushed, or may never be sent.
    fn keep(&mut self, text: &Vec<u8>) {
        if self.file.look != Look::No && text.len() <= LAST_BYTES_MAX {
            self.last.clone_from(text);
        }
    }

    /// Pushes the values of the text.
    fn push(&self, output: &mut Output<'_, '_>, reading: &Reading<'_>) -> Outcome {
        match (self.file.push)(output, reading.text) {
            Ok(true) => Outcome::Pushed,
            Ok(false) => Outcome::Absent,
            Err(error) => Outcome::Broken(format!("/{}: {error}", reading.path)),
        }
    }

    /// Reads the file's text; false if the file does not exist.
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
