//! What all parts use: names of jobs, records, readers, the registry, parts of statements.
//!
//! - `registry`: the file, its limits. `name`, `record`, `reader`, `users`: what is asked and stored. `identity`: of this server.
//! - `sql_parts`, `paths`: parts of statements, and the indexes they take. `stable_hash`: a hash that may be stored. `error`.

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
