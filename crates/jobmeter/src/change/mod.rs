//! Commands that change something: set, promote, flush, token, account.
//!
//! - `demand`: set, flush, promote. `access`: token, account.

pub(crate) mod access;
pub(crate) mod demand;
