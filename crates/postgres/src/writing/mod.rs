//! What changes the database: batches, and maintenance.

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
