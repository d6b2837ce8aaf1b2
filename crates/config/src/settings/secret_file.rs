//! A file of secrets: only its owner, and perhaps its group, may read it.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Other users could read or change the file.
    #[error("{}: {what} (mode {mode:o}, owner {owner}); run `chown` to the program's user and `chmod 600` on it", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The problem with its permissions.
        what: &'static str,
        /// Its permission bits.
        mode: u32,
        /// Its owner's user ID.
        owner: u32,
    },
}

/// Reads a file that belongs to root or to this program's user, and that only its owner and perhaps its group may read.
///
/// # Errors
/// The file cannot be read, is longer than 1 MiB, or other users could read or change it.
pub fn read_secret_file(path: &Path) -> Result<String, SecretFileError> {
    let failed = |error| SecretFileError::Read { path: path.to_owned(), error };
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let (mode, owner) = (about.mode() & 0o7777, about.uid());
    let own = rustix::process::geteuid().as_raw();
    let wrong = match () {
        () if !about.is_file() => Some("it is not a regular file"),
        () if owner != 0 && owner != own => Some("it belongs to another user"),
        () if mode & 0o007 != 0 => Some("everyone can open it"),
        () if mode & 0o020 != 0 => Some("its group can change it"),
        () => None,
    };
    if let Some(what) = wrong {
        return Err(SecretFileError::Open { path: path.to_owned(), what, mode, owner });
    }
    let mut text = String::new();
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if u64::try_from(length).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(failed(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes"))));
    }
    Ok(text)
}
