//! The command's process: starts in its cgroup, receives this process's signals, and is waited for with its
//! leftover children.

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

/// Signals that this process forwards to the command.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// A running command.
pub(crate) struct Command {
    pid: Pid,
    /// PID of the process that started the command; it is not a process of the command.
    beginner: i32,
    begun: Begun,
    exit_code: Option<i32>,
    childless: bool,
    ended: Usage,
    signals: signal_hook::iterator::Signals,
    /// Readable after a signal, including SIGCHLD.
    wake: UnixStream,
}

impl Command {
    /// Starts a command that first joins these cgroups, then calls `joined`. The command inherits the standard
    /// streams. Returns when the command runs.
    pub(crate) fn start(
        words: &[OsString],
        join: Vec<PathBuf>,
        joined: impl FnOnce(),
    ) -> anyhow::Result<Self> {
        // Adopts orphans of the command, so that all its processes remain known.
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
        // The process that starts the command inherits this descriptor, with the same number.
        rustix::io::fcntl_setfd(&its, rustix::io::FdFlags::empty())?;
        let steps = Steps { join, beside: Some(its.as_raw_fd()), ..Steps::default() };
        let beginner = steps.command(program, arguments)?.spawn().with_context(starting)?;
        drop(its);
        // The other end closes when the command begins, or when it fails to start.
        let (mut ours, mut line) = (BufReader::new(ours), String::new());
        ours.read_line(&mut line).with_context(starting)?;
        if line == "joined\n" {
            joined();
            ours.get_mut().write_all(b"\n").with_context(starting)?;
        }
        let mut is_reported = Vec::new();
        ours.read_to_end(&mut is_reported).with_context(starting)?;
        let Some(begun) = Begun::parse(&is_reported) else {
            bail!("{}: it did not begin", starting())
        };
        Ok(Self {
            pid: Pid::from_raw(begun.pid).context("the command's process ID")?,
            beginner: i32::try_from(beginner.id())?,
            begun,
            exit_code: None,
            childless: false,
            ended: Usage::default(),
            signals,
            wake,
        })
    }

    /// When the command began, and what its process had used by then.
    pub(crate) const fn begun(&self) -> &Begun {
        &self.begun
    }

    /// The command's exit code after its end, or 128 + the signal number.
    pub(crate) const fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// Whether all processes that it started have ended.
    pub(crate) const fn is_childless(&self) -> bool {
        self.childless
    }

    /// Total usage of its ended processes that were waited for.
    pub(crate) const fn ended(&self) -> Usage {
        self.ended
    }

    /// Waits for a signal, including SIGCHLD, up to a time limit.
    pub(crate) fn wait(&mut self, limit: Duration) {
        let limit = Timespec::try_from(limit).ok();
        // A signal that interrupts the call has written to the pipe.
        poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], limit.as_ref()).ok();
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
    }

    /// Reaps ended processes and forwards signals. Returns true if a signal requests the end after the command itself
    /// has ended.
    pub(crate) fn pass_on_output(&mut self) -> bool {
        let mut enough = false;
        for signal in self.signals.pending() {
            if self.exit_code.is_some() {
                enough |= matches!(signal, SIGINT | SIGTERM | SIGQUIT | SIGHUP);
            } else if from_terminal(signal) {
                // The terminal sent the signal to the command, too, which is in this process group.
            } else if let Some(signal) = Signal::from_named_raw(signal) {
                // The process may have ended meanwhile; the error is ignored.
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

/// Whether a signal comes from the keyboard of a terminal. Terminals send these signals to the whole foreground
/// process group, including the command.
fn from_terminal(signal: i32) -> bool {
    let foreground = || {
        let group = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
        group.is_ok_and(|group| group == rustix::process::getpgrp())
    };
    matches!(signal, SIGINT | SIGQUIT) && foreground()
}
