//! The directories that matter, as they were when last looked at.
//!
//! Those through which jobs are reached (*passages*) are watched and listed; of the others only
//! jobs, units, and what was refused are kept. Looking at a passage compares what is there with
//! what is known, so that events may come twice, late or not at all.

use crate::directories::facts::{Fact, Facts};
use crate::directories::paths::{PathStack, join};
use crate::layout::{DEPTH_MAX, LayoutRoot, Step};
use crate::{Counts, Mount, Refusal};
use kernel::inotify::{Inotify, Watch};
use kernel::{NodeKind, Root};
use model::{ClusterId, JobId, JobKey, Timestamp};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Most passages that are watched.
pub const PASSAGES_MAX: usize = 4096;

/// A directory that matters.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Place in the list of mounts.
    pub(crate) mount: usize,
    /// Another number at the same path is another directory.
    pub(crate) identity: u64,
    /// When it was made.
    pub(crate) made: Timestamp,
    /// What it is.
    pub(crate) what: What,
    /// How often its SLUID was asked about.
    pub(crate) tries: u32,
    watch: Option<Watch>,
    seen: u64,
}

/// What a directory is; a Slurm scope is a passage and a unit at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct What {
    /// Jobs may lie below.
    pub(crate) passage: bool,
    /// A passage that only a scheduler has.
    pub(crate) own: bool,
    /// It is a unit.
    pub(crate) unit: bool,
    /// It is a job's.
    pub(crate) claim: Option<Claim>,
    /// It is a job of `jobmeter run`, of the server with this identity.
    pub(crate) server: Option<Box<str>>,
    /// It is a job's, of this cluster, by its SLUID, and the number is not known.
    pub(crate) sluid: Option<ClusterId>,
    /// It has a job's name and is none.
    pub(crate) refused: Option<Refusal>,
}

/// What a directory's name says of its job, and its owner where that is the job's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) key: JobKey,
    pub(crate) spelling: Box<str>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) uid: Option<u32>,
}

/// What looking needs to know.
pub(crate) struct Looking<'a> {
    pub(crate) root: &'a Root,
    pub(crate) now: Timestamp,
    pub(crate) mounts: &'a [Mount],
    pub(crate) places: &'a [LayoutRoot],
    pub(crate) facts: &'a mut Facts,
    pub(crate) notify: Option<&'a Inotify>,
    /// Users beside root who may own what leads to a job.
    pub(crate) trusted: &'a [u32],
    pub(crate) local: Option<&'a ClusterId>,
    pub(crate) registered: &'a [(JobId, u32)],
    /// The identity of the server; `None`: jobs of every server count.
    pub(crate) server: Option<&'a str>,
    pub(crate) counts: &'a mut Counts,
}

/// All directories that matter, by their paths.
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
    /// Every directory that matters, ordered by path.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The directory at a path.
    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(path)
    }

    /// The passage that a watch watches.
    pub(crate) fn watched(&self, watch: Watch) -> Option<&str> {
        self.watches.get(&watch).map(String::as_str)
    }

    /// Whether anything but a passage came, went or changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether [`Self::take_changed`] would say so.
    pub(crate) const fn is_changed(&self) -> bool {
        self.changed
    }

    /// Says that something changed.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Forgets a watch that the kernel has ended.
    pub(crate) fn unwatched(&mut self, watch: Watch) {
        if let Some(path) = self.watches.remove(&watch)
            && let Some(node) = self.nodes.get_mut(&path)
        {
            node.watch = None;
        }
    }

    /// Forgets everything, and begins at the roots of these hierarchies.
    pub(crate) fn restart(&mut self, mounts: &[Mount], notify: Option<&Inotify>) {
        for watch in self.watches.keys() {
            end_watch(notify, *watch);
        }
        self.nodes.clear();
        self.watches.clear();
        self.changed = true;
        self.passages = mounts.len();
        for (place, mount) in mounts.iter().enumerate() {
            let what = What { passage: true, ..What::default() };
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

    /// Forgets what was refused, so that it is judged anew.
    pub(crate) fn forget_refused(&mut self) {
        let before = self.nodes.len();
        self.nodes.retain(|_, node| node.what.refused.is_none() || node.what.passage);
        self.changed |= self.nodes.len() != before;
    }

    /// Puts a passage on the list of what is to be looked at.
    pub(crate) fn want(&mut self, path: &str) {
        self.waiting.push(path, "");
    }

    /// Puts every passage on the list, or those that have no watch.
    pub(crate) fn want_all(&mut self, only_unwatched: bool) {
        for (path, node) in &self.nodes {
            if node.what.passage && !(only_unwatched && node.watch.is_some()) {
                self.waiting.push(path, "");
            }
        }
    }

    /// Whether some passage is not watched.
    pub(crate) fn has_unwatched(&self) -> bool {
        self.watches.len() < self.passages
    }

    /// Looks at everything on the list, and at the passages found that way.
    pub(crate) fn scan(&mut self, looking: &mut Looking<'_>) {
        let mut dir = std::mem::take(&mut self.dir);
        while self.waiting.pop(&mut dir) {
            self.look_at(looking, &dir);
        }
        self.dir = dir;
    }

    fn look_at(&mut self, looking: &mut Looking<'_>, dir: &str) {
        let Some(node) = self.nodes.get_mut(dir).filter(|node| node.what.passage) else { return };
        let mount = node.mount;
        // Watched before it is listed, so that nothing comes unseen between the two.
        if node.watch.is_none()
            && let Some(notify) = looking.notify
        {
            join(&mut self.path, "", dir);
            match notify.watch_dir(&self.path) {
                Ok(Some(watch)) => {
                    node.watch = Some(watch);
                    self.watches.insert(watch, dir.to_owned());
                }
                Ok(None) => {}
                Err(_) => looking.counts.watches_failed += 1,
            }
        }
        self.look += 1;
        looking.counts.listed += 1;
        self.names.clear();
        let names = &mut self.names;
        // Links too, so that one with a job's name is refused and not passed over.
        if let Err(error) = looking.root.list(dir, |entry| {
            if entry.kind != NodeKind::File {
                names.push(entry.name, "");
            }
        }) {
            if !error.is_absent() {
                looking.counts.unreadable += 1;
                return;
            }
            self.names.clear();
        }
        let mut name = std::mem::take(&mut self.name);
        while self.names.pop(&mut name) {
            self.meet(looking, mount, dir, &name);
        }
        self.name = name;
        self.forget_unseen(looking.notify, dir);
    }

    /// Judges one entry of a passage, unless it is known.
    fn meet(&mut self, looking: &mut Looking<'_>, mount: usize, dir: &str, name: &str) {
        join(&mut self.path, dir, name);
        if let Some(node) = self.nodes.get_mut(&self.path) {
            let Ok(fact) = looking.facts.of(looking.root, &self.path) else { return };
            if fact.identity == node.identity {
                node.seen = self.look;
                return;
            }
        }
        let Some(mut what) = judge_path(looking, mount, &self.path) else { return };
        let Ok(fact) = looking.facts.of(looking.root, &self.path) else { return };
        refuse(looking, &mut what, fact);
        let path = std::mem::take(&mut self.path);
        self.forget(looking.notify, &path);
        self.add(looking, mount, &path, fact, what);
        self.path = path;
    }

    fn add(
        &mut self,
        looking: &mut Looking<'_>,
        mount: usize,
        path: &str,
        fact: Fact,
        mut what: What,
    ) {
        if what.passage {
            if self.passages >= PASSAGES_MAX {
                looking.counts.passages_refused += 1;
                what.passage = false;
            } else {
                self.passages += 1;
                self.waiting.push(path, "");
            }
        }
        let made = looking.facts.made(looking.root, path, fact, looking.now);
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

    /// Forgets the entries of a passage that the last look did not meet.
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

    /// Forgets a directory and everything below it.
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

/// Ends a watch; that it is gone already, as its directory is, is no error.
pub(crate) fn end_watch(notify: Option<&Inotify>, watch: Watch) {
    if let Some(notify) = notify {
        notify.unwatch(watch).ok();
    }
}

/// What all layouts say of a path below a mount.
fn judge_path(looking: &Looking<'_>, mount: usize, path: &str) -> Option<What> {
    let below = path.strip_prefix(looking.mounts.get(mount)?.path.as_str())?.strip_prefix('/')?;
    let mut parts = [""; DEPTH_MAX];
    let mut depth = 0;
    for part in below.split('/') {
        *parts.get_mut(depth)? = part;
        depth += 1;
    }
    judge(looking.places, parts.get(..depth)?)
}

/// What all layouts say of a way from the hierarchy's root; `None` if it is nothing to any of them.
pub(crate) fn judge(places: &[LayoutRoot], parts: &[&str]) -> Option<What> {
    let mut what = What::default();
    for place in places {
        match place.step(parts) {
            Step::No => continue,
            Step::Passage { own } => {
                what.passage = true;
                what.own |= own;
            }
            Step::Unit => what.unit = true,
            Step::Sluid => what.sluid = what.sluid.or_else(|| Some(place.cluster.clone())),
            Step::Job(name) => {
                what.server = what.server.or_else(|| name.server.map(Into::into));
                what.claim = what.claim.or_else(|| {
                    Some(Claim {
                        key: JobKey { cluster: place.cluster.clone(), id: name.id },
                        spelling: name.spelling.into(),
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

/// Whether a directory of `jobmeter run` does not carry the identity of the agent's server. Recorded machines may have
/// directories without an identity.
fn is_of_other_server(looking: &Looking<'_>, what: &What) -> bool {
    let is_run = what.claim.as_ref().is_some_and(|it| Some(&it.key.cluster) == looking.local);
    match (looking.server, what.server.as_deref()) {
        (Some(own), Some(server)) => server != own,
        (Some(_), None) => is_run && looking.root.is_live(),
        (None, _) => false,
    }
}

/// Applies the rule of owners: what leads to a job, and the job's own directory, is root's or the
/// scheduler's; a unit may be anybody's, as only root can have made it where it is.
fn refuse(looking: &Looking<'_>, what: &mut What, fact: Fact) {
    let named = what.claim.is_some() || what.sluid.is_some();
    let why = if fact.kind != NodeKind::Directory {
        what.unit = false;
        Refusal::NoDirectory
    } else if is_of_other_server(looking, what) {
        Refusal::OtherServer
    } else if fact.uid == 0 || looking.trusted.contains(&fact.uid) {
        return;
    } else if let Some(claim) = &mut what.claim
        && Some(&claim.key.cluster) == looking.local
    {
        if looking.registered.contains(&(claim.key.id, fact.uid)) {
            claim.uid = Some(fact.uid);
            return;
        }
        Refusal::Unregistered(fact.uid)
    } else {
        Refusal::Owner(fact.uid)
    };
    let own = what.own;
    *what = What { unit: what.unit, ..What::default() };
    if named || own {
        what.refused = Some(why);
    }
}
