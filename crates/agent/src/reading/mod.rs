//! One source: when it is due, how it is read, what it costs.
//!
//! - `plan`: what is read. `source_state`: one source: when, how it is, what it cost; `part_status`: its parts; `pace`: when it costs too much.
//! - `work`: one reading, which may hang. `burst`, `queues`: between ticks. `own`: the agent as a source. `machine`, `unread`: at start.

pub(crate) mod burst;
pub(crate) mod machine;
pub(crate) mod own;
pub(crate) mod pace;
pub(crate) mod part_status;
pub(crate) mod plan;
pub(crate) mod queues;
pub(crate) mod source_state;
pub(crate) mod unread;
pub(crate) mod work;
