//! Users, accounts, tokens.
//!
//! - `accounts`: accounts and their members. `names`: login names and user IDs. `made_tokens`: tokens
//!   that people created.

pub(crate) mod accounts;
pub(crate) mod made_tokens;
pub(crate) mod names;
