//! What schedulers report becomes records.
//!
//! - `ingest_records`: what a scheduler reports. `update`: what a person or a file reports, piece by piece. `store_records`: the table.

pub(crate) mod ingest_records;
pub(crate) mod store_records;
pub(crate) mod update;
