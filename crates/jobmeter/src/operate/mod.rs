//! Commands of server operation: up, check, backup, verify.
//!
//! - `up`: server and agent. `check`: a configuration. `backup`, `verify`: the data folder.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod up;
pub(crate) mod verify;
