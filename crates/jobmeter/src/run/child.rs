//! The command itself: started in its cgroup, signalled as this process is, waited for with all it left
//! behind.

use crate::exec::Steps;
use anyhow::Context;
use rustix::process::{Pid, Signal, WaitOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::path::PathBuf;

/// A running command.
pub(crate) struct Command {
    pid: Pid,
    exit_code: Option<i32>,
    signals: signal_hook::iterator::Signals,
}

impl Command {
    /// Starts a command that first joins these cgroups. Its standard streams are ours.
    pub(crate) fn start(words: &[OsString], join: Vec<PathBuf>) -> anyhow::Result<Self> {
        // Orphans of the command become ours, so that nothing it started is lost sight of.
        rustix::process::set_child_subreaper(rustix::process::getpid().into())?;
        let signals = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
        let signals = signal_hook::iterator::Signals::new(signals)?;
        let (program, arguments) = words.split_first().context("no command is named")?;
        let mut command = Steps { join, ..Steps::default() }.command(program, arguments)?;
        let child =
            command.spawn().with_context(|| format!("starting {}", program.to_string_lossy()))?;
        let pid =
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the child's number")?;
        Ok(Self { pid, exit_code: None, signals })
    }

    /// What the command ended with, once it has: an exit code, or 128 plus a signal.
    pub(crate) const fn exit_code(&self) -> Option<i32> {
        self.exit_code
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
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid == self.pid {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                self.exit_code = status.exit_status().or(signal);
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
