//! The step between a fork and the program that is wanted: joins cgroups, ends with its parent, and
//! becomes the program.
//!
//! `jobmeter __exec [--end-with PID] [--join FILE]... -- PROGRAM ARGUMENTS...`, started by `up` and `run`
//! alone. A process of its own does this, as code between fork and exec may do next to nothing; so
//! everything the program does is counted in its cgroup, and nothing of ours.

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The hidden word.
pub(crate) const WORD: &str = "__exec";

/// A command that becomes `program` after these steps.
#[derive(Default)]
pub(crate) struct Steps {
    /// Files `cgroup.procs` to join.
    pub(crate) join: Vec<PathBuf>,
    /// Whether to be told to end when this process is gone.
    pub(crate) end_with_us: bool,
}

impl Steps {
    /// The command: this program, which becomes the other.
    #[expect(clippy::disallowed_methods, reason = "up and run start programs")]
    pub(crate) fn command(
        &self,
        program: &std::ffi::OsStr,
        arguments: &[OsString],
    ) -> anyhow::Result<Command> {
        let own = std::env::current_exe().context("finding this program's own file")?;
        let mut command = Command::new(own);
        command.arg(WORD);
        if self.end_with_us {
            command.args(["--end-with", &std::process::id().to_string()]);
        }
        for file in &self.join {
            command.arg("--join").arg(file);
        }
        command.arg("--").arg(program).args(arguments);
        Ok(command)
    }
}

/// Does the steps and becomes the program; returns only when that fails.
pub(crate) fn become_program(words: &[OsString]) -> anyhow::Result<std::convert::Infallible> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--end-with") => end_with(words.next())?,
            Some("--join") => join(Path::new(words.next().context("--join wants a file")?))?,
            Some("--") => break,
            _ => bail!("`{}` is no step before a program", word.to_string_lossy()),
        }
    }
    let program = words.next().context("no program is named")?;
    #[expect(clippy::disallowed_methods, reason = "up and run start programs")]
    let error = Command::new(program).args(words).exec();
    Err(error).with_context(|| format!("starting {}", program.to_string_lossy()))
}

fn end_with(pid: Option<&OsString>) -> anyhow::Result<()> {
    let pid =
        pid.and_then(|pid| pid.to_str()?.parse::<i32>().ok()).context("--end-with wants a pid")?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before the kernel was told.
    if rustix::process::getppid().map(Pid::as_raw_nonzero).is_none_or(|parent| parent.get() != pid)
    {
        bail!("process {pid} ended before its program started");
    }
    Ok(())
}

fn join(file: &Path) -> anyhow::Result<()> {
    std::fs::write(file, "0").with_context(|| format!("joining {}", file.display()))
}
