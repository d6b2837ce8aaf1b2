//! The programs that `jobmeter up` runs: their starts, restarts and ends.

use crate::measure::exec::Steps;
use anyhow::{Context, bail};
use kernel::clock::monotonic_us;
use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGHUP;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

/// The program that polls devices. Its end does not end the others.
pub(super) const POLLER: &str = "jobmeter-poller";
/// Pause before the restart of a crashed program.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Restarts of a program that crashes again within [`STEADY_US`] of its start. Then it would crash again.
const RESTARTS_MAX: u32 = 5;
/// After this time a program counts as steady.
const STEADY_US: u64 = 60_000_000;
/// Smallest number of a socket that a program receives: the program moves it to its place among lower numbers.
const PASSED_FD_MIN: RawFd = 200;
/// Time limit for a program to end before it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(20);

pub(super) enum Event {
    Signal(i32),
    /// The restarted server answers.
    Ready,
    Ended(&'static str, io::Result<ExitStatus>),
}

pub(super) struct Program {
    pub(super) name: &'static str,
    pid: Pid,
}

impl Program {
    pub(super) fn send(&self, signal: Signal) {
        // The process may have ended meanwhile; the error is ignored.
        rustix::process::kill_process(self.pid, signal).ok();
    }
}

/// Path of a program in this program's directory.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!(
            "{} not found; build it with `make run`, or install it with `make install`",
            path.display()
        );
    }
    Ok(path)
}

/// The server's sockets, and the arguments of the server.
pub(super) struct Holder {
    /// None: the server opens its own sockets, and reports why it cannot.
    pub(super) listeners: Vec<TcpListener>,
    pub(super) arguments: Vec<OsString>,
}

impl Holder {
    pub(super) fn start(&self) -> anyhow::Result<(Child, Program)> {
        start("jobmeter-server", &self.arguments, &self.listeners)
    }

    /// Restarts the server; `Ready` follows when it answers.
    fn start_again(&self, events: &SyncSender<Event>) -> anyhow::Result<Program> {
        let (mut child, server) = self.start()?;
        let stdout = child.stdout.take().context("the server's output")?;
        let events_of_program = events.clone();
        std::thread::spawn(move || {
            // A server that does not become ready ends, which is a separate event.
            if ready(stdout).is_ok() {
                events_of_program.send(Event::Ready).ok();
            }
        });
        watch(server.name, child, events.clone());
        Ok(server)
    }
}

/// The starts of an agent or a poller, and its arguments.
pub(super) struct ProgramStarts {
    name: &'static str,
    arguments: Vec<OsString>,
    /// Time of the latest start, see [`monotonic_us`].
    last_us: u64,
    /// Restarts since the agent was steady.
    again: u32,
}

impl ProgramStarts {
    pub(super) fn new(name: &'static str, arguments: Vec<OsString>) -> Self {
        Self { name, arguments, last_us: monotonic_us(), again: 0 }
    }

    pub(super) fn start(&mut self, events: &SyncSender<Event>) -> anyhow::Result<Program> {
        let (child, program) = start(self.name, &self.arguments, &[])?;
        self.last_us = monotonic_us();
        watch(self.name, child, events.clone());
        Ok(program)
    }

    /// Whether a program that crashed now may start once more; counts the restart.
    fn may_restart(&mut self) -> bool {
        if monotonic_us().saturating_sub(self.last_us) >= STEADY_US {
            self.again = 0;
        }
        self.again += 1;
        self.again <= RESTARTS_MAX
    }
}

/// Starts a program in its own process group: only this program receives Ctrl-C, and forwards it once.
fn start(
    name: &'static str,
    arguments: &[OsString],
    sockets: &[TcpListener],
) -> anyhow::Result<(Child, Program)> {
    // Open in this program only, and closed in this process at the end of this function.
    let sockets: Vec<OwnedFd> = sockets.iter().map(left_open).collect::<io::Result<_>>()?;
    let listen = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let steps = Steps { end_with_us: true, listen, ..Steps::default() };
    let mut command = steps.command(beside(name)?.as_os_str(), arguments)?;
    let stdout = if name == "jobmeter-server" { Stdio::piped() } else { Stdio::inherit() };
    let child = command.process_group(0).stdin(Stdio::null()).stdout(stdout).spawn();
    let child = child.with_context(|| format!("starting {name}"))?;
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("the program's process ID")?;
    Ok((child, Program { name, pid }))
}

/// A copy of a socket that stays open in the next program that starts, with a number that the program does not need.
fn left_open(socket: &TcpListener) -> io::Result<OwnedFd> {
    let copy = rustix::io::fcntl_dupfd_cloexec(socket, PASSED_FD_MIN)?;
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
    Ok(copy)
}

/// The URL in the server's line `ready: URL`; passes its other output on.
pub(super) fn ready(stdout: std::process::ChildStdout) -> anyhow::Result<String> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some(url) = line.strip_prefix("ready: ") {
            let url = url.to_owned();
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    writeln!(io::stdout(), "{line}").ok();
                }
            });
            return Ok(url);
        }
        writeln!(io::stdout(), "{line}")?;
    }
    bail!("the server ended before it was ready; its messages above have the cause")
}

pub(super) fn watch(name: &'static str, mut child: Child, events: SyncSender<Event>) {
    std::thread::spawn(move || {
        let status = child.wait();
        events.send(Event::Ended(name, status)).ok();
    });
}

pub(super) fn forward_signals(
    mut signals: signal_hook::iterator::Signals,
    events: SyncSender<Event>,
) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
}

/// Passes signals on and restarts what crashes, until all programs have ended. The first program is the server, and the
/// others are those of `starts`, in their order.
pub(super) fn follow(
    received: &Receiver<Event>,
    events: &SyncSender<Event>,
    (holder, starts): (&Holder, &mut [ProgramStarts]),
    mut programs: Vec<Program>,
) -> anyhow::Result<ExitCode> {
    let (mut code, mut ended, mut ending, mut ready) = (0, 0, false, true);
    while ended < programs.len() {
        let event =
            if ending { received.recv_timeout(END_TIME_MAX).ok() } else { received.recv().ok() };
        match event {
            Some(Event::Signal(SIGHUP)) => {
                programs.iter().for_each(|program| program.send(Signal::HUP))
            }
            Some(Event::Signal(_)) => {
                ending = true;
                programs.iter().for_each(|program| program.send(Signal::TERM));
            }
            Some(Event::Ready) => ready = true,
            Some(Event::Ended(name, status)) => {
                let status = status?;
                let crashed = !status.success() && !ending;
                let starts = starts.iter_mut().find(|starts| starts.name == name);
                // A server that crashed before it was ready would crash again.
                let again = match starts {
                    Some(starts) => {
                        let may_restart = crashed && starts.may_restart();
                        may_restart.then(|| restart(name, status, || starts.start(events)))
                    }
                    None => {
                        let may_restart = crashed && ready && !holder.listeners.is_empty();
                        ready &= !may_restart;
                        may_restart.then(|| restart(name, status, || holder.start_again(events)))
                    }
                };
                if let Some(program) = again.transpose()? {
                    programs.retain(|one| one.name != name);
                    programs.push(program);
                    continue;
                }
                ended += 1;
                if !ending && name == POLLER {
                    log::error!("{name} ended ({status}); devices are not polled any more");
                } else if !ending {
                    log::error!("{name} ended ({status}); the others are ended too");
                    code = status.code().filter(|code| *code != 0).unwrap_or(1);
                    ending = true;
                    let others = programs.iter().filter(|one| one.name != name);
                    others.for_each(|one| one.send(Signal::TERM));
                }
            }
            None => {
                log::error!(
                    "a program did not end within {} s and is ended",
                    END_TIME_MAX.as_secs()
                );
                programs.iter().for_each(|program| program.send(Signal::KILL));
                code = 1;
            }
        }
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn restart(
    name: &str,
    status: ExitStatus,
    start: impl FnOnce() -> anyhow::Result<Program>,
) -> anyhow::Result<Program> {
    log::error!("{name} ended ({status}); it is started again");
    std::thread::sleep(RESTART_PAUSE);
    start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_crashes_at_each_start_is_restarted_a_few_times() {
        let mut starts = ProgramStarts::new("jobmeter-agent", Vec::new());
        let restarts = (0..9).filter(|_| starts.may_restart()).count();
        assert_eq!(restarts, 5);
        starts.last_us = monotonic_us().saturating_sub(STEADY_US);
        assert!(starts.may_restart(), "it was steady");
    }
}
