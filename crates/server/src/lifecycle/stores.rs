//! Opens the store of samples: files in the data folder, or a PostgreSQL database.

use crate::common::clock;
use crate::lifecycle::retention;
use crate::schedulers::database_addresses::{SettingError, store_address};
use config::paths::SAMPLES_DIR;
use config::{ServerConfig, StoreKind};
use postgres::{Connecting, Connector, DatabaseError, PostgresStore};
use schedulers::DatabaseAddress;
use std::path::Path;
use std::sync::Arc;
use storage::Storage;
use store::{OpenError, Recovery, Store};

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data folder's store.
    #[error(transparent)]
    Embedded(#[from] OpenError),
    /// The settings of the database are invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
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
pub(crate) struct Database(pub(crate) DatabaseAddress);

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
            let address = store_address(&config.store)?;
            let shown = address.to_string();
            let settings = retention::postgres_settings(config, data);
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
