//! Owner, identity and creation time of a cgroup directory.
//!
//! On a live machine `stat` provides them. A recorded tree has the owners and times of whoever
//! unpacked it. So there they are read from `.jobmeter/owners`, with one line per directory:
//! owner, creation time in microseconds since 1970, path. A directory without a line belongs to root
//! and was created at boot.
//!
//! A cgroup directory has no birth time. Its `ctime` is the creation time until the kernel drops the inode
//! from memory or, for directories with another owner or with extended attributes, until an entry is created
//! in it (fs/kernfs/dir.c, `kernfs_add_one`). So the creation time is the earlier `ctime` of the directory
//! and its `cgroup.procs`, and remains the same for as long as the directory has the same inode.

use kernel::parse::{Fields, lines};
use kernel::{NodeKind, ReadError, Root};
use model::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// File with owners and times in a recorded tree.
const OWNERS: &str = ".jobmeter/owners";

/// Properties of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// Directory, link or other.
    pub(crate) kind: NodeKind,
    /// Its owner.
    pub(crate) uid: u32,
    /// Inode number; a different one at the same path is another directory.
    pub(crate) identity: u64,
    /// Creation time, as precise as it is known.
    pub(crate) made: Timestamp,
}

/// Creation time of a directory, for a later run of the program within the same boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDirectory {
    /// Its path.
    pub path: Box<str>,
    /// Inode number; a different one at the same path is another directory.
    pub inode: u64,
    /// Creation time.
    pub made: Timestamp,
}

/// Reads the facts of one machine.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    recorded: Option<Recorded>,
    /// By path: inode number and creation time. Inode numbers alone are ambiguous, because every hierarchy of
    /// version 1 numbers its own.
    recalled: BTreeMap<Box<str>, (u64, Timestamp)>,
    path: String,
}

#[derive(Debug, Default)]
struct Recorded {
    owners: BTreeMap<String, (u32, Timestamp)>,
    boot: Timestamp,
}

impl Facts {
    /// Rereads a recorded machine's owners; does nothing on a live machine.
    pub(crate) fn refresh(&mut self, root: &Root) {
        if root.is_live() {
            return;
        }
        let mut text = Vec::new();
        let owners = match root.read(OWNERS, &mut text) {
            Ok(()) => lines(&text).filter_map(owner).collect(),
            Err(_) => BTreeMap::new(),
        };
        self.recorded = Some(Recorded { owners, boot: boot(root, &mut text) });
    }

    /// The properties of a path.
    pub(crate) fn of(&self, root: &Root, path: &str) -> Result<Fact, ReadError> {
        let stat = root.stat(path)?;
        Ok(match &self.recorded {
            None => Fact {
                kind: stat.kind,
                uid: stat.uid,
                identity: stat.inode,
                made: Timestamp(stat.changed_us),
            },
            Some(recorded) => {
                let owner = recorded.owners.get(path).copied();
                let (uid, made) = owner.unwrap_or((0, recorded.boot));
                Fact { kind: stat.kind, uid, identity: made.0.unsigned_abs(), made }
            }
        })
    }

    /// Creation time of a job's directory, including the time of its `cgroup.procs`; never later than
    /// `now`.
    pub(crate) fn made(
        &mut self,
        root: &Root,
        path: &str,
        fact: Fact,
        now: Timestamp,
    ) -> Timestamp {
        let mut made = fact.made.min(now);
        if self.recorded.is_none() {
            crate::directories::paths::join(&mut self.path, path, "cgroup.procs");
            if let Ok(stat) = root.stat(&self.path) {
                made = made.min(Timestamp(stat.changed_us));
            }
            match self.recalled.get(path) {
                Some((inode, known)) if *inode == fact.identity => made = made.min(*known),
                _ => {}
            }
        }
        made
    }

    /// Restores creation times of an earlier run of the program.
    pub(crate) fn restore_creation_times(
        &mut self,
        made: impl IntoIterator<Item = KnownDirectory>,
    ) {
        let by_path = made.into_iter().map(|one| (one.path, (one.inode, one.made)));
        self.recalled.extend(by_path);
    }
}

fn owner(line: &[u8]) -> Option<(String, (u32, Timestamp))> {
    let mut fields = Fields::of(line);
    let uid = u32::try_from(fields.number().ok()?).ok()?;
    let made = i64::try_from(fields.number().ok()?).ok()?;
    let path = std::str::from_utf8(fields.rest()).ok().filter(|path| !path.is_empty())?;
    Some((path.to_owned(), (uid, Timestamp(made))))
}

/// Boot time of a recorded machine; 1970 if it is unknown.
fn boot(root: &Root, text: &mut Vec<u8>) -> Timestamp {
    let seconds = root.read("proc/stat", text).ok().and_then(|()| {
        let line = lines(text).find_map(|line| line.strip_prefix(b"btime "))?;
        kernel::parse::number(line).and_then(|seconds| i64::try_from(seconds).ok())
    });
    Timestamp::from_seconds(seconds.unwrap_or(0))
}

/// The lines of `.jobmeter/owners` for those of these paths that are cgroup directories, for
/// `jobmeter capture`.
///
/// # Errors
/// The machine's mounts are not readable.
pub fn recorded_owners(root: &Root, paths: &[String]) -> Result<String, ReadError> {
    let hierarchies = crate::Hierarchies::read(root)?;
    let mut facts = Facts::default();
    facts.refresh(root);
    let mut text = String::new();
    for path in paths {
        if hierarchies.below_mount(path).is_none() {
            continue;
        }
        let Ok(fact) = facts.of(root, path) else { continue };
        if fact.kind == NodeKind::Directory {
            let made = facts.made(root, path, fact, fact.made);
            // Writing into a `String` cannot fail.
            writeln!(text, "{} {} {path}", fact.uid, made.0).ok();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(owners: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for path in [".jobmeter", "proc", "cg/oar/alice_1"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        std::fs::write(dir.path().join("proc/stat"), "cpu 1\nbtime 1700000000\n").unwrap();
        std::fs::write(dir.path().join("proc/mounts"), "cgroup /cg cgroup rw,cpu 0 0\n").unwrap();
        std::fs::write(dir.path().join(OWNERS), owners).unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        (dir, root)
    }

    /// Two hierarchies of version 1 may give the same number to their directories.
    #[test]
    fn a_recalled_time_is_of_one_path_and_inode() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a")).unwrap();
        std::fs::create_dir_all(dir.path().join("b")).unwrap();
        let (root, early) = (Root::recorded(dir.path()).unwrap(), Timestamp(5));
        let mut facts = Facts::default();
        let fact = facts.of(&root, "a").unwrap();
        let inode = fact.identity;
        facts.restore_creation_times([KnownDirectory { path: "a".into(), inode, made: early }]);
        let now = Timestamp(i64::MAX);
        assert_eq!(facts.made(&root, "a", fact, now), early);
        assert_eq!(facts.made(&root, "b", fact, now), fact.made, "another path");
        let next = Fact { identity: inode + 1, ..fact };
        assert_eq!(facts.made(&root, "a", next, now), fact.made, "another directory");
    }

    #[test]
    fn a_recorded_tree_has_recorded_owners() {
        let (_dir, root) = tree("107 1700000005000000 cg/oar/alice_1\nnonsense\n");
        let mut facts = Facts::default();
        facts.refresh(&root);
        let job = facts.of(&root, "cg/oar/alice_1").unwrap();
        assert_eq!((job.uid, job.made), (107, Timestamp(1_700_000_005_000_000)));
        let oar = facts.of(&root, "cg/oar").unwrap();
        assert_eq!((oar.uid, oar.made), (0, Timestamp::from_seconds(1_700_000_000)));
        assert!(facts.of(&root, "cg/none").unwrap_err().is_absent());
        assert_eq!(facts.made(&root, "cg/oar/alice_1", job, Timestamp(7)), Timestamp(7));
    }

    #[test]
    fn recorded_owners_are_read_back_unchanged() {
        let owners = "107 1700000005000000 cg/oar/alice_1\n";
        let (_dir, root) = tree(owners);
        let paths = ["cg/oar/alice_1".to_owned(), "proc".to_owned(), "cg/none".to_owned()];
        assert_eq!(recorded_owners(&root, &paths).unwrap(), owners);
    }

    #[test]
    fn lines_of_owners() {
        assert_eq!(owner(b"0 5 a b").unwrap(), ("a b".to_owned(), (0, Timestamp(5))));
        for line in [&b""[..], b"0", b"0 5", b"x 5 a", b"0 -5 a", b"4294967296 5 a", b"0 5 \xff"] {
            assert_eq!(owner(line), None, "{}", line.escape_ascii());
        }
    }
}
