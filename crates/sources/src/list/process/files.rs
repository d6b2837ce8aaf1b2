//! Reading the files of a process.

use super::process_table::{Io, io_of_process};
use crate::SourceError;
use crate::reading::file::broken;
use crate::task_attribution::comm::Comm;
use kernel::process::{EXITING, ProcessStatus, State, process_io, process_stat, process_status};
use kernel::{ReadError, Root};
use std::fmt::Write as _;

/// Values of a process's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessFiles {
    pub(super) comm: Comm,
    pub(super) start_ticks: u64,
    /// Sum over all its threads, in user and kernel mode.
    pub(super) cpu_ticks: u64,
    /// Whether its first thread is ending.
    pub(super) is_ending: bool,
    pub(super) status: ProcessStatus,
    /// `None` if the file may not be read.
    pub(super) io: Option<Io>,
}

/// Reused memory for reading.
#[derive(Debug, Default)]
pub(super) struct Files {
    path: String,
    text: Vec<u8>,
}

impl Files {
    /// Reads a process; `None` if it has ended.
    ///
    /// # Errors
    /// A file is invalid, or denied and not `io`.
    pub(super) fn read(
        &mut self,
        pid: u32,
        root: &Root,
    ) -> Result<Option<ProcessFiles>, SourceError> {
        let Some(text) = self.file(pid, "stat", root)? else { return Ok(None) };
        let stat = process_stat(text).map_err(|error| broken("proc/PID/stat", error))?;
        let (comm, start_ticks) = (Comm::of(stat.comm), stat.start_ticks);
        let cpu_ticks = stat.user_ticks.saturating_add(stat.system_ticks);
        let is_ending = stat.flags & EXITING != 0;
        let Some(text) = self.file(pid, "status", root)? else { return Ok(None) };
        let status = process_status(text).map_err(|error| broken("proc/PID/status", error))?;
        let io = match self.file(pid, "io", root) {
            Ok(None) => return Ok(None),
            Ok(Some(text)) => {
                let io = process_io(text).map_err(|error| broken("proc/PID/io", error))?;
                Some(io_of_process(&io))
            }
            Err(ReadError::Denied { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Some(ProcessFiles { comm, start_ticks, cpu_ticks, is_ending, status, io }))
    }

    /// Whether a process has ended and waits for its parent.
    pub(super) fn is_zombie(&mut self, pid: u32, root: &Root) -> bool {
        let text = self.file(pid, "stat", root).ok().flatten();
        text.and_then(|text| process_stat(text).ok()).is_some_and(|it| it.state == State::Zombie)
    }

    fn file(&mut self, pid: u32, name: &str, root: &Root) -> Result<Option<&[u8]>, ReadError> {
        self.path.clear();
        // Writing into a `String` cannot fail.
        write!(self.path, "proc/{pid}/{name}").ok();
        match root.read_single(&self.path, &mut self.text) {
            Ok(()) => Ok(Some(&self.text)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
