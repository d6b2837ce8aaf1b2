//! A process that begins as a copy of this one and is a child of this one's parent (clone(2), `CLONE_PARENT`;
//! kernel/fork.c, Linux 6.18).
//!
//! The usage that wait4(2) reports counts from the fork, and an execve(2) in between keeps the largest resident set of
//! the previous program (fs/exec.c, `exec_mmap`). A program started by a large process so has at least the memory of
//! that process. A small process that starts a sibling, and the sibling that becomes the program, avoid this.

use crate::tasks::rusage::{self, Usage};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// The process that returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkSide {
    /// The original process; the number is the sibling's ID.
    First(i32),
    /// The sibling.
    Sibling,
}

/// Starts a sibling of this process, which must have one thread.
///
/// # Errors
/// This process has several threads, or the kernel's limit of processes is reached.
pub fn begin() -> io::Result<ForkSide> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "{threads} threads, and only one can have a sibling"
        )));
    }
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    let none: libc::c_long = 0;
    #[expect(unsafe_code, reason = "clone has no safe wrapper")]
    // SAFETY: without CLONE_VM and with no stack given this is fork(2): the new process has a copy of all memory, and
    // returns here on a copy of this stack. There is one thread, so no lock is held by a thread that is not copied.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match i32::try_from(pid) {
        Ok(0) => Ok(ForkSide::Sibling),
        Ok(pid) if pid > 0 => Ok(ForkSide::First(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a descriptor that the parent left open for this process and named by its number. It is closed when this
/// process becomes another program.
///
/// # Errors
/// The number is that of a standard stream, or not of an open descriptor.
pub fn inherited(number: i32) -> io::Result<File> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    #[expect(unsafe_code, reason = "fcntl on a number has no safe wrapper")]
    // SAFETY: F_SETFD changes a flag of a descriptor, and fails for a number that is not one.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    #[expect(unsafe_code, reason = "ownership of a number")]
    // SAFETY: the descriptor is open, as the call above shows, and was opened for this process by its parent, so
    // it has no owner in this process yet.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    Ok(owned.into())
}

/// The start of a program, and the earlier usage of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its process.
    pub pid: i32,
    /// By the wall clock, in microseconds since 1970.
    pub wall_us: i64,
    /// By the clock of [`crate::clock::monotonic_us`].
    pub steady_us: u64,
    /// The usage of the process before it.
    pub used: Usage,
    /// The part of `used` since just before it joined the cgroup that counts processor time, which counts it too.
    pub since_joined: Usage,
}

/// The usage of this process so far.
pub fn used() -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "getrusage has no safe wrapper in rustix")]
    // SAFETY: the kernel writes one `struct rusage` through a valid pointer to it; all fields are integers, so
    // zeroes are valid if nothing is written.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    rusage::read(&usage)
}

/// The record of [`become_program`], in this machine's byte order.
#[repr(C)]
struct Record {
    pid: i64,
    wall: libc::timespec,
    steady: libc::timespec,
    used: libc::rusage,
    joined: Usage,
}

impl Begun {
    /// Parses the record of [`become_program`]; `None` if it was not written.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Record>() {
            return None;
        }
        #[expect(unsafe_code, reason = "a structure of the kernel as bytes")]
        // SAFETY: there are as many bytes as the structure has, it consists of integers, for which any bytes are
        // valid, and the read does not require alignment.
        let record = unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() };
        let micros = |time: libc::timespec| time.tv_sec * 1_000_000 + time.tv_nsec / 1000;
        let used = rusage::read(&record.used);
        Some(Self {
            pid: i32::try_from(record.pid).ok()?,
            wall_us: micros(record.wall),
            steady_us: u64::try_from(micros(record.steady)).ok()?,
            used,
            since_joined: used.since(record.joined),
        })
    }
}

/// Becomes a program found like execvp(3), and writes [`Begun`] just before. Little of this process's memory is
/// resident then, as the kernel counts its maximum for the program. `words`: the program and its arguments;
/// `joined`: the usage of this process just before it joined its last cgroup. Returns only when it fails.
pub fn become_program(words: &[OsString], output: &File, joined: Usage) -> io::Error {
    let Ok(words) =
        words.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()
    else {
        return io::Error::new(io::ErrorKind::InvalidInput, "a word with a zero byte");
    };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    if words.is_empty() {
        return io::ErrorKind::InvalidInput.into();
    }
    let pid = i64::from(std::process::id());
    last_steps(
        &crate::this_process::code::code_ranges(),
        &pointers,
        output.as_raw_fd(),
        (pid, joined),
    );
    io::Error::last_os_error()
}

/// Only system calls: each page of code that runs here is resident again. `words` end with a null.
#[expect(unsafe_code, reason = "wrappers would have their own pages of code")]
fn last_steps(
    code: &[(usize, usize)],
    words: &[*const libc::c_char],
    output: libc::c_int,
    (pid, joined): (i64, Usage),
) {
    for (start, end) in code {
        crate::this_process::code::drop_pages(*start, *end);
    }
    // SAFETY: each pointer is to a structure or a text that outlives the call; `words` are
    // pointers to texts that end with a zero, and end with a null, as execvp requires; zeroes are valid for
    // integers. Rust's runtime ignores SIGPIPE, which the program must not inherit. A call that the kernel rejects
    // changes nothing but the reported memory.
    unsafe {
        let clear = libc::open(c"/proc/self/clear_refs".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(clear, c"5".as_ptr().cast(), 1);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut record: Record = std::mem::zeroed();
        (record.pid, record.joined) = (pid, joined);
        // The clocks first: processor time after them is within the wall time.
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut record.wall);
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut record.steady);
        libc::getrusage(libc::RUSAGE_SELF, &raw mut record.used);
        libc::write(output, (&raw const record).cast(), size_of::<Record>());
        libc::execvp(*words.as_ptr(), words.as_ptr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_one_thread_has_a_sibling() {
        // The test's own thread and the main one.
        assert!(begin().unwrap_err().to_string().contains("threads"));
    }

    #[test]
    fn an_incomplete_record_is_none() {
        assert_eq!(Begun::parse(b""), None);
        assert_eq!(Begun::parse(&[0; size_of::<Record>() - 1]), None);
        let zeroes = Begun::parse(&[0; size_of::<Record>()]).unwrap();
        assert_eq!((zeroes.pid, zeroes.used), (0, Usage::default()));
        assert!(
            Begun::parse(&[255; size_of::<Record>()]).is_none(),
            "a clock before its beginning"
        );
    }

    #[test]
    fn foreign_descriptors_are_rejected() {
        assert!(inherited(1).is_err());
        assert!(inherited(1_000_000).is_err());
    }
}
