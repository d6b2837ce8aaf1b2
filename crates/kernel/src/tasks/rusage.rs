//! Resource usage of ended children (wait4(2), getrusage(2); kernel/exit.c and kernel/sys.c, Linux 6.18).
//!
//! wait4 reports the usage of each child, including the descendants that the child waited for. A process that adopts
//! orphans (`PR_SET_CHILD_SUBREAPER`) and waits for each of them so accounts for everything it started, child by child.

/// Times and counts of `struct rusage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Usage {
    /// Processor time in user mode, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// Largest resident set of any one process, in kibibytes.
    pub max_rss_kib: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Blocks of 512 bytes read from disks.
    pub blocks_read: u64,
    /// Blocks of 512 bytes written to disks.
    pub blocks_written: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Adds another process: counts are summed, the larger of the two resident sets is kept.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            user_us: self.user_us.saturating_add(other.user_us),
            system_us: self.system_us.saturating_add(other.system_us),
            max_rss_kib: self.max_rss_kib.max(other.max_rss_kib),
            minor_faults: self.minor_faults.saturating_add(other.minor_faults),
            major_faults: self.major_faults.saturating_add(other.major_faults),
            blocks_read: self.blocks_read.saturating_add(other.blocks_read),
            blocks_written: self.blocks_written.saturating_add(other.blocks_written),
            voluntary_switches: self.voluntary_switches.saturating_add(other.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_add(other.involuntary_switches),
        }
    }

    /// The usage since an earlier reading of the same process; the largest resident set has no difference.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            user_us: self.user_us.saturating_sub(earlier.user_us),
            system_us: self.system_us.saturating_sub(earlier.system_us),
            max_rss_kib: self.max_rss_kib,
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            blocks_read: self.blocks_read.saturating_sub(earlier.blocks_read),
            blocks_written: self.blocks_written.saturating_sub(earlier.blocks_written),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }
}

/// The result of a check for ended children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// A child ended: its ID, its exit code or 128 plus its signal, and the usage of it and of all that it waited for.
    Ended(i32, i32, Usage),
    /// All children live.
    Alive,
    /// There is no child.
    Childless,
}

/// Reaps any ended child of this process (wait4(2)).
pub fn reap() -> Reaped {
    let mut status: libc::c_int = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "wait4 has no safe wrapper in rustix")]
    // SAFETY: the kernel writes one integer and one `struct rusage` through valid pointers to them; all fields are
    // integers, so zeroes are valid if nothing is written.
    let (pid, usage) = unsafe {
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr());
        (pid, usage.assume_init())
    };
    match pid {
        0 => Reaped::Alive,
        1.. => {
            let code = if libc::WIFSIGNALED(status) {
                128 + libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            };
            Reaped::Ended(pid, code, read(&usage))
        }
        _ => Reaped::Childless,
    }
}

pub(crate) fn read(usage: &libc::rusage) -> Usage {
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let micros = |t: libc::timeval| count(t.tv_sec) * 1_000_000 + count(t.tv_usec);
    Usage {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kib: count(usage.ru_maxrss),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        blocks_read: count(usage.ru_inblock),
        blocks_written: count(usage.ru_oublock),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_added_and_subtracted() {
        let one = Usage { user_us: 5, max_rss_kib: 7, minor_faults: 3, ..Usage::default() };
        let two = Usage { user_us: 6, max_rss_kib: 4, minor_faults: 1, ..Usage::default() };
        let both = one.and(two);
        assert_eq!((both.user_us, both.max_rss_kib, both.minor_faults), (11, 7, 4));
        assert_eq!(both.since(two).user_us, 5);
        assert_eq!(two.since(one), Usage { user_us: 1, max_rss_kib: 4, ..Usage::default() });
    }
}
