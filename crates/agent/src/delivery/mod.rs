//! From a batch to the server's acknowledgement: queue, spool, sender, connection.

pub(crate) mod dispatch;
pub(crate) mod durable_watermark;
pub(crate) mod keeper;
pub(crate) mod outbox;
pub(crate) mod queue;
pub(crate) mod refused;
pub(crate) mod sealed;
pub(crate) mod sender;
pub(crate) mod spool;
