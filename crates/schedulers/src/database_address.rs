//! The address of a PostgreSQL database, and connections to it.

use crate::{Tls, loopback};
use std::fmt;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};

/// Why the parameters of a database are invalid.
#[derive(Debug, thiserror::Error)]
pub enum ParametersError {
    /// They cannot be parsed.
    #[error("{0}; such as `host=/run/postgresql user=oar_ro dbname=oar`")]
    Malformed(String),
    /// They hold a password, which belongs in a file.
    #[error("remove the password; write it to a file of its own")]
    Password,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing answers.
    #[error("{0}")]
    Unreachable(String),
    /// The database rejects the connection.
    #[error("{0}")]
    Rejected(String),
}

impl From<tokio_postgres::Error> for ConnectError {
    fn from(error: tokio_postgres::Error) -> Self {
        let what = error_text(&error);
        match error.as_db_error() {
            Some(_) => Self::Rejected(what),
            None => Self::Unreachable(what),
        }
    }
}

/// The address of a database, with the password and the authorities that may sign its certificate.
#[derive(Clone, Debug)]
pub struct DatabaseAddress {
    config: Config,
    /// The authorities, if the connection is encrypted.
    tls: Option<Tls>,
}

impl DatabaseAddress {
    /// A database by libpq parameters and a separate password. With `sslmode=require` the connection is encrypted, and the
    /// `authorities` verify the certificate of the database; otherwise it is not encrypted, and they are not read. Opens
    /// no connection.
    ///
    /// # Errors
    /// The parameters are malformed or hold a password, or the authorities cannot be read.
    pub fn new<E: From<ParametersError>>(
        parameters: &str,
        authorities: impl FnOnce() -> Result<Tls, E>,
        password: Option<&str>,
        connect_time_max: Duration,
    ) -> Result<Self, E> {
        let mut config = parsed(parameters)?;
        let tls = match config.get_ssl_mode() {
            SslMode::Require => Some(authorities()?),
            _ => None,
        };
        if let Some(password) = password {
            config.password(password);
        }
        if tls.is_none() {
            config.ssl_mode(SslMode::Disable);
        }
        config.connect_timeout(connect_time_max);
        if config.get_application_name().is_none() {
            config.application_name("jobmeter");
        }
        Ok(Self { config, tls })
    }

    /// Connects. A task of its own moves the bytes; it ends with the client.
    ///
    /// # Errors
    /// The database does not answer, or rejects the connection.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        if let Some(tls) = &self.tls {
            return started(self.config.connect(tls.for_postgres()).await);
        }
        let ports = self.config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let mut last = None;
        for (at, host) in self.hosts().iter().enumerate() {
            match loopback::connect(host, port(at)).await {
                Ok(stream) => return started(self.config.connect_raw(stream, NoTls).await),
                Err(error) => last = Some(error.to_string()),
            }
        }
        match last {
            Some(what) => Err(ConnectError::Unreachable(what)),
            None => started(self.config.connect(NoTls).await),
        }
    }

    /// The hosts that are reached by TCP.
    fn hosts(&self) -> Vec<String> {
        let addresses = self.config.get_hostaddrs();
        if !addresses.is_empty() {
            return addresses.iter().map(ToString::to_string).collect();
        }
        let name = |host: &Host| match host {
            Host::Tcp(name) => Some(name.clone()),
            Host::Unix(_) => None,
        };
        self.config.get_hosts().iter().filter_map(name).collect()
    }
}

/// Parses and checks parameters.
fn parsed(parameters: &str) -> Result<Config, ParametersError> {
    let config: Config = parameters
        .parse()
        .map_err(|error: tokio_postgres::Error| ParametersError::Malformed(error_text(&error)))?;
    if config.get_password().is_some() {
        return Err(ParametersError::Password);
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(ParametersError::Malformed("`host` is missing".to_owned()));
    }
    Ok(config)
}

/// The name and address of the database, for messages.
impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let mut hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
        if hosts.is_empty() {
            hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
        }
        let name = config.get_dbname().or(config.get_user()).unwrap_or("its user's");
        write!(f, "{name} at {}", hosts.join(", "))
    }
}

/// Starts the task of a connection. The next call reports any error of the connection.
fn started<S, T>(
    connected: Result<(Client, tokio_postgres::Connection<S, T>), tokio_postgres::Error>,
) -> Result<Client, ConnectError>
where
    tokio_postgres::Connection<S, T>:
        Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    let (client, io) = connected?;
    tokio::spawn(async move {
        if let Err(error) = io.await {
            log::debug!("the database: {}", error_text(&error));
        }
    });
    Ok(client)
}

/// An error's message with its cause: the error type alone displays only "db error".
pub(crate) fn error_text(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
