//! The job registry: the devices, times and owners of all jobs. Used by the server only.
//!
//! The registry stores node reports ([`model::JobEvent`]) as *visits*. A visit is the lifetime of one
//! cgroup of a job ID on one device. A *run* of a job is a set of visits that belong together. A
//! scheduler that later reuses a job ID creates another run. The registry computes runs from the set of
//! visits alone. Duplicate, late or reordered events therefore change nothing.
//!
//! The registry stores scheduler reports ([`JobRecord`]) beside the visits and joins them with runs by job
//! ID and time. The scheduler is the authority for owner, request and usage; the nodes are the
//! authority for place and time. A record without visits is listed as reported: its job waits, or its
//! nodes have no agent.
//!
//! A *local* job is a job that `jobmeter run` registered. The registry assigns its ID and never reuses
//! it. A local job has one device.

mod common;
mod matching;
mod nodes;
mod people;
mod presence;
mod queries;
mod records;
mod runs;
mod schema;

pub use common::error::RegistryError;
pub use common::identity::SERVER_ID_FILE;
pub use common::name::{JobName, JobNameError};
pub use common::reader::{AccessLevel, Reader};
pub use common::record::{JobRecord, NodeShare, Step};
pub use common::registry::{Limits, Registry};
pub use common::stable_hash::StableHash;
pub use common::users::Users;
pub use model::Resources;
pub use nodes::rule_latches::{LATCHES_MAX, Latch};
pub use people::accounts::{Account, AccountChange, AccountKey, AccountKeyError, Role};
pub use people::names::{UnresolvedUser, UnresolvedUserPage};
pub use people::push_keys::{KeyedPush, PushKey};
pub use people::user_tokens::{NewToken, StoredToken};
pub use presence::allocations::{Interval, Share, Window};
pub use presence::granted::{Granted, RunsSeen};
pub use presence::reports_of_inputs::Reporter;
pub use presence::verified_presence::Span;
pub use queries::copied_jobs::{CopiedRun, CopyScope, CopyStep};
pub use queries::disagreements::{AgentPresence, Difference, Disagreement, PATIENCE};
pub use queries::job_list::{Filter, ListPosition, Listed};
pub use queries::job_lookup::RunFacts;
pub use queries::running_jobs::RunningJob;
pub use records::ingest_records::IngestStats;
pub use records::update::{ReadPosition, RecordUpdate};
pub use runs::apply_events::Applied;
pub use runs::local::{OpenLocal, Registration, SILENT};
pub use runs::oom_kills::DeviceKill;
pub use schema::{backup, check, open_to_read, settle, verify};
