//! What changes the database: batches, and maintenance.

pub(crate) mod maintenance;
mod maintenance_connection;
mod partition_drain;
pub(crate) mod partitions;
mod retention;
pub(crate) mod writer;
