//! `struct taskstats`: the kernel's counters of one task (include/uapi/linux/taskstats.h and
//! Documentation/accounting/taskstats-struct.rst, Linux 6.18; kernel/tsacct.c for the units).
//!
//! The struct grows from version to version at its end, with one exception: the
//! kernels 6.14 and 6.15 put the largest and smallest delays after each sum, in its middle, and moved
//! all later fields; version 16 has them at its end. So version and length together identify a layout,
//! and an unknown combination is rejected.
//!
//! | version | length | kernel | new fields |
//! |---|---|---|---|
//! | 8 | 328 | 2.6.30 | the shortest that is read |
//! | 9 | 344 | 4.20 | thrashing |
//! | 10, 11 | 352, 368 | 5.11, 5.17 | 64-bit begin, compaction |
//! | 12 | 400 | 5.19 | thread group, program file |
//! | 13, 14 | 416, 432 | 6.0, 6.5 | copies on write, interrupts |
//! | 14 or 15 | 496, 560 | 6.14, 6.15 | largest, and smallest delays, in the middle |
//! | 16 | 560 | 6.16 | the same, at the end |

use crate::netlink::{u16_at, u32_at, u64_at};

/// Length of version 8; all its fields are read.
const LENGTH_MIN: usize = 328;
/// Length of version 14, the last before fields were inserted into the middle.
const LENGTH_14: usize = 432;
/// Number of delays with a largest and a smallest value: cpu, blkio, swapin, freepages,
/// thrashing, compact, wpcopy, irq.
const DELAYS: usize = 8;
/// `AGROUP` of `<linux/acct.h>`: the last task of its thread group. Since version 12.
const LAST_OF_GROUP: u8 = 0x20;
/// First version with the thread group.
const VERSION_WITH_GROUP: u16 = 12;

/// The kernel's counters of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStats {
    /// The task: a thread, or the only one of its process.
    pub tid: u32,
    /// Its process; `None` before version 12 (Linux 5.19), which does not report it.
    pub tgid: Option<u32>,
    /// The parent of its process; the reaper once the parent has ended.
    pub ppid: u32,
    /// Its start in seconds since 1970. The kernel subtracts two clocks truncated to seconds: the same task
    /// may show a second more at another reading.
    pub begin_s: u64,
    /// Microseconds since it began, by the clock that never jumps and stops while the machine sleeps.
    pub elapsed_us: u64,
    /// Whether it was the last task of its process; never set before version 12.
    pub last_of_group: bool,
    /// Largest resident memory of its process so far, in KiB.
    pub hiwater_rss_kib: u64,
    /// Largest virtual memory of its process so far, in KiB.
    pub hiwater_vm_kib: u64,
    /// Its name, ended by zeros.
    pub comm: [u8; 16],
    /// Values that never decrease.
    pub counters: Counters,
}

/// Values that never decrease while a task lives.
///
/// The kernel truncates the io counters (`ReadChar` to `CancelledWriteBytes`) of every task to a
/// multiple of 1024, the number of system calls too (`KB_MASK` in kernel/tsacct.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub [u64; Counter::COUNT]);

/// A position in [`Counters`], with the kernel's name and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// `cpu_count`: how often it waited for a processor.
    CpuCount,
    /// `cpu_delay_total`: nanoseconds of that.
    CpuDelay,
    /// `blkio_count`: how often it waited for block io. This and the other delays are counted only
    /// while `kernel.task_delayacct` is 1.
    BlkioCount,
    /// `blkio_delay_total`: nanoseconds of that.
    BlkioDelay,
    /// `swapin_count`: how often it waited for a page to come back from swap.
    SwapinCount,
    /// `swapin_delay_total`: nanoseconds of that.
    SwapinDelay,
    /// `cpu_run_real_total`: nanoseconds of user and system time, without what the host stole.
    CpuRunReal,
    /// `cpu_run_virtual_total`: nanoseconds on a processor as the scheduler counts them.
    CpuRunVirtual,
    /// `ac_utime`: microseconds in user mode.
    UserTime,
    /// `ac_stime`: microseconds in the kernel.
    SystemTime,
    /// `ac_minflt`: page faults without reading from a disk.
    MinorFaults,
    /// `ac_majflt`: page faults that read from a disk.
    MajorFaults,
    /// `coremem`: resident memory times processor time, in MiB-microseconds.
    CoreMem,
    /// `virtmem`: virtual memory times processor time, in MiB-microseconds.
    VirtMem,
    /// `read_char`: bytes read by read calls.
    ReadChar,
    /// `write_char`: bytes written by write calls.
    WriteChar,
    /// `read_syscalls`: read calls.
    ReadSyscalls,
    /// `write_syscalls`: write calls.
    WriteSyscalls,
    /// `read_bytes`: bytes fetched from storage.
    ReadBytes,
    /// `write_bytes`: bytes to be sent to storage.
    WriteBytes,
    /// `cancelled_write_bytes`: bytes not sent because of truncation.
    CancelledWriteBytes,
    /// `nvcsw`: voluntary context switches.
    VoluntarySwitches,
    /// `nivcsw`: involuntary context switches.
    InvoluntarySwitches,
    /// `ac_utimescaled`: microseconds in user mode, scaled by the processor's frequency where the
    /// architecture does that.
    UserTimeScaled,
    /// `ac_stimescaled`: the same in the kernel.
    SystemTimeScaled,
    /// `cpu_scaled_run_real_total`: nanoseconds of both.
    CpuRunRealScaled,
    /// `freepages_count`: how often it had to free memory before it got some.
    FreePagesCount,
    /// `freepages_delay_total`: nanoseconds of that.
    FreePagesDelay,
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = 28;

    /// Every counter with its offset in the struct and the number of delays before it, in the order
    /// of [`Counters`].
    const LAYOUT: [(Self, usize, usize); Self::COUNT] = [
        (Self::CpuCount, 16, 0),
        (Self::CpuDelay, 24, 0),
        (Self::BlkioCount, 32, 1),
        (Self::BlkioDelay, 40, 1),
        (Self::SwapinCount, 48, 2),
        (Self::SwapinDelay, 56, 2),
        (Self::CpuRunReal, 64, 3),
        (Self::CpuRunVirtual, 72, 3),
        (Self::UserTime, 152, 3),
        (Self::SystemTime, 160, 3),
        (Self::MinorFaults, 168, 3),
        (Self::MajorFaults, 176, 3),
        (Self::CoreMem, 184, 3),
        (Self::VirtMem, 192, 3),
        (Self::ReadChar, 216, 3),
        (Self::WriteChar, 224, 3),
        (Self::ReadSyscalls, 232, 3),
        (Self::WriteSyscalls, 240, 3),
        (Self::ReadBytes, 248, 3),
        (Self::WriteBytes, 256, 3),
        (Self::CancelledWriteBytes, 264, 3),
        (Self::VoluntarySwitches, 272, 3),
        (Self::InvoluntarySwitches, 280, 3),
        (Self::UserTimeScaled, 288, 3),
        (Self::SystemTimeScaled, 296, 3),
        (Self::CpuRunRealScaled, 304, 3),
        (Self::FreePagesCount, 312, 3),
        (Self::FreePagesDelay, 320, 3),
    ];

    /// Its position.
    pub const fn place(self) -> usize {
        #[expect(clippy::as_conversions, reason = "a field-less enum's own number")]
        let place = self as usize;
        place
    }
}

impl Counters {
    /// All zero.
    pub const ZERO: Self = Self([0; Counter::COUNT]);

    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter.place()).copied().unwrap_or(0)
    }
}

/// A `struct taskstats` that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("struct taskstats of version {version} and {length} bytes: {why}")]
pub struct StatsError {
    /// Its version.
    pub version: u16,
    /// Its length in bytes.
    pub length: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// Reads a `struct taskstats`.
///
/// # Errors
/// It is too short, or of an unknown layout.
pub fn taskstats(bytes: &[u8]) -> Result<TaskStats, StatsError> {
    let version = u16_at(bytes, 0).unwrap_or(0);
    let length = bytes.len();
    let wrong = |why| StatsError { version, length, why };
    let stride = stride(version, length).map_err(wrong)?;
    read(bytes, version, stride).ok_or(wrong("too short"))
}

/// The shift of a field, in bytes, per delay before it.
const fn stride(version: u16, length: usize) -> Result<usize, &'static str> {
    if length < LENGTH_MIN {
        return Err("older than Linux 2.6.30, or truncated");
    }
    match (version, length) {
        (8..=14, ..=LENGTH_14) | (16.., _) => Ok(0),
        (14 | 15, _) if length == LENGTH_14 + 8 * DELAYS => Ok(8),
        (14 | 15, _) if length == LENGTH_14 + 16 * DELAYS => Ok(16),
        _ => Err("an unknown layout"),
    }
}

fn read(bytes: &[u8], version: u16, stride: usize) -> Option<TaskStats> {
    // Three delays precede the fields of the task itself, six precede its thread group.
    let own = 3 * stride;
    let mut counters = Counters::ZERO;
    for (to, (_, offset, delays)) in counters.0.iter_mut().zip(Counter::LAYOUT) {
        *to = u64_at(bytes, offset + delays * stride)?;
    }
    let tgid = if version >= VERSION_WITH_GROUP { u32_at(bytes, 368 + 6 * stride) } else { None };
    let flag = *bytes.get(8)?;
    Some(TaskStats {
        tid: u32_at(bytes, 128 + own)?,
        tgid: tgid.filter(|tgid| *tgid != 0),
        ppid: u32_at(bytes, 132 + own)?,
        begin_s: u64::from(u32_at(bytes, 136 + own)?),
        elapsed_us: u64_at(bytes, 144 + own)?,
        last_of_group: version >= VERSION_WITH_GROUP && flag & LAST_OF_GROUP != 0,
        hiwater_rss_kib: u64_at(bytes, 200 + own)?,
        hiwater_vm_kib: u64_at(bytes, 208 + own)?,
        comm: *bytes.get(80 + own..)?.first_chunk()?,
        counters,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A struct in which every field has a distinct number: its offset in version 14, except for those set here.
    pub(crate) fn sample(version: u16, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; 432];
        for offset in (16..432).step_by(8) {
            bytes[offset..offset + 8].copy_from_slice(&(offset as u64).to_ne_bytes());
        }
        bytes[0..2].copy_from_slice(&version.to_ne_bytes());
        bytes[8] = 0x21;
        bytes[80..112]
            .copy_from_slice(b"sleep\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        for (offset, value) in [(120, 0), (124, 0), (128, 700_u32), (132, 600), (368, 690)] {
            bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[136..144].copy_from_slice(&1_767_706_500_u64.to_ne_bytes());
        let extra = match length {
            496 if version < 16 => 8,
            560 if version < 16 => 16,
            _ => 0,
        };
        // From the back, so that the offsets do not move before their turn. Every inserted byte is 0xee.
        for end in [432, 416, 368, 344, 328, 64, 48, 32] {
            bytes.splice(end..end, std::iter::repeat_n(0xee, extra));
        }
        bytes.resize(length, 0xee);
        bytes
    }

    #[test]
    fn every_layout_gives_the_same() {
        let expected = taskstats(&sample(14, 432)).unwrap();
        assert_eq!((expected.tid, expected.tgid, expected.ppid), (700, Some(690), 600));
        assert_eq!((expected.begin_s, expected.elapsed_us), (1_767_706_500, 144));
        assert_eq!((expected.hiwater_rss_kib, expected.hiwater_vm_kib), (200, 208));
        assert_eq!(&expected.comm[..6], b"sleep\0");
        assert!(expected.last_of_group);
        assert_eq!(expected.counters.get(Counter::CpuCount), 16);
        assert_eq!(expected.counters.get(Counter::CpuRunVirtual), 72);
        assert_eq!(expected.counters.get(Counter::CancelledWriteBytes), 264);
        assert_eq!(expected.counters.get(Counter::FreePagesDelay), 320);
        for (version, length) in
            [(14, 496), (15, 496), (14, 560), (15, 560), (16, 560), (17, 688), (12, 400), (13, 416)]
        {
            assert_eq!(taskstats(&sample(version, length)), Ok(expected), "{version}, {length}");
        }
        let old = TaskStats { tgid: None, last_of_group: false, ..expected };
        for (version, length) in [(8, 328), (9, 344), (10, 352), (11, 368)] {
            assert_eq!(taskstats(&sample(version, length)), Ok(old), "{version}, {length}");
        }
    }

    #[test]
    fn the_table_is_in_the_order_of_the_names() {
        for (place, (counter, _, _)) in Counter::LAYOUT.iter().enumerate() {
            assert_eq!(counter.place(), place);
        }
    }

    #[test]
    fn unknown_layouts_are_rejected() {
        for (version, length) in [(3, 328), (14, 440), (15, 432), (15, 568), (14, 504)] {
            let error = taskstats(&sample(version, length)).unwrap_err();
            assert_eq!(error.why, "an unknown layout", "{version}, {length}");
        }
        assert!(taskstats(&[]).is_err());
        let whole = sample(16, 560);
        for cut in 0..LENGTH_MIN {
            assert!(taskstats(&whole[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            version in 0_u16..20,
            mut bytes in proptest::collection::vec(any::<u8>(), 0..700),
        ) {
            taskstats(&bytes).ok();
            if let Some(start) = bytes.first_chunk_mut() {
                *start = version.to_ne_bytes();
            }
            taskstats(&bytes).ok();
        }
    }
}
