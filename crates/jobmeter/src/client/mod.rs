//! Requests to the server, safe output of untrusted text, and a progress line.
//!
//! - `client`: requests. `unreachable`, `name_suggestions`: explanations of failures, and suggestions of names.
//! - `plain`: untrusted text made safe for terminals. `progress`: a line during long work.
//! - `streamed`: streamed answers that may end early.

pub(crate) mod http_client;
pub(crate) mod name_suggestions;
pub(crate) mod plain;
pub(crate) mod progress;
pub(crate) mod streamed;
pub(crate) mod unreachable;
