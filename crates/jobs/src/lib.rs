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

mod common;
mod demand;
mod matching;
mod nodes;
mod people;
mod presence;
mod questions;
mod records;
mod runs;
mod schema;

pub use common::error::RegistryError;
pub use common::name::{JobName, JobNameError};
pub use common::reader::{Reader, Sees};
pub use common::record::{NodeShare, Record, Step};
pub use common::registry::{Limits, Registry};
pub use common::stable_hash::StableHash;
pub use common::users::Users;
pub use demand::{
    Change, Demand, DemandError, DemandLimits, Entry, FLUSH_TOLD_US, Flush, FromJobs, Held,
    JobFacts, Look, Mark, MarkKind, NewChange, NewPromotion, Origin, PROMOTIONS_ON_NODE_MAX,
    Promotion, Quota, Rule, Wanted, wanted,
};
pub use model::Resources;
pub use nodes::rule_latches::{LATCHES_MAX, Latch};
pub use people::accounts::{Account, AccountChange, AccountKey, AccountKeyError, Role};
pub use people::made_tokens::{KeptToken, NewToken};
pub use people::names::{Nameless, NamelessPage};
pub use presence::allocations::{Interval, Share, Window};
pub use presence::granted::{Granted, RunsSeen};
pub use presence::verified_presence::Span;
pub use questions::ask::Whole;
pub use questions::check::{Difference, Disagreement, PATIENCE};
pub use questions::list::{Filter, ListPosition, Listed};
pub use records::ingest_records::IngestStats;
pub use records::update::{Amendment, Followed};
pub use runs::apply_events::Applied;
pub use runs::local::{OpenLocal, Registration, SILENT};
pub use runs::oom_kills::Killed;
pub use schema::{backup, check, verify};
