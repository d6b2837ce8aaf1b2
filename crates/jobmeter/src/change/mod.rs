//! Commands that change settings or permissions: set, promote, flush, token, account.
//!
//! - `demand`: set, flush, promote; `demand_options`: their options. `receipts`: their
//!   answers. `change_list`: set --list. `access`: token, account.
//!   `nothing_matches`: unknown nodes, promotions and flushes without an effect.

pub(crate) mod access;
pub(crate) mod change_list;
pub(crate) mod demand;
pub(crate) mod demand_options;
mod nothing_matches;
mod receipts;
