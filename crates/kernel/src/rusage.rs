//! What ended children used (getrusage(2); kernel/sys.c, Linux 6.18).
//!
//! `RUSAGE_CHILDREN` sums over the children that were waited for and, through them, over the
//! descendants that they waited for. A process that adopts orphans (`PR_SET_CHILD_SUBREAPER`) and waits
//! for each of them so has the sum over everything it started.

/// Times and counts of `struct rusage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Context switches that the tasks asked for.
    pub voluntary_switches: u64,
    /// Context switches that were forced on them.
    pub involuntary_switches: u64,
}

/// What the ended and waited-for descendants of this process used.
pub fn of_children() -> Usage {
    of(libc::RUSAGE_CHILDREN)
}

fn of(whose: libc::c_int) -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "getrusage has no safe wrapper in rustix")]
    // SAFETY: the kernel writes one `struct rusage` through a valid pointer to one, and nothing else;
    // all its fields are integers, for which the zeroes are valid where the call fails.
    let usage = unsafe {
        libc::getrusage(whose, usage.as_mut_ptr());
        usage.assume_init()
    };
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
    #[expect(clippy::disallowed_methods, reason = "a child whose use is known")]
    fn a_child_that_was_waited_for_counts() {
        let before = of_children();
        let status = std::process::Command::new("true").status().unwrap();
        assert!(status.success());
        let after = of_children();
        assert!(after.minor_faults > before.minor_faults);
        assert!(after.max_rss_kib > 0);
    }
}
