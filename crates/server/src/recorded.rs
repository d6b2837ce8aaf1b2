//! The runtime file: where the server of this machine, or of this user, is found.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file with this server's address in it, as long as this is held. It is locked meanwhile, so that of
/// several servers the one that came first stays recorded, and one that was killed does not.
#[derive(Debug)]
pub struct Recorded {
    path: PathBuf,
    file: File,
}

impl Recorded {
    /// Writes the address, unless another server that runs is recorded there: then `None`.
    ///
    /// # Errors
    /// The file or its folder cannot be made, or the folder is not this user's own: whoever could write
    /// into it could send this user's commands to a server of his.
    pub fn write(path: &Path, url: &str) -> io::Result<Option<Self>> {
        if let Some(dir) = path.parent() {
            make_folder(dir)?;
        }
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mode = Mode::from_bits_truncate(0o644);
            let mut file = File::from(rustix::fs::open(path, flags, mode)?);
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // A server that ended in between took the name away from the file that is locked now.
            let still = std::fs::metadata(path).is_ok_and(|at_path| {
                file.metadata()
                    .is_ok_and(|own| own.ino() == at_path.ino() && own.dev() == at_path.dev())
            });
            if still {
                // For everyone: an address is no secret, and users look for root's server here.
                file.set_permissions(Permissions::from_mode(0o644))?;
                file.set_len(0)?;
                file.write_all(format!("{url}\n").as_bytes())?;
                return Ok(Some(Self { path: path.to_owned(), file }));
            }
        }
    }

    /// Takes the file away.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)?;
        // The lock goes with the file, after its name.
        drop(self.file);
        Ok(())
    }
}

/// Makes the folder, if it is not there and this user's own. Root's is for everyone to read.
fn make_folder(dir: &Path) -> io::Result<()> {
    let owner = rustix::process::geteuid();
    let mode = if owner.is_root() { 0o755 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(dir) {
        // What the process's mask took away.
        Ok(()) => std::fs::set_permissions(dir, Permissions::from_mode(mode))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if config::place::is_private(dir, owner.as_raw()) {
        return Ok(());
    }
    let what = "the folder belongs to another user, or others can write into it";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_write_into_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/server");
        Recorded::write(&path, "http://127.0.0.1:1").unwrap().unwrap().remove().unwrap();
        let run = dir.path().join("run");
        std::fs::set_permissions(&run, Permissions::from_mode(0o777)).unwrap();
        let error = Recorded::write(&path, "http://127.0.0.1:1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        std::fs::remove_dir(&run).unwrap();
        std::os::unix::fs::symlink(tempfile::tempdir().unwrap().path(), &run).unwrap();
        assert!(Recorded::write(&path, "http://127.0.0.1:1").is_err(), "a link leads anywhere");
    }

    #[test]
    fn the_first_server_stays_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/server");
        let url = |path: &Path| config::place::recorded_server(path).map(|u| u.as_str().to_owned());
        let first = Recorded::write(&path, "http://127.0.0.1:1").unwrap().unwrap();
        assert!(Recorded::write(&path, "http://127.0.0.1:2").unwrap().is_none());
        assert_eq!(url(&path).as_deref(), Some("http://127.0.0.1:1"));
        first.remove().unwrap();
        assert_eq!(url(&path), None);
        let second = Recorded::write(&path, "http://127.0.0.1:2").unwrap().unwrap();
        assert_eq!(url(&path).as_deref(), Some("http://127.0.0.1:2"));
        // Killed: the file stays, the lock does not.
        drop(second);
        let third = Recorded::write(&path, "http://127.0.0.1:33").unwrap();
        assert!(third.is_some());
        assert_eq!(url(&path).as_deref(), Some("http://127.0.0.1:33"));
    }
}
