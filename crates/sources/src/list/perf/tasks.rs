//! Follows the processes of a job without a cgroup for counters: finds processes that are already counted by
//! inheritance, and opens counters for the others.
//!
//! The descendants of a followed process are counted with it. A process that joined the job otherwise is
//! followed from its discovery. The parent distinguishes them: a process is inherited if its parent was in
//! the job at the previous tick. An orphan, with process 1 as its parent, is inherited if it is younger than
//! the job's first round. Only counters of a cgroup are exact. Two errors remain: use before the discovery is
//! missing, and an orphan adopted within a tick by a subreaper outside of the job counts twice.

use super::plan::Plan;
use super::subject::{Budget, NotOpened, Subject};
use cgroups::{JobCgroup, Members};
use hashbrown::HashMap;
use kernel::{Root, process};
use rustc_hash::FxBuildHasher;
use std::fmt::Write as _;

/// Parent of orphans.
const INIT: u32 = 1;

/// Whose counters include a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedBy {
    /// The counters of this process: itself or an ancestor.
    Process(u32),
    /// The counters of an unknown ancestor.
    Any,
    /// No counters: the kernel rejected them.
    Nothing,
}

/// A process of the job.
#[derive(Clone, Copy, Debug)]
struct KnownTask {
    by: CountedBy,
    /// Rounds of its discovery and of its last sighting.
    first: u32,
    last: u32,
}

/// The known processes of a job.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    known: HashMap<u32, KnownTask, FxBuildHasher>,
    /// Processes with counters of their own, and the last round in which these counted any process.
    followed: Vec<(u32, u32)>,
    round: u32,
    /// Start of the youngest process of the first round, in ticks since boot.
    since_ticks: Option<u64>,
}

/// Reused memory for listing and reading.
#[derive(Debug, Default)]
pub(super) struct Lists {
    members: Members,
    /// New processes: start, process ID and parent.
    new: Vec<(u64, u32, u32)>,
    path: String,
    text: Vec<u8>,
}

impl Tasks {
    /// Follows new processes.
    ///
    /// # Errors
    /// A process could not be followed.
    pub(super) fn follow(
        &mut self,
        (root, plan): (&Root, &Plan),
        job: &JobCgroup,
        (subject, budget): (&mut Subject, &mut Budget),
        lists: &mut Lists,
    ) -> Result<(), NotOpened> {
        self.round = self.round.wrapping_add(1);
        if cgroups::processes(root, job, &mut lists.members).is_err() {
            // No process is known to have ended.
            self.known.values_mut().for_each(|known| known.last = self.round);
            return Ok(());
        }
        self.list_new(root, lists);
        let mut result = Ok(());
        for (start_ticks, pid, parent) in &lists.new {
            let by = self.counted_by(*start_ticks, *parent).unwrap_or_else(|| {
                let tids = tids_of(root, *pid, &mut lists.path);
                let followed = subject.follow(root, plan, (*pid, &tids), budget);
                if followed.is_err() {
                    subject.unfollow(*pid, budget);
                    result = result.and(followed);
                    return CountedBy::Nothing;
                }
                self.followed.push((*pid, self.round));
                CountedBy::Process(*pid)
            });
            let (first, last) = (self.round, self.round);
            self.known.insert(*pid, KnownTask { by, first, last });
        }
        if let Some((youngest, ..)) = lists.new.last() {
            self.since_ticks.get_or_insert(*youngest);
        }
        result
    }

    /// Whether no process is known yet.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Lists the unknown processes, oldest first.
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

    /// The counters that already include a new process, if any.
    fn counted_by(&self, start_ticks: u64, parent: u32) -> Option<CountedBy> {
        match self.known.get(&parent) {
            // It may be older than the counters of a parent that was followed in this round.
            Some(known) if known.first == self.round && known.by == CountedBy::Process(parent) => {
                None
            }
            Some(known) => Some(known.by),
            None if parent == INIT && self.since_ticks.is_some_and(|since| start_ticks > since) => {
                Some(CountedBy::Any)
            }
            None => None,
        }
    }

    /// Closes counters that include no process any more; they have been read since.
    pub(super) fn end(&mut self, subject: &mut Subject, budget: &mut Budget) {
        let round = self.round;
        self.known.retain(|_, known| known.last == round);
        for known in self.known.values() {
            for (pid, seen) in &mut self.followed {
                if known.by == CountedBy::Process(*pid) || known.by == CountedBy::Any {
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

/// Start and parent of a process; `None` if it has ended.
fn parent_of(root: &Root, pid: u32, path: &mut String, text: &mut Vec<u8>) -> Option<(u64, u32)> {
    path.clear();
    // Writing into a `String` cannot fail.
    write!(path, "proc/{pid}/stat").ok();
    root.read(path, text).ok()?;
    let stat = process::process_stat(text).ok()?;
    Some((stat.start_ticks, u32::try_from(stat.ppid).ok()?))
}

/// The tasks of a process; empty if it has ended.
fn tids_of(root: &Root, pid: u32, path: &mut String) -> Vec<u32> {
    path.clear();
    // Writing into a `String` cannot fail.
    write!(path, "proc/{pid}/task").ok();
    let mut tids = Vec::new();
    root.list(path, |entry| tids.extend(entry.name.parse::<u32>().ok())).ok();
    tids
}

#[cfg(test)]
mod tests {
    use super::super::{event_list, plan::Plan};
    use super::*;
    use cgroups::{Hierarchy, JobDir};
    use model::{ClusterId, JobId, JobKey, Timestamp};
    use std::path::Path;

    /// Writes a job with these processes: process ID, parent, start.
    fn write(dir: &Path, processes: &[(u32, u32, u64)]) {
        let at = |path: &str| dir.join(path);
        let numbers: Vec<_> = processes.iter().map(|(pid, ..)| format!("{pid}\n")).collect();
        std::fs::create_dir_all(at("cg/job")).unwrap();
        std::fs::write(at("cg/job/cgroup.procs"), numbers.concat()).unwrap();
        for cpu in ["cpu0/1-2", "cpu0/1-3"] {
            let file = at(&format!(".jobmeter/perf/{cpu}"));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "0 0 0\n").unwrap();
        }
        for (pid, parent, start) in processes {
            std::fs::create_dir_all(at(&format!("proc/{pid}/task/{pid}"))).unwrap();
            let fields = "1 1 0 -1 4194304 99 0 0 0 3 1 0 0 20 0 1 0";
            let stat = format!("{pid} (x) R {parent} {fields} {start} 3133440 382\n");
            std::fs::write(at(&format!("proc/{pid}/stat")), stat).unwrap();
            std::fs::create_dir_all(at(&format!(".jobmeter/perf/task/{pid}"))).unwrap();
            for event in ["1-2", "1-3"] {
                let file = at(&format!(".jobmeter/perf/task/{pid}/{event}"));
                std::fs::write(file, "100 5 5\n").unwrap();
            }
        }
    }

    struct Job {
        dir: tempfile::TempDir,
        plan: Plan,
        subject: Subject,
        tasks: Tasks,
        budget: Budget,
        lists: Lists,
    }

    impl Job {
        fn new(max: usize) -> Self {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &[]);
            let wanted = event_list::parse("page_faults,context_switches").unwrap();
            let root = Root::recorded(dir.path()).unwrap();
            let (plan, _) = Plan::of(&root, &wanted, &[0]).unwrap();
            let subject = Subject::new(&plan, Timestamp(0));
            let budget = Budget { used: 0, max };
            let (tasks, lists) = (Tasks::default(), Lists::default());
            Self { dir, plan, subject, tasks, budget, lists }
        }

        /// Runs a round with these processes; returns the processes with counters of their own, and
        /// whether any was rejected.
        fn round(&mut self, processes: &[(u32, u32, u64)]) -> (Vec<u32>, bool) {
            write(self.dir.path(), processes);
            let root = Root::recorded(self.dir.path()).unwrap();
            let job = JobCgroup {
                key: JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() },
                display_id: "1".into(),
                user: None,
                uid: None,
                dirs: vec![JobDir { hierarchy: Hierarchy::Unified, path: "cg/job".to_owned() }],
                created: Timestamp(0),
                populated: true,
                directories_max: cgroups::USER_DIRECTORIES_MAX,
            };
            let Self { plan, subject, tasks, budget, lists, .. } = self;
            let followed = tasks.follow((&root, plan), &job, (subject, budget), lists);
            subject.read().unwrap();
            tasks.end(subject, budget);
            let mut own: Vec<_> = tasks.followed.iter().map(|(pid, _)| *pid).collect();
            own.sort_unstable();
            assert_eq!(budget.used, own.len() * 2);
            (own, followed.is_err())
        }
    }

    #[test]
    fn initial_and_foreign_processes_get_counters_and_inherited_ones_do_not() {
        let mut job = Job::new(100);
        // All initial processes get counters, parents and children.
        assert_eq!(job.round(&[(10, 5, 100), (11, 10, 110)]), (vec![10, 11], false));
        // A child, a grandchild and an orphan; a foreign process, and a child started before its
        // discovery.
        let all = [(10, 5, 100), (11, 10, 110), (12, 10, 120), (13, 12, 121), (14, 1, 122)];
        let others = [(20, 5, 130), (21, 20, 131)];
        let (own, _) = job.round(&[&all[..], &others].concat());
        assert_eq!(own, [10, 11, 20, 21]);
        // Process 10 has ended but has descendants; process 20 has none.
        assert_eq!(job.round(&[(11, 1, 110), (13, 1, 121), (21, 1, 131)]).0, [10, 11, 21]);
        assert_eq!(job.round(&[(11, 1, 110)]).0, [11]);
        assert_eq!(job.round(&[]), (vec![], false));
    }

    #[test]
    fn counters_that_may_include_an_orphan_remain_open() {
        let mut job = Job::new(100);
        assert_eq!(job.round(&[(10, 5, 100)]).0, [10]);
        assert_eq!(job.round(&[(14, 1, 122)]).0, [10]);
        assert_eq!(job.round(&[]).0, [0; 0]);
    }

    #[test]
    fn processes_beyond_the_budget_are_not_followed_and_use_no_descriptor() {
        let mut job = Job::new(3);
        assert_eq!(job.round(&[(10, 5, 100), (11, 5, 110)]), (vec![10], true));
        assert_eq!(job.round(&[(10, 5, 100), (11, 5, 110), (12, 11, 120)]), (vec![10], false));
    }
}
