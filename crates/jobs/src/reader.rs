//! For whom a question is answered.

/// For whom a question is answered: who may read what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Root, the server's own user, the holder of a token that reads everything.
    Everything,
    /// A user of this machine: what is counted for no job, and what is counted for his own.
    User(u32),
}

impl Reader {
    /// Whether this reader may see a job of the user of that number. A job whose user is not known is
    /// shown to those who may read everything.
    pub fn may_see(self, owner: Option<u32>) -> bool {
        match self {
            Self::Everything => true,
            Self::User(uid) => owner == Some(uid),
        }
    }

    /// The user to whose jobs this reader is bound.
    pub const fn uid(self) -> Option<u32> {
        match self {
            Self::Everything => None,
            Self::User(uid) => Some(uid),
        }
    }
}
