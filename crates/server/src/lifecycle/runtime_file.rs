//! The runtime file: the address of the server of this machine or of this user.

use kernel::trust::no_link;
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of the lock file.
const LOCK_MODE: u32 = 0o600;
/// Mode of the runtime file.
const FILE_MODE: u32 = 0o644;

/// The runtime file, which exists as long as this value.
///
/// Meanwhile the server locks the file beside it with the extension `.lock`. Of several servers the first stays
/// recorded. A killed server does not stay recorded, because its lock ends with it. Other users cannot open the lock
/// file: otherwise they could lock it before this server.
#[derive(Debug)]
pub struct RuntimeFile {
    path: PathBuf,
    lock: File,
}

impl RuntimeFile {
    /// Writes the address. Returns `None` if another running server is recorded there.
    ///
    /// # Errors
    /// The file or its folder cannot be created, or another user can change the folder. Such a user could redirect
    /// this user's commands to another server.
    pub fn write(path: &Path, url: &str) -> io::Result<Option<Self>> {
        if let Some(dir) = path.parent() {
            make_folder(dir)?;
        }
        let lock = no_link(&path.with_extension("lock"), LOCK_MODE)?;
        lock.set_permissions(Permissions::from_mode(LOCK_MODE))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let mut file = no_link(path, FILE_MODE)?;
        // Readable for everyone: an address is not secret, and users look for root's server here.
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        file.set_len(0)?;
        file.write_all(format!("{url}\n").as_bytes())?;
        Ok(Some(Self { path: path.to_owned(), lock }))
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)?;
        // The lock file stays. After a removal, two servers could lock two files of the same name.
        drop(self.lock);
        Ok(())
    }
}

/// Creates the folder, or checks that it belongs to this user alone. Everyone may read root's folder.
fn make_folder(dir: &Path) -> io::Result<()> {
    let owner = rustix::process::geteuid();
    let mode = if owner.is_root() { 0o755 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(dir) {
        // Restores the permissions that the umask removed.
        Ok(()) => std::fs::set_permissions(dir, Permissions::from_mode(mode))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if config::paths::is_private(dir, owner.as_raw()) {
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
        RuntimeFile::write(&path, "http://127.0.0.1:1").unwrap().unwrap().remove().unwrap();
        let run = dir.path().join("run");
        std::fs::set_permissions(&run, Permissions::from_mode(0o777)).unwrap();
        let error = RuntimeFile::write(&path, "http://127.0.0.1:1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        std::fs::remove_dir_all(&run).unwrap();
        std::os::unix::fs::symlink(tempfile::tempdir().unwrap().path(), &run).unwrap();
        assert!(RuntimeFile::write(&path, "http://127.0.0.1:1").is_err(), "a link leads anywhere");
    }

    #[test]
    fn a_user_cannot_take_the_lock_of_a_server_that_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/server");
        RuntimeFile::write(&path, "http://127.0.0.1:1").unwrap().unwrap().remove().unwrap();
        let lock = path.with_extension("lock");
        assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, LOCK_MODE);
        // A lock on the runtime file, which everyone can open, must have no effect.
        std::fs::write(&path, "").unwrap();
        let open = File::open(&path).unwrap();
        rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(RuntimeFile::write(&path, "http://127.0.0.1:1").unwrap().is_some());
    }

    #[test]
    fn the_first_server_remains_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/server");
        let url = |path: &Path| config::paths::recorded_server(path).map(|u| u.as_str().to_owned());
        let first = RuntimeFile::write(&path, "http://127.0.0.1:1").unwrap().unwrap();
        assert!(RuntimeFile::write(&path, "http://127.0.0.1:2").unwrap().is_none());
        assert_eq!(url(&path).as_deref(), Some("http://127.0.0.1:1"));
        first.remove().unwrap();
        assert_eq!(url(&path), None);
        let second = RuntimeFile::write(&path, "http://127.0.0.1:2").unwrap().unwrap();
        assert_eq!(url(&path).as_deref(), Some("http://127.0.0.1:2"));
        // The server was killed: the file stays, the lock does not.
        drop(second);
        let third = RuntimeFile::write(&path, "http://127.0.0.1:33").unwrap();
        assert!(third.is_some());
        assert_eq!(url(&path).as_deref(), Some("http://127.0.0.1:33"));
    }
}
