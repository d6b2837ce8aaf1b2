//! Why a connection with a peer ends.

use std::io;

/// Why a connection ended. The text names no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The first bytes are no greeting of ZMTP.
    #[error("it does not speak ZMTP")]
    Foreign,
    /// A version before 3.
    #[error("it speaks revision {0} of ZMTP; 3 is needed (libzmq 4)")]
    Version(u8),
    /// A mechanism with security.
    #[error("it requests the mechanism `{0}`; only NULL is supported")]
    Mechanism(String),
    /// The socket at the other end cannot be connected with this one.
    #[error("its socket is {0:?}")]
    Socket(String),
    /// Flags of a frame that the protocol does not have.
    #[error("a frame has the flags {0:#04x}")]
    Flags(u8),
    /// A message or a command beyond the limit.
    #[error("a frame of {announced} bytes; at most {limit} are accepted")]
    TooLong {
        /// The length in its header.
        announced: u64,
        /// The limit.
        limit: usize,
    },
    /// A command that is cut off, or not allowed here.
    #[error("a damaged or unexpected command")]
    Command,
    /// A message where none is allowed: before the handshake, or from a PULL.
    #[error("an unexpected message")]
    Message,
    /// The peer reports an error.
    #[error("it reports: {0}")]
    Reported(String),
    /// No handshake in time.
    #[error("no handshake in time")]
    Handshake,
    /// The connection ended between two messages.
    #[error("the connection was closed")]
    Closed,
    /// The connection ended within a handshake or a message.
    #[error("the connection ended within a handshake or a message")]
    Truncated,
    /// It sends requests and does not read the answers.
    #[error("it does not read answers")]
    Unread,
    /// All unfinished messages together reached their limit, and this peer's is the largest.
    #[error("unfinished messages of all peers exceed their limit, and this is the largest")]
    Memory,
    /// The address is not one of those that may connect.
    #[error("its address is not allowed")]
    Address,
    /// As many peers as allowed are connected.
    #[error("too many connections")]
    TooMany,
    /// As many peers of this address as allowed are connected.
    #[error("too many connections from this address")]
    TooManyOfAddress,
    /// The system reports an error of the connection.
    #[error("{0}")]
    System(String),
}

impl PeerError {
    /// A word for counters by reason.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Version(_) => "version",
            Self::Mechanism(_) => "mechanism",
            Self::Socket(_) => "socket",
            Self::Flags(_) => "flags",
            Self::TooLong { .. } => "too_long",
            Self::Command => "command",
            Self::Message => "message",
            Self::Reported(_) => "reported",
            Self::Handshake => "handshake",
            Self::Closed => "closed",
            Self::Truncated => "truncated",
            Self::Unread => "unread",
            Self::Memory => "memory",
            Self::Address => "address",
            Self::TooMany => "too_many",
            Self::TooManyOfAddress => "too_many_of_address",
            Self::System(_) => "system",
        }
    }
}

impl From<io::Error> for PeerError {
    fn from(error: io::Error) -> Self {
        Self::System(error.to_string())
    }
}

/// Text of a peer for a message: printable, and at most 80 characters of it.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
