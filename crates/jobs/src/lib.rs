//! The registry of jobs: which job ran where, when and for whom. Server side only.
//!
//! What nodes tell ([`model::JobEvent`]) is kept as *visits*: a cgroup of a number on a device, from
//! its making to its going. A *run* of a job is the visits that belong together; a
//! scheduler that gives a number again later makes another run. Runs are worked out from the set of
//! visits alone, so events that come twice, late or in another order change nothing.
//!
//! A *local* job is one that `jobmeter run` registered: its number is drawn here, it has one device,
//! and no number is given twice.

mod ask;
mod error;
mod local;
mod name;
mod reader;
mod record;
mod registry;
mod schema;
mod store_visits;
mod users;
mod visits;

pub use ask::{Filter, Interval, Listed, Window};
pub use error::RegistryError;
pub use local::Registration;
pub use name::{JobName, JobNameError};
pub use reader::Reader;
pub use record::{NodeShare, Record, Resources, Step};
pub use registry::{Applied, Limits, Registry};
pub use schema::{backup, verify};
pub use users::Users;
