//! What nodes report becomes visits and runs.

pub(crate) mod apply_events;
pub(crate) mod env_requests;
pub(crate) mod local;
pub(crate) mod oom_kills;
pub(crate) mod store_runs;
pub(crate) mod store_visits;
pub(crate) mod strays;
