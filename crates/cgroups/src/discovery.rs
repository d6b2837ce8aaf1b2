//! Keeps the list of jobs on this node up to date.

use crate::directories::facts::{Facts, KnownDirectory};
use crate::directories::tree::{Claim, ScanContext, Tree, judge};
use crate::runs::{Changes, CheckContext, Runs};
use crate::start_dirs::{Fingerprint, Places, fingerprint};
use crate::{
    Config, Counts, Hierarchies, JobCgroup, JobDir, Jobs, REJECTED_SHOWN_MAX, RejectedDirectory,
    Report, UnitCgroup,
};
use kernel::Root;
use kernel::cgroup::MountsFile;
use kernel::inotify::{Event, Inotify};
use model::{JobId, JobKey, Timestamp};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Maximum number of units reported.
pub const UNITS_MAX: usize = 512;

/// Interval between attempts to resolve a SLUID of a new job.
const SLUID_TRY: Duration = Duration::from_millis(250);

/// Number of attempts at that interval; afterwards one with each full scan.
const SLUID_TRIES: u32 = 240;

/// Finds jobs, and detects their start, their last process and their end.
#[derive(Debug)]
pub struct Discovery {
    config: Config,
    registered: Vec<(JobId, u32)>,
    server: Option<Box<str>>,
    notify: Option<Inotify>,
    mounts_file: Option<MountsFile>,
    hierarchies: Hierarchies,
    places: Places,
    fingerprint: Option<Fingerprint>,
    facts: Facts,
    tree: Tree,
    runs: Runs,
    began: bool,
    scheduler_seen: bool,
    unresolved: usize,
    generation: u64,
    last_full: Option<Timestamp>,
    last_presence: Option<Timestamp>,
    last_sluid: Option<Timestamp>,
    counts: Counts,
}

impl Changes {
    /// Whether nothing changed.
    pub const fn is_empty(&self) -> bool {
        self.started.is_empty()
            && self.populated.is_empty()
            && self.emptied.is_empty()
            && self.ended.is_empty()
            && !self.units
    }
}

impl Discovery {
    /// A discovery without results; see [`Self::update`].
    pub fn new(config: Config) -> Self {
        Self {
            config,
            registered: Vec::new(),
            server: None,
            notify: None,
            mounts_file: None,
            hierarchies: Hierarchies::default(),
            places: Places::default(),
            fingerprint: None,
            facts: Facts::default(),
            tree: Tree::default(),
            runs: Runs::default(),
            began: false,
            scheduler_seen: false,
            unresolved: 0,
            generation: 0,
            last_full: None,
            last_presence: None,
            last_sluid: None,
            counts: Counts::default(),
        }
    }

    /// A descriptor that becomes readable after a change: time for an update. `None` before the first update,
    /// on a recorded machine, and if the kernel provides no inotify.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.notify.as_ref().map(AsFd::as_fd)
    }

    /// Number of job directories with an unknown job ID.
    pub const fn unresolved(&self) -> usize {
        self.unresolved
    }

    /// Sets the users' own jobs: job IDs that the server registered, with their users. A user's directory of
    /// `jobmeter run` counts only if it is registered.
    pub fn set_registered(&mut self, mut registered: Vec<(JobId, u32)>) {
        registered.sort_unstable();
        if self.registered != registered {
            self.registered = registered;
            self.tree.forget_rejected();
            self.last_full = None;
        }
    }

    /// Sets the identity of the server: directories of `jobmeter run` with another identity do not count.
    /// Before the first call, the jobs of every server count.
    pub fn set_server(&mut self, server: &str) {
        if self.server.as_deref() != Some(server) {
            self.server = Some(server.into());
            self.tree.forget_rejected();
            self.last_full = None;
        }
    }

    /// Restores the creation times of directories from an earlier run of the program since the same boot. Without them, the age of a directory may be underestimated after a restart, and its
    /// counters seem to start later.
    pub fn restore_creation_times(&mut self, made: impl IntoIterator<Item = KnownDirectory>) {
        self.facts.restore_creation_times(made);
    }

    /// The state for [`Self::restore_creation_times`] in the next run of the program: creation times of the directories of
    /// jobs and units.
    pub fn known(&self) -> impl Iterator<Item = KnownDirectory> {
        let of_interest =
            |node: &crate::directories::tree::Node| node.what.claim.is_some() || node.what.unit;
        self.tree.nodes().filter(move |(_, node)| of_interest(node)).map(|(path, node)| {
            KnownDirectory { path: path.into(), inode: node.identity, made: node.made }
        })
    }

    /// Brings `jobs` up to date.
    ///
    /// Call it whenever [`Self::fd`] is readable, and at least every [`Config::presence`] while jobs of
    /// version 1 run: the kernel sends no event when their last process ends, so a call after that interval
    /// checks them, at the cost of one small file or one `stat` per job. Without new events, and between the
    /// full scans of every [`Config::rescan`], a call reads nothing else and allocates nothing.
    pub fn update(&mut self, root: &Root, now: Timestamp, jobs: &mut Jobs) -> Changes {
        let mut changes = Changes::default();
        let mut changed = self.runs.forget_ended();
        self.begin(root);
        let lost = self.drain(root);
        let remounted = self.mounts_file.as_ref().is_some_and(MountsFile::changed);
        let due = is_due(self.last_full, now, self.config.rescan);
        let full = lost || remounted || due || self.notify.is_none() && !root.is_live();
        if full {
            self.last_full = Some(now);
            self.counts.rescans += 1;
            self.facts.refresh(root);
            self.survey(root, remounted);
            self.tree.want_all(false);
        } else if self.tree.has_unwatched() {
            self.tree.want_all(true);
        }
        self.scan(root, now);
        self.resolve_sluids(root, now, full);

        let presence = is_due(self.last_presence, now, self.config.presence);
        if presence {
            self.last_presence = Some(now);
        }
        let notify = self.notify.as_ref();
        let cx = CheckContext { root, notify, due: presence, full, now };
        let moved = self.tree.take_changed();
        if moved || changed {
            let mounts = self.hierarchies.mounts();
            changed |= self.runs.regroup(&cx, &mut self.tree, mounts, &mut changes);
        }
        changed |= self.runs.check(&cx, &mut self.tree, &mut changes);
        if moved || changed {
            self.count();
        }
        let stale = jobs.generation != self.generation;
        changes.units = (moved || stale) && self.publish_units(jobs);
        if changed || stale || changes.units {
            self.publish(jobs);
        }
        changes
    }

    /// Opens the sources of events, once, on a live machine.
    fn begin(&mut self, root: &Root) {
        if self.began {
            return;
        }
        self.began = true;
        if root.is_live() {
            // Without them, every update scans everything.
            self.notify = Inotify::new().ok();
            self.mounts_file = MountsFile::open(root).ok();
        }
    }

    /// Handles the kernel's events; true if some are lost.
    fn drain(&mut self, root: &Root) -> bool {
        let Some(notify) = &self.notify else { return false };
        let (tree, runs, counts) = (&mut self.tree, &mut self.runs, &mut self.counts);
        let (places, hierarchies) = (&self.places.places, &self.hierarchies);
        let mut lost = false;
        let drained = notify.drain(|event| {
            counts.events += 1;
            match event {
                Event::Overflow => {
                    counts.overflows += 1;
                    lost = true;
                }
                Event::Modified(watch) => runs.noted(watch),
                Event::Gone(watch) => {
                    tree.unwatched(watch);
                    runs.unwatched(watch);
                }
                Event::Entry { watch, name, made_dir } => {
                    let Some(dir) = tree.watched(watch).map(str::to_owned) else { return };
                    if let (true, Some(name)) = (made_dir, name) {
                        let path = format!("{dir}/{name}");
                        let below = hierarchies.below_mount(&path).unwrap_or_default();
                        let parts: Vec<_> = below.split('/').collect();
                        let job = judge(places, &parts).is_some_and(|what| what.claim.is_some());
                        if job && root.stat(&path).is_err() {
                            counts.too_short += 1;
                        }
                    }
                    tree.want(&dir);
                }
            }
        });
        lost || drained.is_err()
    }

    /// Rereads the hierarchies and the layout roots; restarts the tree if they changed.
    fn survey(&mut self, root: &Root, remounted: bool) {
        let given = [&self.config.oar, &self.config.slurm].into_iter().flatten();
        let has_roots = given.into_iter().any(|layout| !layout.roots.is_empty());
        let fingerprint = Some(fingerprint(root));
        if root.is_live() && !remounted && !has_roots && fingerprint == self.fingerprint {
            return;
        }
        self.fingerprint = fingerprint;
        let hierarchies = Hierarchies::read(root).unwrap_or_default();
        let places = Places::find(&self.config, root, &self.facts, &hierarchies);
        let same = hierarchies == self.hierarchies
            && places.looked == self.places.looked
            && places.trusted == self.places.trusted;
        if !same {
            self.hierarchies = hierarchies;
            self.places = places;
            self.tree.restart(self.hierarchies.mounts(), self.notify.as_ref());
        }
    }

    fn scan(&mut self, root: &Root, now: Timestamp) {
        let mut cx = ScanContext {
            root,
            now,
            mounts: self.hierarchies.mounts(),
            places: &self.places.places,
            facts: &mut self.facts,
            notify: self.notify.as_ref(),
            trusted: &self.places.trusted,
            local: self.config.local.as_ref(),
            registered: &self.registered,
            server: self.server.as_deref(),
            counts: &mut self.counts,
        };
        self.tree.scan(&mut cx);
    }

    /// Resolves SLUIDs to job IDs by Slurm's daemons.
    fn resolve_sluids(&mut self, root: &Root, now: Timestamp, full: bool) {
        let new = self.tree.is_changed();
        if (self.unresolved == 0 && !new)
            || !(full || new || is_due(self.last_sluid, now, SLUID_TRY))
        {
            return;
        }
        self.last_sluid = Some(now);
        let waiting: Vec<String> = self
            .tree
            .nodes()
            .filter(|(_, node)| node.what.sluid.is_some() && (full || node.tries < SLUID_TRIES))
            .map(|(path, _)| path.to_owned())
            .collect();
        self.unresolved = waiting.len();
        for path in waiting {
            let found = crate::directories::sluid::resolve(root, &self.facts, &path);
            let Some(node) = self.tree.get_mut(&path) else { continue };
            node.tries = node.tries.saturating_add(1);
            if let Some(id) = found
                && let Some(cluster) = node.what.sluid.take()
            {
                let display_id = id.to_string().into();
                let key = JobKey { cluster, id };
                node.what.claim = Some(Claim { key, display_id, user: None, uid: None });
                self.tree.mark_changed();
            }
        }
    }

    /// Counts rejected and unresolved directories, and detects a scheduler.
    fn count(&mut self) {
        let (mut rejected, mut unresolved, mut scheduler) = (0, 0, false);
        for (_, node) in self.tree.nodes() {
            rejected += u64::from(node.what.rejected.is_some());
            unresolved += u64::from(node.what.sluid.is_some());
            scheduler |= node.what.own || node.what.sluid.is_some();
        }
        self.counts.rejected = rejected;
        self.counts.unresolved = unresolved;
        self.unresolved = usize::try_from(unresolved).unwrap_or(usize::MAX);
        self.scheduler_seen |= scheduler;
    }

    /// Writes the units into `jobs`; true if they changed.
    fn publish_units(&mut self, jobs: &mut Jobs) -> bool {
        let mut units: BTreeMap<&str, UnitCgroup> = BTreeMap::new();
        self.counts.units_rejected = 0;
        for (path, node) in self.tree.nodes() {
            if !node.what.unit || self.scheduler_seen {
                continue;
            }
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            if units.len() >= UNITS_MAX && !units.contains_key(name) {
                self.counts.units_rejected += 1;
                continue;
            }
            let unit = units.entry(name).or_insert_with(|| UnitCgroup {
                name: name.into(),
                dirs: Vec::new(),
                created: node.made,
            });
            unit.created = unit.created.min(node.made);
            let mount = self.hierarchies.mounts().get(node.mount);
            for hierarchy in mount.map(|mount| mount.hierarchies.as_slice()).unwrap_or_default() {
                if unit.dirs.iter().all(|dir| dir.hierarchy != *hierarchy) {
                    unit.dirs.push(JobDir { hierarchy: *hierarchy, path: path.to_owned() });
                }
            }
        }
        let mut units: Vec<_> = units.into_values().collect();
        for unit in &mut units {
            unit.dirs.sort();
        }
        if jobs.units == units {
            return false;
        }
        jobs.units = units;
        true
    }

    fn publish(&mut self, jobs: &mut Jobs) {
        jobs.jobs.clear();
        jobs.jobs.extend(self.runs.jobs().map(JobCgroup::clone));
        self.generation = self.generation.max(jobs.generation) + 1;
        jobs.generation = self.generation;
    }

    /// State and counters of the discovery.
    pub fn report(&self) -> Report {
        let nodes = || self.tree.nodes();
        let rejected = nodes().filter_map(|(path, node)| {
            let why = node.what.rejected.clone()?;
            Some(RejectedDirectory { path: format!("/{path}"), why })
        });
        let unresolved = nodes().filter(|(_, node)| node.what.sluid.is_some());
        Report {
            mounts: self.hierarchies.mounts().to_vec(),
            places: self.places.looked.clone(),
            rejected: rejected.take(REJECTED_SHOWN_MAX).collect(),
            unresolved: unresolved.map(|(path, _)| format!("/{path}")).collect(),
            scheduler_seen: self.scheduler_seen,
            counts: self.counts,
        }
    }

    /// Counters since the start.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The hierarchies as of the last survey.
    pub const fn hierarchies(&self) -> &Hierarchies {
        &self.hierarchies
    }
}

/// Whether this time has passed, or the clock was set back.
fn is_due(last: Option<Timestamp>, now: Timestamp, after: Duration) -> bool {
    last.is_none_or(|last| u128::from(now.since(last).unsigned_abs()) >= after.as_micros())
}
