//! Shared parts: job names, records, readers, the registry, SQL fragments.
//!
//! - `registry`: the file and its limits.
//! - `name`, `record`, `access_level`, `users`: types of queries and of stored data.
//! - `identity`: the server ID.
//! - `sql_parts`, `indexes`: SQL fragments and the indexes that they use.
//! - `stable_hash`: a hash that is safe to store. `write_budget`: limits what a sender writes. `error`: errors.

pub(crate) mod error;
pub(crate) mod identity;
pub(crate) mod indexes;
pub(crate) mod name;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod sql_parts;
pub(crate) mod stable_hash;
pub(crate) mod users;
pub(crate) mod write_budget;
