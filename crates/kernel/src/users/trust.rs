//! Checks that only its owner can change what a path leads to (path_resolution(7), inode(7)): the file
//! itself, each directory on the way, and each symbolic link.
//!
//! A user who can write to a directory can replace a file in it, whoever owns the file. In a sticky directory,
//! such as `/tmp`, only the owners of the file and of the directory can.
//!
//! Folders and logs of server and agent pass [`check_way`], [`make_own_folder`] and [`no_link`]. Otherwise a
//! user who prepared a folder with a token in it would have that token's rights on a server of root.

use rustix::fs::{Access, Mode, OFlags, access};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Most symbolic links on a path, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Most levels of folders that are checked below a folder.
const LEVELS_MAX: usize = 8;
/// Group and others may write.
const WRITABLE: u32 = 0o022;
const GROUP_WRITABLE: u32 = 0o020;
const STICKY: u32 = 0o1000;
/// Groups below this number are the system's (`SYS_GID_MAX` of login.defs(5)): root decides on their members.
const USERS_GROUPS_FROM: u32 = 1000;
/// Debian's group `users`, which on some machines has every user.
const GROUP_USERS: u32 = 100;

/// The text of an error for a file that another user can change.
#[derive(Debug)]
struct Untrusted(String);

impl std::fmt::Display for Untrusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Untrusted {}

fn untrusted(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Untrusted(why))
}

/// Whether an error means that another user could have prepared a file.
pub fn is_untrusted(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Untrusted>())
}

/// Whether a path is not trusted because it belongs to another ordinary user, who could trust it.
pub fn is_anothers(path: &Path, error: &io::Error) -> bool {
    let existing = path.ancestors().find_map(|path| path.metadata().ok());
    is_untrusted(error) && existing.is_some_and(|about| !owners().contains(&about.uid()))
}

/// Creates a folder of this process's user with this mode if it is missing, and its parents. Checks the path to it,
/// the folder, and everything in it: all of that must belong to this user or to root.
///
/// # Errors
/// The folder cannot be created or read; or another user can change it, or owns something in it.
pub fn make_own_folder(dir: &Path, mode: u32) -> io::Result<()> {
    // Checked first: nothing is created in a folder of another user.
    check_way(dir)?;
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    check_own_folder(dir)
}

/// Checks what [`make_own_folder`] checks, and creates nothing.
///
/// # Errors
/// The folder could not be created or read; or another user can change it, or owns something in it.
pub fn check_own_folder(dir: &Path) -> io::Result<()> {
    check_way(dir)?;
    let about = match dir.metadata() {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return can_create(dir),
        Err(error) => return Err(error),
    };
    if !about.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if about.mode() & WRITABLE & !own_group(&about) != 0 {
        let (path, mode) = (dir.display(), about.mode() & 0o7777);
        return Err(untrusted(format!(
            "{path} can be written by other users (mode {mode:o}); check its content and run chmod \
             go-w {path}"
        )));
    }
    check_inside(dir, LEVELS_MAX)
}

/// Checks that a missing folder can be created in the closest existing one.
fn can_create(dir: &Path) -> io::Result<()> {
    let existing = dir.ancestors().find(|path| path.try_exists().unwrap_or(true));
    // A relative path begins in the working directory.
    let existing = existing.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !existing.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(access(existing, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Checks that no other user but root can change where a path leads: each existing directory, link and file on the way.
///
/// # Errors
/// Another user can; or the system does not allow the check.
pub fn check_way(path: &Path) -> io::Result<()> {
    match walk(path, &|path, about| own_fault(path, about, &owners())) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(untrusted(why)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a file of this process's user for appending, or creates it with this mode. Checks the path to it. Follows no
/// link at its end, and accepts no file that has a second name.
///
/// # Errors
/// The file cannot be opened; or another user can change it.
pub fn no_link(path: &Path, mode: u32) -> io::Result<File> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        check_way(dir)?;
    }
    let shown = path.display();
    if path.symlink_metadata().is_ok_and(|about| about.is_symlink()) {
        return Err(untrusted(format!("{shown} is a symbolic link; name the file itself")));
    }
    // Non-blocking: a named pipe without a reader would block the startup.
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_bits_truncate(mode))?);
    let about = file.metadata()?;
    if let Some(why) = own_fault(path, &about, &owners()) {
        return Err(untrusted(why));
    }
    if about.is_file() && about.nlink() > 1 {
        let what = format!("{shown} has a second name (hard link); remove it or name another file");
        return Err(untrusted(what));
    }
    Ok(file)
}

/// Root, and the user of this process.
fn owners() -> [u32; 2] {
    [0, rustix::process::geteuid().as_raw()]
}

/// The group's write bit, if the group is this user's alone by its number, or root's.
fn own_group(about: &Metadata) -> u32 {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let private = user == group && about.gid() == group;
    if private || about.gid() == 0 { GROUP_WRITABLE } else { 0 }
}

/// Why another user can change a file on the way to this process's own, and how to correct it.
fn own_fault(path: &Path, about: &Metadata, owners: &[u32]) -> Option<String> {
    let path = path.display();
    let what = if about.is_dir() { "folder" } else { "file" };
    if !owners.contains(&about.uid()) {
        let uid = about.uid();
        let own = owners.last().unwrap_or(&0);
        return Some(format!(
            "{path} belongs to user {uid}, who could have prepared its content; choose another \
             {what}, or check it and run chown -R {own} {path}"
        ));
    }
    // A link has no mode of its own.
    let closed = about.is_symlink() || (about.is_dir() && about.mode() & STICKY != 0);
    let of_system = about.gid() < USERS_GROUPS_FROM && about.gid() != GROUP_USERS;
    let group = if of_system && about.is_dir() { GROUP_WRITABLE } else { own_group(about) };
    let open = about.mode() & WRITABLE & !group != 0;
    let mode = about.mode() & 0o7777;
    (open && !closed).then(|| {
        format!(
            "{path} can be written by other users (mode {mode:o}); choose another {what}, or check \
             its content and run chmod go-w {path}"
        )
    })
}

/// Checks that everything in a folder belongs to this user or to root.
fn check_inside(dir: &Path, levels: usize) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        let path = entry.path();
        let about = match entry.metadata() {
            Ok(about) => about,
            // Removed in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(why) = own_fault(&path, &about, &owners()) {
            return Err(untrusted(why));
        }
        if about.is_dir() && levels > 0 {
            check_inside(&path, levels - 1)?;
        }
    }
    Ok(())
}

/// Describes who other than these users can change what a path leads to, and how to correct it; `None` if no one can. A
/// relative path starts at the working directory.
///
/// # Errors
/// The system's, if there is no such file, or it is not accessible.
pub fn changed_by_others(path: &Path, owners: &[u32]) -> io::Result<Option<String>> {
    walk(path, &|path, about| fault(path, about, owners))
}

/// The first fault of the directories, links and files on the way.
fn walk(
    path: &Path,
    fault: &dyn Fn(&Path, &Metadata) -> Option<String>,
) -> io::Result<Option<String>> {
    let path = std::path::absolute(path)?;
    let mut here = PathBuf::from("/");
    let mut left: VecDeque<OsString> = names(&path);
    let mut links = 0;
    if let Some(why) = fault(&here, &here.symlink_metadata()?) {
        return Ok(Some(why));
    }
    while let Some(name) = left.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        here.push(name);
        let about = here.symlink_metadata()?;
        if let Some(why) = fault(&here, &about) {
            return Ok(Some(why));
        }
        if !about.is_symlink() {
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

/// Why others can change this file, directory or link, or the entries of a directory.
fn fault(path: &Path, metadata: &Metadata, owners: &[u32]) -> Option<String> {
    let path = path.display();
    if !owners.contains(&metadata.uid()) {
        let uid = metadata.uid();
        return Some(format!("{path} belongs to user {uid}, not to root: chown root {path}"));
    }
    // A link has no mode of its own.
    let closed = metadata.is_symlink() || (metadata.is_dir() && metadata.mode() & STICKY != 0);
    let mode = metadata.mode() & 0o7777;
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
        /// `a/tool`, in folders of this user alone.
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
        // Others can create files there, and remove only their own.
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

    #[test]
    fn a_folder_is_created_in_folders_of_its_own_user() {
        let ground = Ground::new();
        let at = |path: &str| ground.dir.path().join(path);
        let rejected = |path: &str| {
            let error = make_own_folder(&at(path), 0o700).unwrap_err();
            assert!(is_untrusted(&error), "{error}");
            error.to_string()
        };
        make_own_folder(&at("a/b/c"), 0o700).unwrap();
        assert_eq!(at("a/b").metadata().unwrap().mode() & 0o777, 0o700);
        make_own_folder(&at("a/b/c"), 0o700).unwrap();
        ground.mode("a", 0o777);
        assert!(rejected("a/b/c").contains("chmod go-w"));
        assert!(rejected("a/new").contains("chmod go-w"));
        assert!(
            !at("a/new").try_exists().unwrap(),
            "nothing is created in a folder that is open to others"
        );
        // Others can create files there, and remove none.
        ground.mode("a", 0o1777);
        make_own_folder(&at("a/b/c"), 0o700).unwrap();
        // The folder itself may contain files of others, sticky or not.
        assert!(rejected("a").contains("chmod go-w"));
        ground.mode("a", 0o755);
        ground.mode("a/tool", 0o666);
        assert!(rejected("a").contains("a/tool can be written"));
    }

    #[test]
    fn a_folder_of_another_user_and_their_files_in_an_own_one_are_rejected() {
        let ground = Ground::new();
        let about = ground.dir.path().metadata().unwrap();
        let why = own_fault(Path::new("/data"), &about, &[u32::MAX]).unwrap();
        assert!(why.contains("belongs to user") && why.contains("chown -R"), "{why}");
        if ground.own != 0 {
            return;
        }
        let at = |path: &str| ground.dir.path().join(path);
        let other = |path: &str| std::os::unix::fs::lchown(at(path), Some(65_534), None).unwrap();
        other("a/tool");
        assert!(make_own_folder(&at("a"), 0o700).unwrap_err().to_string().contains("a/tool"));
        assert!(no_link(&at("a/tool"), 0o600).unwrap_err().to_string().contains("65534"));
        symlink("a", at("link")).unwrap();
        other("link");
        let error = check_way(&at("link/none")).unwrap_err();
        assert!(error.to_string().contains("link belongs to user 65534"), "{error}");
        other("a");
        let error = make_own_folder(&at("a/b"), 0o700).unwrap_err();
        assert!(error.to_string().contains("a belongs to user 65534"), "{error}");
        assert!(!at("a/b").try_exists().unwrap());
    }

    #[test]
    fn a_log_file_is_not_a_link_and_has_one_name() {
        let ground = Ground::new();
        let at = |path: &str| ground.dir.path().join(path);
        no_link(&at("a/log"), 0o600).unwrap();
        no_link(&at("a/log"), 0o600).unwrap();
        symlink("log", at("a/link")).unwrap();
        assert!(is_untrusted(&no_link(&at("a/link"), 0o600).unwrap_err()));
        std::fs::hard_link(at("a/log"), at("a/second")).unwrap();
        assert!(is_untrusted(&no_link(&at("a/second"), 0o600).unwrap_err()));
        ground.mode("a", 0o777);
        assert!(is_untrusted(&no_link(&at("a/new"), 0o600).unwrap_err()));
        assert!(!at("a/new").try_exists().unwrap());
        assert_eq!(no_link(&at("none/new"), 0o600).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
