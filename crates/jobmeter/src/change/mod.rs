//! Commands that change settings or permissions: set, promote, flush, token, account.
//!
//! - `demand`: set, flush, promote. `access`: token, account. `nothing_matches`: promotions and flushes
//!   without an effect.

pub(crate) mod access;
pub(crate) mod demand;
mod nothing_matches;
