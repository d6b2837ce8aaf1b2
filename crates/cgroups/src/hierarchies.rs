//! The cgroup hierarchies of this machine and their mount points.

use crate::Hierarchy;
use kernel::cgroup::{CgroupMount, CgroupVersion, cgroup_mounts};
use kernel::{ReadError, Root};

/// Version 1 controllers that can contain jobs, by their mount options.
const CONTROLLERS: [(&str, Hierarchy); 9] = [
    ("cpu", Hierarchy::Cpu),
    ("cpuacct", Hierarchy::Cpuacct),
    ("cpuset", Hierarchy::Cpuset),
    ("memory", Hierarchy::Memory),
    ("blkio", Hierarchy::Blkio),
    ("pids", Hierarchy::Pids),
    ("freezer", Hierarchy::Freezer),
    ("devices", Hierarchy::Devices),
    ("perf_event", Hierarchy::PerfEvent),
];

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount point, under the machine's root and without a leading `/`.
    pub path: String,
    /// One hierarchy, or several version 1 controllers mounted together.
    pub hierarchies: Vec<Hierarchy>,
}

/// The mounted hierarchies, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    mounts: Vec<Mount>,
}

impl Hierarchies {
    /// Reads them from `/proc/self/mounts`, or from `/proc/mounts` if a recorded machine lacks it.
    ///
    /// # Errors
    /// Neither file is readable.
    pub fn read(root: &Root) -> Result<Self, ReadError> {
        let mut text = Vec::new();
        match root.read("proc/self/mounts", &mut text) {
            Err(error) if error.is_absent() => root.read("proc/mounts", &mut text)?,
            result => result?,
        }
        Ok(Self::of(cgroup_mounts(&text)))
    }

    /// Of several mounts of one hierarchy, uses the first below `/sys/fs/cgroup`, else the first.
    fn of(mut found: Vec<CgroupMount>) -> Self {
        found.sort_by_key(|mount| !mount.point.starts_with("sys/fs/cgroup"));
        let mut mounts: Vec<Mount> = Vec::new();
        for mount in found {
            let mut hierarchies = hierarchies_of(&mount);
            hierarchies.retain(|h| !mounts.iter().any(|known| known.hierarchies.contains(h)));
            if !hierarchies.is_empty() {
                mounts.push(Mount { path: mount.point, hierarchies });
            }
        }
        Self { mounts }
    }

    /// The mounted hierarchies.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// A path relative to the mount point of its hierarchy, without a leading `/`; empty for the
    /// mount point itself.
    pub(crate) fn below_mount<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.mounts.iter().find_map(|mount| {
            let rest = path.strip_prefix(mount.path.as_str())?;
            if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
        })
    }
}

fn hierarchies_of(mount: &CgroupMount) -> Vec<Hierarchy> {
    if mount.version == CgroupVersion::V2 {
        return vec![Hierarchy::Unified];
    }
    let has = |word: &str| mount.options.iter().any(|option| option == word);
    let mut all: Vec<_> =
        CONTROLLERS.iter().filter(|(word, _)| has(word)).map(|(_, hierarchy)| *hierarchy).collect();
    if all.is_empty() && mount.options.iter().any(|option| option.starts_with("name=")) {
        all.push(Hierarchy::Named);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Hierarchies {
        Hierarchies::of(cgroup_mounts(text.as_bytes()))
    }

    #[test]
    fn a_hybrid_machine() {
        let found = of("none /dev/cpuset cgroup rw,cpuset,noprefix 0 0\n\
             cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
             cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
             cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
             cgroup /sys/fs/cgroup/net_cls cgroup rw,net_cls 0 0\n\
             cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n");
        let all: Vec<_> =
            found.mounts().iter().map(|m| (m.path.as_str(), m.hierarchies.as_slice())).collect();
        let expected: [(&str, &[Hierarchy]); 4] = [
            ("sys/fs/cgroup/unified", &[Hierarchy::Unified]),
            ("sys/fs/cgroup/cpu,cpuacct", &[Hierarchy::Cpu, Hierarchy::Cpuacct]),
            ("sys/fs/cgroup/cpuset", &[Hierarchy::Cpuset]),
            ("sys/fs/cgroup/systemd", &[Hierarchy::Named]),
        ];
        assert_eq!(all, expected);
        assert_eq!(found.below_mount("sys/fs/cgroup/cpuset/oar/a_1"), Some("oar/a_1"));
        assert_eq!(found.below_mount("sys/fs/cgroup/cpuset"), Some(""));
        assert_eq!(found.below_mount("sys/fs/cgroup/cpusets/oar"), None);
    }

    #[test]
    fn no_hierarchy() {
        assert!(of("proc /proc proc rw 0 0\n").mounts().is_empty());
    }

    #[test]
    fn all_controllers_in_one_mount() {
        let found = of("none /dev/oar_cgroups cgroup rw,cpuset,cpu,cpuacct,devices,freezer 0 0\n");
        assert_eq!(found.mounts().len(), 1);
        assert_eq!(found.mounts()[0].hierarchies.len(), 5);
    }
}
