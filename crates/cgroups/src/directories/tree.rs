//! The relevant directories, as of the last scan.
//!
//! Directories that can contain jobs (*passages*) are watched and listed; of the others only
//! jobs, units and rejected directories are stored. A scan of a passage compares its entries with
//! the stored ones, so that events may arrive twice, late or never.

use crate::directories::facts::{Fact, Facts};
use crate::directories::paths::{PathStack, join};
use crate::job_cgroup_names::{DEPTH_MAX, DirectoryKind, LayoutRoot};
use crate::{Counts, Mount, RejectionReason};
use kernel::inotify::{Inotify, Watch};
use kernel::{NodeKind, Root};
use model::{ClusterId, JobId, JobKey, Timestamp};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Maximum number of watched passages.
pub const PASSAGES_MAX: usize = 4096;

/// A relevant directory.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Index in the list of mounts.
    pub(crate) mount: usize,
    /// Inode number; a different one at the same path is another directory.
    pub(crate) identity: u64,
    /// Creation time.
    pub(crate) made: Timestamp,
    /// Its classification.
    pub(crate) what: DirectoryClass,
    /// Number of attempts to resolve its SLUID.
    pub(crate) tries: u32,
    watch: Option<Watch>,
    seen: u64,
}

/// Classification of a directory; a Slurm scope is both a passage and a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectoryClass {
    /// It may contain jobs.
    pub(crate) passage: bool,
    /// It is a passage that only a scheduler creates.
    pub(crate) own: bool,
    /// It is a unit.
    pub(crate) unit: bool,
    /// It is a job's directory.
    pub(crate) claim: Option<Claim>,
    /// For a job of `jobmeter run`: identity of its server.
    pub(crate) server: Option<Box<str>>,
    /// For a job's directory with an unresolved SLUID: its cluster.
    pub(crate) sluid: Option<ClusterId>,
    /// It has a job's name but was rejected.
    pub(crate) rejected: Option<RejectionReason>,
}

/// A job by its directory's name; the owner of the directory if it is the job's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) key: JobKey,
    pub(crate) display_id: Box<str>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) uid: Option<u32>,
}

/// Parameters of a scan.
pub(crate) struct ScanContext<'a> {
    pub(crate) root: &'a Root,
    pub(crate) now: Timestamp,
    pub(crate) mounts: &'a [Mount],
    pub(crate) places: &'a [LayoutRoot],
    pub(crate) facts: &'a mut Facts,
    pub(crate) notify: Option<&'a Inotify>,
    /// Users besides root that may own directories of jobs and their parents.
    pub(crate) trusted: &'a [u32],
    pub(crate) local: Option<&'a ClusterId>,
    pub(crate) registered: &'a [(JobId, u32)],
    /// The identity of the server; `None`: jobs of every server count.
    pub(crate) server: Option<&'a str>,
    pub(crate) counts: &'a mut Counts,
}

/// The relevant directories, by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
    watches: BTreeMap<Watch, String>,
    passages: usize,
    look: u64,
    changed: bool,
    waiting: PathStack,
    names: PathStack,
    dir: String,
    name: String,
    path: String,
}

impl Tree {
    /// All relevant directories, sorted by path.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The directory at a path.
    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(path)
    }

    /// The passage of a watch.
    pub(crate) fn watched(&self, watch: Watch) -> Option<&str> {
        self.watches.get(&watch).map(String::as_str)
    }

    /// Whether anything but a passage was added, removed or changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether [`Self::take_changed`] would return true.
    pub(crate) const fn is_changed(&self) -> bool {
        self.changed
    }

    /// Records a change.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Removes a watch that the kernel has ended.
    pub(crate) fn unwatched(&mut self, watch: Watch) {
        if let Some(path) = self.watches.remove(&watch)
            && let Some(node) = self.nodes.get_mut(&path)
        {
            node.watch = None;
        }
    }

    /// Removes everything, and starts at the roots of these hierarchies.
    pub(crate) fn restart(&mut self, mounts: &[Mount], notify: Option<&Inotify>) {
        for watch in self.watches.keys() {
            end_watch(notify, *watch);
        }
        self.nodes.clear();
        self.watches.clear();
        self.changed = true;
        self.passages = mounts.len();
        for (place, mount) in mounts.iter().enumerate() {
            let what = DirectoryClass { passage: true, ..DirectoryClass::default() };
            let node = Node {
                mount: place,
                identity: 0,
                made: Timestamp(0),
                what,
                tries: 0,
                watch: None,
                seen: 0,
            };
            self.nodes.insert(mount.path.clone(), node);
        }
    }

    /// Removes rejected directories, so that they are judged again.
    pub(crate) fn forget_rejected(&mut self) {
        let before = self.nodes.len();
        self.nodes.retain(|_, node| node.what.rejected.is_none() || node.what.passage);
        self.changed |= self.nodes.len() != before;
    }

    /// Queues a passage for the next scan.
    pub(crate) fn want(&mut self, path: &str) {
        self.waiting.push(path, "");
    }

    /// Queues all passages, or those without a watch.
    pub(crate) fn want_all(&mut self, only_unwatched: bool) {
        for (path, node) in &self.nodes {
            if node.what.passage && !(only_unwatched && node.watch.is_some()) {
                self.waiting.push(path, "");
            }
        }
    }

    /// Whether some passage has no watch.
    pub(crate) fn has_unwatched(&self) -> bool {
        self.watches.len() < self.passages
    }

    /// Scans the queued passages, and the passages found in them.
    pub(crate) fn scan(&mut self, cx: &mut ScanContext<'_>) {
        let mut dir = std::mem::take(&mut self.dir);
        while self.waiting.pop(&mut dir) {
            self.scan_dir(cx, &dir);
        }
        self.dir = dir;
    }

    fn scan_dir(&mut self, cx: &mut ScanContext<'_>, dir: &str) {
        let Some(node) = self.nodes.get_mut(dir).filter(|node| node.what.passage) else { return };
        let mount = node.mount;
        // Watched before it is listed, so that no change between the two is missed.
        if node.watch.is_none()
            && let Some(notify) = cx.notify
        {
            join(&mut self.path, "", dir);
            match notify.watch_dir(&self.path) {
                Ok(Some(watch)) => {
                    node.watch = Some(watch);
                    self.watches.insert(watch, dir.to_owned());
                }
                Ok(None) => {}
                Err(_) => cx.counts.watches_failed += 1,
            }
        }
        self.look += 1;
        cx.counts.listed += 1;
        self.names.clear();
        let names = &mut self.names;
        // Links too, so that a link with a job's name is rejected and reported.
        if let Err(error) = cx.root.list(dir, |entry| {
            if entry.kind != NodeKind::File {
                names.push(entry.name, "");
            }
        }) {
            if !error.is_absent() {
                cx.counts.unreadable += 1;
                return;
            }
            self.names.clear();
        }
        let mut name = std::mem::take(&mut self.name);
        while self.names.pop(&mut name) {
            self.judge_entry(cx, mount, dir, &name);
        }
        self.name = name;
        self.forget_unseen(cx.notify, dir);
    }

    /// Judges an entry of a passage, unless it is known.
    fn judge_entry(&mut self, cx: &mut ScanContext<'_>, mount: usize, dir: &str, name: &str) {
        join(&mut self.path, dir, name);
        if let Some(node) = self.nodes.get_mut(&self.path) {
            let Ok(fact) = cx.facts.of(cx.root, &self.path) else { return };
            if fact.identity == node.identity {
                node.seen = self.look;
                return;
            }
        }
        let Some(mut what) = judge_path(cx, mount, &self.path) else { return };
        let Ok(fact) = cx.facts.of(cx.root, &self.path) else { return };
        apply_owner_rule(cx, &mut what, fact);
        let path = std::mem::take(&mut self.path);
        self.forget(cx.notify, &path);
        self.add(cx, mount, &path, fact, what);
        self.path = path;
    }

    fn add(
        &mut self,
        cx: &mut ScanContext<'_>,
        mount: usize,
        path: &str,
        fact: Fact,
        mut what: DirectoryClass,
    ) {
        if what.passage {
            if self.passages >= PASSAGES_MAX {
                cx.counts.passages_rejected += 1;
                what.passage = false;
            } else {
                self.passages += 1;
                self.waiting.push(path, "");
            }
        }
        let made = cx.facts.made(cx.root, path, fact, cx.now);
        self.changed = true;
        let node = Node {
            mount,
            identity: fact.identity,
            made,
            what,
            tries: 0,
            watch: None,
            seen: self.look,
        };
        self.nodes.insert(path.to_owned(), node);
    }

    /// Removes the entries of a passage that the last scan did not find.
    fn forget_unseen(&mut self, notify: Option<&Inotify>, dir: &str) {
        join(&mut self.path, dir, "");
        let prefix = std::mem::take(&mut self.path);
        let unseen: Vec<String> = self
            .nodes
            .range::<str, _>((Bound::Excluded(prefix.as_str()), Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(&prefix))
            .filter(|(path, node)| {
                let child = path.get(prefix.len()..).is_some_and(|rest| !rest.contains('/'));
                child && node.seen != self.look
            })
            .map(|(path, _)| path.clone())
            .collect();
        for path in unseen {
            self.forget(notify, &path);
        }
        self.path = prefix;
    }

    /// Removes a directory and everything below it.
    fn forget(&mut self, notify: Option<&Inotify>, path: &str) {
        if !self.nodes.contains_key(path) {
            return;
        }
        let below = format!("{path}/");
        let mut gone: Vec<String> = self
            .nodes
            .range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded))
            .take_while(|(known, _)| known.starts_with(&below))
            .map(|(known, _)| known.clone())
            .collect();
        gone.push(path.to_owned());
        for path in gone {
            let Some(node) = self.nodes.remove(&path) else { continue };
            self.changed = true;
            if node.what.passage {
                self.passages = self.passages.saturating_sub(1);
            }
            if let Some(watch) = node.watch {
                self.watches.remove(&watch);
                end_watch(notify, watch);
            }
        }
    }
}

/// Ends a watch; it is not an error if it has already ended with its directory.
pub(crate) fn end_watch(notify: Option<&Inotify>, watch: Watch) {
    if let Some(notify) = notify {
        notify.unwatch(watch).ok();
    }
}

/// Judges a path below a mount by all layouts.
fn judge_path(cx: &ScanContext<'_>, mount: usize, path: &str) -> Option<DirectoryClass> {
    let below = path.strip_prefix(cx.mounts.get(mount)?.path.as_str())?.strip_prefix('/')?;
    let mut parts = [""; DEPTH_MAX];
    let mut depth = 0;
    for part in below.split('/') {
        *parts.get_mut(depth)? = part;
        depth += 1;
    }
    judge(cx.places, parts.get(..depth)?)
}

/// Judges a path from the hierarchy's root by all layouts; `None` if it is irrelevant to all.
pub(crate) fn judge(places: &[LayoutRoot], parts: &[&str]) -> Option<DirectoryClass> {
    let mut what = DirectoryClass::default();
    for place in places {
        match place.step(parts) {
            DirectoryKind::No => continue,
            DirectoryKind::Passage { own } => {
                what.passage = true;
                what.own |= own;
            }
            DirectoryKind::Unit => what.unit = true,
            DirectoryKind::Sluid => what.sluid = what.sluid.or_else(|| Some(place.cluster.clone())),
            DirectoryKind::Job(name) => {
                what.server = what.server.or_else(|| name.server.map(Into::into));
                what.claim = what.claim.or_else(|| {
                    Some(Claim {
                        key: JobKey { cluster: place.cluster.clone(), id: name.id },
                        display_id: name.display_id.into(),
                        user: name.user.map(Into::into),
                        uid: name.uid,
                    })
                });
            }
        }
    }
    let any = what.passage || what.unit || what.claim.is_some() || what.sluid.is_some();
    any.then_some(what)
}

/// Whether a directory of `jobmeter run` lacks the identity of the agent's server. Recorded machines may have
/// directories without an identity.
fn is_of_other_server(cx: &ScanContext<'_>, what: &DirectoryClass) -> bool {
    let is_run = what.claim.as_ref().is_some_and(|it| Some(&it.key.cluster) == cx.local);
    match (cx.server, what.server.as_deref()) {
        (Some(own), Some(server)) => server != own,
        (Some(_), None) => is_run && cx.root.is_live(),
        (None, _) => false,
    }
}

/// Applies the ownership rule: a job's directory and its parents must belong to root or the
/// scheduler. A unit may belong to any user, because only root can have created it at its place.
fn apply_owner_rule(cx: &ScanContext<'_>, what: &mut DirectoryClass, fact: Fact) {
    let named = what.claim.is_some() || what.sluid.is_some();
    let why = if fact.kind != NodeKind::Directory {
        what.unit = false;
        RejectionReason::NoDirectory
    } else if is_of_other_server(cx, what) {
        RejectionReason::OtherServer
    } else if fact.uid == 0 || cx.trusted.contains(&fact.uid) {
        return;
    } else if let Some(claim) = &mut what.claim
        && Some(&claim.key.cluster) == cx.local
    {
        if cx.registered.contains(&(claim.key.id, fact.uid)) {
            claim.uid = Some(fact.uid);
            return;
        }
        RejectionReason::Unregistered(fact.uid)
    } else {
        RejectionReason::Owner(fact.uid)
    };
    let own = what.own;
    *what = DirectoryClass { unit: what.unit, ..DirectoryClass::default() };
    if named || own {
        what.rejected = Some(why);
    }
}
