//! Taskstats: the kernel's counters of each task (Documentation/accounting/taskstats.rst and
//! kernel/taskstats.c, Linux 6.18), by generic netlink.
//!
//! [`Query`] requests a task by its ID, and [`Exits`] receives every ended task with its last values.
//! Both need `CAP_NET_ADMIN`. An answer is one datagram:
//!
//! ```text
//! nlmsghdr 16 | genlmsghdr 4 | AGGR_PID 4 { PID 4+4 | STATS 4 + struct taskstats 560 }   = 596 bytes
//! ```
//!
//! An exit has the same format; the last of several threads is followed by the sum of its process.
//! Exits are sent before a task releases its memory, so they lack the end of its ending: about 0.07 ms
//! of processor time a process. A task stays in its cgroup's list until later still.

mod exits;
mod message;
mod query;
mod stats;

pub use exits::{DrainResult, Exits};
pub use message::{TaskMessage, recorded};
pub use query::{Query, QueryErrors, QueryReply, TaskstatsError};
pub use stats::{Counter, Counters, StatsError, TaskStats, taskstats};
