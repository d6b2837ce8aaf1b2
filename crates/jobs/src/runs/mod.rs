//! What nodes report becomes visits and runs.
//!
//! - `apply_events`: what nodes report. `store_visits`, `store_runs`: the tables. `strays`: visits that the record does not name.
//! - `write_runs`: runs that were worked out anew. `user_numbers`: numbers of users for jobs that name them.
//! - `local`: jobs of `jobmeter run`. `env_requests`: what jobs ask for. `oom_kills`: tasks that were killed.

pub(crate) mod apply_events;
pub(crate) mod env_requests;
pub(crate) mod local;
pub(crate) mod oom_kills;
pub(crate) mod store_runs;
pub(crate) mod store_visits;
pub(crate) mod strays;
pub(crate) mod user_numbers;
pub(crate) mod write_runs;
