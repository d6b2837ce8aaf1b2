//! Users, accounts, tokens.
//!
//! - `accounts`: accounts and their members. `job_access`: which jobs a reader may see. `names`: login names and user IDs. `user_tokens`: tokens
//!   that people created.

pub(crate) mod accounts;
pub(crate) mod job_access;
pub(crate) mod names;
pub(crate) mod push_keys;
pub(crate) mod user_tokens;
