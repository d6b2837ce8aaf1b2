//! `/dev/kmsg`: the kernel's log; only the lines about OOM kills are read
//! (Documentation/ABI/testing/dev-kmsg; mm/oom_kill.c, `dump_oom_victim` and `__oom_kill_process`;
//! mm/memcontrol.c, `mem_cgroup_print_oom_meminfo`, Linux 6.18).
//!
//! ```text
//! 6,812,5140900,-;memory: usage 8192kB, limit 8192kB, failcnt 31
//! 6,840,5140930,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job_1,task_memcg=/job_1/step_0,task=tail,pid=123,uid=1000
//! 3,841,5140940,-;Memory cgroup out of memory: Killed process 123 (tail) total-vm:10124kB, anon-rss:7720kB,
//! file-rss:1544kB, shmem-rss:0kB, UID:1000 pgtables:56kB oom_score_adj:0
//! ```
//!
//! Each read returns one record. The log has lines of other programs, too; only the kernel's own are accepted.

use crate::{ReadError, Root, is_denied, is_gone};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The file, without its leading `/`.
const PATH: &str = "dev/kmsg";
/// Longest record (`PRINTKRB_RECORD_MAX`, include/linux/printk.h, and its dictionary).
const RECORD_BYTES_MAX: usize = 8192;

/// The log, read from the record at which it was opened.
#[derive(Debug)]
pub struct KernelLog {
    fd: OwnedFd,
    record: Box<[u8]>,
}

/// A line about an OOM kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// The memory of the full cgroup, in bytes.
    Full {
        /// The memory charged to it.
        charged: u64,
        /// Its limit.
        limit: u64,
    },
    /// The task that will be killed.
    Victim(Victim<'a>),
    /// It was killed.
    Killed {
        /// Its process ID.
        pid: u32,
        /// Its memory in bytes: anonymous, of files and shared.
        bytes: u64,
    },
}

/// The task that will be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim<'a> {
    /// Its cgroup of memory, below the hierarchy's root, with a leading `/`.
    pub cgroup: &'a str,
    /// Its name.
    pub task: &'a str,
    /// Its process ID.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// The full cgroup; `None`: the whole node is out of memory.
    pub full: Option<&'a str>,
}

impl KernelLog {
    /// Opens the log of the running machine; `from_start` includes the earlier records that it still has.
    ///
    /// # Errors
    /// It is absent, as on a recorded machine, or denied: `dmesg_restrict` is set and `CAP_SYSLOG` missing.
    pub fn open(root: &Root, from_start: bool) -> Result<Self, ReadError> {
        let path = || format!("/{PATH}");
        let failed = |errno: Errno| match errno {
            errno if is_gone(errno) => ReadError::Absent { path: path() },
            errno if is_denied(errno) => ReadError::Denied { path: path() },
            errno => ReadError::Failed { path: path(), why: errno.to_string() },
        };
        if !root.is_live() {
            return Err(ReadError::Absent { path: path() });
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path(), flags, Mode::empty()).map_err(failed)?;
        if !from_start {
            rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(failed)?;
        }
        Ok(Self { fd, record: vec![0; RECORD_BYTES_MAX].into() })
    }

    /// Shows the next lines about OOM kills with their times, in microseconds of the monotonic clock. Reads
    /// `records_max` records at most. Returns whether that was all; overwritten records are skipped.
    ///
    /// # Errors
    /// The system's.
    pub fn read(
        &mut self,
        records_max: usize,
        mut show: impl FnMut(i64, Line<'_>),
    ) -> Result<bool, Errno> {
        for _ in 0..records_max {
            match rustix::io::read(&self.fd, &mut self.record[..]) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(true),
                Ok(bytes) => {
                    let record = self.record.get(..bytes).unwrap_or_default();
                    if let Some((at_us, line)) = line(record) {
                        show(at_us, line);
                    }
                }
                Err(Errno::INTR | Errno::PIPE) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }
}

/// The line of a record and its time, if it is one of the kernel's about OOM kills.
pub fn line(record: &[u8]) -> Option<(i64, Line<'_>)> {
    let record = std::str::from_utf8(record).ok()?;
    let (head, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    let mut fields = head.split(',');
    let (priority, at_us) = (fields.next()?, fields.nth(1)?);
    // Eight levels of the facility 0, the kernel's; records of programs have another one.
    if priority.parse::<u32>().ok()? >= 8 {
        return None;
    }
    let line = full(text).or_else(|| victim(text)).or_else(|| killed(text))?;
    Some((at_us.parse().ok()?, line))
}

fn full(text: &str) -> Option<Line<'_>> {
    let text = text.strip_prefix("memory: ")?;
    Some(Line::Full { charged: kib(text, "usage ")?, limit: kib(text, ", limit ")? })
}

fn victim(text: &str) -> Option<Line<'_>> {
    let text = text.strip_prefix("oom-kill:constraint=")?;
    let (before, after) = text.split_once(",task_memcg=")?;
    // A user may name a cgroup below their job's so that it looks like another job's.
    if after.contains(",task_memcg=") {
        return None;
    }
    let (rest, uid) = after.rsplit_once(",uid=")?;
    let (rest, pid) = rest.rsplit_once(",pid=")?;
    let (cgroup, task) = rest.split_once(",task=")?;
    let full = before.rsplit_once(",oom_memcg=").map(|(_, full)| full);
    Some(Line::Victim(Victim {
        cgroup,
        task,
        pid: pid.parse().ok()?,
        uid: uid.parse().ok()?,
        full: full.filter(|_| before.starts_with("CONSTRAINT_MEMCG,")),
    }))
}

fn killed(text: &str) -> Option<Line<'_>> {
    let (before, text) = text.split_once("Killed process ")?;
    // The text before is the kernel's, not the name of a task.
    if !matches!(before, "" | "Memory cgroup out of memory: " | "Out of memory: ") {
        return None;
    }
    let (pid, text) = text.split_once(" (")?;
    let (_, sizes) = text.rsplit_once(") total-vm:")?;
    let parts = ["anon-rss:", "file-rss:", "shmem-rss:"].map(|part| kib(sizes, part));
    let bytes = parts.into_iter().flatten().reduce(u64::saturating_add)?;
    Some(Line::Killed { pid: pid.parse().ok()?, bytes })
}

/// The size after a word, printed in kB of 1024 bytes, in bytes.
fn kib(text: &str, word: &str) -> Option<u64> {
    let (_, text) = text.split_once(word)?;
    let (kib, _) = text.split_once("kB")?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VICTIM: &str = "6,840,5140930,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job_1,task_memcg=/job_1/step_0,task=a, (b),pid=123,uid=1000\n SUBSYSTEM=x\n";
    const KILLED: &str = "3,841,5140940,-;Memory cgroup out of memory: Killed process 123 (a, (b)) total-vm:10124kB, anon-rss:7720kB, file-rss:1544kB, shmem-rss:4kB, UID:1000 pgtables:56kB oom_score_adj:0\n";

    #[test]
    fn the_lines_of_a_kill() {
        let limit = "6,812,5140900,-;memory: usage 8191kB, limit 8192kB, failcnt 31\n";
        let full = Line::Full { charged: 8191 << 10, limit: 8 << 20 };
        assert_eq!(line(limit.as_bytes()), Some((5_140_900, full)));
        let victim = Victim {
            cgroup: "/job_1/step_0",
            task: "a, (b)",
            pid: 123,
            uid: 1000,
            full: Some("/job_1"),
        };
        assert_eq!(line(VICTIM.as_bytes()), Some((5_140_930, Line::Victim(victim))));
        let bytes = (7720 + 1544 + 4) * 1024;
        let killed = Some((5_140_940, Line::Killed { pid: 123, bytes }));
        assert_eq!(line(KILLED.as_bytes()), killed);
        // Before Linux 5.6 it ends after the sizes.
        let old = "3,1,7,-;Killed process 9 (x) total-vm:8kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB\n";
        assert_eq!(line(old.as_bytes()), Some((7, Line::Killed { pid: 9, bytes: 4096 })));
    }

    #[test]
    fn the_node_is_out_of_memory() {
        let text = "6,1,7,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/x,task=y,pid=1,uid=0\n";
        let Some((_, Line::Victim(victim))) = line(text.as_bytes()) else { panic!("a victim") };
        assert!(victim.full.is_none() && victim.cgroup == "/x");
    }

    #[test]
    fn texts_of_programs_and_users_are_no_kills() {
        // A program's own message: facility 1 or more.
        for text in [VICTIM, KILLED] {
            let (_, rest) = text.split_once(',').unwrap();
            assert_eq!(line(format!("12,{rest}").as_bytes()), None);
        }
        // A cgroup with a name like another job's.
        let forged =
            VICTIM.replace("cpuset=/", "cpuset=/mine,task_memcg=/job_2,task=x,pid=1,uid=1");
        assert_eq!(line(forged.as_bytes()), None);
        let named = "4,1,7,-;Killed process 9 invoked oom-killer: gfp_mask=0x0\n";
        assert_eq!(line(named.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            line(&bytes);
        }

        #[test]
        fn no_changed_byte_panics(place in 0_usize..200, byte: u8) {
            for text in [VICTIM, KILLED] {
                let mut text = text.as_bytes().to_vec();
                let place = place % text.len();
                text[place] = byte;
                line(&text);
            }
        }
    }
}
