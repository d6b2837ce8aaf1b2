//! Stores reports of schedulers as records.
//!
//! - `ingest_records`: complete records from a scheduler. `update`: partial records from a person or a
//!   file. `store_records`: the table.

pub(crate) mod ingest_records;
pub(crate) mod store_records;
pub(crate) mod update;
