//! Taskstats: what the kernel counted for each task (Documentation/accounting/taskstats.rst and
//! kernel/taskstats.c, Linux 6.18), by generic netlink.
//!
//! A task is asked for by its number ([`Query`]), and every task that ends is told with its last values
//! ([`Exits`]). Both take `CAP_NET_ADMIN`. An answer is one datagram:
//!
//! ```text
//! nlmsghdr 16 | genlmsghdr 4 | AGGR_PID 4 { PID 4+4 | STATS 4 + struct taskstats 560 }   = 596 bytes
//! ```
//!
//! An exit is the same; that of the last of several threads has the sum of its process behind it.
//! Exits are told before a task gives its memory back, so they lack the end of its ending: about 0.07 ms
//! of processor time a process. A task stays in its cgroup's list until later still.

mod exits;
mod message;
mod query;
mod stats;

pub use exits::{Exits, Taken};
pub use message::{TaskMessage, recorded};
pub use query::{Answer, Asked, Query, TaskstatsError};
pub use stats::{Counter, Counters, StatsError, TaskStats, taskstats};
