//! What schedulers report becomes records.

pub(crate) mod ingest_records;
pub(crate) mod store_records;
pub(crate) mod update;
