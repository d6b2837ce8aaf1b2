//! Where cgroups are mounted, from `/proc/self/mounts` (proc_pid_mounts(5); fs/proc_namespace.c,
//! Linux 6.18).
//!
//! ```text
//! cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0
//! cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
//! cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,name=systemd 0 0
//! none /dev/cpuset cgroup rw,relatime,cpuset,noprefix 0 0
//! ```
//!
//! Device, mount point, type, options. [`crate::machine::mounts`] has what every mount has; here are version
//! and controllers.

use crate::machine::mounts::unescape;
use crate::parse::{Fields, lines};
use crate::{OpenFile, ReadError, Root};
use rustix::event::{PollFd, PollFlags, Timespec};

/// The two versions of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A tree for each controller, or for several mounted together.
    V1,
    /// One tree for all.
    V2,
}

/// A mounted tree of cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// The mount point, without a leading `/`.
    pub point: String,
    /// Its version.
    pub version: CgroupVersion,
    /// The mount's options; version 1's controllers are among them.
    pub options: Vec<String>,
}

/// The cgroup mounts of `/proc/self/mounts`, in the kernel's order. Malformed lines, and lines with a
/// path that is not UTF-8, are skipped.
pub fn cgroup_mounts(text: &[u8]) -> Vec<CgroupMount> {
    lines(text).filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<CgroupMount> {
    let mut fields = Fields::of(line);
    fields.word().ok()?;
    let point = fields.word().ok()?;
    let version = match fields.word().ok()? {
        b"cgroup2" => CgroupVersion::V2,
        // The file system `cpuset` of Linux before 2.6.24 remains as another name of version 1's.
        b"cgroup" | b"cpuset" => CgroupVersion::V1,
        _ => return None,
    };
    let options = std::str::from_utf8(fields.word().ok()?).ok()?;
    let point = String::from_utf8(unescape(point)).ok()?;
    let point = point.strip_prefix('/')?.to_owned();
    Some(CgroupMount { point, version, options: options.split(',').map(str::to_owned).collect() })
}

/// `/proc/self/mounts`, kept open to detect changes.
#[derive(Debug)]
pub struct MountsFile {
    file: OpenFile,
}

impl MountsFile {
    /// Opens it.
    ///
    /// # Errors
    /// It is absent, denied, or fails.
    pub fn open(root: &Root) -> Result<Self, ReadError> {
        Ok(Self { file: root.open("proc/self/mounts")? })
    }

    /// Whether anything was mounted or unmounted since the last call that returned true. The kernel signals
    /// it as urgent data on the file (fs/proc_namespace.c, `mounts_poll`); a recorded file never
    /// has any.
    pub fn changed(&self) -> bool {
        let Some(fd) = self.file.live_fd() else { return false };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"sysfs /sys sysfs rw 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
        none /dev/my\\040set cgroup rw,cpuset,noprefix 0 0\n";

    #[test]
    fn only_cgroups() {
        let mounts = cgroup_mounts(TEXT);
        let points: Vec<_> = mounts.iter().map(|mount| mount.point.as_str()).collect();
        assert_eq!(points, ["sys/fs/cgroup/unified", "sys/fs/cgroup/cpu,cpuacct", "dev/my set"]);
        assert_eq!(mounts[0].version, CgroupVersion::V2);
        assert_eq!(mounts[1].options, ["rw", "relatime", "cpu", "cpuacct"]);
    }

    #[test]
    fn a_truncated_text_has_fewer_mounts() {
        for cut in 0..TEXT.len() {
            assert!(cgroup_mounts(&TEXT[..cut]).len() <= 3, "{cut}");
        }
    }

    #[test]
    fn a_recorded_file_never_changes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        std::fs::write(dir.path().join("proc/self/mounts"), TEXT).unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        assert!(!MountsFile::open(&root).unwrap().changed());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            cgroup_mounts(&bytes);
        }
    }
}
