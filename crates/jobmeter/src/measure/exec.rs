//! The process between a fork and the requested program. It joins cgroups, arranges to end with its parent, and
//! becomes the program.
//!
//! `jobmeter __exec [--end-with PID] [--listen FD]... [--beside FD] [--join FILE]... -- PROGRAM ARGUMENTS...`, started
//! by `up` and `run` only. It is a separate process, because code between fork and exec may do almost nothing.
//! So the cgroup counts everything that the program does, and nothing of jobmeter itself.
//!
//! With `--beside` it starts a sibling process, which becomes the program, and ends. The kernel counts for the
//! program what its process used before, such as the peak memory of the process that forked it. The peak memory
//! of this process is small. The descriptor is a socket. The sibling writes a line when it has joined the
//! cgroups, and waits for one byte. Then it writes its start time and its usage up to then ([`sibling::Begun`]).

use anyhow::{Context, bail};
use cgroups::Hierarchies;
use kernel::rusage::Usage;
use kernel::sibling::{self, ForkSide};
use kernel::{Root, parent};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The hidden argument of this step.
pub(crate) const COMMAND: &str = "__exec";
/// The hidden argument of a process that removes directories after a delay in ms: `__remove MS DIR...`.
pub(crate) const REMOVE: &str = "__remove";

/// The first descriptor that a service manager passes.
const LISTEN_FD: RawFd = 3;

/// Steps before the process becomes `program`.
#[derive(Default)]
pub(crate) struct Steps {
    /// Paths of the `cgroup.procs` files to join, the one that counts processor time last.
    pub(crate) join: Vec<PathBuf>,
    /// The socket of a sibling that becomes the program.
    pub(crate) beside: Option<i32>,
    /// Whether the kernel signals the process when its parent ends.
    pub(crate) end_with_us: bool,
    /// Listening sockets, which the program receives according to sd_listen_fds(3).
    pub(crate) listen: Vec<RawFd>,
}

impl Steps {
    /// The command line of this program with the steps, which then becomes the other program.
    #[expect(clippy::disallowed_methods, reason = "up and run start programs")]
    pub(crate) fn command(
        &self,
        program: &OsStr,
        arguments: &[OsString],
    ) -> anyhow::Result<Command> {
        let own = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = Command::new(own);
        command.arg(COMMAND);
        if self.end_with_us {
            command.args(["--end-with", &std::process::id().to_string()]);
        }
        for number in &self.listen {
            command.args(["--listen", &number.to_string()]);
        }
        if let Some(number) = self.beside {
            command.args(["--beside", &number.to_string()]);
        }
        for file in &self.join {
            command.arg("--join").arg(file);
        }
        command.arg("--").arg(program).args(arguments);
        Ok(command)
    }
}

/// Executes the steps and becomes the program; returns only if this fails.
pub(crate) fn become_program(words: &[OsString]) -> anyhow::Result<std::convert::Infallible> {
    let (mut words, mut files, mut beside, mut sockets) = (words.iter(), Vec::new(), None, 0);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--end-with") => end_with(words.next())?,
            Some("--listen") => {
                pass_on(words.next(), LISTEN_FD + sockets)?;
                sockets += 1;
            }
            Some("--beside") => beside = Some(SiblingSocket::take(words.next())?),
            Some("--join") => files.push(Path::new(words.next().context("--join wants a file")?)),
            Some("--") => break,
            _ => bail!("`{}` is no step before a program", word.to_string_lossy()),
        }
    }
    let words = words.as_slice();
    let (program, arguments) = words.split_first().context("no program is named")?;
    if beside.is_some()
        && let ForkSide::First(_) = sibling::begin().context("beginning another process")?
    {
        std::process::exit(0);
    }
    let counting = files.pop();
    files.into_iter().try_for_each(join)?;
    // The kernel has counted the usage up to now for the previous cgroup.
    let before = sibling::used();
    counting.into_iter().try_for_each(join)?;
    let error = match beside {
        Some(beside) => beside.begin(words, before),
        None => exec(program, arguments, sockets),
    };
    let program = program.to_string_lossy().into_owned();
    Err(NotStarted { missing: is_missing(&error), program, error }.into())
}

fn exec(program: &OsStr, arguments: &[OsString], sockets: RawFd) -> io::Error {
    #[expect(clippy::disallowed_methods, reason = "up and run start programs")]
    let mut command = Command::new(program);
    if sockets > 0 {
        // The program keeps the PID of this process.
        let count = sockets.to_string();
        command.env("LISTEN_PID", std::process::id().to_string()).env("LISTEN_FDS", count);
    }
    command.args(arguments).exec()
}

/// The socket of a sibling that becomes the program.
struct SiblingSocket(File);

impl SiblingSocket {
    fn take(number: Option<&OsString>) -> anyhow::Result<Self> {
        let number = number.and_then(|number| number.to_str()?.parse().ok());
        let file = sibling::inherited(number.context("--beside must be a number")?);
        Ok(Self(file.context("--beside")?))
    }

    /// Reports that all cgroups are joined, waits for permission, and becomes the program; returns only if this
    /// fails. `joined`: the usage just before the last cgroup.
    fn begin(mut self, words: &[OsString], joined: Usage) -> io::Error {
        match self.0.write_all(b"joined\n").and_then(|()| self.0.read_exact(&mut [0])) {
            Ok(()) => sibling::become_program(words, &self.0, joined),
            Err(error) => error,
        }
    }
}

/// The error of a program that did not start.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {error}")]
pub(crate) struct NotStarted {
    program: String,
    /// Whether the program does not exist.
    missing: bool,
    error: io::Error,
}

impl NotStarted {
    /// The exit code of shells, env(1) and time(1) in this case.
    pub(crate) const fn exit_code(&self) -> u8 {
        if self.missing { 127 } else { 126 }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Checks for an executable program like execvp(3), with `path` as the value of `PATH`, before a job is created
/// for it. Errors that only a start reveals, such as a missing interpreter, are reported then.
///
/// # Errors
/// The program does not exist, or is not executable.
pub(crate) fn startable(program: &OsStr, path: Option<&OsStr>) -> Result<(), NotStarted> {
    let failed = |missing, error| {
        let program = program.to_string_lossy().into_owned();
        Err(NotStarted { program, missing, error })
    };
    if program.as_bytes().contains(&b'/') {
        return match executable(Path::new(program)) {
            Ok(()) => Ok(()),
            Err(error) => failed(is_missing(&error), error),
        };
    }
    let mut rejected_limit = None;
    let dirs = std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin")));
    for dir in dirs.filter(|_| !program.is_empty()) {
        match executable(&dir.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if is_missing(&error) => {}
            Err(error) => rejected_limit = Some(error),
        }
    }
    match rejected_limit {
        Some(error) => failed(false, error),
        None => failed(true, io::Error::new(io::ErrorKind::NotFound, "no such command in PATH")),
    }
}

fn executable(file: &Path) -> io::Result<()> {
    if std::fs::metadata(file)?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a directory"));
    }
    match rustix::fs::access(file, rustix::fs::Access::EXEC_OK) {
        Err(rustix::io::Errno::ACCESS) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "not executable"))
        }
        other => Ok(other?),
    }
}

/// Starts a process that removes empty directories after a delay. It has no terminal and none of this process's
/// output pipes, so that nothing waits for its end. The function returns when the process has left the cgroups
/// of an enclosing `jobmeter run`, which would wait for it.
pub(crate) fn remove_later(after: Duration, dirs: &[PathBuf]) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "it outlives this process, to remove its cgroups"
    )]
    let mut command = Command::new(own);
    command.args([REMOVE, &after.as_millis().to_string()]).args(dirs).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().context(
        "cannot start the process that removes the job's \
                                             cgroup",
    )?;
    // The process writes one byte, or ends.
    let mut left = child.stdout.take().context(
        "cannot read from the process that removes the \
                                                job's cgroup",
    )?;
    left.read_exact(&mut [0])
        .context("cannot wait for the process that removes the job's cgroup")?;
    Ok(())
}

/// Removes directories after a delay; directories with a process remain.
pub(crate) fn remove(words: &[OsString]) {
    let Some((after, dirs)) = words.split_first() else { return };
    let after = after.to_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    if let Ok(root) = Root::live() {
        leave_jobs(&root);
    }
    // The parent may have ended already; the error is ignored.
    io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush()).ok();
    std::thread::sleep(Duration::from_millis(after));
    for dir in dirs {
        std::fs::remove_dir(dir).unwrap_or_default();
    }
}

/// Moves this process from the cgroups of `jobmeter run` jobs to the root of each hierarchy.
fn leave_jobs(root: &Root) {
    let mut own = Vec::new();
    let is_read = root.read("proc/self/cgroup", &mut own).is_ok();
    if !is_read || !String::from_utf8_lossy(&own).contains("/jobmeter/") {
        return;
    }
    let Ok(hierarchies) = Hierarchies::read(root) else { return };
    for mount in hierarchies.mounts() {
        let file = root.path().join(&mount.path).join("cgroup.procs");
        if let Err(error) = std::fs::write(&file, "0") {
            log::debug!("{}: {error}", file.display());
        }
    }
}

fn end_with(pid: Option<&OsString>) -> anyhow::Result<()> {
    let pid = pid.and_then(|pid| pid.to_str()?.parse().ok()).context("--end-with wants a pid")?;
    if !parent::end_with(pid)? {
        bail!("process {pid} ended before its program started");
    }
    Ok(())
}

/// Moves a socket that the parent left open to a descriptor of sd_listen_fds(3).
fn pass_on(number: Option<&OsString>, to: RawFd) -> anyhow::Result<()> {
    let number = number.and_then(|number| number.to_str()?.parse().ok());
    let socket = sibling::inherited(number.context("--listen must be a number")?);
    let socket = rustix::io::fcntl_dupfd_cloexec(socket.context("--listen")?, to)?;
    if socket.as_raw_fd() != to {
        bail!("descriptor {to} is in use, so no socket can be passed on");
    }
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty())?;
    // The program owns the socket from now on.
    std::mem::forget(socket);
    Ok(())
}

fn join(file: &Path) -> anyhow::Result<()> {
    std::fs::write(file, "0").with_context(|| format!("joining {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_helper_leaves_the_cgroups_of_a_run_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let procs = || std::fs::read_to_string(dir.path().join("sys/fs/cgroup/cgroup.procs"));
        write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        write("proc/self/cgroup", "0::/system.slice/x.service\n");
        write("sys/fs/cgroup/cgroup.procs", "");
        write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        let root = Root::recorded(dir.path()).unwrap();
        leave_jobs(&root);
        assert_eq!(procs().unwrap(), "", "it is in none of ours");
        write("proc/self/cgroup", "0::/jobmeter/job_7@3f2a\n");
        leave_jobs(&root);
        assert_eq!(procs().unwrap(), "0");
    }

    #[test]
    fn a_command_that_cannot_start_is_reported_as_shells_do() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, tool) = (dir.path().join("plain"), dir.path().join("bin/tool"));
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        for (file, mode) in [(&plain, 0o644), (&tool, 0o755)] {
            std::fs::write(file, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = std::env::join_paths([dir.path(), &dir.path().join("bin")]).unwrap();
        let code = |program: &OsStr| {
            startable(program, Some(&path)).map_or_else(|error| error.exit_code(), |()| 0)
        };
        assert_eq!(code(tool.as_os_str()), 0);
        assert_eq!(code(OsStr::new("tool")), 0);
        assert_eq!(code(OsStr::new("plain")), 126, "there, and not executable");
        assert_eq!(code(plain.as_os_str()), 126);
        assert_eq!(code(OsStr::new("bin")), 126, "a directory");
        assert_eq!(code(OsStr::new("nope")), 127);
        assert_eq!(code(dir.path().join("nope").as_os_str()), 127);
        assert_eq!(code(plain.join("below").as_os_str()), 127);
        assert_eq!(code(OsStr::new("")), 127);
        let messages = startable(OsStr::new("nope"), Some(&path)).unwrap_err().to_string();
        assert_eq!(messages, "nope: no such command in PATH");
    }
}
