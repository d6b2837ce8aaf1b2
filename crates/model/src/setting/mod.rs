//! Settings: their types and notation, the settings that a server requests from a node, and the status that the node
//! reports.

mod agent_status;
mod kind;
mod node_settings;

pub use agent_status::{
    AgentStatus, Rejection, RejectionCode, SourceState, SourceStatus, UnreadReason, UnreadSource,
};
pub use kind::{
    Kind, OptionSpec, WORD_END, bytes_format, duration_format, parse_bytes, parse_duration,
    show_bytes, show_duration, words,
};
pub use node_settings::{
    BURSTS_MAX, FLUSHES_MAX, FlushRequest, NodeSettings, Override, PROMOTIONS_MAX,
    SETTINGS_BYTES_MAX, SettingValue,
};
