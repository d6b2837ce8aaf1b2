//! Checks that a file is trustworthy. A file with an administrator's authority must belong to root or to
//! the server's own user. Other users must not be able to write it.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Rejects anything but a regular file, files of other users, and files that group or others can write.
pub(crate) fn check_trust(about: &Metadata) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    match wrong(about.uid(), about.mode() & 0o7777, own) {
        Some(wrong) => Err(io::Error::new(io::ErrorKind::PermissionDenied, wrong)),
        None => Ok(()),
    }
}

fn wrong(owner: u32, mode: u32, own: u32) -> Option<String> {
    if owner != 0 && owner != own {
        let what = "and must belong to root or to the server's user";
        return Some(format!("it belongs to user {owner}, {what}"));
    }
    let what = "run `chmod go-w` on it";
    (mode & 0o022 != 0).then(|| format!("other users can write it (mode {mode:o}); {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_and_ones_own_are_believed_where_nobody_else_writes() {
        for (owner, mode, word) in [
            (0, 0o644, None),
            (7, 0o600, None),
            (8, 0o600, Some("user 8")),
            (0, 0o664, Some("mode 664")),
            (7, 0o646, Some("chmod go-w")),
        ] {
            let problem = wrong(owner, mode, 7);
            assert_eq!(problem.is_some(), word.is_some(), "{owner} {mode:o}");
            assert!(problem.unwrap_or_default().contains(word.unwrap_or_default()));
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(check_trust(&dir.path().metadata().unwrap()).is_err());
    }
}
