//! The part of the configuration that is read anew on SIGHUP, without losing a connection.

use crate::access::{Access, UserFiles};
use crate::name_service::GETENT;
use crate::ondemand::rules::{self, Rules};
use crate::ondemand::text::Base;
use crate::ondemand::watch::When;
use crate::staff_groups;
use crate::tls::{self, TlsError, TlsFiles};
use crate::tokens::{SecretError, Tokens};
use config::{AccessSettings, ServerConfig};
use jobs::Rule;
use kernel::Root;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AGENT_CONFIG_BYTES_MAX: usize = 64 << 10;

/// Why a configuration cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The token file.
    #[error("tokens: {0}")]
    Tokens(SecretError),
    /// The staff.
    #[error("access.staff: {0}")]
    Access(String),
    /// The certificates.
    #[error("TLS: {0}")]
    Tls(TlsError),
    /// The configuration for agents.
    #[error("the configuration for agents, {}: {why}", path.display())]
    Agents {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The rules of promotions.
    #[error("the rules of promotions, {}: {why}", path.display())]
    Rules {
        /// Their file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A listener that others can reach, without a token.
    #[error(
        "listening on {0}, beyond this machine, needs `token_file` with a token in it, or `client_ca`"
    )]
    NoToken(SocketAddr),
    /// A listener that others can reach, without TLS.
    #[error(
        "listening on {0}, beyond this machine, needs `cert` and `key`, or `plain` to do without TLS"
    )]
    NoTls(SocketAddr),
    /// TLS came or went.
    #[error("a server turns TLS on or off only when it starts; restart it")]
    TlsChanged,
    /// The thread that reads the files died.
    #[error("reading the configuration's files panicked")]
    Panicked,
}

/// What holds for the requests that come from now on.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// Names by which this server may be called, in lower case, without ports.
    pub(crate) names: Vec<String>,
    pub(crate) tokens: Tokens,
    pub(crate) access: Access,
    /// The settings that `access` was resolved from.
    pub(crate) access_settings: AccessSettings,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) agents: Arc<AgentConfig>,
    /// What is promoted without that anybody asks.
    pub(crate) rules: Arc<[Rule]>,
    /// What values bring about.
    pub(crate) when: Arc<[When]>,
}

/// What the server wants agents to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentConfig {
    /// Names the text; 0 when there is none.
    pub(crate) generation: u64,
    pub(crate) text: Vec<u8>,
    /// The text in pieces, where more is put into it.
    pub(crate) pieces: Base,
}

impl Live {
    /// Reads every file that the configuration names.
    ///
    /// # Errors
    /// One of them is wrong, or the listener would be open to others.
    pub(crate) fn load(
        config: &ServerConfig,
        agents: Option<&Path>,
        listen: SocketAddr,
        root: &Root,
    ) -> Result<Self, LiveError> {
        let listener = &config.listen;
        let tokens = match &listener.token_file {
            Some(path) => {
                Tokens::read(path, &UserFiles::read(root).passwd).map_err(LiveError::Tokens)?
            }
            None => Tokens::default(),
        };
        let access = staff_groups::resolve(&config.access, root, GETENT, true)?;
        let tls = match (&listener.cert, &listener.key) {
            (Some(cert), Some(key)) => {
                let (cert, key) = (cert.clone(), key.clone());
                let files = TlsFiles { cert, key, client_ca: listener.client_ca.clone() };
                Some(tls::load(&files).map_err(LiveError::Tls)?)
            }
            _ => None,
        };
        if !listen.ip().to_canonical().is_loopback() {
            if tokens.len() == 0 && listener.client_ca.is_none() {
                return Err(LiveError::NoToken(listen));
            }
            if tls.is_none() && !listener.plain {
                return Err(LiveError::NoTls(listen));
            }
        }
        let names = names(&listener.names, listen);
        let agents = Arc::new(agents.map(AgentConfig::read).transpose()?.unwrap_or_default());
        let promotions = &config.promotions;
        let rules = promotions.rules.as_ref().map_or(Ok(Rules::default()), |path| {
            rules::read(path, promotions.time_max)
                .map_err(|why| LiveError::Rules { path: path.clone(), why })
        })?;
        let Rules { promoting, when } = rules;
        Ok(Self {
            names,
            tokens,
            access,
            access_settings: config.access.clone(),
            tls,
            agents,
            rules: promoting.into(),
            when: when.into(),
        })
    }
}

/// Loopback names, the address, and the names that are given, or else the machine's own.
fn names(given: &[String], listen: SocketAddr) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
    if !listen.ip().is_unspecified() {
        names.push(host_of_ip(listen.ip()));
    }
    if given.is_empty() {
        let uname = rustix::system::uname();
        names.push(uname.nodename().to_string_lossy().to_ascii_lowercase());
    }
    let plain = |name: &String| name.trim_end_matches('.').to_ascii_lowercase();
    names.extend(given.iter().map(plain));
    names
}

/// An address as it stands in a Host header.
pub(crate) fn host_of_ip(ip: std::net::IpAddr) -> String {
    match ip.to_canonical() {
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

impl AgentConfig {
    fn read(path: &Path) -> Result<Self, LiveError> {
        let wrong = |why| LiveError::Agents { path: path.to_owned(), why };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        if text.len() > AGENT_CONFIG_BYTES_MAX {
            return Err(wrong(format!("longer than {AGENT_CONFIG_BYTES_MAX} bytes")));
        }
        let pieces = Base::parse(&text).map_err(wrong)?;
        Ok(Self { generation: generation(text.as_bytes()), text: text.into(), pieces })
    }
}

/// A number that names a text: the first 63 bits of its SHA-256, and never 0. 63, so that it is the same
/// number wherever numbers have a sign.
pub(crate) fn generation(text: &[u8]) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, text);
    let first = digest.as_ref().first_chunk::<8>().copied().unwrap_or_default();
    (u64::from_be_bytes(first) >> 1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_server() {
        let listen = "192.0.2.7:8790".parse().unwrap();
        let names = names(&["Metrics.Site.example.".to_owned()], listen);
        let want = ["localhost", "127.0.0.1", "[::1]", "192.0.2.7", "metrics.site.example"];
        assert_eq!(names, want);
        let all = super::names(&[], "[::]:8790".parse().unwrap());
        assert_eq!(all.len(), 4, "the machine's own name, and no `[::]`: {all:?}");
    }

    #[test]
    fn a_generation_names_its_text() {
        assert_ne!(generation(b"a"), generation(b"b"));
        assert_eq!(generation(b"a"), generation(b"a"));
        assert_ne!(generation(b""), 0);
    }
}
