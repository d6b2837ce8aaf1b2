//! Addresses of PostgreSQL databases by three settings: parameters, a file with the password, and one with authorities.

use config::{StoreSettings, Token, TokenError};
use schedulers::{DatabaseAddress, ParametersError, Tls, TlsError};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time of opening a connection to the store.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// What is wrong with a setting.
#[derive(Debug, thiserror::Error)]
#[error("`{key}`: {what}")]
pub struct SettingError {
    pub(crate) key: String,
    pub(crate) what: String,
}

impl SettingError {
    /// The error of a setting of a group.
    pub(crate) fn new(group: &str, name: &str, what: impl Display) -> Self {
        Self { key: format!("{group}.{name}"), what: what.to_string() }
    }
}

/// Why certificates of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
enum AuthoritiesError {
    /// No file with them is known.
    #[error("{0}")]
    None(String),
    /// The file is unreadable.
    #[error("cannot read {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    /// The file is invalid.
    #[error("{}: {error}", path.display())]
    Invalid { path: PathBuf, error: TlsError },
}

/// The settings of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseSettings<'a> {
    /// What their names begin with.
    pub(crate) group: &'static str,
    pub(crate) parameters: &'a str,
    pub(crate) password_file: Option<&'a Path>,
    pub(crate) ca: Option<&'a Path>,
    pub(crate) connect_time_max: Duration,
}

/// The address of a database. Only one that requires TLS needs the authorities, which may be absent on this machine.
pub(crate) fn database_address(
    settings: DatabaseSettings<'_>,
) -> Result<DatabaseAddress, SettingError> {
    let DatabaseSettings { group, parameters, password_file, ca, connect_time_max } = settings;
    enum AddressError {
        Parameters(ParametersError),
        Setting(SettingError),
    }
    impl From<ParametersError> for AddressError {
        fn from(error: ParametersError) -> Self {
            Self::Parameters(error)
        }
    }
    let secret = secret(group, password_file)?;
    let tls = || authorities(group, ca).map_err(AddressError::Setting);
    let secret = secret.as_ref().map(Token::secret);
    DatabaseAddress::new(parameters, tls, secret, connect_time_max).map_err(|error| match error {
        AddressError::Parameters(error) => SettingError::new(group, "database", error),
        AddressError::Setting(error) => error,
    })
}

/// The address of the store's database.
pub(crate) fn store_address(settings: &StoreSettings) -> Result<DatabaseAddress, SettingError> {
    database_address(DatabaseSettings {
        group: "postgres",
        parameters: settings.database.as_deref().unwrap_or_default(),
        password_file: settings.password_file.as_deref(),
        ca: settings.ca.as_deref(),
        connect_time_max: CONNECT_TIME_MAX,
    })
}

/// Reads the certificates of the setting `ca` of a group.
pub(crate) fn authorities(group: &str, ca: Option<&Path>) -> Result<Tls, SettingError> {
    let read = || {
        let path = config::paths::authorities(ca).map_err(AuthoritiesError::None)?;
        match config::read_small(&path, config::CERTIFICATES_BYTES_MAX) {
            Ok(pem) => Tls::new(&pem).map_err(|error| AuthoritiesError::Invalid { path, error }),
            Err(error) => Err(AuthoritiesError::File { path, error }),
        }
    };
    read().map_err(|error| SettingError::new(group, "ca", error))
}

/// Reads the secret of the setting `password_file` of a group.
pub(crate) fn secret(group: &str, file: Option<&Path>) -> Result<Option<Token>, SettingError> {
    let read = file.map(Token::read_password).transpose();
    read.map_err(|error: TokenError| SettingError::new(group, "password_file", error))
}
