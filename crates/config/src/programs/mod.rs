//! The settings of each program.
//!
//! - `agent`, `poller`, `server`, `client`: each program's settings; `schedulers`: those of each scheduler. `pg`: PostgreSQL's
//!   protocol. `colmet`: messages of Colmet's nodes. `remote`:
//!   what a server may change on a node.
//! - `access_values`: origins of pages and roles of JSON Web Tokens. `postgres`: where a server keeps samples. `outputs`: the tables of outputs.
//! - `command`: command lines. `variables`: mistyped environment variables.

pub(crate) mod accepted_settings;
pub(crate) mod access_values;
pub(crate) mod agent;
pub(crate) mod client;
pub(crate) mod colmet;
pub(crate) mod command;
pub(crate) mod outputs;
pub(crate) mod pg;
pub(crate) mod poller;
pub(crate) mod postgres;
pub(crate) mod schedulers;
pub(crate) mod server;
pub(crate) mod variables;
