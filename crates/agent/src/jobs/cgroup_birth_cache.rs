//! Creation times of job cgroups, kept across restarts. The kernel does not report them, and a job's counters start
//! with its cgroup.
//!
//! The file `known` beside the spool is text. Its first line is the machine's boot ID. Each further line is a
//! directory's inode number, its creation time in microseconds since 1970, and its path. The agent writes a temporary file
//! beside it and renames it. It ignores the file of an earlier boot.

use cgroups::KnownDirectory;
use kernel::Root;
use model::Timestamp;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file that is read.
const BYTES_MAX: u64 = 4 << 20;

/// Creation times of cgroup directories.
pub(crate) type Directories = Vec<KnownDirectory>;

/// The file `known`.
#[derive(Debug)]
pub(crate) struct BirthCache {
    path: PathBuf,
    boot: String,
    /// Generation of the jobs that was written last.
    generation: u64,
}

impl BirthCache {
    /// Reads the file of an earlier start within this boot. Returns `None` if the kernel has no boot ID.
    pub(crate) fn open(dir: &Path, root: &Root) -> Option<(Self, Directories)> {
        let boot = root.read_text("proc/sys/kernel/random/boot_id").ok()?;
        let path = dir.join("known");
        let found = match read(&path, &boot) {
            Ok(found) => found,
            Err(e) => {
                log::warn!("{}: {e}; counters of jobs may seem to restart", path.display());
                Directories::new()
            }
        };
        Some((Self { path, boot, generation: 0 }, found))
    }

    /// Generation of the jobs that was written last; 0 for none.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes the known directories.
    pub(crate) fn write(&mut self, generation: u64, directories: &[KnownDirectory]) {
        if let Err(e) = self.write_now(directories) {
            log::warn!("{} cannot be written: {e}", self.path.display());
            return;
        }
        self.generation = generation;
    }

    fn write_now(&self, directories: &[KnownDirectory]) -> io::Result<()> {
        let mut text = format!("{}\n", self.boot);
        for KnownDirectory { path, inode, made } in directories {
            // Writing to a string cannot fail. No cgroup's name has a line break.
            writeln!(text, "{inode} {} {path}", made.0).ok();
        }
        let beside = self.path.with_extension("new");
        delivery::write_private(&beside, text.as_ref())?;
        std::fs::rename(beside, &self.path)
    }
}

fn read(path: &Path, boot: &str) -> io::Result<Directories> {
    match std::fs::metadata(path) {
        Ok(data) if data.len() > BYTES_MAX => return Err(io::Error::other("it is too long")),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Directories::new()),
        Err(e) => return Err(e),
    }
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    if lines.next() != Some(boot) {
        return Ok(Directories::new());
    }
    let directory = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        Some(KnownDirectory {
            inode: fields.next()?.parse().ok()?,
            made: Timestamp(fields.next()?.parse().ok()?),
            path: fields.next()?.into(),
        })
    };
    Ok(lines.filter_map(directory).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_until_the_machine_boots() {
        let dir = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        let boot_id = root.path().join("proc/sys/kernel/random/boot_id");
        std::fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
        std::fs::write(&boot_id, "one\n").unwrap();
        let machine = Root::recorded(root.path()).unwrap();
        let (mut known, found) = BirthCache::open(dir.path(), &machine).unwrap();
        assert_eq!(found, []);
        let directory = |path: &str, inode, made| {
            let made = Timestamp(made);
            KnownDirectory { path: path.into(), inode, made }
        };
        let directories = [directory("a/with blank", 7, 70), directory("b", 8, -1)];
        known.write(1, &directories);
        assert_eq!(known.generation(), 1);
        assert_eq!(BirthCache::open(dir.path(), &machine).unwrap().1, directories);
        std::fs::write(dir.path().join("known"), "one\n7 70 a\nx y z\n9 1").unwrap();
        assert_eq!(BirthCache::open(dir.path(), &machine).unwrap().1, [directory("a", 7, 70)]);
        std::fs::write(&boot_id, "two\n").unwrap();
        assert_eq!(BirthCache::open(dir.path(), &machine).unwrap().1, []);
        std::fs::remove_file(boot_id).unwrap();
        assert!(BirthCache::open(dir.path(), &machine).is_none());
    }
}
