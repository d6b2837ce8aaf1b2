//! Tasks, processes and control groups, and what the kernel reports of them.

pub mod cgroup;
pub mod inotify;
pub mod kmsg;
pub mod proc_connector;
pub mod process;
pub mod rusage;
pub mod taskstats;
