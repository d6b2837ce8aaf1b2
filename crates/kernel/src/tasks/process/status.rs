//! `/proc/PID/status`: the memory of a process (fs/proc/array.c and fs/proc/task_mmu.c).
//!
//! ```text
//! Name: cat
//! State: R (running)
//! Tgid: 1121
//! PPid: 1116
//! VmSize:     3060 kB
//! VmHWM:     1760 kB
//! VmRSS:     1760 kB
//! RssAnon:      116 kB
//! RssFile:     1644 kB
//! RssShmem:        0 kB
//! VmSwap:        0 kB
//! Threads: 1
//! ```
//!
//! among 55 lines. The parts of the resident memory are there since Linux 4.5. A process that has given
//! its memory back, or a thread of the kernel, has none of the memory lines.

use super::State;
use crate::parse::{Fields, ParseError};

/// The used fields of `/proc/PID/status`; memory in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Its state.
    pub state: State,
    /// The process ID; it differs from the requested ID of a thread.
    pub tgid: u64,
    /// Its parent process.
    pub ppid: u64,
    /// Its threads.
    pub threads: u64,
    /// Virtual memory.
    pub vm_size: Option<u64>,
    /// Peak resident memory.
    pub vm_hwm: Option<u64>,
    /// Resident memory: the sum of the three that follow.
    pub vm_rss: Option<u64>,
    /// The part without a file: heap, stacks.
    pub rss_anon: Option<u64>,
    /// The part of files: programs, libraries, mapped data.
    pub rss_file: Option<u64>,
    /// The part of shared memory.
    pub rss_shmem: Option<u64>,
    /// Memory that was swapped out, without shared memory.
    pub vm_swap: Option<u64>,
}

/// Reads `/proc/PID/status` up to the line `Threads`, which follows the used ones.
///
/// # Errors
/// A line is missing, truncated, or not a number.
pub fn process_status(text: &[u8]) -> Result<ProcessStatus, ParseError> {
    let (mut state, mut tgid, mut ppid) = (None, None, None);
    let mut memory = [None; 7];
    let [vm_size, vm_hwm, vm_rss, rss_anon, rss_file, rss_shmem, vm_swap] = &mut memory;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        let mut value = Fields::of(value.get(1..).unwrap_or_default());
        let to = match name {
            b"State" => {
                state = value.word()?.first().copied().map(State::of);
                continue;
            }
            b"Tgid" => &mut tgid,
            b"PPid" => &mut ppid,
            b"VmSize" => &mut *vm_size,
            b"VmHWM" => &mut *vm_hwm,
            b"VmRSS" => &mut *vm_rss,
            b"RssAnon" => &mut *rss_anon,
            b"RssFile" => &mut *rss_file,
            b"RssShmem" => &mut *rss_shmem,
            b"VmSwap" => &mut *vm_swap,
            b"Threads" => {
                let wrong = ParseError::at(text);
                return Ok(ProcessStatus {
                    state: state.ok_or(wrong)?,
                    tgid: tgid.ok_or(wrong)?,
                    ppid: ppid.ok_or(wrong)?,
                    threads: value.number()?,
                    vm_size: *vm_size,
                    vm_hwm: *vm_hwm,
                    vm_rss: *vm_rss,
                    rss_anon: *rss_anon,
                    rss_file: *rss_file,
                    rss_shmem: *rss_shmem,
                    vm_swap: *vm_swap,
                });
            }
            _ => continue,
        };
        *to = Some(value.number()?);
    }
    Err(ParseError::at(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] =
        b"Name:\tca:t\nUmask:\t0022\nState:\tD (disk sleep)\nTgid:\t1121\nNgid:\t0\n\
        Pid:\t1122\nPPid:\t1116\nVmPeak:\t 4060 kB\nVmSize:\t 3060 kB\nVmHWM:\t 1761 kB\n\
        VmRSS:\t 1760 kB\nRssAnon:\t 116 kB\nRssFile:\t 1644 kB\nRssShmem:\t 0 kB\nVmSwap:\t 8 kB\n\
        Threads:\t17\nSigQ:\t0/96365\n";

    #[test]
    fn a_file_and_its_truncations() {
        let status = process_status(TEXT).unwrap();
        assert_eq!((status.tgid, status.ppid, status.threads), (1121, 1116, 17));
        assert_eq!(status.state, State::DiskSleep);
        assert_eq!((status.vm_size, status.vm_hwm), (Some(3060), Some(1761)));
        assert_eq!((status.vm_rss, status.vm_swap), (Some(1760), Some(8)));
        let parts = (status.rss_anon, status.rss_file, status.rss_shmem);
        assert_eq!(parts, (Some(116), Some(1644), Some(0)));
        let needed = TEXT.len() - b"SigQ:\t0/96365\n".len();
        for cut in 0..needed {
            assert!(process_status(&TEXT[..cut]).is_err(), "{cut}");
        }
        assert_eq!(process_status(&TEXT[..needed]), Ok(status));
    }

    #[test]
    fn without_memory() {
        let text = b"Name:\tsh\nState:\tZ (zombie)\nTgid:\t7\nPPid:\t1\nThreads:\t1\n";
        let status = process_status(text).unwrap();
        assert_eq!((status.state, status.vm_rss, status.vm_size), (State::Zombie, None, None));
        let text = b"State:\tS (sleeping)\nTgid:\t7\nPPid:\t1\nVmRSS:\tx kB\nThreads:\t1\n";
        assert!(process_status(text).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            process_status(&bytes).ok();
        }

        #[test]
        fn no_change_of_a_byte_panics(place in 0..TEXT.len(), byte in any::<u8>()) {
            let mut bytes = TEXT.to_vec();
            bytes[place] = byte;
            process_status(&bytes).ok();
        }
    }
}
