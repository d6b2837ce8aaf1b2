//! What the command `jobmeter` can be told, whatever it is asked to do.

use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::ServerUrl;
use crate::{LogConfig, Setting, log_settings};
use std::path::PathBuf;

settings! {
    /// Which server a command asks, and what it shows to it.
    AskSettings, ASK, "Server" {
        /// The server to ask.
        "server" server: Option<ServerUrl> = "" or "the one that `jobmeter up` runs here",
            Kind::Text("URL");
        /// Users besides root and the caller's own who may own a server that is reached through loopback without TLS.
        "server_uids" server_uids: Vec<u32> = "" or "the owner of /run/jobmeter-server only",
            Kind::List("UID");
        /// File with the token that the server knows; only its first line counts.
        "token_file" token_file: Option<PathBuf> = "" or "no token", Kind::Text("FILE");
        /// Certificates (PEM) that the server's certificate must come from.
        "ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// Certificate (PEM) that is shown to the server.
        "cert" cert: Option<PathBuf> = "" or "none", Kind::Text("FILE");
        /// Private key (PEM) of that certificate.
        "key" key: Option<PathBuf> = "" or "none", Kind::Text("FILE");
    }
}

/// What the command runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Which server it asks.
    pub ask: AskSettings,
    /// What it says, and where.
    pub log: LogConfig,
}

/// Every setting of the command, in the order of the manual.
pub fn client_settings() -> Vec<Setting> {
    [ASK, log_settings()].concat()
}

impl ClientConfig {
    /// The checked configuration; what is wrong is told in `errors`, all of it.
    pub(crate) fn from_values(values: &Values, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let ask = AskSettings::from_values(values, errors);
        let log = LogConfig::from_values(values, errors);
        Some(Self { ask: ask?, log: log? })
    }
}
