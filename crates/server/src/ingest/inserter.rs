//! Who inserts rows.

use model::DeviceId;

/// The user ID of turns that callers of all nodes share: -1, which is no user's.
const NODES_UID: u32 = u32::MAX;
/// The value of the label `_user` for an unknown user.
const UNKNOWN: &str = "unknown";

/// Who inserts rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inserter {
    /// A token of scope `push`, or an administrator.
    Program,
    /// A user.
    User(u32),
    /// An unknown user of this node, whom the address identifies.
    Node(DeviceId),
}

impl Inserter {
    /// Whether the rules for users apply.
    pub(crate) fn is_user(&self) -> bool {
        *self != Self::Program
    }

    /// The user whose turn their work takes.
    pub(crate) const fn turn_uid(&self) -> Option<u32> {
        match self {
            Self::Program => None,
            Self::User(uid) => Some(*uid),
            Self::Node(_) => Some(NODES_UID),
        }
    }

    /// The value of the label `_user` of rows without a job.
    pub(crate) fn user_label(&self) -> Option<String> {
        match self {
            Self::Program => None,
            Self::User(uid) => Some(uid.to_string()),
            Self::Node(_) => Some(UNKNOWN.to_owned()),
        }
    }

    /// The node of every row, whatever the body states.
    pub(crate) const fn node(&self) -> Option<&DeviceId> {
        match self {
            Self::Node(node) => Some(node),
            Self::Program | Self::User(_) => None,
        }
    }
}
