//! A new folder for a report, written without following links.

use anyhow::{Context as _, bail};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

/// A folder that this process created and that only its user can open.
///
/// Each file is opened from the handle of its folder. Users who can rename the folder, or replace it by a link, thus
/// redirect no file.
pub(super) struct NewFolder(OwnedFd);

impl NewFolder {
    /// Creates the folder. Fails if anything exists at its path, even a link.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Err(Errno::EXIST) => bail!("{shown} already exists; choose a new folder"),
            made => made.with_context(|| format!("making {shown}"))?,
        }
        let folder = folder_in(CWD, path).with_context(|| format!("opening {shown}"))?;
        let about = rustix::fs::fstat(&folder).with_context(|| format!("reading {shown}"))?;
        let is_own = about.st_uid == rustix::process::geteuid().as_raw();
        if !is_own || about.st_mode & 0o077 != 0 {
            bail!("{shown} was replaced while it was made; name a folder where only you can write");
        }
        Ok(Self(folder))
    }

    /// Writes a file that only its owner may read, and the folders above it. Replaces an earlier file.
    pub(super) fn write(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let written = self.within(path, |folder, name| {
            match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
                Err(error) if error != Errno::NOENT => return Err(error.into()),
                _ => {}
            }
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
            Ok(File::from(file).write_all(bytes)?)
        });
        written.with_context(|| format!("writing {path}"))
    }

    /// Creates a link, and the folders above it. Does nothing if anything exists at its path.
    pub(super) fn link(&self, path: &str, target: &str) -> anyhow::Result<()> {
        let linked =
            self.within(path, |folder, name| match rustix::fs::symlinkat(target, folder, name) {
                Err(error) if error != Errno::EXIST => Err(error.into()),
                _ => Ok(()),
            });
        linked.with_context(|| format!("linking {path}"))
    }

    /// Creates the folders above a path, and calls `work` with the last one and the file's name.
    fn within(
        &self,
        path: &str,
        work: impl FnOnce(&OwnedFd, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut folder = self.0.try_clone()?;
        let mut parts = Path::new(path).components().peekable();
        while let Some(part) = parts.next() {
            let Component::Normal(name) = part else { bail!("the path leaves the folder") };
            let name = Path::new(name);
            if parts.peek().is_none() {
                return work(&folder, name);
            }
            match rustix::fs::mkdirat(&folder, name, Mode::RWXU) {
                Err(error) if error != Errno::EXIST => return Err(error.into()),
                _ => folder = folder_in(&folder, name)?,
            }
        }
        bail!("the path has no name")
    }
}

/// Opens a folder; fails if it is a link.
fn folder_in(above: impl AsFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Another user who may write beside the report plants a folder of links at its path.
    #[test]
    fn a_planted_folder_redirects_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let [report, victim, moved] =
            ["report", "victim", "moved"].map(|name| dir.path().join(name));
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("stat"), "as it was").unwrap();
        let plant = || {
            fs::create_dir(&report).unwrap();
            symlink(&victim, report.join("proc")).unwrap();
        };
        plant();
        let error = NewFolder::create(&report).err().unwrap().to_string();
        assert!(error.contains("already exists"), "{error}");
        fs::remove_dir_all(&report).unwrap();
        symlink(&victim, &report).unwrap();
        assert!(NewFolder::create(&report).is_err(), "a link at its path");
        fs::remove_file(&report).unwrap();

        let folder = NewFolder::create(&report).unwrap();
        fs::rename(&report, &moved).unwrap();
        plant();
        folder.write("proc/stat", b"cpu 1").unwrap();
        folder.write("proc/stat", b"cpu 2").unwrap();
        assert_eq!(fs::read_to_string(victim.join("stat")).unwrap(), "as it was");
        assert_eq!(fs::read_to_string(moved.join("proc/stat")).unwrap(), "cpu 2");
        symlink(&victim, moved.join("etc")).unwrap();
        assert!(folder.write("etc/stat", b"").is_err() && folder.link("etc/a", "b").is_err());
        assert!(folder.write("../stat", b"").is_err());
        symlink(victim.join("stat"), moved.join("file")).unwrap();
        folder.write("file", b"own").unwrap();
        assert_eq!(fs::read_to_string(victim.join("stat")).unwrap(), "as it was");
        let mode = |path: &str| {
            fs::symlink_metadata(moved.join(path)).unwrap().permissions().mode() & 0o7777
        };
        assert_eq!((mode(""), mode("proc"), mode("proc/stat")), (0o700, 0o700, 0o600));
    }
}
