//! Readers of the registry: access control for queries. See `docs/decisions/0016-sight.md` for the
//! reasons.

/// The reader of a query. The registry applies it to each job, since the registry knows the accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// Root, the server's own user, staff, and the server itself. Every job is visible.
    #[default]
    Everything,
    /// A user with this user ID. Visible: their own jobs, jobs that account managers share with them, and
    /// node samples.
    User(u32),
    /// A user who reads node samples only where and while a job that is visible to them runs.
    Tenant(u32),
    /// An anonymous reader: node samples only, no jobs.
    Nodes,
}

/// The level of access to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessLevel {
    /// No access: the job's existence is hidden.
    Nothing,
    /// The job's line in lists is visible.
    Listed,
    /// All samples and facts of the job are visible.
    All,
}

impl Reader {
    /// Returns the user ID that limits this reader's access to jobs. Returns `None` for readers of every
    /// job and for readers of no job. [`Reader::sees_every_job`] distinguishes them.
    pub const fn uid(self) -> Option<u32> {
        match self {
            Self::Everything | Self::Nodes => None,
            Self::User(uid) | Self::Tenant(uid) => Some(uid),
        }
    }

    /// Tests whether the reader may read requests to nodes by this user or for this user's jobs. The user
    /// themselves and readers of every job may. Shared accounts do not grant it.
    pub fn knows_of(self, user: Option<u32>) -> bool {
        self.sees_every_job() || (user.is_some() && self.uid() == user)
    }

    /// Tests whether every job is visible.
    pub const fn sees_every_job(self) -> bool {
        matches!(self, Self::Everything)
    }

    /// Tests whether node samples of every device and every time are visible.
    pub const fn sees_every_node(self) -> bool {
        !matches!(self, Self::Tenant(_))
    }
}
