//! Requests: the gate that each passes, the router, and one file for each group of operations.
//!
//! - `router`: which function answers which operation. `gate`: what every request passes. `batches`, `user_batches`: samples come in;
//!   `admission`: which of them are stored.
//! - The others: one file for each group of operations.

pub(crate) mod account_routes;
pub(crate) mod admission;
pub(crate) mod audit_lines;
pub(crate) mod batches;
pub(crate) mod demand_routes;
pub(crate) mod gate;
pub(crate) mod job_routes;
pub(crate) mod promotion_routes;
pub(crate) mod router;
pub(crate) mod scheduler_routes;
pub(crate) mod token_routes;
pub(crate) mod user_batches;
