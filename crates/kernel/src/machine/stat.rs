//! `/proc/stat`: activity of the processors since boot (Documentation/filesystems/proc.rst, section 1.7;
//! fs/proc/stat.c, Linux 6.18).
//!
//! ```text
//! cpu  4084 27488 4868 166074 781 0 67 78 0 0
//! cpu0 1617 13528 2016 84361 144 0 10 26 0 0
//! cpu1 2466 13960 2852 81713 637 0 57 52 0 0
//! intr 288911 0 0 25 1 1 14
//! ctxt 389142
//! btime 1795217029
//! processes 10548
//! procs_running 1
//! procs_blocked 0
//! softirq 172972 0 24063 6 9057 53414 0 425 38809 0 47198
//! ```
//!
//! The columns of a `cpu` line are `user nice system idle iowait irq softirq steal guest guest_nice`, in
//! ticks of [`user_hz`]; the last ones are missing in old kernels. `guest` is contained in `user` and
//! `guest_nice` in `nice` (kernel/sched/cputime.c, `account_guest_time`). `idle` and `iowait` can decrease:
//! at each reading the kernel decides to which of the two a sleep in progress belongs.

use crate::Root;
use crate::parse::{Fields, ParseError, whole_lines};

/// Most processors that Linux can have on any architecture (`NR_CPUS`, 8192 on x86).
pub const CPUS_MAX: u32 = 8192;

/// The kinds of soft interrupts in the order of the `softirq` line (include/linux/interrupt.h).
pub const SOFTIRQS: [&str; 10] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

/// What one processor, or all of them, did since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// User mode, guests included.
    pub user: u64,
    /// User mode of processes with a lowered priority, guests included.
    pub nice: u64,
    /// Kernel mode, interrupts apart.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do while a task of this processor waited for a disk.
    pub iowait: Option<u64>,
    /// Interrupts.
    pub irq: Option<u64>,
    /// Soft interrupts.
    pub softirq: Option<u64>,
    /// Time in which the hypervisor ran another guest although this processor was runnable.
    pub steal: Option<u64>,
    /// The part of `user` that ran a virtual machine.
    pub guest: Option<u64>,
    /// The part of `nice` that ran a virtual machine.
    pub guest_nice: Option<u64>,
}

/// The numbers of `/proc/stat`, but for those of single processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The sum over all processors, those off line included.
    pub all: CpuTimes,
    /// Processors on line.
    pub online: u32,
    /// Interrupts served since boot.
    pub interrupts: Option<u64>,
    /// Context switches since boot.
    pub context_switches: Option<u64>,
    /// Seconds from 1970 to boot, by the current clock.
    pub boot_seconds: Option<u64>,
    /// Processes and threads made since boot.
    pub forks: Option<u64>,
    /// Tasks that run or wait for a processor now.
    pub running: Option<u64>,
    /// Tasks that wait for a disk now.
    pub blocked: Option<u64>,
    /// Soft interrupts since boot by kind, as [`SOFTIRQS`] names them; each is a sum of 32 bits that
    /// wraps to 0. The line's first number is not used: it adds up numbers that wrap at
    /// different times, and so can decrease without being small.
    pub softirqs: Option<[u64; SOFTIRQS.len()]>,
}

/// Ticks in a second: 100 on nearly every machine, and on every recorded one.
pub fn user_hz(root: &Root) -> u64 {
    if root.is_live() { rustix::param::clock_ticks_per_second().max(1) } else { 100 }
}

/// Reads `/proc/stat`, showing each processor that is on line with its number.
///
/// # Errors
/// The text has no `cpu` line, is truncated, or has a number where none can be read.
pub fn stat(text: &[u8], mut core: impl FnMut(u32, &CpuTimes)) -> Result<Stat, ParseError> {
    let mut stat = Stat::default();
    let mut seen = false;
    for line in whole_lines(text)? {
        let mut fields = Fields::of(line);
        match fields.word()? {
            b"cpu" => (stat.all, seen) = (cpu_times(&mut fields)?, true),
            b"intr" => stat.interrupts = Some(fields.number()?),
            b"ctxt" => stat.context_switches = Some(fields.number()?),
            b"btime" => stat.boot_seconds = Some(fields.number()?),
            b"processes" => stat.forks = Some(fields.number()?),
            b"procs_running" => stat.running = Some(fields.number()?),
            b"procs_blocked" => stat.blocked = Some(fields.number()?),
            b"softirq" => stat.softirqs = Some(softirqs(&mut fields)?),
            word => {
                let Some(digits) = word.strip_prefix(b"cpu") else { continue };
                let number = crate::parse::number(digits).and_then(|n| u32::try_from(n).ok());
                let number = number.filter(|n| *n < CPUS_MAX).ok_or(ParseError::at(word))?;
                core(number, &cpu_times(&mut fields)?);
                stat.online += 1;
            }
        }
    }
    if seen { Ok(stat) } else { Err(ParseError::at(text)) }
}

fn cpu_times(fields: &mut Fields<'_>) -> Result<CpuTimes, ParseError> {
    let mut times = CpuTimes {
        user: fields.number()?,
        nice: fields.number()?,
        system: fields.number()?,
        idle: fields.number()?,
        ..CpuTimes::default()
    };
    for column in [
        &mut times.iowait,
        &mut times.irq,
        &mut times.softirq,
        &mut times.steal,
        &mut times.guest,
        &mut times.guest_nice,
    ] {
        if fields.rest().is_empty() {
            break;
        }
        *column = Some(fields.number()?);
    }
    Ok(times)
}

fn softirqs(fields: &mut Fields<'_>) -> Result<[u64; SOFTIRQS.len()], ParseError> {
    let mut kinds = [0; SOFTIRQS.len()];
    fields.skip(1)?;
    for kind in &mut kinds {
        *kind = fields.number()?;
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"cpu  4084 27488 4868 166074 781 1 67 78 5 6\n\
        cpu0 1617 13528 2016 84361 144 0 10 26 2 3\n\
        cpu3 2466 13960 2852 81713 637 1 57 52 3 3\n\
        intr 288911 0 0 25 1 1 14\n\
        ctxt 389142\n\
        btime 1795217029\n\
        processes 10548\n\
        procs_running 2\n\
        procs_blocked 1\n\
        softirq 172972 0 24063 6 9057 53414 0 425 38809 7 47198\n";

    fn cores(text: &[u8]) -> Result<(Stat, Vec<(u32, CpuTimes)>), ParseError> {
        let mut cores = Vec::new();
        let stat = stat(text, |number, times| cores.push((number, *times)))?;
        Ok((stat, cores))
    }

    #[test]
    fn a_machine_of_two_processors() {
        let (stat, cores) = cores(TEXT).unwrap();
        let all = stat.all;
        assert_eq!((all.user, all.nice, all.system, all.idle), (4084, 27488, 4868, 166_074));
        assert_eq!((all.iowait, all.irq, all.softirq), (Some(781), Some(1), Some(67)));
        assert_eq!((all.steal, all.guest, all.guest_nice), (Some(78), Some(5), Some(6)));
        assert_eq!(stat.online, 2);
        assert_eq!((cores[0].0, cores[1].0, cores[1].1.user), (0, 3, 2466));
        assert_eq!((stat.interrupts, stat.context_switches), (Some(288_911), Some(389_142)));
        assert_eq!((stat.boot_seconds, stat.forks), (Some(1_795_217_029), Some(10_548)));
        assert_eq!((stat.running, stat.blocked), (Some(2), Some(1)));
        assert_eq!(stat.softirqs, Some([0, 24063, 6, 9057, 53414, 0, 425, 38809, 7, 47198]));
    }

    #[test]
    fn old_kernels_have_fewer_columns_and_lines() {
        let (stat, cores) = cores(b"cpu 1 2 3 4\ncpu0 1 2 3 4 5 6 7\n").unwrap();
        assert_eq!((stat.all.idle, stat.all.iowait, stat.all.guest_nice), (4, None, None));
        assert_eq!((cores[0].1.softirq, cores[0].1.steal), (Some(7), None));
        assert_eq!((stat.interrupts, stat.softirqs), (None, None));
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            let lines = TEXT[..cut].ends_with(b"\n");
            assert_eq!(cores(&TEXT[..cut]).is_ok(), lines, "{cut}");
        }
    }

    #[test]
    fn malformed_text_is_rejected() {
        for text in [
            "",
            "cpu 1 2 3\n",
            "cpu 1 2 3 x\n",
            "cpu 1 2 3 4 -5\n",
            "cpu0 1 2 3 4\n",
            "cpu 1 2 3 4\ncpu8192 1 2 3 4\n",
            "cpu 1 2 3 4\ncpux 1 2 3 4\n",
            "cpu 1 2 3 4\nctxt\n",
            "cpu 1 2 3 4\nsoftirq 1 2 3\n",
        ] {
            assert!(cores(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ticks_come_from_the_live_machine_only() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(user_hz(&Root::recorded(dir.path()).unwrap()), 100);
        assert!(user_hz(&Root::live().unwrap()) >= 1);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            cores(&bytes).ok();
        }

        #[test]
        fn no_changed_byte_panics(place in 0..TEXT.len(), byte: u8) {
            let mut text = TEXT.to_vec();
            text[place] = byte;
            cores(&text).ok();
        }
    }
}
