//! Users, accounts, tokens.

pub(crate) mod accounts;
pub(crate) mod made_tokens;
pub(crate) mod names;
