//! Commands that change something: set, promote, flush, token, account.

pub(crate) mod access;
pub(crate) mod demand;
