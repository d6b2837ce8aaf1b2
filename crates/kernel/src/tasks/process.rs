//! `/proc/PID/{io,stat,status,cgroup,environ}`: the kernel's data of a whole process (proc_pid_io(5),
//! proc_pid_stat(5), proc_pid_status(5); Documentation/filesystems/proc.rst, Linux 6.18).
//!
//! The first three, read as `/proc/TID`, describe the process of a thread and not the thread: summing over
//! threads counts everything as often as there are threads. `io`, and the times and faults of `stat`,
//! are sums over all threads, ended ones included. Not read here, since the values belong to the first
//! thread alone although they are listed for the process: context switches (`status`) and the time spent
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
