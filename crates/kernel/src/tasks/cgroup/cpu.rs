//! Processor time of a cgroup: version 2's `cpu.stat` (Documentation/admin-guide/cgroup-v2.rst,
//! "CPU Interface Files"), version 1's `cpu.stat` (Documentation/scheduler/sched-bwc.rst) and
//! `cpuacct.stat` (Documentation/admin-guide/cgroup-v1/cpuacct.rst; kernel/sched/cpuacct.c), Linux
//! 6.18.
//!
//! Version 2. The first three lines are there without the `cpu` controller; the bandwidth lines
//! only with it; bursts since Linux 5.18. `throttled_usec` sums over processors and can pass the
//! wall clock:
//!
//! ```text
//! usage_usec 7502072
//! user_usec 7400000
//! system_usec 102072
//! nr_periods 80
//! nr_throttled 12
//! throttled_usec 402113
//! nr_bursts 0
//! burst_usec 0
//! ```
//!
//! Version 1 has the bandwidth alone, with `throttled_time` and `burst_time` in nanoseconds; its
//! `cpuacct.stat` is `user 740` and `system 10` in ticks of [`crate::machine::stat::user_hz`].

use super::pairs;
use crate::parse::ParseError;

/// Version 2's `cpu.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Microseconds on a processor.
    pub usage_us: u64,
    /// Of these, in user mode.
    pub user_us: u64,
    /// Of these, in kernel mode.
    pub system_us: u64,
    /// Bandwidth control, where the controller is enabled.
    pub bandwidth: Option<Bandwidth>,
}

/// The effect of bandwidth control (`cpu.max`, `cpu.cfs_quota_us`) on a cgroup's own quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Periods in which it was runnable; 0 without a quota.
    pub periods: u64,
    /// Periods in which it used up its quota.
    pub throttled_periods: u64,
    /// Nanoseconds throttled, summed over processors.
    pub throttled_ns: u64,
    /// Periods in which it used saved quota, if the kernel counts them.
    pub bursts: Option<u64>,
    /// Nanoseconds above the quota in bursts, if the kernel counts them.
    pub burst_ns: Option<u64>,
}

/// Version 1's `cpuacct.stat`, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuacctStat {
    /// In user mode.
    pub user: u64,
    /// In kernel mode.
    pub system: u64,
}

/// Reads version 2's `cpu.stat`.
///
/// # Errors
/// The text is truncated, lacks one of the first three lines, or a known line has no number.
pub fn cpu_stat(text: &[u8]) -> Result<CpuStat, ParseError> {
    let (mut usage, mut user, mut system) = (None, None, None);
    for pair in pairs(text)? {
        match pair? {
            (b"usage_usec", us) => usage = Some(us),
            (b"user_usec", us) => user = Some(us),
            (b"system_usec", us) => system = Some(us),
            _ => {}
        }
    }
    let wrong = ParseError::at(text);
    Ok(CpuStat {
        usage_us: usage.ok_or(wrong)?,
        user_us: user.ok_or(wrong)?,
        system_us: system.ok_or(wrong)?,
        bandwidth: bandwidth(text)?,
    })
}

/// Reads the bandwidth lines of a `cpu.stat` of either version; `None` where there are none.
///
/// # Errors
/// The text is truncated, has only some of the lines, or a time too large for 64 bits of nanoseconds.
pub fn bandwidth(text: &[u8]) -> Result<Option<Bandwidth>, ParseError> {
    let (mut periods, mut throttled, mut time) = (None, None, None);
    let mut bandwidth = Bandwidth::default();
    let wrong = ParseError::at(text);
    for pair in pairs(text)? {
        let (key, value) = pair?;
        match key {
            b"nr_periods" => periods = Some(value),
            b"nr_throttled" => throttled = Some(value),
            b"throttled_time" => time = Some(value),
            b"throttled_usec" => time = Some(value.checked_mul(1000).ok_or(wrong)?),
            b"nr_bursts" => bandwidth.bursts = Some(value),
            b"burst_time" => bandwidth.burst_ns = Some(value),
            b"burst_usec" => bandwidth.burst_ns = Some(value.checked_mul(1000).ok_or(wrong)?),
            _ => {}
        }
    }
    match (periods, throttled, time) {
        (Some(periods), Some(throttled_periods), Some(throttled_ns)) => {
            Ok(Some(Bandwidth { periods, throttled_periods, throttled_ns, ..bandwidth }))
        }
        (None, None, None) => Ok(None),
        _ => Err(wrong),
    }
}

/// Reads version 1's `cpuacct.stat`.
///
/// # Errors
/// The text is truncated, or lacks one of the two lines.
pub fn cpuacct_stat(text: &[u8]) -> Result<CpuacctStat, ParseError> {
    let (mut user, mut system) = (None, None);
    for pair in pairs(text)? {
        match pair? {
            (b"user", ticks) => user = Some(ticks),
            (b"system", ticks) => system = Some(ticks),
            _ => {}
        }
    }
    let wrong = ParseError::at(text);
    Ok(CpuacctStat { user: user.ok_or(wrong)?, system: system.ok_or(wrong)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V2: &[u8] = b"usage_usec 7502072\nuser_usec 7400000\nsystem_usec 102072\nnice_usec 0\n\
        core_sched.force_idle_usec 0\nnr_periods 80\nnr_throttled 12\nthrottled_usec 402113\n\
        nr_bursts 3\nburst_usec 5\n";

    #[test]
    fn version_2_with_and_without_its_controller() {
        let stat = cpu_stat(V2).unwrap();
        assert_eq!((stat.usage_us, stat.user_us, stat.system_us), (7_502_072, 7_400_000, 102_072));
        let expected = Bandwidth {
            periods: 80,
            throttled_periods: 12,
            throttled_ns: 402_113_000,
            bursts: Some(3),
            burst_ns: Some(5000),
        };
        assert_eq!(stat.bandwidth, Some(expected));
        let bare = cpu_stat(b"usage_usec 1\nuser_usec 1\nsystem_usec 0\n").unwrap();
        assert_eq!(bare.bandwidth, None);
    }

    #[test]
    fn version_1_of_old_and_new_kernels() {
        let old =
            bandwidth(b"nr_periods 8\nnr_throttled 2\nthrottled_time 402113\n").unwrap().unwrap();
        assert_eq!((old.throttled_ns, old.bursts), (402_113, None));
        let new =
            b"nr_periods 8\nnr_throttled 2\nthrottled_time 402113\nnr_bursts 1\nburst_time 9\n";
        assert_eq!(bandwidth(new).unwrap().unwrap().burst_ns, Some(9));
        assert_eq!(
            cpuacct_stat(b"user 740\nsystem 10\n"),
            Ok(CpuacctStat { user: 740, system: 10 })
        );
    }

    #[test]
    fn every_truncated_text_lacks_lines_or_is_rejected() {
        for cut in 0..V2.len() {
            let stat = cpu_stat(&V2[..cut]);
            assert!(stat.is_err() || V2[..cut].ends_with(b"\n"), "{cut}");
        }
        assert!(cpu_stat(b"usage_usec 1\nuser_usec 1\n").is_err());
        assert!(bandwidth(b"nr_periods 8\n").is_err());
        assert!(
            bandwidth(b"nr_periods 8\nnr_throttled 2\nthrottled_usec 18446744073709551615\n")
                .is_err()
        );
        let text = b"user 740\nsystem 10\n";
        for cut in 0..text.len() {
            assert!(cpuacct_stat(&text[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            cpu_stat(&bytes).ok();
            bandwidth(&bytes).ok();
            cpuacct_stat(&bytes).ok();
        }

        #[test]
        fn no_changed_byte_panics(place in 0..V2.len(), byte: u8) {
            let mut text = V2.to_vec();
            text[place] = byte;
            cpu_stat(&text).ok();
        }
    }
}
