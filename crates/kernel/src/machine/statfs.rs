//! `statfs`: usage of a mounted file system (statfs(2); fs/statfs.c, Linux 6.18).
//!
//! On a recorded machine the reply is in `.jobmeter/statfs/<name>`, the name being the mount's path
//! with every byte but letters, digits, `-`, `_` and `.` written as `%` and two hexadecimal digits: `/` is
//! `%2F`, `/scratch` is `%2Fscratch`. Its text is what [`StatFs`] prints:
//!
//! ```text
//! block_bytes 4096
//! blocks 10255636
//! blocks_free 6021312
//! blocks_available 5496121
//! files 2621440
//! files_free 2321012
//! read_only 0
//! ```

use crate::parse::{Fields, ParseError, whole_lines};
use crate::{ReadError, Root};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use std::ffi::CStr;
use std::fmt;

/// The reply of `statfs` for a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in a block, the unit of the next three.
    pub block_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that are free.
    pub blocks_free: u64,
    /// Blocks that are free to ordinary users; the others are reserved for root.
    pub blocks_available: u64,
    /// Inodes; 0 if the file system creates them on demand.
    pub files: u64,
    /// Inodes that are free.
    pub files_free: u64,
    /// Whether it is read-only, by its mount options or because of an error.
    pub read_only: bool,
}

/// The usage of the file system at a path. The call blocks while the file system's server does not answer.
///
/// # Errors
/// The path is absent, denied, or fails; on a recorded machine, there is no reply or it is unreadable.
pub fn statfs(root: &Root, path: &CStr, buf: &mut Vec<u8>) -> Result<StatFs, ReadError> {
    if !root.is_live() {
        let reply = reply_path(path.to_bytes());
        root.read(&reply, buf)?;
        return StatFs::parse(buf)
            .map_err(|e| ReadError::Failed { path: format!("/{reply}"), why: e.to_string() });
    }
    let found = rustix::fs::statvfs(path).map_err(|errno| {
        let path = path.to_string_lossy().into_owned();
        match errno {
            Errno::NOENT | Errno::NOTDIR => ReadError::Absent { path },
            Errno::ACCESS | Errno::PERM => ReadError::Denied { path },
            other => ReadError::Failed { path, why: other.to_string() },
        }
    })?;
    let found = StatFs {
        block_bytes: found.f_frsize,
        blocks: found.f_blocks,
        blocks_free: found.f_bfree,
        blocks_available: found.f_bavail,
        files: found.f_files,
        files_free: found.f_ffree,
        read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
    };
    if root.is_recording() {
        root.note_reply(&reply_path(path.to_bytes()), found.to_string().as_bytes());
    }
    Ok(found)
}

/// Path of the recorded reply under a recorded machine's root.
pub fn reply_path(path: &[u8]) -> String {
    let mut reply = String::from(".jobmeter/statfs/");
    for byte in path {
        match byte {
            b'-' | b'_' | b'.' => reply.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => reply.push(char::from(*byte)),
            byte => reply.push_str(&format!("%{byte:02X}")),
        }
    }
    reply
}

impl StatFs {
    /// Parses a recorded reply. Unknown keys are skipped.
    ///
    /// # Errors
    /// The text is truncated, lacks a key, or has a value that is not a number.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let value = |key: &[u8]| {
            for line in whole_lines(text)? {
                let mut fields = Fields::of(line);
                if fields.word()? == key {
                    return fields.number();
                }
            }
            Err(ParseError::at(key))
        };
        Ok(Self {
            block_bytes: value(b"block_bytes")?,
            blocks: value(b"blocks")?,
            blocks_free: value(b"blocks_free")?,
            blocks_available: value(b"blocks_available")?,
            files: value(b"files")?,
            files_free: value(b"files_free")?,
            read_only: value(b"read_only")? != 0,
        })
    }
}

/// The text of a recorded reply.
impl fmt::Display for StatFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "block_bytes {}", self.block_bytes)?;
        writeln!(f, "blocks {}", self.blocks)?;
        writeln!(f, "blocks_free {}", self.blocks_free)?;
        writeln!(f, "blocks_available {}", self.blocks_available)?;
        writeln!(f, "files {}", self.files)?;
        writeln!(f, "files_free {}", self.files_free)?;
        writeln!(f, "read_only {}", u8::from(self.read_only))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCRATCH: StatFs = StatFs {
        block_bytes: 4096,
        blocks: 10_255_636,
        blocks_free: 6_021_312,
        blocks_available: 5_496_121,
        files: 2_621_440,
        files_free: 2_321_012,
        read_only: true,
    };

    #[test]
    fn places_of_replies() {
        assert_eq!(reply_path(b"/"), ".jobmeter/statfs/%2F");
        assert_eq!(reply_path(b"/a b/c-d_e.f%"), ".jobmeter/statfs/%2Fa%20b%2Fc-d_e.f%25");
    }

    #[test]
    fn a_recorded_machine_answers_from_its_replies_and_never_from_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".jobmeter/statfs")).unwrap();
        std::fs::write(dir.path().join(".jobmeter/statfs/%2Fscratch"), SCRATCH.to_string())
            .unwrap();
        std::fs::write(dir.path().join(".jobmeter/statfs/%2Fbad"), "blocks x\n").unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let mut buf = Vec::new();
        assert_eq!(statfs(&root, c"/scratch", &mut buf), Ok(SCRATCH));
        assert!(statfs(&root, c"/", &mut buf).unwrap_err().is_absent());
        assert!(matches!(statfs(&root, c"/bad", &mut buf), Err(ReadError::Failed { .. })));
    }

    #[test]
    fn the_live_machine_answers() {
        let root = Root::live().unwrap();
        let mut buf = Vec::new();
        let found = statfs(&root, c"/", &mut buf).unwrap();
        assert!(found.block_bytes >= 512 && found.blocks >= found.blocks_free, "{found:?}");
        assert!(statfs(&root, c"/proc/no/such/place", &mut buf).unwrap_err().is_absent());
    }

    #[test]
    fn every_truncated_reply_is_rejected() {
        let text = SCRATCH.to_string();
        for cut in 0..text.len() {
            assert!(StatFs::parse(&text.as_bytes()[..cut]).is_err(), "{cut}");
        }
        assert!(StatFs::parse(text.replace("files 2", "files -2").as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn replies_round_trip(numbers: [u64; 6], read_only: bool) {
            let [block_bytes, blocks, blocks_free, blocks_available, files, files_free] = numbers;
            let reply = StatFs {
                block_bytes, blocks, blocks_free, blocks_available, files, files_free, read_only,
            };
            prop_assert_eq!(StatFs::parse(reply.to_string().as_bytes()), Ok(reply));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            StatFs::parse(&bytes).ok();
            reply_path(&bytes);
        }
    }
}
