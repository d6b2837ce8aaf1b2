//! What changes the database: batches, and maintenance.

mod discovery;
pub(crate) mod late_rollups;
pub(crate) mod maintenance;
pub(crate) mod writer;
