//! Who inserts rows.

use crate::auth::authentication::no_credentials;
use crate::auth::caller::{Caller, Rights};
use crate::common::http_error::HttpError;
use crate::http::selection::wrong;
use model::{DeviceId, Origin};

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

/// The sender of rows.
#[derive(Clone, Debug)]
pub(crate) struct PushSender {
    pub(crate) origin: Origin,
    pub(crate) inserter: Inserter,
    /// Key of the caller in the limit of rows, and of keys of requests.
    pub(crate) name: String,
}

impl PushSender {
    /// The sender of a program's rows: a token of scope `push`, or an administrator.
    pub(crate) fn of_program(caller: &Caller) -> Result<Self, HttpError> {
        let name = match &caller.rights {
            Rights::Push(name) => name.as_ref(),
            Rights::Admin(_) => None,
            Rights::Anonymous | Rights::Nobody => return Err(no_credentials()),
            _ => {
                let message = "inserting metrics needs a token of scope `push`; users insert those of their nodes with \
                               /rpc/insert_user_metrics";
                return Err(HttpError::forbidden(message));
            }
        };
        let origin = Origin::of_push(name).map_err(wrong)?;
        let name = caller.rights.uid().map_or_else(|| caller.actor.who.to_string(), user_name);
        Ok(Self { origin, inserter: Inserter::Program, name })
    }
}

/// The name of a user in the limit of rows.
pub(crate) fn user_name(uid: u32) -> String {
    format!("user {uid}")
}
