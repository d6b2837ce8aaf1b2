//! Runs a program and watches it without blocking: its output is bounded, its end is polled, its whole
//! process group is killed (execve(2), setsid(2), credentials(7)).
//!
//! It inherits nothing: no environment, `/` as its directory, `/dev/null` as its input, and only the given rights.

use crate::clock::monotonic_us;
use crate::users::login::Login;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, geteuid, kill_process_group, setsid, waitid,
};
use rustix::thread::{
    CapabilitySet, capabilities, clear_ambient_capability_set, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use rustix::{process::Gid, process::Uid};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most bytes of a program's output; one that writes more is killed, and the result states it.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of its error output; the rest is read and dropped.
const ERRORS_BYTES_MAX: usize = 256;
/// Interval and number of checks for a killed program after its owner was dropped.
const REAP_EVERY: Duration = Duration::from_millis(2);
const REAP_TIMES: u32 = 100;

/// A running program.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pid: Pid,
    output: Vec<u8>,
    errors: Vec<u8>,
    since_us: u64,
    killed: Option<Killed>,
}

/// Why a program was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// It exceeded its time limit.
    Late,
    /// It wrote more than [`OUTPUT_BYTES_MAX`].
    Full,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its output.
    pub output: Vec<u8>,
    /// The beginning of its error output.
    pub errors: Vec<u8>,
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it, if any.
    pub signal: Option<i32>,
    /// Whether it was killed here, and why.
    pub killed: Option<Killed>,
}

impl Running {
    /// Starts a program, in a new session, with these rights. `words` are its path from `/` and its
    /// arguments; no shell reads them.
    ///
    /// # Errors
    /// The system's: `NotFound` if there is no such program, `PermissionDenied` if these rights do
    /// not allow to run it, or this process may not set them.
    pub fn start(words: &[String], login: &Login) -> io::Result<Self> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where a site's program is run"
        )]
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process with these rights already need not, and mostly may not, set them.
        let become_it = (geteuid().as_raw() != login.uid).then(|| Rights::of(login));
        if become_it.is_some() && !capabilities(None)?.effective.contains(CapabilitySet::KILL) {
            // A program that could not be killed is not started.
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let begin = move || {
            setsid()?;
            if let Some(rights) = &become_it {
                rights.take()?;
            }
            // Ambient capabilities are not passed on. Old kernels have no such set.
            match clear_ambient_capability_set() {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
            Ok(())
        };
        #[expect(unsafe_code, reason = "what runs between fork and exec is unsafe to give")]
        // SAFETY: between fork and exec the closure makes system calls on memory that it owns and nothing
        // else: it takes no lock, and neither allocates nor frees memory.
        let command = unsafe { command.pre_exec(begin) };
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let running = Self {
            child,
            pid,
            output: Vec::new(),
            errors: Vec::new(),
            since_us: monotonic_us(),
            killed: None,
        };
        with_all(|all| all.push(pid));
        // On failure it is dropped, and so killed.
        running.child.stdout.as_ref().map_or(Ok(()), |out| unblock(out.as_fd()))?;
        running.child.stderr.as_ref().map_or(Ok(()), |out| unblock(out.as_fd()))?;
        Ok(running)
    }

    /// Its run time.
    pub fn age(&self) -> Duration {
        Duration::from_micros(monotonic_us().saturating_sub(self.since_us))
    }

    /// Reads its output, and whether it has ended; waits up to `patience` for either.
    ///
    /// # Errors
    /// The system's.
    pub fn look(&mut self, patience: Duration) -> io::Result<Option<Ended>> {
        let begun_us = monotonic_us();
        loop {
            self.read()?;
            if self.output.len() > OUTPUT_BYTES_MAX && self.killed.is_none() {
                self.kill(Killed::Full);
            }
            if self.has_ended()? {
                return self.end().map(Some);
            }
            let waited = Duration::from_micros(monotonic_us().saturating_sub(begun_us));
            let left = patience.saturating_sub(waited);
            if left.is_zero() {
                return Ok(None);
            }
            self.wait_to_read(left.min(Duration::from_millis(20)))?;
        }
    }

    /// Kills it and its whole process group. It has not ended until [`Self::look`] returns its end.
    pub fn kill(&mut self, why: Killed) {
        self.killed.get_or_insert(why);
        // A missing process is fine. A group that this process may not kill (a set-user-ID program)
        // continues, and `look` does not return its end.
        kill_process_group(self.pid, Signal::KILL).ok();
    }

    fn wait_to_read(&self, patience: Duration) -> io::Result<()> {
        let outs = [
            self.child.stdout.as_ref().map(AsFd::as_fd),
            self.child.stderr.as_ref().map(AsFd::as_fd),
        ];
        let mut fds: Vec<_> =
            outs.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
        match poll(&mut fds, Some(&time)) {
            // Closed output would otherwise be read to its end repeatedly.
            Ok(_) if fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP)) => {
                std::thread::sleep(REAP_EVERY);
                Ok(())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn read(&mut self) -> io::Result<()> {
        if let Some(out) = &self.child.stdout {
            take(out.as_fd(), &mut self.output, OUTPUT_BYTES_MAX + 1)?;
        }
        if let Some(out) = &self.child.stderr {
            take(out.as_fd(), &mut self.errors, ERRORS_BYTES_MAX)?;
        }
        Ok(())
    }

    /// Whether it has ended; it stays a zombie, so that its ID is not reused.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    /// The end of an ended program; leftovers in its group are killed with it.
    fn end(&mut self) -> io::Result<Ended> {
        // Usually the group is empty.
        kill_process_group(self.pid, Signal::KILL).ok();
        self.read()?;
        forget(self.pid);
        let status = self.child.wait()?;
        let (output, errors) = (std::mem::take(&mut self.output), std::mem::take(&mut self.errors));
        let killed = match self.killed {
            None if output.len() > OUTPUT_BYTES_MAX => Some(Killed::Full),
            killed => killed,
        };
        Ok(Ended { output, errors, code: status.code(), signal: status.signal(), killed })
    }
}

/// Dropping a running program kills it.
impl Drop for Running {
    fn drop(&mut self) {
        // It ends once; once reaped its ID may be reused.
        if with_all(|all| !all.contains(&self.pid)) {
            return;
        }
        self.kill(Killed::Late);
        forget(self.pid);
        for _ in 0..REAP_TIMES {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(REAP_EVERY);
        }
    }
}

/// Running programs: a process that ends without dropping them kills them by this list.
static ALL: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn with_all<T>(act: impl FnOnce(&mut Vec<Pid>) -> T) -> T {
    act(&mut ALL.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Removes one from the list, before it is reaped and its ID may be reused.
fn forget(pid: Pid) {
    with_all(|all| all.retain(|one| *one != pid));
}

/// Kills every program that was started and has not ended, with its whole process group: for a process that
/// is about to end, with threads that may hold some.
pub fn kill_all() {
    with_all(|all| {
        for pid in all {
            // A missing process is fine.
            kill_process_group(*pid, Signal::KILL).ok();
        }
    });
}

/// A user's rights in the form of the system calls, prepared before the fork.
pub(super) struct Rights {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Rights {
    pub(super) fn of(login: &Login) -> Self {
        let groups = login.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        Self { uid: Uid::from_raw(login.uid), gid: Gid::from_raw(login.gid), groups }
    }

    /// Takes these rights permanently. The process has one thread here, so these per-thread calls apply to it.
    pub(super) fn take(&self) -> Result<(), Errno> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        set_thread_res_uid(self.uid, self.uid, self.uid)
    }
}

fn unblock(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

/// Reads the available bytes, keeping at most `max`. Bounded: a program that writes without end is
/// not read without end.
fn take(fd: impl AsFd, kept: &mut Vec<u8>, max: usize) -> io::Result<()> {
    let mut part = [0_u8; 4096];
    for _ in 0..=OUTPUT_BYTES_MAX / part.len() {
        match rustix::io::read(&fd, &mut part) {
            Ok(0) | Err(Errno::AGAIN) => return Ok(()),
            Ok(count) => {
                let free = max.saturating_sub(kept.len());
                kept.extend_from_slice(part.get(..count.min(free)).unwrap_or_default());
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getegid, test_kill_process};

    const LONG: Duration = Duration::from_secs(20);

    fn own() -> Login {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        Login { uid, gid, groups: vec![gid] }
    }

    fn words(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn run(script: &str) -> Ended {
        let mut running = Running::start(&words(script), &own()).unwrap();
        running.look(LONG).unwrap().unwrap()
    }

    #[test]
    fn a_program_inherits_nothing_and_its_end_is_reported() {
        let ended = run("cat; pwd; echo \"$HOME$CARGO$LANG\"; echo why >&2; exit 3");
        assert_eq!(String::from_utf8(ended.output).unwrap(), "/\n\n");
        assert_eq!((ended.errors, ended.code, ended.killed), (b"why\n".to_vec(), Some(3), None));
        assert_eq!(run("kill -9 $$").signal, Some(9));
        let error =
            |program: &str| Running::start(&[program.to_owned()], &own()).unwrap_err().kind();
        assert_eq!(error("/no/such/program"), io::ErrorKind::NotFound);
        assert_eq!(error("/etc/passwd"), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_hanging_program_is_killed_with_all_that_it_started() {
        let mut running =
            Running::start(&words("sleep 1000 & echo $!; sleep 1000; echo no"), &own()).unwrap();
        let mut begun = None;
        while running.output.is_empty() {
            begun = running.look(Duration::from_millis(5)).unwrap();
        }
        assert_eq!(begun, None);
        running.kill(Killed::Late);
        let ended = running.look(LONG).unwrap().unwrap();
        assert_eq!((ended.killed, ended.signal), (Some(Killed::Late), Some(9)));
        let background = String::from_utf8(ended.output).unwrap().trim().parse().unwrap();
        assert!(gone(background), "the process in the background is alive");
    }

    /// Whether a process ends within seconds. Its new parent reaps it.
    fn gone(pid: i32) -> bool {
        let pid = Pid::from_raw(pid).unwrap();
        let is_zombie = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            test_kill_process(pid).is_err() || is_zombie()
        })
    }

    #[test]
    fn a_background_process_does_not_delay_the_end() {
        let ended = run("sleep 1000 & echo $!");
        assert_eq!((ended.code, ended.killed), (Some(0), None));
        assert!(gone(String::from_utf8(ended.output).unwrap().trim().parse().unwrap()));
    }

    #[test]
    fn endless_output_is_truncated_and_the_program_killed() {
        let ended = run("while :; do echo 0123456789 0123456789 0123456789; done");
        assert_eq!((ended.killed, ended.output.len()), (Some(Killed::Full), OUTPUT_BYTES_MAX + 1));
        let ended = run("head -c 1000000 /dev/zero >&2; echo 7");
        assert_eq!((ended.output, ended.errors.len()), (b"7\n".to_vec(), ERRORS_BYTES_MAX));
    }

    #[test]
    fn a_dropped_program_ends() {
        let running = Running::start(&words("sleep 1000"), &own()).unwrap();
        let pid = running.pid.as_raw_nonzero().get();
        drop(running);
        assert!(gone(pid));
    }

    /// As root it gets another user's rights; an ordinary user can give only their own.
    #[test]
    fn it_has_only_the_given_rights() {
        let login = Login { uid: 65_532, gid: 65_533, groups: vec![65_533, 44] };
        match Running::start(&words("id -u; id -g; id -G; grep CapEff /proc/self/status"), &login) {
            Ok(mut running) => {
                let ended = running.look(LONG).unwrap().unwrap();
                let text = String::from_utf8(ended.output).unwrap();
                assert_eq!(text, "65532\n65533\n65533 44\nCapEff:\t0000000000000000\n");
            }
            Err(error) => {
                assert!(!geteuid().is_root(), "{error}");
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            }
        }
    }
}
