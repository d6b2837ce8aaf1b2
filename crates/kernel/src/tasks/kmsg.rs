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
//! The second line is made of several prints (`pr_cont`), in the same order in Linux 5.10, 6.1 and 6.18:
//! `oom-kill:constraint=…,nodemask=…`, `,cpuset=`, its name, `,mems_allowed=…`, `,oom_memcg=`, its path or
//! `,global_oom`, `,task_memcg=`, its path, and `,task=…,pid=…,uid=…`. A user with a cgroup subtree of their own
//! chooses the names in both paths and that of the cpuset.
//!
//! A print is added to the record while the record fits its limit (kernel/printk: `LOG_LINE_MAX`, 1024 bytes less a
//! prefix of 32 to 64, in Linux 5.10 and 6.1; `PRINTKRB_RECORD_MAX`, 1024 bytes, from 6.4 on) and no other processor
//! printed meanwhile. Otherwise the print becomes a record of its own with the flag `c` (`+` in old kernels). So a
//! record may end within the text, wherever a user's path ends, and looks complete if that path ends as a whole line
//! does. Three rules keep such a record from counting:
//!
//! - A record of 944 bytes or more, or with a field twice, is [`Line::Ambiguous`].
//! - A record with the flag `c` or `+` is [`Line::Continued`]: the record before it was cut.
//! - The third line follows under the same lock and in one print, with the kernel's own account of process ID, name
//!   and user (`UID:` since Linux 5.4). The reader compares them.
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

/// A record of the kernel's from this length on may be cut: 1024 bytes less the longest prefix, 64, and less the
/// print that did not fit, `,task_memcg=`.
const CUT_BYTES: usize = 1024 - 64 - 16;

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
    /// A line about a victim that may be cut, or names a cgroup twice: it is no evidence.
    Ambiguous,
    /// A record that continues an earlier one, which was cut.
    Continued,
    /// Records that were overwritten before they were read.
    Lost,
    /// It was killed.
    Killed {
        /// Its process ID.
        pid: u32,
        /// Its name.
        task: &'a str,
        /// Its user; `None` before Linux 5.4.
        uid: Option<u32>,
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
                Err(Errno::PIPE) => show(0, Line::Lost),
                Err(Errno::INTR) => {}
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
    let at_us = at_us.parse().ok()?;
    if matches!(fields.next(), Some("c" | "+")) {
        return Some((at_us, Line::Continued));
    }
    let line = full(text).or_else(|| victim(text)).or_else(|| killed(text))?;
    Some((at_us, line))
}

fn full(text: &str) -> Option<Line<'_>> {
    let text = text.strip_prefix("memory: ")?;
    Some(Line::Full { charged: kib(text, "usage ")?, limit: kib(text, ", limit ")? })
}

fn victim(text: &str) -> Option<Line<'_>> {
    let fields = text.strip_prefix("oom-kill:constraint=")?;
    // The kernel escapes some bytes as four: the record itself is not longer.
    let whole = (text.len() < CUT_BYTES).then(|| victim_fields(fields)).flatten();
    Some(whole.map_or(Line::Ambiguous, Line::Victim))
}

fn victim_fields(text: &str) -> Option<Victim<'_>> {
    // A user may name a cgroup below their job's so that it looks like another job's.
    let is_once = |field| text.matches(field).count() <= 1;
    if !is_once(",task_memcg=") || !is_once(",oom_memcg=") {
        return None;
    }
    let (before, after) = text.split_once(",task_memcg=")?;
    let (rest, uid) = after.rsplit_once(",uid=")?;
    let (rest, pid) = rest.rsplit_once(",pid=")?;
    let (cgroup, task) = rest.split_once(",task=")?;
    let full = before.rsplit_once(",oom_memcg=").map(|(_, full)| full);
    Some(Victim {
        cgroup,
        task,
        pid: pid.parse().ok()?,
        uid: uid.parse().ok()?,
        full: full.filter(|_| before.starts_with("CONSTRAINT_MEMCG,")),
    })
}

fn killed(text: &str) -> Option<Line<'_>> {
    let (before, text) = text.split_once("Killed process ")?;
    // The text before is the kernel's, not the name of a task.
    if !matches!(before, "" | "Memory cgroup out of memory: " | "Out of memory: ") {
        return None;
    }
    let (pid, text) = text.split_once(" (")?;
    let (task, sizes) = text.rsplit_once(") total-vm:")?;
    let parts = ["anon-rss:", "file-rss:", "shmem-rss:"].map(|part| kib(sizes, part));
    let bytes = parts.into_iter().flatten().reduce(u64::saturating_add)?;
    let uid = match sizes.split_once(", UID:") {
        Some((_, uid)) => Some(uid.split(' ').next()?.parse().ok()?),
        None => None,
    };
    Some(Line::Killed { pid: pid.parse().ok()?, task, uid, bytes })
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
        let (task, uid) = ("a, (b)", Some(1000));
        let killed = Some((5_140_940, Line::Killed { pid: 123, task, uid, bytes }));
        assert_eq!(line(KILLED.as_bytes()), killed);
        // Before Linux 5.4 it ends after the sizes.
        let old = "3,1,7,-;Killed process 9 (x) total-vm:8kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB\n";
        let killed = Line::Killed { pid: 9, task: "x", uid: None, bytes: 4096 };
        assert_eq!(line(old.as_bytes()), Some((7, killed)));
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
        assert_eq!(line(forged.as_bytes()), Some((5_140_930, Line::Ambiguous)));
        let forged = VICTIM.replace("=/job_1,", "=/job_1/x,oom_memcg=/job_2,");
        assert_eq!(line(forged.as_bytes()), Some((5_140_930, Line::Ambiguous)));
        let named = "4,1,7,-;Killed process 9 invoked oom-killer: gfp_mask=0x0\n";
        assert_eq!(line(named.as_bytes()), None);
    }

    /// The records of a victim's line, as Linux divides the prints at its limit of a record, or where another
    /// processor printed.
    fn records(prints: &[&str], bytes_max: usize, divided_at: usize) -> Vec<String> {
        let mut records: Vec<String> = Vec::new();
        for (place, print) in prints.iter().enumerate() {
            match records.last_mut() {
                Some(record) if place != divided_at && record.len() + print.len() <= bytes_max => {
                    record.push_str(print);
                }
                _ => records.push((*print).to_owned()),
            }
        }
        let head = |place| if place == 0 { "6,840,5140930,-;" } else { "4,841,5140930,c;" };
        records.iter().enumerate().map(|(place, text)| format!("{}{text}\n", head(place))).collect()
    }

    const FORGED: [&str; 2] = [
        ",task_memcg=/slurm/uid_2/job_4242/step_0,task=solver,pid=4321,uid=2",
        ",oom_memcg=/slurm/uid_2/job_4244,task_memcg=/slurm/uid_2/job_4244,task=solver,pid=4321,uid=2",
    ];

    fn prints<'a>(cpuset: &'a str, full: &'a str, cgroup: &'a str) -> [&'a str; 9] {
        let begin = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)";
        let end = ",task=solver,pid=4321,uid=65532";
        let (oom, task) = (",oom_memcg=", ",task_memcg=");
        [begin, ",cpuset=", cpuset, ",mems_allowed=0", oom, full, task, cgroup, end]
    }

    #[test]
    fn a_record_cut_at_the_limit_is_no_victim_of_another_job() {
        for (forged, bytes_max) in FORGED.into_iter().flat_map(|text| [(text, 976), (text, 1024)]) {
            let short = prints("x", "", "").iter().take(5).map(|print| print.len()).sum::<usize>();
            let space = bytes_max - short - "/slurm/uid_1/job_1/".len() - forged.len();
            let mut is_cut_once = false;
            for filled in space - 16..=space {
                let full = format!("/slurm/uid_1/job_1/{}{forged}", "d".repeat(filled));
                let records = records(&prints("x", &full, &full), bytes_max, usize::MAX);
                let lines: Vec<_> =
                    records.iter().filter_map(|record| line(record.as_bytes())).collect();
                is_cut_once |= records[0].contains(&format!("{forged}\n"));
                assert_eq!(lines[0].1, Line::Ambiguous, "{filled}");
                assert!(lines[1..].iter().all(|(_, line)| *line == Line::Continued));
            }
            assert!(is_cut_once, "the record that an attacker wants");
        }
    }

    proptest! {
        /// Wherever a record is cut, and whatever the names: the first line is of the real cgroups, or another line
        /// takes it back.
        #[test]
        fn a_victim_is_of_its_own_cgroup_or_taken_back(
            names in prop::collection::vec(prop_oneof![
                Just(FORGED[0].to_owned()), Just(FORGED[1].to_owned()), "[a-z,=/]{0,40}", "d{0,400}",
            ], 3),
            divided_at in 0_usize..12,
            bytes_max in 960_usize..=1024,
        ) {
            let own = |name: &str| format!("/slurm/uid_1/job_1/{name}");
            let (full, cgroup) = (own(&names[0]), own(&names[1]));
            // The name of a cgroup has 255 bytes at most.
            let cpuset: String = names[2].chars().take(255).collect();
            let records = records(&prints(&cpuset, &full, &cgroup), bytes_max, divided_at);
            let lines: Vec<_> =
                records.iter().filter_map(|record| line(record.as_bytes())).collect();
            if let Some((_, Line::Victim(victim))) = lines.first()
                && lines.len() == 1
            {
                prop_assert!(victim.cgroup.starts_with("/slurm/uid_1/job_1/"));
                prop_assert!(victim.full.is_some_and(|full| full.starts_with("/slurm/uid_1/job_1/")));
            }
        }

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
