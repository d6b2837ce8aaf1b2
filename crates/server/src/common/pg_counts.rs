//! Counters of PostgreSQL's protocol.

use crate::common::counts::{Arrival, Counter, Counters, words};

words! {
    /// Limit at which a message, a statement or a session ends.
    PgLimit {
        /// No complete message in time, or no authentication.
        Slow "slow",
        /// A message that is too long.
        Message "message_bytes",
        /// Memory of messages that are being processed.
        Memory "memory",
        /// A session that sends nothing.
        Idle "idle",
        /// Sessions of one user or token.
        Sessions "sessions_per_user",
        /// Prepared statements of a session.
        Statements "prepared_statements",
        /// Portals and cursors of a session.
        Portals "portals",
        /// Rows of COPY and INSERT in one transaction.
        Rows "written_bytes",
    }
}

words! {
    /// How a statement ended.
    PgStatement {
        /// With its result.
        Done "done",
        /// With an error.
        Failed "failed",
    }
}

/// Counters of PostgreSQL's protocol.
#[derive(Debug, Default)]
pub(crate) struct PgCounts {
    pub(crate) arrivals: Counters<{ Arrival::ALL.len() }>,
    pub(crate) statements: Counters<{ PgStatement::ALL.len() }>,
    pub(crate) limits: Counters<{ PgLimit::ALL.len() }>,
    /// Connections that sent something else than the protocol.
    pub(crate) malformed: Counter,
    /// Sessions that were not authenticated.
    pub(crate) unidentified: Counter,
    /// Requests to cancel with the key of no session.
    pub(crate) wrong_keys: Counter,
}
