//! Facts about a connection.

use crate::auth::peer::Ends;
use std::sync::Arc;

/// Facts about a connection, known before its first request; an extension of each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) ends: Ends,
    /// ID of the user who owns the client's socket, if it is on this machine and the kernel reports the
    /// owner.
    pub(crate) owner: Option<u32>,
    /// The same, also where it identifies no caller by the settings. Known of loopback only.
    pub(crate) socket_owner: Option<u32>,
    /// Common name of the client's verified certificate.
    pub(crate) certificate: Option<Arc<str>>,
}
