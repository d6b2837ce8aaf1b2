//! From a batch to the server's acknowledgement: queue, spool, sender, connection.
//!
//! - `queue`, `keeper`: sealed batches become frames. `outbox`: frames in memory, with `spool` behind. `sender`, `dispatch`: what is sent next.
//! - `durable_watermark`: how far everything is kept. `refused`: batches that the server rejected. `sealed`: batches for others, as `jobmeter run`.

pub(crate) mod dispatch;
pub(crate) mod durable_watermark;
pub(crate) mod keeper;
pub(crate) mod outbox;
pub(crate) mod queue;
pub(crate) mod refused;
pub(crate) mod sealed;
pub(crate) mod sender;
pub(crate) mod spool;
