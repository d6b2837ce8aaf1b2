//! Users, accounts, tokens.
//!
//! - `accounts`: who pays and who is a member. `names`: login names and numbers. `made_tokens`: tokens that people made.

pub(crate) mod accounts;
pub(crate) mod made_tokens;
pub(crate) mod names;
