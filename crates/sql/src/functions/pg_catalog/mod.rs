//! `pg_catalog`: our tables as PostgreSQL's catalogue lists them, for `\d` of psql and for the reflection of clients.
//!
//! The catalogue is the same for every user and has nothing of the machine. Access control applies to the rows of the
//! tables.

pub(crate) mod catalog_functions;
pub(crate) mod catalog_tables;
mod driver_queries;
mod empty_tables;
pub(crate) mod rewrite;
