//! Runs of jobs: what belongs together of the directories found, and how it came and went.
//!
//! Version 1 makes and removes a job's directories one hierarchy after another. A run begins with
//! its first directory. It ends with its last; or when one is gone and the job has no process, for
//! a directory that could not be removed would keep it for ever; or when one was removed and made
//! again, for then the scheduler has started the same number anew.

use crate::directories::tree::{Claim, Tree, end_watch};
use crate::jobs::divide_directories;
use crate::presence::Presence;
use crate::{JobCgroup, JobDir, Mount, Refusal};
use kernel::Root;
use kernel::inotify::{Inotify, Watch};
use model::{ClusterId, JobKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// What changed with an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Jobs that are new in [`crate::Jobs`].
    pub started: Vec<JobKey>,
    /// Jobs that got their first process.
    pub populated: Vec<JobKey>,
    /// Jobs whose last process ended. Their cgroups are still there, though the scheduler may
    /// remove them at any moment: this is the time to read them. A job may get a process again.
    pub emptied: Vec<JobKey>,
    /// Jobs that ended. They are in [`crate::Jobs`] until the next update, with what is left of their
    /// directories.
    pub ended: Vec<JobKey>,
    /// When the last process ended of those in `ended` that `jobmeter run` started: its cgroup outlives it.
    pub last_processes: Vec<(JobKey, Timestamp)>,
    /// Whether the units are others.
    pub units: bool,
}

/// `jobmeter run` reads and removes its cgroup when the command has ended. One that has been empty for so
/// long was left behind: the program was killed.
const ABANDONED_US: i64 = 10 * Timestamp::SECOND;

/// Most jobs on a node at once.
pub const JOBS_MAX: usize = 4096;

/// All runs on this node.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// Ordered by key.
    runs: Vec<Run>,
    /// Directories left behind by runs that ended.
    left: BTreeSet<(String, u64)>,
    /// When the last run of a number began, of those that ended.
    earlier: BTreeMap<JobKey, Timestamp>,
    watches: BTreeMap<Watch, JobKey>,
    presence: Presence,
}

#[derive(Debug)]
struct Run {
    job: JobCgroup,
    /// Of each directory, in the same order.
    identities: Vec<u64>,
    /// A process of it, by which version 1 is asked.
    witness: Option<u32>,
    watch: Option<Watch>,
    /// The kernel noted a change of `populated`.
    noted: bool,
    occupied: bool,
    /// Since when a local job that had processes has none.
    empty_since: Option<Timestamp>,
    /// A directory is gone.
    lost: bool,
    ended: bool,
}

/// The directories found for one job.
struct Group {
    claim: Claim,
    dirs: Vec<(JobDir, u64)>,
    made: Timestamp,
}

/// What checking needs to know.
pub(crate) struct Checking<'a> {
    pub(crate) root: &'a Root,
    pub(crate) notify: Option<&'a Inotify>,
    /// Jobs of which the kernel notes nothing are asked too.
    pub(crate) due: bool,
    /// All are asked.
    pub(crate) full: bool,
    pub(crate) now: Timestamp,
}

impl Runs {
    /// The jobs, ordered by key; those told as ended are still among them.
    pub(crate) fn jobs(&self) -> impl ExactSizeIterator<Item = &JobCgroup> {
        self.runs.iter().map(|run| &run.job)
    }

    /// Forgets the runs whose end was told; true if there were any.
    pub(crate) fn forget_ended(&mut self) -> bool {
        if self.runs.iter().all(|run| !run.ended) {
            return false;
        }
        if self.earlier.len() > JOBS_MAX {
            self.earlier.clear();
        }
        for run in self.runs.extract_if(.., |run| run.ended) {
            self.earlier.insert(run.job.key, run.job.created);
        }
        true
    }

    /// Takes note that a watched file changed.
    pub(crate) fn noted(&mut self, watch: Watch) {
        let Some(key) = self.watches.get(&watch) else { return };
        if let Ok(place) = self.runs.binary_search_by(|run| run.job.key.cmp(key))
            && let Some(run) = self.runs.get_mut(place)
        {
            run.noted = true;
        }
    }

    /// Forgets a watch that the kernel has ended.
    pub(crate) fn unwatched(&mut self, watch: Watch) {
        self.watches.remove(&watch);
        if let Some(run) = self.runs.iter_mut().find(|run| run.watch == Some(watch)) {
            run.watch = None;
        }
    }

    /// Compares the runs with the directories that are there; true if any run changed.
    pub(crate) fn regroup(
        &mut self,
        checking: &Checking<'_>,
        tree: &mut Tree,
        mounts: &[Mount],
        changes: &mut Changes,
    ) -> bool {
        let mut groups = self.groups(tree, mounts);
        let mut changed = false;
        for place in 0..self.runs.len() {
            let Some(run) = self.runs.get_mut(place).filter(|run| !run.ended) else { continue };
            let group = groups.remove(&run.job.key);
            match run.compare(group) {
                Compared::Same => {}
                Compared::Changed => {
                    changed = true;
                    let occupied =
                        self.presence.occupied(checking.root, &run.job, &mut run.witness);
                    if run.lost && !occupied {
                        self.end(place, tree, checking.notify, changes);
                    }
                }
                Compared::Another => {
                    changed = true;
                    self.end(place, tree, checking.notify, changes);
                }
            }
        }
        for (_, group) in groups {
            changed |= self.begin(group, tree, changes);
        }
        for run in &mut self.runs {
            run.watch_events(checking.notify, &mut self.watches);
        }
        divide_directories(&mut self.runs.iter_mut().map(|run| &mut run.job).collect::<Vec<_>>());
        changed
    }

    /// The directories found, job by job, but for those left behind and those that a job has twice.
    fn groups(&mut self, tree: &mut Tree, mounts: &[Mount]) -> BTreeMap<JobKey, Group> {
        let mut groups: BTreeMap<JobKey, Group> = BTreeMap::new();
        let mut refused = Vec::new();
        let mut left = BTreeSet::new();
        for (path, node) in tree.nodes() {
            let Some(claim) = &node.what.claim else { continue };
            let known = (path.to_owned(), node.identity);
            if self.left.contains(&known) {
                left.insert(known);
                refused.push((path.to_owned(), Some(Refusal::LeftBehind)));
                continue;
            }
            let group = groups.entry(claim.key.clone()).or_insert_with(|| Group {
                claim: claim.clone(),
                dirs: Vec::new(),
                made: node.made,
            });
            let hierarchies = mounts.get(node.mount).map(|mount| mount.hierarchies.as_slice());
            let hierarchies = hierarchies.unwrap_or_default();
            if group.dirs.iter().any(|(dir, _)| hierarchies.contains(&dir.hierarchy)) {
                refused.push((path.to_owned(), Some(Refusal::Second)));
                continue;
            }
            if node.what.refused.is_some() {
                refused.push((path.to_owned(), None));
            }
            group.made = group.made.min(node.made);
            group.claim.user = group.claim.user.take().or_else(|| claim.user.clone());
            group.claim.uid = group.claim.uid.or(claim.uid);
            for hierarchy in hierarchies {
                let dir = JobDir { hierarchy: *hierarchy, path: path.to_owned() };
                group.dirs.push((dir, node.identity));
            }
        }
        self.left = left;
        for (path, why) in refused {
            if let Some(node) = tree.get_mut(&path) {
                node.what.refused = why;
            }
        }
        for group in groups.values_mut() {
            group.dirs.sort();
        }
        groups
    }

    /// Begins a run; false if there are too many.
    fn begin(&mut self, group: Group, tree: &mut Tree, changes: &mut Changes) -> bool {
        let key = group.claim.key;
        let Err(place) = self.runs.binary_search_by(|run| run.job.key.cmp(&key)) else {
            // The earlier run of this number is being told as ended; this one begins with the next
            // update.
            return false;
        };
        if self.runs.len() >= JOBS_MAX {
            for (dir, _) in &group.dirs {
                if let Some(node) = tree.get_mut(&dir.path) {
                    node.what.refused = Some(Refusal::TooMany(JOBS_MAX));
                }
            }
            return false;
        }
        changes.started.push(key.clone());
        // The kernel's times have steps of some milliseconds; two runs have two starts.
        let after = self.earlier.get(&key).map(|earlier| earlier.plus(1));
        let created = after.map_or(group.made, |after| group.made.max(after));
        let (dirs, identities) = group.dirs.into_iter().unzip();
        let job = JobCgroup {
            key,
            spelling: group.claim.spelling,
            user: group.claim.user,
            uid: group.claim.uid,
            dirs,
            created,
            populated: false,
            // Until `regroup` gives it its part.
            directories_max: 0,
        };
        let run = Run {
            job,
            identities,
            witness: None,
            watch: None,
            noted: true,
            occupied: false,
            empty_since: None,
            lost: false,
            ended: false,
        };
        self.runs.insert(place, run);
        true
    }

    /// Ends a run. What is left of its directories stays known, so that it begins no other; those
    /// that are gone are taken from the job, as the same paths may be another run's by now.
    fn end(
        &mut self,
        place: usize,
        tree: &mut Tree,
        notify: Option<&Inotify>,
        changes: &mut Changes,
    ) {
        let Some(run) = self.runs.get_mut(place) else { return };
        run.ended = true;
        changes.ended.push(run.job.key.clone());
        if let Some(since) = run.empty_since.filter(|_| run.is_local()) {
            changes.last_processes.push((run.job.key.clone(), since));
        }
        let mut identities = run.identities.iter();
        run.job.dirs.retain(|dir| {
            let identity = identities.next().copied();
            let there = tree.get_mut(&dir.path).map(|node| node.identity);
            if let (Some(identity), true) = (identity, there.is_some() && there == identity) {
                self.left.insert((dir.path.clone(), identity));
                return true;
            }
            false
        });
        run.identities.clear();
        if let Some(watch) = run.watch.take() {
            self.watches.remove(&watch);
            end_watch(notify, watch);
        }
    }

    /// Asks whether the jobs have processes; true if any job got its first.
    pub(crate) fn check(
        &mut self,
        checking: &Checking<'_>,
        tree: &mut Tree,
        changes: &mut Changes,
    ) -> bool {
        let mut changed = false;
        for place in 0..self.runs.len() {
            let Some(run) = self.runs.get_mut(place).filter(|run| !run.ended) else { continue };
            let told_by_kernel = run.watch.is_some() && run.job.dirs.len() == 1;
            if !(run.noted || checking.full || (checking.due && !told_by_kernel)) {
                continue;
            }
            run.noted = false;
            let dirs = &run.job.dirs;
            let occupied = self.presence.occupied(checking.root, &run.job, &mut run.witness);
            let came_and_went =
                !occupied && !run.job.populated && self.presence.ever_ran(checking.root, dirs);
            if !run.job.populated && (occupied || came_and_went) {
                run.job.populated = true;
                changed = true;
                changes.populated.push(run.job.key.clone());
            }
            if came_and_went || (run.occupied && !occupied) {
                changes.emptied.push(run.job.key.clone());
            }
            run.occupied = occupied;
            run.empty_since = match (occupied, run.job.populated) {
                (false, true) => run.empty_since.or(Some(checking.now)),
                _ => None,
            };
            if run.lost && !occupied {
                changed = true;
                self.end(place, tree, checking.notify, changes);
            }
        }
        changed | self.end_abandoned(checking, tree, changes)
    }

    /// Ends the local jobs whose `jobmeter run` was killed.
    fn end_abandoned(
        &mut self,
        checking: &Checking<'_>,
        tree: &mut Tree,
        changes: &mut Changes,
    ) -> bool {
        let mut changed = false;
        for place in 0..self.runs.len() {
            let abandoned = self.runs.get(place).is_some_and(|run| {
                let long = |since| checking.now.since(since) >= ABANDONED_US;
                !run.ended && run.is_local() && run.empty_since.is_some_and(long)
            });
            if abandoned {
                changed = true;
                self.end(place, tree, checking.notify, changes);
            }
        }
        changed
    }
}

enum Compared {
    Same,
    Changed,
    /// These are not this run's directories.
    Another,
}

impl Run {
    fn is_local(&self) -> bool {
        self.job.key.cluster.as_str() == ClusterId::LOCAL
    }

    /// Takes what the run's directories are now.
    fn compare(&mut self, group: Option<Group>) -> Compared {
        let Some(group) = group else { return Compared::Another };
        let known = |hierarchy| {
            let mut dirs = self.job.dirs.iter().zip(&self.identities);
            dirs.find(|(dir, _)| dir.hierarchy == hierarchy)
        };
        let is_own = |(dir, identity): &(JobDir, u64)| {
            known(dir.hierarchy).map(|(own, own_identity)| own == dir && own_identity == identity)
        };
        let replaced = group.dirs.iter().any(|dir| is_own(dir) == Some(false));
        let kept = group.dirs.iter().filter(|dir| is_own(dir) == Some(true)).count();
        if replaced || kept == 0 {
            return Compared::Another;
        }
        if kept == self.job.dirs.len() && kept == group.dirs.len() {
            return Compared::Same;
        }
        self.lost |= kept < self.job.dirs.len();
        (self.job.dirs, self.identities) = group.dirs.into_iter().unzip();
        self.job.created = self.job.created.min(group.made);
        self.job.user = self.job.user.take().or(group.claim.user);
        self.job.uid = self.job.uid.or(group.claim.uid);
        Compared::Changed
    }

    /// Watches version 2's `cgroup.events`, if there is one that is not watched.
    fn watch_events(&mut self, notify: Option<&Inotify>, watches: &mut BTreeMap<Watch, JobKey>) {
        let (None, false, Some(notify)) = (self.watch, self.ended, notify) else { return };
        let Some(dir) = self.job.dir(crate::Hierarchy::Unified) else { return };
        // Where none can be set, the job is asked as version 1's are.
        if let Ok(Some(watch)) = notify.watch_file(&format!("/{dir}/cgroup.events")) {
            self.watch = Some(watch);
            watches.insert(watch, self.job.key.clone());
            // What changed before the watch was set has not been noted.
            self.noted = true;
        }
    }
}
