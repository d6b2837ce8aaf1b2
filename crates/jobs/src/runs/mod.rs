//! Stores node reports as visits and runs.
//!
//! - `apply_events`: ingests node reports. `store_visits`, `store_runs`: the tables. `strays`: visits
//!   that their record excludes.
//! - `write_runs`: writes recomputed runs. `user_ids`: adds user IDs to jobs that lack them.
//! - `local`: jobs of `jobmeter run`. `env_requests`: request environment variables. `oom_kills`:
//!   killed tasks. `visit_shares`: quotas of nodes and users.

pub(crate) mod apply_events;
pub(crate) mod env_requests;
pub(crate) mod local;
pub(crate) mod oom_kills;
pub(crate) mod store_runs;
pub(crate) mod store_visits;
pub(crate) mod strays;
pub(crate) mod user_ids;
pub(crate) mod visit_shares;
pub(crate) mod write_runs;
