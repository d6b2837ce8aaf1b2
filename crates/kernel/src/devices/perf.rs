//! Counters of the processor and of the kernel (perf_event_open(2); include/uapi/linux/perf_event.h,
//! Documentation/admin-guide/perf-security.rst, Linux 6.18; per cgroup since 2.6.39).
//!
//! A counter is a file descriptor. Several counters opened together are one group: the kernel counts
//! all of them or none at any moment, and one read returns them all:
//!
//! ```text
//! alone:    u64 value, u64 time_enabled, u64 time_running
//! a group:  u64 nr, u64 time_enabled, u64 time_running, u64 value[nr]
//! ```
//!
//! If more counters are requested than the hardware has, the kernel lets them take turns. Values counted in
//! `time_running` then represent `time_enabled`, both in nanoseconds.
//!
//! On a recorded machine a counter is the file `.jobmeter/perf/WHERE/TYPE-CONFIG` with these three
//! numbers in decimal, WHERE being `cpu0`, `cgroup/DIR/cpu0` or `task/TID`.

use crate::parse::Fields;
use crate::{OpenFile, Root, is_gone};
use rustix::io::Errno;
use std::ffi::c_long;
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Most counters of one group.
pub const GROUP_MAX: usize = 32;

/// Events of the processor with the same names in every kernel (`PERF_TYPE_HARDWARE`).
pub const HARDWARE: u32 = 0;
/// Events of the kernel itself (`PERF_TYPE_SOFTWARE`).
pub const SOFTWARE: u32 = 1;
/// Events of caches: level, operation and result, 8 bits each (`PERF_TYPE_HW_CACHE`).
pub const HW_CACHE: u32 = 3;
/// Events of the processor by its own numbers (`PERF_TYPE_RAW`).
pub const RAW: u32 = 4;

/// An event to count: the numbers of `struct perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    /// One of the constants here, or the number in a PMU's file `type`.
    pub kind: u32,
    /// `config`, `config1`, `config2` and `config3`.
    pub config: [u64; 4],
}

/// The scope of a counter.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Everything on a processor.
    Cpu(u32),
    /// The tasks of a cgroup while they run on a processor: its open directory, and its path.
    Cgroup(&'a OpenFile, &'a str, u32),
    /// A task, and all that it will start, on any processor.
    Task(u32),
}

/// Why an event cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PerfError {
    /// No PMU here supports the event, or the processor is offline.
    #[error("no PMU of this machine counts it")]
    Absent,
    /// Permission is missing.
    #[error("permission denied")]
    Denied,
    /// The limit of open files is reached, for this process or the machine.
    #[error("no more files may be open")]
    Files,
    /// The task has ended, or the counter's cgroup or processor was removed.
    #[error("the counter has disappeared")]
    Gone,
    /// The PMU cannot count it so: for a cgroup or task, in this group, or with these numbers.
    #[error("the PMU rejects it")]
    Rejected,
    /// Any other error.
    #[error("{0}")]
    Other(Errno),
}

impl From<Errno> for PerfError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::NXIO | Errno::NOSYS => {
                Self::Absent
            }
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::MFILE | Errno::NFILE => Self::Files,
            Errno::SRCH => Self::Gone,
            Errno::INVAL | Errno::TOOBIG | Errno::NOSPC => Self::Rejected,
            other => Self::Other(other),
        }
    }
}

/// How long counters were enabled, and how long they ran, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// `time_enabled`.
    pub enabled_ns: u64,
    /// `time_running`: less than `time_enabled` if they took turns with others.
    pub running_ns: u64,
}

/// One counter, or a group of them.
#[derive(Debug)]
pub struct Counters(Opened);

#[derive(Debug)]
enum Opened {
    Live {
        /// The group's leader first.
        files: Vec<OwnedFd>,
        /// Destination of recorded values.
        recording: Option<(Root, Vec<String>)>,
    },
    Recorded(Vec<(String, OpenFile)>),
}

impl Counters {
    /// Opens counters of these events as one group; they count from now on.
    ///
    /// # Errors
    /// One of them cannot be counted, or there are none or more than [`GROUP_MAX`].
    pub fn open(root: &Root, events: &[Event], target: Target<'_>) -> Result<Self, PerfError> {
        if events.is_empty() || events.len() > GROUP_MAX {
            return Err(PerfError::Rejected);
        }
        let paths = || events.iter().map(|event| recorded_path(event, target));
        if !root.is_live() {
            let open = |path: String| match root.open(&path) {
                Ok(file) => Ok((path, file)),
                Err(error) if error.is_absent() => Err(PerfError::Absent),
                Err(_) => Err(PerfError::Denied),
            };
            return Ok(Self(Opened::Recorded(paths().map(open).collect::<Result<_, _>>()?)));
        }
        let mut files: Vec<OwnedFd> = Vec::with_capacity(events.len());
        for event in events {
            let attr = Attr::new(event, target, events.len() > 1, files.is_empty());
            let file = open(&attr, target, files.first().map(AsFd::as_fd))?;
            files.push(file);
        }
        if let Some(leader) = files.first() {
            enable(leader.as_fd())?;
        }
        let recording = root.is_recording().then(|| (root.clone(), paths().collect()));
        Ok(Self(Opened::Live { files, recording }))
    }

    /// Number of counters; each has an open file.
    pub fn len(&self) -> usize {
        match &self.0 {
            Opened::Live { files, .. } => files.len(),
            Opened::Recorded(files) => files.len(),
        }
    }

    /// Whether there are none; always false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads them all, in the order of opening.
    ///
    /// # Errors
    /// The kernel returns no values any more.
    pub fn read(&self, values: &mut [u64]) -> Result<Times, PerfError> {
        match &self.0 {
            Opened::Live { files, recording } => {
                let leader = files.first().ok_or(PerfError::Gone)?;
                let times = read_live(leader.as_fd(), files.len(), values)?;
                if let Some((root, paths)) = recording {
                    for (path, value) in paths.iter().zip(values) {
                        let Times { enabled_ns, running_ns } = times;
                        let text = format!("{value} {enabled_ns} {running_ns}\n");
                        root.note_reply(path, text.as_bytes());
                    }
                }
                Ok(times)
            }
            Opened::Recorded(files) => {
                let mut times = Times::default();
                let mut text = Vec::new();
                for ((_, file), value) in files.iter().zip(values) {
                    (*value, times) = read_recorded(file, &mut text)?;
                }
                Ok(times)
            }
        }
    }
}

fn read_live(leader: BorrowedFd<'_>, count: usize, values: &mut [u64]) -> Result<Times, PerfError> {
    let mut bytes = [0_u8; 8 * (3 + GROUP_MAX)];
    let length = rustix::io::read(leader, &mut bytes)?;
    let read = bytes.get(..length).unwrap_or_default();
    let mut words = read.chunks_exact(8).filter_map(|word| word.try_into().ok());
    let mut word = || words.next().map(u64::from_ne_bytes).ok_or(PerfError::Gone);
    // A counter that the kernel dropped reads as an empty file.
    let first = word()?;
    let times = Times { enabled_ns: word()?, running_ns: word()? };
    if count == 1 {
        *values.first_mut().ok_or(PerfError::Gone)? = first;
        return Ok(times);
    }
    values.iter_mut().take(count).try_for_each(|value| word().map(|found| *value = found))?;
    Ok(times)
}

fn read_recorded(file: &OpenFile, text: &mut Vec<u8>) -> Result<(u64, Times), PerfError> {
    file.read(text).map_err(|errno| match is_gone(errno) {
        true => PerfError::Gone,
        false => errno.into(),
    })?;
    let mut fields = Fields::of(text.trim_ascii());
    let mut number = || fields.number().map_err(|_| PerfError::Gone);
    Ok((number()?, Times { enabled_ns: number()?, running_ns: number()? }))
}

fn recorded_path(event: &Event, target: Target<'_>) -> String {
    let mut path = ".jobmeter/perf/".to_owned();
    // Writing into a `String` cannot fail.
    match target {
        Target::Cpu(cpu) => write!(path, "cpu{cpu}"),
        Target::Cgroup(_, dir, cpu) => write!(path, "cgroup/{dir}/cpu{cpu}"),
        Target::Task(tid) => write!(path, "task/{tid}"),
    }
    .ok();
    let [config, others @ ..] = event.config;
    write!(path, "/{}-{config:x}", event.kind).ok();
    let last = others.iter().rposition(|word| *word != 0);
    for word in last.map_or(&[][..], |last| others.get(..=last).unwrap_or_default()) {
        write!(path, "-{word:x}").ok();
    }
    path
}

/// `struct perf_event_attr` up to `config3` (`PERF_ATTR_SIZE_VER8`, Linux 6.3). Earlier kernels accept it too,
/// as long as the fields unknown to them are zero.
#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    /// From `branch_sample_type` to `sig_data`: all of sampling.
    sampling: [u64; 7],
    config3: u64,
}

const ATTR_BYTES: u32 = 136;
const _: () = assert!(size_of::<Attr>() == ATTR_BYTES as usize);

impl Attr {
    const TOTAL_TIMES: u64 = 3;
    const FORMAT_GROUP: u64 = 8;
    /// The first two bits of the flags, in C's bit layout.
    const DISABLED: u64 = if cfg!(target_endian = "big") { 1 << 63 } else { 1 };
    const INHERIT: u64 = if cfg!(target_endian = "big") { 1 << 62 } else { 2 };

    fn new(event: &Event, target: Target<'_>, in_group: bool, is_leader: bool) -> Self {
        let [config, config1, config2, config3] = event.config;
        let inherit = matches!(target, Target::Task(_));
        Self {
            kind: event.kind,
            size: ATTR_BYTES,
            config,
            sample_period: 0,
            sample_type: 0,
            read_format: Self::TOTAL_TIMES | if in_group { Self::FORMAT_GROUP } else { 0 },
            // The other counters of a group start with their leader.
            flags: if is_leader { Self::DISABLED } else { 0 }
                | if inherit { Self::INHERIT } else { 0 },
            wakeup_events: 0,
            bp_type: 0,
            config1,
            config2,
            sampling: [0; 7],
            config3,
        }
    }
}

const FLAG_PID_CGROUP: c_long = 4;
const FLAG_CLOEXEC: c_long = 8;

fn open(
    attr: &Attr,
    target: Target<'_>,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, PerfError> {
    let id = |number: u32| i32::try_from(number).map(c_long::from).map_err(|_| PerfError::Absent);
    let (pid, cpu, flags) = match target {
        Target::Cpu(cpu) => (-1, id(cpu)?, FLAG_CLOEXEC),
        Target::Cgroup(dir, _, cpu) => {
            let dir = dir.live_fd().ok_or(PerfError::Absent)?;
            (c_long::from(dir.as_raw_fd()), id(cpu)?, FLAG_CLOEXEC | FLAG_PID_CGROUP)
        }
        Target::Task(tid) => (id(tid)?, -1, FLAG_CLOEXEC),
    };
    let leader = leader.map_or(-1, |leader| c_long::from(leader.as_raw_fd()));
    #[expect(unsafe_code, reason = "perf_event_open has no wrapper anywhere")]
    // SAFETY: the kernel reads the attribute, which is valid for the `size` bytes that it states and
    // outlives the call, and writes nowhere; the other arguments are numbers, the descriptors among
    // them borrowed for the call. A returned descriptor is new and has no other owner.
    let opened = unsafe {
        use std::os::fd::FromRawFd;
        let number = libc::SYS_perf_event_open;
        let fd = libc::syscall(number, std::ptr::from_ref(attr), pid, cpu, leader, flags);
        i32::try_from(fd).ok().filter(|fd| *fd >= 0).map(|fd| OwnedFd::from_raw_fd(fd))
    };
    opened.ok_or_else(|| {
        let errno = std::io::Error::last_os_error().raw_os_error();
        errno.map_or(PerfError::Rejected, |errno| Errno::from_raw_os_error(errno).into())
    })
}

/// Starts a leader, and the others of its group with it.
fn enable(leader: BorrowedFd<'_>) -> Result<(), PerfError> {
    const ENABLE: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(b'$', 0);
    #[expect(unsafe_code, reason = "rustix leaves it to the caller to say what an ioctl does")]
    // SAFETY: `PERF_EVENT_IOC_ENABLE` takes a number and reads and writes no memory of ours.
    let enabled = unsafe { rustix::ioctl::ioctl(leader, rustix::ioctl::NoArg::<ENABLE>::new()) };
    Ok(enabled?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK_CLOCK: Event = Event { kind: SOFTWARE, config: [1, 0, 0, 0] };
    const PAGE_FAULTS: Event = Event { kind: SOFTWARE, config: [2, 0, 0, 0] };

    fn own_tid() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
    }

    fn open_own(events: &[Event]) -> Option<Counters> {
        match Counters::open(&Root::live().unwrap(), events, Target::Task(own_tid())) {
            Ok(counters) => Some(counters),
            Err(error) => {
                std::eprintln!("not run: {error}");
                None
            }
        }
    }

    #[test]
    fn a_group_counts_what_this_thread_does() {
        let Some(counters) = open_own(&[TASK_CLOCK, PAGE_FAULTS]) else { return };
        let mut before = [0; 2];
        counters.read(&mut before).unwrap();
        let mut touched = vec![0_u8; 1 << 22];
        touched.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&touched);
        let mut after = [0; 2];
        let times = counters.read(&mut after).unwrap();
        assert!(after[0] > before[0], "{before:?} {after:?}");
        // Large pages may make one fault of many.
        assert!(after[1] > before[1], "{before:?} {after:?}");
        assert_eq!(times.enabled_ns, times.running_ns);
        assert_eq!(counters.len(), 2);
    }

    #[test]
    fn unsupported_events_are_absent_and_invalid_ones_rejected() {
        if open_own(&[TASK_CLOCK]).is_none() {
            return;
        }
        let root = Root::live().unwrap();
        let open =
            |events: &[Event]| Counters::open(&root, events, Target::Task(own_tid())).unwrap_err();
        assert_eq!(open(&[Event { kind: 0x7fff_ffff, ..Event::default() }]), PerfError::Absent);
        assert_eq!(open(&[]), PerfError::Rejected);
        assert_eq!(open(&[TASK_CLOCK; GROUP_MAX + 1]), PerfError::Rejected);
        let ended = std::thread::spawn(own_tid).join().unwrap();
        let gone = Counters::open(&root, &[TASK_CLOCK], Target::Task(ended)).unwrap_err();
        assert_eq!(gone, PerfError::Gone);
    }

    #[test]
    fn a_recorded_machine_is_read_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join(".jobmeter/perf/cpu3");
        std::fs::create_dir_all(&cpu).unwrap();
        let raw = Event { kind: RAW, config: [0x1c2, 0, 7, 0] };
        let target = Target::Cpu(3);
        assert_eq!(recorded_path(&raw, target), ".jobmeter/perf/cpu3/4-1c2-0-7");
        std::fs::write(cpu.join("4-1c2-0-7"), "123 2000 1000\n").unwrap();
        std::fs::write(cpu.join("1-1"), "5 2000 2000\n").unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let counters = Counters::open(&root, &[raw, TASK_CLOCK], target).unwrap();
        let mut values = [0; 2];
        let times = counters.read(&mut values).unwrap();
        assert_eq!((values, times.running_ns), ([123, 5], 2000));
        std::fs::write(cpu.join("1-1"), "5 2000").unwrap();
        assert_eq!(counters.read(&mut values), Err(PerfError::Gone));
        let absent = Counters::open(&root, &[PAGE_FAULTS], target).unwrap_err();
        assert_eq!(absent, PerfError::Absent);
    }
}
