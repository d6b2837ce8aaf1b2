//! What all parts use: names of jobs, records, readers, the registry, parts of statements.

pub(crate) mod error;
pub(crate) mod identity;
pub(crate) mod name;
pub(crate) mod paths;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod sql_parts;
pub(crate) mod stable_hash;
pub(crate) mod users;
