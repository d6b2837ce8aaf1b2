//! What is known of a connection.

use crate::auth::peer::Ends;
use std::sync::Arc;

/// What is known of a connection when its first request comes; an extension of each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) ends: Ends,
    /// The number of the user who owns the other end, where that is on this machine and the kernel names somebody.
    pub(crate) owner: Option<u32>,
    /// The common name of the certificate that the client showed, which was checked.
    pub(crate) certificate: Option<Arc<str>>,
}
