//! The options of Kwollect's setup programs, with their names and defaults.

use crate::operate::db::checked_name;
use anyhow::{Context as _, bail};
use config::Token;
use database::{Reader, SetupOptions};
use schedulers::{DatabaseAddress, ParametersError};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::Client;

/// Longest time of opening a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of a file of statements.
const REQUESTS_BYTES_MAX: u64 = 64 << 10;
/// The password of the reading role that Kwollect creates.
const READER_PASSWORD: &str = "ro";

/// The database server, and the role that administers it
#[derive(clap::Args, Debug)]
pub(crate) struct Address {
    /// Host name, address, or folder of the socket
    #[arg(long = "db_host", value_name = "HOST", default_value = "/var/run/postgresql/")]
    db_host: String,
    /// Port
    #[arg(long = "db_port", value_name = "PORT", default_value_t = 5432)]
    db_port: u16,
    /// The administrator's role
    #[arg(long = "db_admin", value_name = "ROLE", default_value = "postgres")]
    db_admin: String,
    /// Its password; visible to every user of this machine [default: changeme]
    #[arg(
        long = "db_admin_password",
        value_name = "TEXT",
        conflicts_with = "db_admin_password_file"
    )]
    db_admin_password: Option<String>,
    /// File with its password in the first line
    #[arg(long = "db_admin_password_file", value_name = "FILE")]
    db_admin_password_file: Option<PathBuf>,
    /// The database
    #[arg(long = "kwollect_db_name", value_name = "NAME", default_value = "kwdb")]
    kwollect_db_name: String,
    /// Also as a superuser in a database that is set up, who then executes what the owner's role could have changed
    #[arg(long)]
    as_superuser: bool,
}

impl Address {
    pub(crate) fn host(&self) -> &str {
        &self.db_host
    }

    pub(crate) const fn port(&self) -> u16 {
        self.db_port
    }

    pub(crate) fn database(&self) -> &str {
        &self.kwollect_db_name
    }

    /// Connects as the administrator.
    pub(crate) async fn connect(&self, database: &str) -> anyhow::Result<Client> {
        let password =
            password(self.db_admin_password.as_deref(), self.db_admin_password_file.as_deref())?;
        let password = password.unwrap_or_else(|| "changeme".to_owned());
        let text = format!(
            "host={} port={} user={} dbname={}",
            quoted(&self.db_host),
            self.db_port,
            quoted(&self.db_admin),
            quoted(database)
        );
        // The parameters above do not require TLS.
        let no_tls = || Err(ParametersError::Malformed("TLS".to_owned()));
        let address = DatabaseAddress::new(&text, no_tls, Some(&password), CONNECT_TIME_MAX)?;
        let failed = || format!("connecting as {} to {address}", self.db_admin);
        let client = address.connect().await.with_context(failed)?;
        database::enter(&client, self.as_superuser).await?;
        Ok(client)
    }
}

/// Creates, adopts or upgrades the database of a server with `store = "postgres"`
///
/// The options are those of Kwollect's programs kwollect-setup-db and kwollect-setup-db-oar. A database of Kwollect remains in place: no
/// sample is copied, and `jobmeter db release` gives it back. The command may be repeated at any time.
#[derive(clap::Args, Debug)]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    pub(crate) address: Address,
    /// Print the statements, and execute none
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What the reading role sees: samples of nodes, or also those of jobs
    #[arg(long, value_name = "WHAT", value_parser = ["nodes", "jobs"], default_value = "nodes")]
    ro_sees: String,
    /// Withdraw the trust in plpython3u, by which each owner of a function runs programs as the database server
    #[arg(long)]
    distrust_plpython: bool,
    /// The role that owns everything, and of the server; the reading role is ROLE_ro
    #[arg(long = "kwollect_user", value_name = "ROLE", default_value = "kwuser")]
    kwollect_user: String,
    /// Its password; visible to every user of this machine
    #[arg(
        long = "kwollect_password",
        value_name = "TEXT",
        conflicts_with = "kwollect_password_file"
    )]
    kwollect_password: Option<String>,
    /// File with its password in the first line
    #[arg(long = "kwollect_password_file", value_name = "FILE")]
    kwollect_password_file: Option<PathBuf>,
    /// The password of the reading role [default: ro, for a new role]
    #[arg(
        long = "kwollect_password_ro",
        value_name = "TEXT",
        conflicts_with = "kwollect_password_ro_file"
    )]
    kwollect_password_ro: Option<String>,
    /// File with the password of the reading role in the first line
    #[arg(long = "kwollect_password_ro_file", value_name = "FILE")]
    kwollect_password_ro_file: Option<PathBuf>,
    /// Hours of a new partition or chunk [default: 6, for a new database]
    #[arg(long = "chunk_interval_hour", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8784))]
    chunk_interval_hour: Option<u32>,
    /// Hours after which TimescaleDB compresses a chunk of `metrics` [default: 24, for a new database]
    #[arg(long = "chunk_compress_hour", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=87_840))]
    chunk_compress_hour: Option<u32>,
    /// Minutes that a statement of the owner's role may take
    #[arg(long = "request_timeout_min", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    request_timeout_min: u32,
    /// Folder of a tablespace for the archive; the server of the database writes it
    #[arg(long = "archive_path", value_name = "DIR")]
    archive_path: Option<String>,
    /// File with one SELECT per line for `get_job_metrics`
    #[arg(long = "jobmetrics_requests_path", value_name = "FILE")]
    jobmetrics_requests_path: Option<PathBuf>,
    /// OAR's database: printed as settings of the server
    #[command(flatten)]
    pub(crate) oar: OarOptions,
}

/// The options of kwollect-setup-db-oar
#[derive(clap::Args, Debug)]
pub(crate) struct OarOptions {
    /// Host of OAR's database [default: oar]
    #[arg(long = "oardb_host", value_name = "HOST")]
    oardb_host: Option<String>,
    /// Its port [default: 5432]
    #[arg(long = "oardb_port", value_name = "PORT")]
    oardb_port: Option<u16>,
    /// Its name [default: oar2]
    #[arg(long = "oardb_name", value_name = "NAME")]
    oardb_name: Option<String>,
    /// Role that reads it [default: oarreader]
    #[arg(long = "oardb_user", value_name = "ROLE")]
    oardb_user: Option<String>,
    /// Password of the role; write it to a file of the server instead
    #[arg(long = "oardb_password", value_name = "TEXT", conflicts_with = "oardb_password_file")]
    oardb_password: Option<String>,
    /// File with the password in the first line
    #[arg(long = "oardb_password_file", value_name = "FILE")]
    oardb_password_file: Option<PathBuf>,
}

impl OarOptions {
    /// The lines of the server's settings, if any option is given.
    pub(crate) fn settings(&self) -> anyhow::Result<Option<String>> {
        let Self { oardb_host: host, oardb_port: port, oardb_name: name, oardb_user: user, .. } =
            self;
        let (password, file) = (&self.oardb_password, &self.oardb_password_file);
        let is_given = host.is_some() || port.is_some() || name.is_some() || user.is_some();
        if !is_given && password.is_none() && file.is_none() {
            return Ok(None);
        }
        let text =
            |given: &Option<String>, default: &str| quoted(given.as_deref().unwrap_or(default));
        let database = format!(
            "host={} port={} user={} dbname={}",
            text(host, "oar"),
            port.unwrap_or(5432),
            text(user, "oarreader"),
            text(name, "oar2")
        );
        let file = setting_of(file.as_deref(), "/etc/jobmeter/oar_password")?;
        Ok(Some(format!(
            "[schedulers.oar]\ndatabase = {}\npassword_file = {}\n",
            serde_json::Value::from(database),
            serde_json::Value::from(file)
        )))
    }
}

impl SetupArgs {
    /// The password of the owner's role, if it is given.
    pub(crate) fn owner_password(&self) -> anyhow::Result<Option<String>> {
        password(self.kwollect_password.as_deref(), self.kwollect_password_file.as_deref())
    }

    /// The file with this password for the server, or the one that the administrator makes.
    pub(crate) fn password_file(&self) -> anyhow::Result<String> {
        setting_of(self.kwollect_password_file.as_deref(), "/etc/jobmeter/database_password")
    }

    /// The checked options.
    pub(crate) fn options(&self) -> anyhow::Result<SetupOptions> {
        let user = checked_name("kwollect_user", &self.kwollect_user)?;
        let owner_password = self.owner_password()?;
        let reader = password(
            self.kwollect_password_ro.as_deref(),
            self.kwollect_password_ro_file.as_deref(),
        )?;
        let job_requests =
            self.jobmetrics_requests_path.as_deref().map(job_requests).transpose()?;
        // Kwollect's configuration has an empty text for none.
        let archive_path = self.archive_path.clone().filter(|path| !path.is_empty());
        if archive_path.as_deref().is_some_and(|path| !path.starts_with('/')) {
            bail!("--archive_path: the path of a folder begins with /");
        }
        Ok(SetupOptions {
            database: checked_name("kwollect_db_name", self.address.database())?,
            user,
            password: owner_password,
            reader_password: reader,
            new_reader_password: READER_PASSWORD.to_owned(),
            chunk_hours: self.chunk_interval_hour,
            compress_hours: self.chunk_compress_hour,
            request_timeout_min: self.request_timeout_min,
            archive_path,
            job_requests,
            reader: if self.ro_sees == "jobs" { Reader::Jobs } else { Reader::Nodes },
            distrust_plpython: self.distrust_plpython,
        })
    }
}

fn job_requests(path: &Path) -> anyhow::Result<Vec<(usize, String)>> {
    let shown = || path.display().to_string();
    let size = fs::metadata(path).with_context(shown)?.len();
    if size > REQUESTS_BYTES_MAX {
        bail!("{}: more than {REQUESTS_BYTES_MAX} bytes", shown());
    }
    Ok(database::job_requests(&fs::read_to_string(path).with_context(shown)?))
}

/// A password of an option or of a file.
fn password(given: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    match (given, file) {
        (Some(text), _) if text.is_empty() || text.contains('\0') => {
            bail!("a password is empty, or has a NUL")
        }
        (Some(text), _) => Ok(Some(text.to_owned())),
        (None, Some(file)) => Ok(Some(Token::read_password(file)?.secret().to_owned())),
        (None, None) => Ok(None),
    }
}

/// A file as a setting of the server, absolute, because its relative paths start elsewhere. Without a file, the default.
fn setting_of(file: Option<&Path>, default: &str) -> anyhow::Result<String> {
    let file = std::path::absolute(file.unwrap_or_else(|| Path::new(default)))?;
    Ok(file.display().to_string())
}

/// A value of libpq's parameters.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::SetupArgs;
    use clap::{Args as _, FromArgMatches as _};

    #[test]
    fn files_of_passwords_are_absolute_settings() {
        let command = SetupArgs::augment_args(clap::Command::new("setup"));
        let words = ["setup", "--kwollect_password_file", "cfg/pw", "--oardb_password_file", "oar"];
        let given = SetupArgs::from_arg_matches(&command.get_matches_from(words)).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(given.password_file().unwrap(), here.join("cfg/pw").display().to_string());
        let oar = format!("password_file = \"{}\"\n", here.join("oar").display());
        assert!(given.oar.settings().unwrap().unwrap().ends_with(&oar));
    }
}
