//! The kernel's interfaces, as typed structs in the kernel's own units. No metrics here, and no meaning
//! beyond that of the kernel's documents.
//!
//! Reading and parsing are separate. A parser is a function from bytes to a struct and never
//! panics, whatever the bytes. [`Root`] is the only access to a machine's files, at `/` or under a
//! recorded copy.

pub mod clock;
mod devices;
mod machine;
mod netlink;
mod network;
pub mod parse;
mod root;
mod tasks;
mod this_process;
mod users;

pub use devices::{drm, ipmi, nvml, perf, pmu};
pub use machine::{
    cpuinfo, cpulist, diskstats, loadavg, meminfo, mounts, pressure, schedstat, softirqs, stat,
    statfs, uptime, vmstat,
};
pub use network::{addresses, beegfs, lustre, net_dev, nfs, sockets};
pub use root::{
    DirEntry, NodeKind, NodeStat, OpenFile, ReadError, Root, environments_given_up, is_denied,
    is_gone, is_silent,
};
pub use tasks::{cgroup, inotify, kmsg, proc_connector, process, rusage, taskstats};
#[cfg(feature = "count-allocations")]
pub use this_process::allocations;
pub use this_process::{child_program, code, confine, heap, inherited, limits, parent, sibling};
pub use users::{login, tcp_owners, trust, user_files, utmp};
