//! Parts of a limit that the senders of one kind have together, so that they leave the rest to agents.

use model::Origin;
use std::fmt::{Display, Formatter};

/// The commands of `jobmeter run` and inserted rows of users together have one of this many parts of the series and
/// origins.
pub const RUNS_DIVISOR: usize = 4;
/// All pollers together have one of this many parts of the series, origins and undeclared metrics.
const POLLERS_DIVISOR: usize = 2;

/// A kind of senders with such a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Commands of `jobmeter run` and rows that users insert.
    Users,
    /// Groups of the devices of pollers.
    Pollers,
}

impl Share {
    /// The kind of an origin; an agent and a token that inserts rows have none.
    pub(crate) fn of(origin: &Origin) -> Option<Self> {
        match origin {
            origin if origin.is_of_user() => Some(Self::Users),
            origin if origin.is_poller_group() => Some(Self::Pollers),
            _ => None,
        }
    }

    /// Its part of a limit.
    pub(crate) const fn max(self, limit: usize) -> usize {
        limit.div_ceil(match self {
            Self::Users => RUNS_DIVISOR,
            Self::Pollers => POLLERS_DIVISOR,
        })
    }
}

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Users => "the commands of `jobmeter run`",
            Self::Pollers => "all pollers together",
        })
    }
}

/// How much the senders of each kind use.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareCounts {
    users: usize,
    pollers: usize,
}

impl ShareCounts {
    /// The count of a kind.
    pub(crate) const fn of(&mut self, share: Share) -> &mut usize {
        match share {
            Share::Users => &mut self.users,
            Share::Pollers => &mut self.pollers,
        }
    }

    /// Counts one more of a sender.
    pub(crate) const fn add(&mut self, share: Option<Share>) {
        if let Some(share) = share {
            *self.of(share) += 1;
        }
    }

    /// Counts less of a sender.
    pub(crate) const fn subtract(&mut self, share: Option<Share>, count: usize) {
        if let Some(share) = share {
            let used = self.of(share);
            *used = used.saturating_sub(count);
        }
    }
}
