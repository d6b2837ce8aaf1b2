//! The settings of the command `jobmeter`, common to its subcommands.

use crate::settings::load::{ConfigError, Values, check_cert_and_key};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::ServerUrl;
use crate::{LogConfig, Setting, log_settings};
use std::path::PathBuf;

settings! {
    /// The server that a command queries, and the credentials for it.
    ClientSettings, REQUEST, "Server" {
        /// URL of the server.
        "server" server: Option<ServerUrl> = "" or "the local server of `jobmeter up`",
            Kind::Text("URL");
        /// Users besides root and the caller's own who may own a server that is reached through loopback without TLS.
        "server_uids" server_uids: Vec<u32> = "" or "the owner of /run/jobmeter-server only",
            Kind::List("UID");
        /// File with a token of the server; only its first line counts.
        "token_file" token_file: Option<PathBuf> = "" or "no token", Kind::Text("FILE");
        /// CA certificates (PEM) that verify the server's certificate.
        "ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// Certificate (PEM) that authenticates the user to the server.
        "cert" cert: Option<PathBuf> = "" or "none", Kind::Text("FILE");
        /// Private key (PEM) of that certificate.
        "key" key: Option<PathBuf> = "" or "none", Kind::Text("FILE");
    }
}

/// The configuration of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The server that it queries.
    pub client_settings: ClientSettings,
    /// Its log.
    pub log: LogConfig,
}

/// Every setting of the command, in the order of the manual.
pub fn client_settings() -> Vec<Setting> {
    [REQUEST, log_settings()].concat()
}

impl ClientConfig {
    /// The checked configuration. Adds all errors to `errors`.
    pub(crate) fn from_values(values: &Values, errors: &mut Vec<ConfigError>) -> Option<Self> {
        let client_settings = ClientSettings::from_values(values, errors);
        let log = LogConfig::from_values(values, errors);
        if let Some(ClientSettings { cert, key, .. }) = &client_settings {
            check_cert_and_key(cert.as_deref(), key.as_deref(), values, errors);
        }
        Some(Self { client_settings: client_settings?, log: log? })
    }
}
