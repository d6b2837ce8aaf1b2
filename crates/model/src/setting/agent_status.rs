//! The status that an agent reports with each request.

use crate::Timestamp;

/// Declares an enum whose variants have a word, in the order of the wire.
macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$each:meta])* $name:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $type { $($(#[$each])* $name,)* }

        impl $type {
            /// All of them, in the order of their numbers on the wire.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its word in answers.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

words! {
    /// The kind of a rejection.
    RejectionCode {
        /// The settings cannot be decoded.
        Malformed "malformed",
        /// The node has no such source or setting.
        Unknown "unknown",
        /// The value is invalid.
        Invalid "invalid",
        /// The node's own file does not allow it.
        NotAllowed "not_allowed",
        /// The source does not support it.
        Unsupported "unsupported",
        /// A limit of the node is reached.
        Limit "limit",
        /// The node applies it, but ends it earlier than requested.
        Shortened "shortened",
    }
}

words! {
    /// Why a source yields no samples, or fewer than it should.
    SourceState {
        /// The agent may not read it.
        Denied "denied",
        /// Its content is invalid.
        Broken "broken",
        /// A reading exceeds its time limit.
        Parked "parked",
        /// It exceeded its time limit too often.
        Off "off",
        /// It exceeds its budget of processor time, so the agent reads it less often.
        Throttled "throttled",
        /// The machine has nothing that the source's options choose.
        Absent "absent",
    }
}

words! {
    /// Which settings exclude a source.
    UnreadReason {
        /// The node's own file switches it off.
        File "file",
        /// The server switches it off.
        Server "server",
        /// The node's own file marks metrics as optional, and no promotion covers some of them.
        Optional "optional",
    }
}

/// A setting of the server that a node rejects or shortens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The setting, such as `sources.load.period`; of a promotion or flush `promote.NAME` or `flush.NAME`; empty for
    /// all settings.
    pub setting: String,
    /// The kind.
    pub code: RejectionCode,
    /// The reason, for people.
    pub reason: String,
    /// When the node ends it, if it is shortened.
    pub until: Option<Timestamp>,
}

/// `sources.load.period: shorter than remote.period_min`.
impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { setting, reason, .. } = self;
        if setting.is_empty() { f.write_str(reason) } else { write!(f, "{setting}: {reason}") }
    }
}

/// A source, or a part of one, that yields no samples or fewer than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// The source, or `source/part`.
    pub source: String,
    /// Its state.
    pub state: SourceState,
    /// The reason, and what to do.
    pub reason: String,
}

/// A source that settings exclude, entirely or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadSource {
    /// The source.
    pub source: String,
    /// The settings.
    pub reason: UnreadReason,
    /// Its optional metrics: expressions that match whole names.
    pub optional: Vec<String>,
}

/// The status of a sender. It describes the sender at the time of the request, not its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Its wall clock.
    pub now: Timestamp,
    /// Generation of the server's settings that it applies; 0 for none.
    pub generation: u64,
    /// Settings of that generation that it rejects or shortens.
    pub rejected: Vec<Rejection>,
    /// Sources that yield no samples, or fewer than they should.
    pub sources: Vec<SourceStatus>,
    /// Sources that settings exclude.
    pub unread: Vec<UnreadSource>,
    /// Longest time until its next batch, in µs; 0 if unknown.
    pub wait_us: u64,
    /// Whether it shuts down after the batches that it still has.
    pub stops: bool,
    /// Entries of the lists that did not fit into the request.
    pub cut: u32,
}
