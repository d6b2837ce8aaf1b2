//! Reads files that people name: settings, tokens, certificates, rules. A device or an endless file takes no memory.

use rustix::fs::{OFlags, major, minor};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Longest file of settings, a token or a key, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest file of certificates, in bytes.
pub const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;
/// `/dev/null`, which counts as an empty file.
const NULL: (u32, u32) = (1, 3);

/// Opens a regular file, or `/dev/null`. Others are rejected without waiting for a writer.
///
/// # Errors
/// The file cannot be opened, or it is neither.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let about = file.metadata()?;
    let device = about.rdev();
    if about.is_file() || (!about.is_dir() && (major(device), minor(device)) == NULL) {
        return Ok(file);
    }
    let what = if about.is_dir() { "it is a folder" } else { "it is not a regular file" };
    Err(io::Error::other(what))
}

/// Reads an open file.
///
/// # Errors
/// It cannot be read, or has more than `bytes_max` bytes.
pub fn read_whole(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(length).unwrap_or(u64::MAX) > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Opens and reads a file.
///
/// # Errors
/// As [`open_regular`] and [`read_whole`].
pub fn read_small(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_whole(open_regular(path)?, bytes_max)
}

/// The bytes as a text.
///
/// # Errors
/// They are not UTF-8.
pub fn as_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_folders_pipes_and_long_files_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (file, pipe) = (dir.path().join("file"), dir.path().join("pipe"));
        std::fs::write(&file, "12345").unwrap();
        let read = |path: &Path| read_small(path, 5).map_err(|error| error.to_string());
        assert_eq!(read(&file), Ok(b"12345".to_vec()));
        assert_eq!(read(Path::new("/dev/null")), Ok(Vec::new()));
        std::fs::write(&file, "123456").unwrap();
        assert_eq!(read(&file), Err("it is longer than 5 bytes".to_owned()));
        let mode = rustix::fs::Mode::from_bits_truncate(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        for other in [Path::new("/dev/full"), Path::new("/dev/zero"), &pipe] {
            assert_eq!(read(other), Err("it is not a regular file".to_owned()), "{other:?}");
        }
        assert_eq!(read(dir.path()), Err("it is a folder".to_owned()));
    }
}
