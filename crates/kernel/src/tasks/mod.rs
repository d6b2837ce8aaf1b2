//! Tasks, processes and control groups, and the kernel's accounting of them.
//!
//! - `process`, `taskstats`, `rusage`: usage of tasks. `proc_connector`: forks. `cgroup`: control groups;
//!   `inotify`: their directories. `kmsg`: OOM kills.

pub mod cgroup;
pub mod inotify;
pub mod kmsg;
pub mod proc_connector;
pub mod process;
pub mod rusage;
pub mod taskstats;
