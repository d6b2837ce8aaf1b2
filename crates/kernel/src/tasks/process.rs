//! `/proc/PID/{io,stat,status,cgroup,environ}`: what the kernel tells of a whole process (proc_pid_io(5),
//! proc_pid_stat(5), proc_pid_status(5); Documentation/filesystems/proc.rst, Linux 6.18).
//!
//! The first three, read as `/proc/TID`, tell of the process of a thread and not of the thread: adding up the
//! threads' counts everything as often as there are threads. `io`, and the times and faults of `stat`,
//! sum over all threads, those that have ended too. What is not read here, because it is the first
//! thread's alone though it stands under the process: context switches (`status`) and the time spent
//! waiting for a processor (`schedstat`).

mod cgroups;
mod environ;
mod io;
mod stat;
mod status;

pub use cgroups::{CgroupLine, process_cgroups};
pub use environ::{variable, whole_entries};
pub use io::{ProcessIo, process_io};
pub use stat::{EXITING, ProcessStat, State, process_stat};
pub use status::{ProcessStatus, process_status};
