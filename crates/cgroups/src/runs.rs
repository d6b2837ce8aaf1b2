//! Runs of jobs: groups directories by job, and tracks their start and end.
//!
//! Version 1 creates and removes a job's directories one hierarchy after another. A run starts with its first
//! directory. It ends in one of three cases: its last directory is removed; one directory is removed and the
//! job has no process, because a directory that could not be removed would keep it for ever; or one was
//! removed and recreated, because then the scheduler has reused the job ID.

use crate::directories::tree::{Claim, Tree, end_watch};
use crate::has_processes::Presence;
use crate::job_list::divide_directories;
use crate::{JobCgroup, JobDir, Mount, RejectionReason};
use kernel::Root;
use kernel::inotify::{Inotify, Watch};
use model::{ClusterId, JobKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Changes by an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Jobs that are new in [`crate::Jobs`].
    pub started: Vec<JobKey>,
    /// Jobs with a first process.
    pub populated: Vec<JobKey>,
    /// Jobs with an ended last process. Their cgroups still exist, but the scheduler may remove them at any
    /// moment: this is the time to read them. A job may start a process again.
    pub emptied: Vec<JobKey>,
    /// Jobs that ended. They remain in [`crate::Jobs`] until the next update, with their remaining
    /// directories.
    pub ended: Vec<JobKey>,
    /// For jobs of `jobmeter run` in `ended`: end of the last process, because their cgroup outlives it.
    pub last_processes: Vec<(JobKey, Timestamp)>,
    /// Whether the units changed.
    pub units: bool,
}

/// `jobmeter run` reads and removes its cgroup when the command has ended. A cgroup that is empty for
/// this time was left behind: the program was killed.
const ABANDONED_US: i64 = 10 * Timestamp::SECOND;

/// Maximum number of simultaneous jobs on a node.
pub const JOBS_MAX: usize = 4096;

/// All runs on this node.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// Sorted by key.
    runs: Vec<Run>,
    /// Directories left behind by ended runs.
    left: BTreeSet<(String, u64)>,
    /// Start of the last ended run, by job.
    earlier: BTreeMap<JobKey, Timestamp>,
    watches: BTreeMap<Watch, JobKey>,
    presence: Presence,
}

#[derive(Debug)]
struct Run {
    job: JobCgroup,
    /// Inodes of the directories, in the same order.
    identities: Vec<u64>,
    /// A known process of the job, for polling version 1.
    witness: Option<u32>,
    watch: Option<Watch>,
    /// The kernel reported a change of `populated`.
    noted: bool,
    occupied: bool,
    /// The kernel reports when this ends.
    is_by_event: bool,
    /// Time since which a local job that had processes has none.
    empty_since: Option<Timestamp>,
    /// A directory was removed.
    lost: bool,
    ended: bool,
}

/// The directories found for one job.
struct Group {
    claim: Claim,
    dirs: Vec<(JobDir, u64)>,
    made: Timestamp,
}

/// Parameters of a check.
pub(crate) struct CheckContext<'a> {
    pub(crate) root: &'a Root,
    pub(crate) notify: Option<&'a Inotify>,
    /// Whether to check jobs without events from the kernel.
    pub(crate) due: bool,
    /// Whether to check all jobs.
    pub(crate) full: bool,
    pub(crate) now: Timestamp,
}

impl Runs {
    /// The jobs, sorted by key, including those reported as ended.
    pub(crate) fn jobs(&self) -> impl ExactSizeIterator<Item = &JobCgroup> {
        self.runs.iter().map(|run| &run.job)
    }

    /// Drops the runs that were reported as ended; true if there were any.
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

    /// Records that a watched file changed.
    pub(crate) fn noted(&mut self, watch: Watch) {
        let Some(key) = self.watches.get(&watch) else { return };
        if let Ok(place) = self.runs.binary_search_by(|run| run.job.key.cmp(key))
            && let Some(run) = self.runs.get_mut(place)
        {
            run.noted = true;
        }
    }

    /// Removes a watch that the kernel has ended.
    pub(crate) fn unwatched(&mut self, watch: Watch) {
        self.watches.remove(&watch);
        if let Some(run) = self.runs.iter_mut().find(|run| run.watch == Some(watch)) {
            run.watch = None;
        }
    }

    /// Compares the runs with the present directories; true if any run changed.
    pub(crate) fn regroup(
        &mut self,
        cx: &CheckContext<'_>,
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
                    // The directory of the event may be gone.
                    run.is_by_event = false;
                    let occupied = self.presence.occupied(cx.root, &run.job, &mut run.witness);
                    if run.lost && !occupied {
                        self.end(place, tree, cx.notify, changes);
                    }
                }
                Compared::Another => {
                    changed = true;
                    self.end(place, tree, cx.notify, changes);
                }
            }
        }
        for (_, group) in groups {
            changed |= self.begin(group, tree, changes);
        }
        for run in &mut self.runs {
            run.watch_events(cx.notify, &mut self.watches);
        }
        divide_directories(&mut self.runs.iter_mut().map(|run| &mut run.job).collect::<Vec<_>>());
        changed
    }

    /// Groups the directories by job, except directories left behind and second ones of a job.
    fn groups(&mut self, tree: &mut Tree, mounts: &[Mount]) -> BTreeMap<JobKey, Group> {
        let mut groups: BTreeMap<JobKey, Group> = BTreeMap::new();
        let mut rejected = Vec::new();
        let mut left = BTreeSet::new();
        for (path, node) in tree.nodes() {
            let Some(claim) = &node.what.claim else { continue };
            let known = (path.to_owned(), node.identity);
            if self.left.contains(&known) {
                left.insert(known);
                rejected.push((path.to_owned(), Some(RejectionReason::LeftBehind)));
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
                rejected.push((path.to_owned(), Some(RejectionReason::Second)));
                continue;
            }
            if node.what.rejected.is_some() {
                rejected.push((path.to_owned(), None));
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
        for (path, why) in rejected {
            if let Some(node) = tree.get_mut(&path) {
                node.what.rejected = why;
            }
        }
        for group in groups.values_mut() {
            group.dirs.sort();
        }
        groups
    }

    /// Starts a run; false if there are too many.
    fn begin(&mut self, group: Group, tree: &mut Tree, changes: &mut Changes) -> bool {
        let key = group.claim.key;
        let Err(place) = self.runs.binary_search_by(|run| run.job.key.cmp(&key)) else {
            // The earlier run of this job is being reported as ended; this run starts with the next
            // update.
            return false;
        };
        if self.runs.len() >= JOBS_MAX {
            for (dir, _) in &group.dirs {
                if let Some(node) = tree.get_mut(&dir.path) {
                    node.what.rejected = Some(RejectionReason::TooMany(JOBS_MAX));
                }
            }
            return false;
        }
        changes.started.push(key.clone());
        // The kernel's times have steps of some milliseconds; two runs must have different starts.
        let after = self.earlier.get(&key).map(|earlier| earlier.plus(1));
        let created = after.map_or(group.made, |after| group.made.max(after));
        let (dirs, identities) = group.dirs.into_iter().unzip();
        let job = JobCgroup {
            key,
            display_id: group.claim.display_id,
            user: group.claim.user,
            uid: group.claim.uid,
            dirs,
            created,
            populated: false,
            // Set by `regroup`.
            directories_max: 0,
        };
        let run = Run {
            job,
            identities,
            witness: None,
            watch: None,
            noted: true,
            occupied: false,
            is_by_event: false,
            empty_since: None,
            lost: false,
            ended: false,
        };
        self.runs.insert(place, run);
        true
    }

    /// Ends a run. Its remaining directories stay known, so that they start no other run. Removed
    /// directories are removed from the job, because the same paths may belong to another run now.
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

    /// Checks which jobs have processes; true if any job got its first.
    pub(crate) fn check(
        &mut self,
        cx: &CheckContext<'_>,
        tree: &mut Tree,
        changes: &mut Changes,
    ) -> bool {
        let mut changed = false;
        for place in 0..self.runs.len() {
            let Some(run) = self.runs.get_mut(place).filter(|run| !run.ended) else { continue };
            let is_watched = run.watch.is_some() && (run.is_by_event || run.job.dirs.len() == 1);
            if !(run.noted || cx.full || (cx.due && !is_watched)) {
                continue;
            }
            run.noted = false;
            let dirs = &run.job.dirs;
            let occupied = self.presence.occupied(cx.root, &run.job, &mut run.witness);
            let came_and_went =
                !occupied && !run.job.populated && self.presence.ever_ran(cx.root, dirs);
            if !run.job.populated && (occupied || came_and_went) {
                run.job.populated = true;
                changed = true;
                changes.populated.push(run.job.key.clone());
            }
            if came_and_went || (run.occupied && !occupied) {
                changes.emptied.push(run.job.key.clone());
            }
            (run.occupied, run.is_by_event) = (occupied, self.presence.is_by_event());
            run.empty_since = match (occupied, run.job.populated) {
                (false, true) => run.empty_since.or(Some(cx.now)),
                _ => None,
            };
            if run.lost && !occupied {
                changed = true;
                self.end(place, tree, cx.notify, changes);
            }
        }
        changed | self.end_abandoned(cx, tree, changes)
    }

    /// Ends local jobs after their `jobmeter run` was killed.
    fn end_abandoned(
        &mut self,
        cx: &CheckContext<'_>,
        tree: &mut Tree,
        changes: &mut Changes,
    ) -> bool {
        let mut changed = false;
        for place in 0..self.runs.len() {
            let abandoned = self.runs.get(place).is_some_and(|run| {
                let long = |since| cx.now.since(since) >= ABANDONED_US;
                !run.ended && run.is_local() && run.empty_since.is_some_and(long)
            });
            if abandoned {
                changed = true;
                self.end(place, tree, cx.notify, changes);
            }
        }
        changed
    }
}

enum Compared {
    Same,
    Changed,
    /// The directories belong to another run.
    Another,
}

impl Run {
    fn is_local(&self) -> bool {
        self.job.key.cluster.as_str() == ClusterId::LOCAL
    }

    /// Compares the run with its present directories, and adopts them.
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

    /// Watches version 2's `cgroup.events`, if it exists and is not watched.
    fn watch_events(&mut self, notify: Option<&Inotify>, watches: &mut BTreeMap<Watch, JobKey>) {
        let (None, false, Some(notify)) = (self.watch, self.ended, notify) else { return };
        let Some(dir) = self.job.dir(crate::Hierarchy::Unified) else { return };
        // If no watch can be set, the job is polled like those of version 1.
        if let Ok(Some(watch)) = notify.watch_file(&format!("/{dir}/cgroup.events")) {
            self.watch = Some(watch);
            watches.insert(watch, self.job.key.clone());
            // A change before the watch was set caused no event.
            self.noted = true;
        }
    }
}
