//! What changes the database: batches, and maintenance.

pub(crate) mod maintenance;
pub(crate) mod writer;
