//! The processes of a job without a cgroup that counters can have: who is followed already, by
//! inheritance, and who must be.
//!
//! What a followed process starts is counted with it. A process that has come to the job otherwise is
//! followed from when it is seen. They are told apart by their parents: one whose parent was in the job at
//! the tick before is inherited, and so is an orphan, whose parent is process 1, if it is younger than the
//! following of its job. An orphan that a subreaper outside of the job adopts within a tick counts twice from
//! then on, and what ran before it was seen is missing: only a cgroup's counters are exact.

use super::counted::{Budget, NotOpened, Subject};
use super::plan::Plan;
use cgroups::{JobCgroup, Members};
use hashbrown::HashMap;
use kernel::{Root, process};
use rustc_hash::FxBuildHasher;
use std::fmt::Write as _;

/// The parent of orphans.
const INIT: u32 = 1;

/// With whose counters a process is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    /// Those of this process, itself or one that it descends from.
    Process(u32),
    /// Those of one that it descends from, which it is is not known.
    Any,
    /// With none: the counters were refused.
    Nobody,
}

/// A process of the job.
#[derive(Clone, Copy, Debug)]
struct Known {
    with: With,
    /// The rounds in which it was seen first and last.
    first: u32,
    last: u32,
}

/// The processes of a job that are known.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    known: HashMap<u32, Known, FxBuildHasher>,
    /// Processes with counters of their own, and the last round in which any was counted with them.
    followed: Vec<(u32, u32)>,
    round: u32,
    /// When the youngest process of the first round began, in ticks since boot.
    since_ticks: Option<u64>,
}

/// Memory to list and read with.
#[derive(Debug, Default)]
pub(super) struct Lists {
    members: Members,
    /// New processes: when each began, its number and its parent's.
    new: Vec<(u64, u32, u32)>,
    path: String,
    text: Vec<u8>,
}

impl Tasks {
    /// Follows who is new.
    ///
    /// # Errors
    /// Somebody could not be followed.
    pub(super) fn follow(
        &mut self,
        (root, plan): (&Root, &Plan),
        job: &JobCgroup,
        (subject, budget): (&mut Subject, &mut Budget),
        lists: &mut Lists,
    ) -> Result<(), NotOpened> {
        self.round = self.round.wrapping_add(1);
        if cgroups::processes(root, job, &mut lists.members).is_err() {
            // Nobody was seen to have ended.
            self.known.values_mut().for_each(|known| known.last = self.round);
            return Ok(());
        }
        self.list_new(root, lists);
        let mut result = Ok(());
        for (start_ticks, pid, parent) in &lists.new {
            let with = self.with(*start_ticks, *parent).unwrap_or_else(|| {
                let tids = tids_of(root, *pid, &mut lists.path);
                let followed = subject.follow(root, plan, (*pid, &tids), budget);
                if followed.is_err() {
                    subject.unfollow(*pid, budget);
                    result = result.and(followed);
                    return With::Nobody;
                }
                self.followed.push((*pid, self.round));
                With::Process(*pid)
            });
            let (first, last) = (self.round, self.round);
            self.known.insert(*pid, Known { with, first, last });
        }
        if let Some((youngest, ..)) = lists.new.last() {
            self.since_ticks.get_or_insert(*youngest);
        }
        result
    }

    /// Lists the processes that are not known, the oldest first.
    fn list_new(&mut self, root: &Root, lists: &mut Lists) {
        let Lists { members, new, path, text } = lists;
        new.clear();
        for pid in members.ids() {
            match self.known.get_mut(pid) {
                Some(known) => known.last = self.round,
                None => new.extend(
                    parent_of(root, *pid, path, text).map(|(start, parent)| (start, *pid, parent)),
                ),
            }
        }
        new.sort_unstable();
        new.dedup();
    }

    /// With whose counters a new process is counted already, if with any.
    fn with(&self, start_ticks: u64, parent: u32) -> Option<With> {
        match self.known.get(&parent) {
            // It may be older than the counters of a parent that is followed since just now.
            Some(known) if known.first == self.round && known.with == With::Process(parent) => None,
            Some(known) => Some(known.with),
            None if parent == INIT && self.since_ticks.is_some_and(|since| start_ticks > since) => {
                Some(With::Any)
            }
            None => None,
        }
    }

    /// Closes the counters with which nobody is counted any more; they have been read since.
    pub(super) fn end(&mut self, subject: &mut Subject, budget: &mut Budget) {
        let round = self.round;
        self.known.retain(|_, known| known.last == round);
        for known in self.known.values() {
            for (pid, seen) in &mut self.followed {
                if known.with == With::Process(*pid) || known.with == With::Any {
                    *seen = round;
                }
            }
        }
        self.followed.retain(|(pid, seen)| {
            if *seen != round {
                subject.unfollow(*pid, budget);
            }
            *seen == round
        });
    }
}

/// A process's parent, and when it began; none if it has gone.
fn parent_of(root: &Root, pid: u32, path: &mut String, text: &mut Vec<u8>) -> Option<(u64, u32)> {
    path.clear();
    // Writing into a `String` cannot fail.
    write!(path, "proc/{pid}/stat").ok();
    root.read(path, text).ok()?;
    let stat = process::process_stat(text).ok()?;
    Some((stat.start_ticks, u32::try_from(stat.ppid).ok()?))
}

/// A process's tasks; none if it has gone.
fn tids_of(root: &Root, pid: u32, path: &mut String) -> Vec<u32> {
    path.clear();
    // Writing into a `String` cannot fail.
    write!(path, "proc/{pid}/task").ok();
    let mut tids = Vec::new();
    root.list(path, |entry| tids.extend(entry.name.parse::<u32>().ok())).ok();
    tids
}
