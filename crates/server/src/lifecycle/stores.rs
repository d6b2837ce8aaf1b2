//! Opens the store of samples: files in the data folder, or a PostgreSQL database.

use crate::common::clock;
use crate::lifecycle::retention;
use crate::schedulers::configured_schedulers::{PlanError, authorities};
use config::paths::SAMPLES_DIR;
use config::{ServerConfig, StoreKind, StoreSettings, Token, TokenError};
use postgres::{Connecting, Connector, DatabaseError, PostgresStore};
use schedulers::{DatabaseAddress, ParametersError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::Storage;
use store::{OpenError, Recovery, Store};

/// Longest time of opening a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data folder's store.
    #[error(transparent)]
    Embedded(#[from] OpenError),
    /// The file with the password is unreadable or not acceptable.
    #[error("`postgres.password_file`: {0}")]
    Secret(#[from] TokenError),
    /// The parameters of the database are invalid.
    #[error("`postgres.database`: {0}")]
    Parameters(#[from] ParametersError),
    /// The certificates of the authorities cannot be used.
    #[error("`postgres.ca`: {0}")]
    Authorities(#[from] PlanError),
    /// The database cannot be used.
    #[error("`postgres.database`: {address}: {error}")]
    Database {
        /// The database and its host.
        address: String,
        /// Its error.
        error: DatabaseError,
    },
}

/// Connections to the configured database.
struct Database(DatabaseAddress);

impl Connector for Database {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { self.0.connect().await.map_err(|error| error.to_string()) })
    }
}

/// Opens the configured store. Only the embedded store recovers something.
pub(crate) fn open(
    data: &Path,
    config: &ServerConfig,
) -> Result<(Arc<dyn Storage>, Option<Recovery>), StoreError> {
    match config.store.kind {
        StoreKind::Embedded => {
            let settings = retention::settings(config, data);
            let keep = settings.keep_samples;
            let (store, recovery) =
                Store::open(&data.join(SAMPLES_DIR), settings, Arc::new(clock::now))?;
            log_recovery(&recovery);
            retention::log_limits(&store, &keep);
            Ok((Arc::new(store), Some(recovery)))
        }
        StoreKind::Postgres => {
            if data.join(SAMPLES_DIR).is_dir() {
                log::warn!(
                    "the samples in {} are not read: `store` is `postgres`",
                    data.join(SAMPLES_DIR).display()
                );
            }
            let address = database(&config.store)?;
            let shown = address.to_string();
            let settings = retention::postgres_settings(config);
            let store =
                PostgresStore::open(Arc::new(Database(address)), settings, Arc::new(clock::now));
            let failed = |error| StoreError::Database { address: shown, error };
            Ok((Arc::new(store.map_err(failed)?), None))
        }
    }
}

fn log_recovery(recovery: &Recovery) {
    let Recovery { batches, samples, log_bytes, took_us, cut, damaged, removed, .. } = recovery;
    log::info!(
        "read {batches} batches ({samples} samples) of {log_bytes} bytes of log in {took_us} µs"
    );
    for cut in cut {
        log::warn!(
            "{}: {} bytes of an incomplete record were removed; they contained nothing \
             acknowledged",
            cut.path.display(),
            cut.bytes
        );
    }
    for damage in damaged {
        log::error!(
            "{}: {} bytes from {} on are damaged; the server keeps the data around them and \
             reports a gap for the rest",
            damage.path.display(),
            damage.bytes,
            damage.at
        );
    }
    if let Some(archive) = &recovery.archive_unavailable {
        log::error!(
            "{}: the archive is missing; mount its file system. Until then queries of its time \
             range fail, and the server moves nothing to it",
            archive.display()
        );
    }
    for path in &recovery.archive_strays {
        log::warn!(
            "{}: this file in the archive does not belong to this data folder; remove it to free \
             its space",
            path.display()
        );
    }
    if recovery.jobs_dropped > 0 {
        log::warn!(
            "the log has more job events than the server reads at startup; the {} oldest events \
             are skipped",
            recovery.jobs_dropped
        );
    }
    for path in removed {
        log::info!("{}: removed, unfinished work of an earlier run", path.display());
    }
}

/// The address of the configured database.
pub(crate) fn database(settings: &StoreSettings) -> Result<DatabaseAddress, StoreError> {
    let parameters = settings.database.as_deref().unwrap_or_default();
    let secret = settings.password_file.as_deref().map(Token::read).transpose()?;
    let secret = secret.as_ref().map(Token::secret);
    // Only a database that requires TLS needs the authorities, which may be absent on this machine.
    match DatabaseAddress::new(parameters, None, secret, CONNECT_TIME_MAX) {
        Err(ParametersError::NoAuthorities) => {
            let tls = Some(authorities(settings.ca.as_deref())?);
            Ok(DatabaseAddress::new(parameters, tls, secret, CONNECT_TIME_MAX)?)
        }
        address => Ok(address?),
    }
}
