//! The machine: processors, memory, disks, file systems, load.
//!
//! - Processors: `cpuinfo`, `cpulist`, `stat`, `schedstat`, `softirqs`, `loadavg`, `pressure`. Memory: `meminfo`, `vmstat`.
//! - Storage: `diskstats`, `mounts`, `statfs`. `uptime`.

pub mod cpuinfo;
pub mod cpulist;
pub mod diskstats;
pub mod loadavg;
pub mod meminfo;
pub mod mounts;
pub mod pressure;
pub mod schedstat;
pub mod softirqs;
pub mod stat;
pub mod statfs;
pub mod uptime;
pub mod vmstat;
