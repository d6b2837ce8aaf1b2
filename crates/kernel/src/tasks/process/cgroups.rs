//! `/proc/PID/cgroup`: a task's cgroup in each hierarchy (cgroups(7); kernel/cgroup/cgroup.c,
//! `proc_cgroup_show`).
//!
//! ```text
//! 4:memory:/oar/alice_12
//! 2:cpu,cpuacct:/
//! 1:name=systemd:/
//! 0::/user.slice
//! ```

/// A task's cgroup in one hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupLine<'a> {
    /// Version 1's controllers, or `name=` and a name; empty for version 2.
    pub controllers: &'a str,
    /// Its cgroup, below the hierarchy's root, with a leading `/`.
    pub path: &'a str,
}

impl CgroupLine<'_> {
    /// Whether the hierarchy has this controller of version 1.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|word| word == controller)
    }
}

/// The lines of `/proc/PID/cgroup`; malformed ones are skipped.
pub fn process_cgroups(text: &[u8]) -> impl Iterator<Item = CgroupLine<'_>> {
    crate::parse::lines(text).filter_map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        parts.next()?;
        let controllers = std::str::from_utf8(parts.next()?).ok()?;
        let path = std::str::from_utf8(parts.next()?).ok()?;
        path.starts_with('/').then_some(CgroupLine { controllers, path })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_a_hybrid_machine() {
        let text =
            b"4:memory:/oar/a_1\n2:cpu,cpuacct:/x:y\n1:name=systemd:/\n0::/user.slice\nx\n:\n";
        let all: Vec<_> = process_cgroups(text).collect();
        let paths: Vec<_> = all.iter().map(|line| line.path).collect();
        assert_eq!(paths, ["/oar/a_1", "/x:y", "/", "/user.slice"]);
        assert!(all[1].has("cpuacct") && !all[1].has("acct") && !all[3].has("cpu"));
        assert_eq!(all[3].controllers, "");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            process_cgroups(&bytes).for_each(|line| assert!(line.path.starts_with('/')));
        }
    }
}
