//! One source: when it is due, how it is read, what it costs.

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
