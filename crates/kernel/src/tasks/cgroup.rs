//! The files of control groups, version 1 and version 2 (Documentation/admin-guide/cgroup-v1/,
//! Documentation/admin-guide/cgroup-v2.rst, Linux 6.18), one file here for each controller's
//! family.
//!
//! This file reads the small formats that several controllers share: one number, a number or `max`, the
//! `populated` of `cgroup.events`, and lists of process or thread IDs.

pub mod cpu;
pub mod io;
pub mod memory;
mod mounts;
pub mod numa;

pub use mounts::{CgroupMount, CgroupVersion, MountsFile, cgroup_mounts};

use crate::parse::{Fields, ParseError, number, whole_lines};
use crate::{OpenFile, ReadError};
use rustix::io::Errno;

/// Reads an open cgroup file from its start into `buf`; not a list of processes or threads, see
/// [`OpenFile::read_single`]. False if it has no content: its cgroup
/// was removed (`ENODEV`, on a recorded machine `ENOENT`), or it has no meaning here, as
/// `cgroup.procs` in a threaded cgroup and the pressure files of a kernel booted without pressure
/// (`EOPNOTSUPP`).
///
/// # Errors
/// It is denied or fails; `path` is for the message.
pub fn read(file: &OpenFile, path: &str, buf: &mut Vec<u8>) -> Result<bool, ReadError> {
    has_content(file.read_single(buf), path)
}

/// As [`read`], for a list of processes or threads.
///
/// # Errors
/// As [`read`].
pub fn read_list(file: &OpenFile, path: &str, buf: &mut Vec<u8>) -> Result<bool, ReadError> {
    has_content(file.read(buf), path)
}

fn has_content(read: Result<(), Errno>, path: &str) -> Result<bool, ReadError> {
    match read {
        Ok(()) => Ok(true),
        Err(Errno::NODEV | Errno::OPNOTSUPP | Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(Errno::ACCESS | Errno::PERM) => Err(ReadError::Denied { path: format!("/{path}") }),
        Err(errno) => Err(ReadError::Failed { path: format!("/{path}"), why: errno.to_string() }),
    }
}

/// Reads a file of one number and a line end: `memory.current`, `cpuacct.usage`.
///
/// # Errors
/// The text is truncated, or not a number.
pub fn single(text: &[u8]) -> Result<u64, ParseError> {
    let mut lines = whole_lines(text)?;
    match (lines.next(), lines.next()) {
        (Some(line), None) => number(line).ok_or(ParseError::at(line)),
        _ => Err(ParseError::at(text)),
    }
}

/// Reads a file of one number, or of the word `max`, which means no limit.
///
/// # Errors
/// The text is truncated, or neither.
pub fn limit(text: &[u8]) -> Result<Option<u64>, ParseError> {
    if text == b"max\n" { Ok(None) } else { single(text).map(Some) }
}

/// The lines of a flat keyed file, `nr_throttled 7`, as key and number. A key without a number
/// is an error of its own, so that one malformed line does not hide the rest.
///
/// # Errors
/// The text is truncated.
pub fn pairs(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<(&[u8], u64), ParseError>>, ParseError> {
    Ok(whole_lines(text)?.map(|line| {
        let mut fields = Fields::of(line);
        Ok((fields.word()?, fields.number()?))
    }))
}

/// Reads the `populated` of version 2's `cgroup.events`: whether the cgroup or one below it has a
/// living process. The kernel signals every change of it with an inotify event on the file.
///
/// ```text
/// populated 1
/// frozen 0
/// ```
///
/// # Errors
/// The text is truncated, or has no such line.
pub fn populated(text: &[u8]) -> Result<bool, ParseError> {
    for pair in pairs(text)? {
        if let (b"populated", value) = pair? {
            return Ok(value != 0);
        }
    }
    Err(ParseError::at(text))
}

/// Adds the IDs of `cgroup.procs`, `cgroup.threads` or version 1's `tasks` to `ids`, in the
/// kernel's order. A 0 stands for a process outside our PID namespace and is skipped.
///
/// # Errors
/// A line is not a number; those before it have been added.
pub fn ids(text: &[u8], ids: &mut Vec<u32>) -> Result<(), ParseError> {
    for line in whole_lines(text)? {
        let id = number(line).and_then(|id| u32::try_from(id).ok()).ok_or(ParseError::at(line))?;
        if id != 0 {
            ids.push(id);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_failing_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "1\n").unwrap();
        let root = crate::Root::recorded(dir.path()).unwrap();
        let mut buf = Vec::new();
        assert_eq!(read(&root.open("file").unwrap(), "file", &mut buf), Ok(true));
        assert_eq!(buf, b"1\n");
        let error = read(&root.open(".").unwrap(), "dir", &mut buf).unwrap_err();
        assert!(matches!(error, ReadError::Failed { .. }), "{error}");
    }

    #[test]
    fn single_numbers_and_limits() {
        assert_eq!(single(b"18446744073709551615\n"), Ok(u64::MAX));
        assert_eq!(limit(b"max\n"), Ok(None));
        assert_eq!(limit(b"4096\n"), Ok(Some(4096)));
        for text in [
            &b""[..],
            b"1",
            b"-1\n",
            b"1\n2\n",
            b"max",
            b"maxi\n",
            b"\n",
            b"18446744073709551616\n",
        ] {
            assert!(limit(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn populated_or_not() {
        assert_eq!(populated(b"populated 1\nfrozen 0\n"), Ok(true));
        assert_eq!(populated(b"populated 0\nfrozen 0\n"), Ok(false));
        let text = b"populated 1\n";
        for cut in 0..text.len() {
            assert!(populated(&text[..cut]).is_err(), "{cut}");
        }
        assert!(populated(b"frozen 0\n").is_err());
    }

    #[test]
    fn lists_of_processes() {
        let mut found = vec![7];
        ids(b"12\n0\n4194304\n", &mut found).unwrap();
        assert_eq!(found, [7, 12, 4_194_304]);
        assert_eq!(ids(b"", &mut found), Ok(()));
        for text in [&b"1\n2"[..], b"x\n", b"4294967296\n"] {
            assert!(ids(text, &mut found).is_err(), "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            limit(&bytes).ok();
            populated(&bytes).ok();
            ids(&bytes, &mut Vec::new()).ok();
        }
    }
}
