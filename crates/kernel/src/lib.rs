//! What the kernel says, as typed structs in the kernel's own units. No metrics here, and no meaning
//! beyond that of the kernel's documents.
//!
//! Reading and parsing are two things: a parser is a function from bytes to a struct and never
//! panics, whatever the bytes; [`Root`] is the only way to a machine's files, at `/` or under a
//! recorded copy.

pub mod addresses;
#[cfg(feature = "count-allocations")]
pub mod allocations;
pub mod beegfs;
pub mod cgroup;
pub mod clock;
pub mod code;
pub mod command;
pub mod confine;
pub mod cpuinfo;
pub mod cpulist;
pub mod diskstats;
pub mod drm;
pub mod heap;
pub mod inherited;
pub mod inotify;
pub mod ipmi;
pub mod kmsg;
pub mod limits;
pub mod loadavg;
pub mod login;
pub mod lustre;
pub mod meminfo;
pub mod mounts;
pub mod net_dev;
mod netlink;
pub mod nfs;
pub mod nvml;
pub mod parse;
pub mod perf;
pub mod pmu;
pub mod pressure;
pub mod proc_connector;
pub mod process;
mod root;
pub mod rusage;
pub mod schedstat;
pub mod sibling;
pub mod sockets;
pub mod softirqs;
pub mod stat;
pub mod statfs;
pub mod taskstats;
pub mod tcp_owners;
pub mod trust;
pub mod uptime;
pub mod utmp;
pub mod vmstat;

pub use root::{
    DirEntry, KeptFile, NodeKind, NodeStat, ReadError, Root, is_denied, is_gone, is_silent,
};
