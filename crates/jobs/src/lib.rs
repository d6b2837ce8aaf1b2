//! The registry of jobs: which job ran where, when and for whom. Server side only.
//!
//! What nodes tell ([`model::JobEvent`]) is kept as *visits*: a cgroup of a number on a device, from
//! its making to its going. A *run* of a job is the visits that belong together; a
//! scheduler that gives a number again later makes another run. Runs are worked out from the set of
//! visits alone, so events that come twice, late or in another order change nothing.
//!
//! What schedulers say of their jobs ([`Record`]) is kept beside the visits and joined with the runs by
//! number and time: who, why and how much the scheduler says, when and where it ran the nodes. A record that
//! no node saw, since the job waits or its nodes have no agent, is listed as it was told.
//!
//! A *local* job is one that `jobmeter run` registered: its number is drawn here, it has one device,
//! and no number is given twice.

mod accounts;
mod amend;
mod apply_events;
mod ask;
mod asked;
mod check;
mod demand;
mod error;
mod forgotten_nodes;
mod granted;
mod identity;
mod join;
mod latched;
mod list;
mod local;
mod name;
mod names;
mod oom_kills;
mod paths;
mod proven;
mod reader;
mod record;
mod registry;
mod schema;
mod sql_parts;
mod stable_hash;
mod stays;
mod stopped;
mod store_records;
mod store_runs;
mod store_visits;
mod strays;
mod tell;
mod tokens_kept;
mod users;
mod visits;

pub use accounts::{Account, AccountChange, AccountKey, AccountKeyError, Role};
pub use amend::{Amendment, Followed};
pub use apply_events::Applied;
pub use ask::Whole;
pub use check::{Difference, Disagreement, PATIENCE};
pub use demand::{
    Change, Demand, DemandError, DemandLimits, Entry, FLUSH_TOLD_US, Flush, FromJobs, Held,
    JobFacts, Look, Mark, MarkKind, NewChange, NewPromotion, Origin, PROMOTIONS_ON_NODE_MAX,
    Promotion, Quota, Rule, Wanted, wanted,
};
pub use error::RegistryError;
pub use granted::{Granted, RunsSeen};
pub use latched::{LATCHES_MAX, Latch};
pub use list::{Filter, Listed, Place};
pub use local::{OpenLocal, Registration, SILENT};
pub use model::Resources;
pub use name::{JobName, JobNameError};
pub use oom_kills::Killed;
pub use proven::Span;
pub use reader::{Reader, Sees};
pub use record::{NodeShare, Record, Step};
pub use registry::{Limits, Registry};
pub use schema::{backup, check, verify};
pub use stable_hash::StableHash;
pub use stays::{Interval, Share, Window};
pub use tell::Heard;
pub use tokens_kept::{KeptToken, NewToken};
pub use users::Users;
