//! The command itself: started in its cgroup, signalled as this process is, waited for with all it left
//! behind.

use crate::measure::exec::Steps;
use anyhow::{Context, bail};
use kernel::rusage::{Reaped, Usage, reap};
use kernel::sibling::Begun;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Signals that the command receives through this process.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// A running command.
pub(crate) struct Command {
    pid: Pid,
    /// The process that began it, which is none of its own.
    beginner: i32,
    begun: Begun,
    exit_code: Option<i32>,
    childless: bool,
    ended: Usage,
    signals: signal_hook::iterator::Signals,
    /// Readable after a signal, that of a child's end included.
    wake: UnixStream,
}

impl Command {
    /// Starts a command that first joins these cgroups; `joined` is called then. Its standard streams are ours.
    /// Returns when it runs.
    pub(crate) fn start(
        words: &[OsString],
        join: Vec<PathBuf>,
        joined: impl FnOnce(),
    ) -> anyhow::Result<Self> {
        // Orphans of the command become ours, so that nothing it started is lost sight of.
        rustix::process::set_child_subreaper(rustix::process::getpid().into())?;
        let signals = signal_hook::iterator::Signals::new(PASSED_ON)?;
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        for signal in PASSED_ON.into_iter().chain([SIGCHLD]) {
            signal_hook::low_level::pipe::register(signal, woken.try_clone()?)?;
        }
        let (program, arguments) = words.split_first().context("no command is named")?;
        let shown = program.to_string_lossy();
        let starting = || format!("starting {shown}");
        let (ours, its) = UnixStream::pair()?;
        // Inherited by the process that begins the command, under this number.
        rustix::io::fcntl_setfd(&its, rustix::io::FdFlags::empty())?;
        let steps = Steps { join, beside: Some(its.as_raw_fd()), ..Steps::default() };
        let beginner = steps.command(program, arguments)?.spawn().with_context(starting)?;
        drop(its);
        // Its end is closed when the command begins, or cannot.
        let (mut ours, mut line) = (BufReader::new(ours), String::new());
        ours.read_line(&mut line).with_context(starting)?;
        if line == "joined\n" {
            joined();
            ours.get_mut().write_all(b"\n").with_context(starting)?;
        }
        let mut told = Vec::new();
        ours.read_to_end(&mut told).with_context(starting)?;
        let Some(begun) = Begun::parse(&told) else { bail!("{}: it did not begin", starting()) };
        Ok(Self {
            pid: Pid::from_raw(begun.pid).context("the command's number")?,
            beginner: i32::try_from(beginner.id())?,
            begun,
            exit_code: None,
            childless: false,
            ended: Usage::default(),
            signals,
            wake,
        })
    }

    /// The instant at which it began.
    pub(crate) const fn begun(&self) -> &Begun {
        &self.begun
    }

    /// What the command ended with, once it has: an exit code, or 128 plus a signal.
    pub(crate) const fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// Whether nothing that it started lives.
    pub(crate) const fn is_childless(&self) -> bool {
        self.childless
    }

    /// What all of its processes used that ended and were waited for.
    pub(crate) const fn ended(&self) -> Usage {
        self.ended
    }

    /// Waits for a signal, a child's end included, for so long at most.
    pub(crate) fn wait(&mut self, limit: Duration) {
        let limit = Timespec::try_from(limit).ok();
        // A signal that interrupts the call has written to the pipe.
        poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], limit.as_ref()).ok();
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
    }

    /// Takes what ended and passes on what was signalled. True when the user asked a second time for an
    /// end, after the command itself had ended.
    pub(crate) fn tend(&mut self) -> bool {
        let mut enough = false;
        for signal in self.signals.pending() {
            if self.exit_code.is_some() {
                enough |= matches!(signal, SIGINT | SIGTERM | SIGQUIT | SIGHUP);
            } else if from_terminal(signal) {
                // The terminal sent it to the command as well, which is in our process group.
            } else if let Some(signal) = Signal::from_named_raw(signal) {
                // It may have ended in between.
                rustix::process::kill_process(self.pid, signal).ok();
            }
        }
        loop {
            match reap() {
                Reaped::Ended(pid, ..) if pid == self.beginner => {}
                Reaped::Ended(pid, code, usage) => {
                    let is_command = pid == self.begun.pid;
                    let before = if is_command { self.begun.used } else { Usage::default() };
                    self.ended = self.ended.and(usage.since(before));
                    if is_command {
                        self.exit_code = Some(code);
                    }
                }
                Reaped::Alive => break,
                Reaped::Childless => {
                    self.childless = true;
                    break;
                }
            }
        }
        enough
    }
}

/// Whether a signal comes from the keyboard, if there is one: the terminal sends these to the whole
/// foreground process group, the command included.
fn from_terminal(signal: i32) -> bool {
    let foreground = || {
        let group = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
        group.is_ok_and(|group| group == rustix::process::getpgrp())
    };
    matches!(signal, SIGINT | SIGQUIT) && foreground()
}
