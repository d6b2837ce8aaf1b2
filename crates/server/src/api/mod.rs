//! The HTTP API: the gate that every request passes, the router, and one file for each group of operations.
//!
//! - `router`: maps operations to functions. `gate`: checks every request.
//! - `batches`, `user_batches`: receive samples. `admission`: decides which batches are stored.
//! - The other files: one for each group of operations.

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
