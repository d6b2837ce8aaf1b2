//! Where a server keeps samples.

use crate::programs::outputs::OutputConfig;
use crate::programs::server::RetentionSettings;
use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::{Text, values};
use std::path::PathBuf;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Files in the data folder.
    Embedded,
    /// A PostgreSQL database.
    Postgres,
}

values!(StoreKind);

impl Text for StoreKind {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "postgres" => Ok(Self::Postgres),
            _ => Err(STORES.join(", ")),
        }
    }
}

const STORES: &[&str] = &["embedded", "postgres"];

settings! {
    /// The store of samples.
    StoreSettings, STORE, "Store" {
        /// Where the server keeps samples: in files of its data folder, or in a PostgreSQL database.
        "store" kind: StoreKind = "embedded", Kind::Choice(STORES);
        /// The database of `store = "postgres"`: `host=… port=… user=… dbname=…` in libpq's syntax; `host` is a name, an
        /// address or the folder of a socket. With `sslmode=require` the connection is encrypted, and the certificate of
        /// the database is verified; otherwise it is not encrypted.
        "postgres.database" database: Option<String> = "" or "none", Kind::Text("PARAMETERS");
        /// File with the password of the database in its first line.
        "postgres.password_file" password_file: Option<PathBuf> = "" or "no password",
            Kind::Text("FILE");
        /// File with the certificates of the authorities that may sign the certificate of the database, in PEM.
        "postgres.ca" ca: Option<PathBuf> = "" or "the system's", Kind::Text("FILE");
        /// Tablespace to which the server moves partitions of samples older than `retention.samples_age_max`, instead of
        /// deleting them. There it deletes samples older than `retention.archive_age_max`.
        "postgres.archive_tablespace" archive_tablespace: Option<String> = "" or "none",
            Kind::Text("NAME");
    }
}

impl StoreSettings {
    /// Rejects outputs of a store that has no followers.
    pub(crate) fn check_outputs(
        &self,
        outputs: &[OutputConfig],
        values: &Values,
        errors: &mut Vec<ConfigError>,
    ) {
        let first = outputs.first().filter(|_| self.kind == StoreKind::Postgres);
        if let Some(OutputConfig { name, .. }) = first {
            let what =
                "outputs need the embedded store; programs read a PostgreSQL database themselves";
            errors.push(values.error(&format!("outputs.{name}.kind"), what));
        }
    }

    /// Checks combinations of settings.
    pub(crate) fn check(
        &self,
        retention: &RetentionSettings,
        values: &Values,
        errors: &mut Vec<ConfigError>,
    ) {
        let mut wrong = |key: &str, what: &str| errors.push(values.error(key, what));
        let database = self.database.as_deref();
        if database.is_some_and(|text| text.contains("password")) {
            let what = "write the password to a file and set `postgres.password_file`, instead of \
                        `password=` in `postgres.database`";
            wrong("postgres.database", what);
        }
        if self.kind == StoreKind::Embedded {
            let of_database = [
                ("postgres.database", database.is_some()),
                ("postgres.archive_tablespace", self.archive_tablespace.is_some()),
            ];
            for (key, _) in of_database.into_iter().filter(|(_, is_set)| *is_set) {
                wrong(key, "it needs `store = \"postgres\"`");
            }
            return;
        }
        if database.is_none() {
            wrong("store", "`postgres` needs `postgres.database`");
        }
        if let Some(name) = &self.archive_tablespace {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !(1..=63).contains(&name.len()) || !name.chars().all(is_plain) {
                let what = "the name of a tablespace has letters, digits and `_`, 63 at most";
                wrong("postgres.archive_tablespace", what);
            }
            if retention.samples_age_max.is_none() {
                let what = "set `retention.samples_age_max`: older samples move to the tablespace";
                wrong("postgres.archive_tablespace", what);
            }
        }
        let RetentionSettings { samples_bytes_max, minutes_bytes_max, hours_bytes_max, .. } =
            retention;
        let of_files = [
            ("retention.samples_bytes_max", samples_bytes_max.is_some()),
            ("retention.minutes_bytes_max", minutes_bytes_max.is_some()),
            ("retention.hours_bytes_max", hours_bytes_max.is_some()),
            ("retention.archive", retention.archive.is_some()),
        ];
        for (key, _) in of_files.into_iter().filter(|(_, is_set)| *is_set) {
            let what = match key {
                "retention.archive" => {
                    "only the embedded store has it; with `store = \"postgres\"` set \
                     `postgres.archive_tablespace`"
                }
                _ => {
                    "only the embedded store has it; with `store = \"postgres\"` set a limit of age"
                }
            };
            wrong(key, what);
        }
    }
}
