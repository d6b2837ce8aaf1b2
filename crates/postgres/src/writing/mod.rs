//! What changes the database: batches, and maintenance.

pub(crate) mod acknowledged;
mod archive;
mod commit;
mod discovery;
pub(crate) mod late_rollups;
pub(crate) mod maintenance;
mod maintenance_connection;
mod partition_drain;
pub(crate) mod partitions;
mod rejected_rows;
mod retention;
mod rollup_partitions;
pub(crate) mod writer;
