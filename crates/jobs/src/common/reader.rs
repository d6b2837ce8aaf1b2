//! For whom a question is answered: who may read what. `docs/decisions/0016-sight.md` says why.

/// For whom a question is answered. What it means for one job, the registry says: it knows the accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// Root, the server's own user, staff, and the server itself.
    #[default]
    Everything,
    /// A user: his own jobs, those of others that an account's managers show him, and what is counted for
    /// no job.
    User(u32),
    /// A user who sees what is counted for no job only where and while a job that he sees is there.
    Tenant(u32),
    /// Nobody in particular: what is counted for no job.
    Nodes,
}

/// How much of a job somebody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sees {
    /// Not even that there is one.
    Nothing,
    /// That it is there: its line in a list.
    Listed,
    /// Everything that was counted for it.
    All,
}

impl Reader {
    /// The user to whose jobs, and to those that are shown to him, this reader is bound. `None` of one who
    /// is bound to none, and of one who sees no job at all: [`Reader::sees_every_job`] tells them apart.
    pub const fn uid(self) -> Option<u32> {
        match self {
            Self::Everything | Self::Nodes => None,
            Self::User(uid) | Self::Tenant(uid) => Some(uid),
        }
    }

    /// Whether it is told what was asked of nodes for a user's jobs, or by him: to himself, and to those to
    /// whom every job is shown. Accounts show jobs, and not this.
    pub fn knows_of(self, user: Option<u32>) -> bool {
        self.sees_every_job() || (user.is_some() && self.uid() == user)
    }

    /// Whether every job is shown.
    pub const fn sees_every_job(self) -> bool {
        matches!(self, Self::Everything)
    }

    /// Whether what is counted for no job is shown of every device at every time.
    pub const fn sees_every_node(self) -> bool {
        !matches!(self, Self::Tenant(_))
    }
}
