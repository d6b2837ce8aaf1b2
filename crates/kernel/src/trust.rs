//! Whether only its owner can change what a path leads to (path_resolution(7), inode(7)): the file itself, each directory
//! on the way, and each symbolic link.
//!
//! Who can write to a directory can put another file in place of one in it, whoever owns that. Where the directory is sticky,
//! such as `/tmp`, only the owners of the file and of the directory can.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Most symbolic links on a way, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Group and others may write.
const WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Who other than these users can change what a path leads to, in words, with what to do; none where nobody can. A
/// path that does not begin at `/` is taken from the working directory.
///
/// # Errors
/// The system's, where there is no such file, or it cannot be looked at.
pub fn changed_by_others(path: &Path, owners: &[u32]) -> io::Result<Option<String>> {
    let path = std::path::absolute(path)?;
    let mut here = PathBuf::from("/");
    let mut left: VecDeque<OsString> = names(&path);
    let mut links = 0;
    if let Some(why) = fault(&here, &here.symlink_metadata()?, owners) {
        return Ok(Some(why));
    }
    while let Some(name) = left.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        here.push(name);
        let told = here.symlink_metadata()?;
        if let Some(why) = fault(&here, &told, owners) {
            return Ok(Some(why));
        }
        if !told.is_symlink() {
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::other("too many symbolic links"));
        }
        let target = here.read_link()?;
        here.pop();
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        let rest = std::mem::take(&mut left);
        left = names(&target);
        left.extend(rest);
    }
    Ok(None)
}

/// The names in a path, `..` among them.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

/// Why others can change this file, directory or link, or what a directory holds.
fn fault(path: &Path, told: &Metadata, owners: &[u32]) -> Option<String> {
    let path = path.display();
    if !owners.contains(&told.uid()) {
        let uid = told.uid();
        return Some(format!("{path} belongs to user {uid}, not to root: chown root {path}"));
    }
    // A link has no mode of its own.
    let closed = told.is_symlink() || (told.is_dir() && told.mode() & STICKY != 0);
    let mode = told.mode() & 0o7777;
    (mode & WRITABLE != 0 && !closed).then(|| {
        format!("{path} can be written by others than its owner (mode {mode:o}): chmod go-w {path}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Ground {
        dir: tempfile::TempDir,
        own: u32,
    }

    impl Ground {
        /// `a/tool`, in folders that are this user's alone.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            create_dir(dir.path().join("a")).unwrap();
            write(dir.path().join("a/tool"), "").unwrap();
            let ground = Self { own: dir.path().metadata().unwrap().uid(), dir };
            ground.mode("a", 0o755);
            ground.mode("a/tool", 0o755);
            ground
        }

        fn mode(&self, path: &str, mode: u32) {
            set_permissions(self.dir.path().join(path), Permissions::from_mode(mode)).unwrap();
        }

        fn why(&self, path: &str) -> Option<String> {
            changed_by_others(&self.dir.path().join(path), &[0, self.own]).unwrap()
        }
    }

    #[test]
    fn the_file_and_each_directory_above_it_count() {
        let ground = Ground::new();
        assert_eq!(ground.why("a/tool"), None);
        for (path, mode) in [("a/tool", 0o775), ("a/tool", 0o757), ("a", 0o775), ("a", 0o707)] {
            ground.mode(path, mode);
            let why = ground.why("a/tool").unwrap();
            let end =
                format!("(mode {mode:o}): chmod go-w {}", ground.dir.path().join(path).display());
            assert!(why.ends_with(&end), "{why}");
            ground.mode(path, 0o755);
        }
        // Others can put files there, and take away none but theirs.
        ground.mode("a", 0o1777);
        assert_eq!(ground.why("a/tool"), None);
        let why = changed_by_others(&ground.dir.path().join("a/tool"), &[u32::MAX]).unwrap();
        assert!(why.unwrap().starts_with("/ belongs to user "));
    }

    #[test]
    fn links_are_followed_and_so_are_their_directories() {
        let ground = Ground::new();
        create_dir(ground.dir.path().join("open")).unwrap();
        ground.mode("open", 0o777);
        symlink("../a/tool", ground.dir.path().join("open/tool")).unwrap();
        symlink("a", ground.dir.path().join("same")).unwrap();
        symlink(ground.dir.path().join("open/../open"), ground.dir.path().join("other")).unwrap();
        symlink("round", ground.dir.path().join("round")).unwrap();
        assert_eq!(ground.why("same/tool"), None);
        assert_eq!(ground.why("same/../a/./tool"), None);
        for path in ["open/tool", "other/tool", "same/../open/tool"] {
            assert!(ground.why(path).unwrap().contains("/open can be written"), "{path}");
        }
        let at = |path: &str| changed_by_others(&ground.dir.path().join(path), &[0, ground.own]);
        assert!(at("round").unwrap_err().to_string().contains("links"));
        assert_eq!(at("none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
