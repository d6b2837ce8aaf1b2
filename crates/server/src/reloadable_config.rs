//! The part of the configuration that SIGHUP reloads without closing a connection.

use crate::auth::access_settings::{Access, UserFiles};
use crate::auth::addresses::node_callers::NodeCallers;
use crate::auth::name_service::GETENT;
use crate::auth::peer::host_of_ip;
use crate::auth::staff_groups;
use crate::auth::tls::{self, TlsError, TlsErrors, TlsFiles};
use crate::auth::tokens::json_web_tokens::JwtVerifier;
use crate::auth::tokens::{SecretError, Tokens};
use config::{AccessSettings, PgAddress, ServerConfig};
use control::{AgentConfig, AgentConfigError, Rule, RuleError, Rules, ValueRule, read_rules};
use kernel::Root;
use sql::JobRequest;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file with statements about jobs, in bytes: each statement of SQL gets a copy.
const JOB_REQUESTS_BYTES_MAX: u64 = 64 << 10;

/// A reason why the server cannot run a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The token file is invalid.
    #[error("tokens: {0}")]
    Tokens(SecretError),
    /// The secret of JSON Web Tokens is invalid.
    #[error("access.jwt_secret_file: {0}")]
    JwtSecret(SecretError),
    /// A role of JSON Web Tokens has an invalid scope.
    #[error("access.jwt_roles: {0}")]
    JwtRole(String),
    /// A member of the staff cannot be resolved.
    #[error("access.staff: {0}")]
    Access(String),
    /// The file of nodes' addresses is invalid.
    #[error("the addresses of nodes, {0}")]
    NodeAddresses(String),
    /// The certificates are invalid.
    #[error("TLS: {0}")]
    Tls(TlsError),
    /// The agent configuration is invalid.
    #[error("the configuration for agents, {0}")]
    Agents(#[from] AgentConfigError),
    /// The rules file is invalid.
    #[error("the rules of promotions, {}: {error}", path.display())]
    Rules {
        /// Path of the file.
        path: PathBuf,
        /// The problem.
        error: RuleError,
    },
    /// The file with statements about jobs cannot be read.
    #[error("jobmetrics_requests, {}: {error}", path.display())]
    JobRequests {
        /// Path of the file.
        path: PathBuf,
        /// The problem.
        error: io::Error,
    },
    /// Other machines can reach the listener, and no token is configured.
    #[error(
        "listening on {0}, beyond this machine, needs `token_file` with a token in it, or `client_ca`"
    )]
    NoToken(SocketAddr),
    /// Other machines can reach the listener without TLS.
    #[error(
        "listening on {0}, beyond this machine, needs `cert` and `key`, or `plain` to do without TLS"
    )]
    NoTls(SocketAddr),
    /// A reload tried to turn TLS on or off.
    #[error("a server turns TLS on or off only when it starts; restart it")]
    TlsChanged,
    /// The thread that reads the files panicked.
    #[error("reading the configuration's files panicked")]
    Panicked,
}

/// Whether a change of this setting takes effect on SIGHUP. Changes of the other settings need a restart.
pub fn is_reloadable(key: &str) -> bool {
    let sections = ["access.", "log.", "outputs."];
    let single = [
        "token_file",
        "cert",
        "key",
        "client_ca",
        "names",
        "site",
        "jobmetrics_requests",
        "promotions.rules",
        "push.user_metrics",
        "push.node_addresses",
        "push.proxies",
    ];
    let is_in_section = sections.iter().any(|section| key.starts_with(section));
    single.contains(&key) || (is_in_section && key != "access.name_service")
}

/// All reasons why the server cannot run a configuration.
#[derive(Debug, thiserror::Error)]
pub struct LiveErrors(pub Vec<ReloadError>);

/// One per line.
impl fmt::Display for LiveErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl From<ReloadError> for LiveErrors {
    fn from(error: ReloadError) -> Self {
        Self(vec![error])
    }
}

/// The configuration that applies to requests from now on.
#[derive(Clone, Debug)]
pub(crate) struct ReloadableConfig {
    /// Names of this server, in lower case, without ports.
    pub(crate) names: Vec<String>,
    /// The site in the paths of Kwollect\'s public interface.
    pub(crate) site: Option<String>,
    pub(crate) tokens: Tokens,
    /// Checks JSON Web Tokens; `None`: the server accepts none.
    pub(crate) jwt: Option<JwtVerifier>,
    pub(crate) access: Access,
    /// The settings from which `access` was resolved.
    pub(crate) access_settings: AccessSettings,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    /// How addresses identify nodes; `None`: they do not.
    pub(crate) node_callers: Option<Arc<NodeCallers>>,
    pub(crate) agents: Arc<AgentConfig>,
    /// Rules that promote metrics automatically.
    pub(crate) rules: Arc<[Rule]>,
    /// Value rules.
    pub(crate) when: Arc<[ValueRule]>,
    /// The site's statements about a job.
    pub(crate) job_requests: JobRequests,
}

/// The statements of a file: the valid ones, and the errors of the other lines, each with the file and the line.
#[derive(Clone, Debug)]
pub(crate) struct JobRequests {
    pub(crate) valid: Arc<[JobRequest]>,
    pub(crate) errors: Vec<String>,
}

impl ReloadableConfig {
    /// Reads every file that the configuration names.
    ///
    /// # Errors
    /// Files are invalid, or the listener would be unprotected.
    pub(crate) fn load(
        config: &ServerConfig,
        agents: Option<&Path>,
        listen: &[SocketAddr],
        root: &Root,
    ) -> Result<Self, LiveErrors> {
        let (live, errors) = Self::read(config, agents, listen, root);
        match live {
            Some(live) if errors.is_empty() => {
                for error in &live.job_requests.errors {
                    log::warn!("jobmetrics_requests, {error}; the other lines work");
                }
                Ok(live)
            }
            _ => Err(LiveErrors(errors.into_iter().map(|(_, error)| error).collect())),
        }
    }

    /// Like `load`, but returns every error, each with its setting.
    pub(crate) fn read(
        config: &ServerConfig,
        agents: Option<&Path>,
        listen: &[SocketAddr],
        root: &Root,
    ) -> (Option<Self>, Vec<(&'static str, ReloadError)>) {
        let mut errors = Vec::new();
        let tokens = noted(&mut errors, "token_file", tokens(config, root));
        let jwt = jwt(config, root, &mut errors);
        let access = staff_groups::resolve(&config.access, root, GETENT, true)
            .map_err(|unknown| unknown.into_iter().map(ReloadError::Access).collect());
        let access = noted(&mut errors, "access.staff", access);
        let tls = tls_of(config).map_err(|wrong| {
            let each = |(key, error)| (key, ReloadError::Tls(error));
            errors.extend(wrong.into_iter().map(each));
        });
        let tls = tls.ok();
        if let (Some(tokens), Some(tls)) = (&tokens, &tls) {
            for address in listen {
                let reach = check_reach(config, *address, tokens, tls.is_some());
                noted(&mut errors, "listen", reach.map_err(one));
            }
            let addresses = config.pg.listen.iter();
            for address in addresses.filter_map(|one| match one {
                PgAddress::Tcp(address) => Some(*address),
                PgAddress::Folder(_) => None,
            }) {
                let reach = check_reach(config, address, tokens, tls.is_some());
                noted(&mut errors, "pg.listen", reach.map_err(one));
            }
        }
        let node_callers = NodeCallers::read(&config.push)
            .map_err(|errors| errors.into_iter().map(ReloadError::NodeAddresses).collect());
        let node_callers = noted(&mut errors, "push.node_addresses", node_callers);
        let agents = agents.map(AgentConfig::read).transpose();
        let agents = agents.map_err(|errors| errors.into_iter().map(ReloadError::from).collect());
        let agents = noted(&mut errors, "agent_config", agents);
        let rules = rules_of(config).map_err(|(_, errors)| errors);
        let rules = noted(&mut errors, "promotions.rules", rules);
        let requests = job_requests_of(config).map_err(one);
        let requests = noted(&mut errors, "jobmetrics_requests", requests);
        let files = agents.zip(rules).zip(requests);
        let all = tokens.zip(jwt).zip(access).zip(tls.zip(node_callers)).zip(files);
        let live = all.map(|((((tokens, jwt), access), (tls, node_callers)), files)| Self {
            names: names(&config.listen.names, listen),
            site: config.listen.site.clone(),
            tokens,
            jwt,
            access,
            access_settings: config.access.clone(),
            tls,
            node_callers,
            agents: Arc::new(files.0.0.unwrap_or_default()),
            rules: files.0.1.promoting.into(),
            when: files.0.1.when.into(),
            job_requests: files.1,
        });
        (live, errors)
    }
}

/// Records the errors of a setting.
fn noted<T>(
    errors: &mut Vec<(&'static str, ReloadError)>,
    key: &'static str,
    read: Result<T, Vec<ReloadError>>,
) -> Option<T> {
    read.map_err(|new| errors.extend(new.into_iter().map(|error| (key, error)))).ok()
}

fn one(error: ReloadError) -> Vec<ReloadError> {
    vec![error]
}

fn tokens(config: &ServerConfig, root: &Root) -> Result<Tokens, Vec<ReloadError>> {
    let Some(path) = &config.listen.token_file else { return Ok(Tokens::default()) };
    let read = Tokens::read(path, &UserFiles::read(root).passwd);
    read.map_err(|errors| errors.into_iter().map(ReloadError::Tokens).collect())
}

/// Returns the verifier of JSON Web Tokens, if the configuration has one.
fn jwt(
    config: &ServerConfig,
    root: &Root,
    errors: &mut Vec<(&'static str, ReloadError)>,
) -> Option<Option<JwtVerifier>> {
    let access = &config.access;
    let Some(path) = &access.jwt_secret_file else { return Some(None) };
    let secret = JwtVerifier::secret(path).map_err(|error| one(ReloadError::JwtSecret(error)));
    let secret = noted(errors, "access.jwt_secret_file", secret);
    let roles = JwtVerifier::roles(&access.jwt_roles, &UserFiles::read(root).passwd)
        .map_err(|errors| errors.into_iter().map(ReloadError::JwtRole).collect());
    let roles = noted(errors, "access.jwt_roles", roles);
    Some(Some(JwtVerifier::new(&secret?, roles?)))
}

fn tls_of(config: &ServerConfig) -> Result<Option<Arc<rustls::ServerConfig>>, TlsErrors> {
    let listener = &config.listen;
    let Some((cert, key)) = listener.cert.clone().zip(listener.key.clone()) else {
        return Ok(None);
    };
    let files = TlsFiles { cert, key, client_ca: listener.client_ca.clone() };
    tls::load(&files).map(Some)
}

/// Rejects a listener that other machines can reach without a token, or without TLS.
fn check_reach(
    config: &ServerConfig,
    listen: SocketAddr,
    tokens: &Tokens,
    has_tls: bool,
) -> Result<(), ReloadError> {
    let listener = &config.listen;
    if listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if tokens.len() == 0 && listener.client_ca.is_none() {
        return Err(ReloadError::NoToken(listen));
    }
    if !has_tls && !listener.plain {
        return Err(ReloadError::NoTls(listen));
    }
    Ok(())
}

/// Reads the rules.
///
/// # Errors
/// All errors, beside the valid rules.
pub(crate) fn rules_of(config: &ServerConfig) -> Result<Rules, (Rules, Vec<ReloadError>)> {
    let promotions = &config.promotions;
    let Some(path) = &promotions.rules else { return Ok(Rules::default()) };
    let (rules, errors) = read_rules(path, promotions.time_max);
    if errors.is_empty() {
        return Ok(rules);
    }
    let wrong = |error| ReloadError::Rules { path: path.clone(), error };
    Err((rules, errors.into_iter().map(wrong).collect()))
}

/// Reads the statements about jobs.
///
/// # Errors
/// The file cannot be read. A wrong line is no error: the others work.
pub(crate) fn job_requests_of(config: &ServerConfig) -> Result<JobRequests, ReloadError> {
    let Some(path) = &config.query.jobmetrics_requests else {
        let (valid, _) = sql::read_job_requests(sql::DEFAULT_JOB_REQUESTS);
        return Ok(JobRequests { valid: valid.into(), errors: Vec::new() });
    };
    let text = config::read_small(path, JOB_REQUESTS_BYTES_MAX).and_then(config::as_text);
    let text = text.map_err(|error| ReloadError::JobRequests { path: path.clone(), error })?;
    let (valid, errors) = sql::read_job_requests(&text);
    let shown = |error: &sql::JobRequestError| format!("{}, {error}", path.display());
    Ok(JobRequests { valid: valid.into(), errors: errors.iter().map(shown).collect() })
}

/// Returns loopback names, the addresses, and the configured names. Without configured names, adds the host
/// name.
fn names(given: &[String], listen: &[SocketAddr]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
    let own = listen.iter().filter(|address| !address.ip().is_unspecified());
    names.extend(own.map(|address| host_of_ip(address.ip())));
    if given.is_empty() {
        let uname = rustix::system::uname();
        names.push(uname.nodename().to_string_lossy().to_ascii_lowercase());
    }
    let plain = |name: &String| name.trim_end_matches('.').to_ascii_lowercase();
    names.extend(given.iter().map(plain));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_server() {
        let listen = ["192.0.2.7:8790".parse().unwrap()];
        let names = names(&["Metrics.Site.example.".to_owned()], &listen);
        let want = ["localhost", "127.0.0.1", "[::1]", "192.0.2.7", "metrics.site.example"];
        assert_eq!(names, want);
        let all = super::names(&[], &["[::]:8790".parse().unwrap()]);
        assert_eq!(all.len(), 4, "the machine's own name, and no `[::]`: {all:?}");
    }
}
