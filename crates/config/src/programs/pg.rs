//! Settings of PostgreSQL's protocol.

use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, settings};
use crate::settings::text::{Text, values};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A place where clients of PostgreSQL's protocol connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgAddress {
    /// An address and port.
    Tcp(SocketAddr),
    /// A folder for the socket `.s.PGSQL.PORT`.
    Folder(PathBuf),
}

values!(PgAddress);

impl Text for PgAddress {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Folder(PathBuf::from(text)));
        }
        let want = "an address and port such as 127.0.0.1:5432, or the absolute path of a folder";
        text.parse().map(Self::Tcp).map_err(|_| want.to_owned())
    }
}

settings! {
    /// Clients of PostgreSQL's protocol.
    PgSettings, PG, "PostgreSQL's protocol" {
        /// Addresses, and the folder of a unix socket, on which clients of PostgreSQL connect, such as psql and Grafana.
        /// Addresses beyond this machine need a token and TLS, as `listen` does.
        /// The socket is `.s.PGSQL.PORT` in the folder, with the port of the first address, or 5432.
        "pg.listen" listen: Vec<PgAddress> = "" or "none", Kind::List("ADDRESS:PORT|DIR");
        /// Most sessions at a time. The server closes further connections at once.
        "pg.connections_max" connections_max: u32 = "256", Kind::Number { min: 1, max: 100_000 };
        /// Most sessions of one user or token, and of one remote address.
        "pg.connections_per_user_max" connections_per_user_max: u32 = "32",
            Kind::Number { min: 1, max: 100_000 };
        /// The server closes a session that sends nothing for this time.
        "pg.idle_max" idle_max: Duration = "1h",
            Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(30 * 86_400) };
    }
}

impl PgSettings {
    /// Adds an error if several folders are given.
    pub(crate) fn check(&self, values: &Values, errors: &mut Vec<ConfigError>) {
        let folders = self.listen.iter().filter(|one| matches!(one, PgAddress::Folder(_)));
        if folders.count() > 1 {
            errors.push(values.error("pg.listen", "one folder at most"));
        }
    }
}
