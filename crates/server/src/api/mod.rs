//! The HTTP API: the gate that every request passes, the router, and one file for each group of operations.
//!
//! - `router`: maps operations to functions. `request_middleware`: checks every request.
//! - `batch_routes`: receives batches, and answers agents with acks, settings and jobs.
//! - The other files: one for each group of operations.

pub(crate) mod account_routes;
pub(crate) mod audit_routes;
pub(crate) mod batch_routes;
pub(crate) mod connected_routes;
pub(crate) mod demand_routes;
pub(crate) mod job_routes;
pub(crate) mod promotion_routes;
pub(crate) mod push_routes;
pub(crate) mod request_middleware;
pub(crate) mod router;
pub(crate) mod token_routes;
