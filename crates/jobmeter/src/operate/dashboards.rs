//! `jobmeter dashboards`: writes dashboards for Grafana.

use crate::output::times::duration;
use anyhow::{Context, ensure};
use dashboards::{Connection, Provisioning, TLS_MODES};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes dashboards for Grafana, with the files that load them at its startup
///
/// DIR is Grafana's folder of settings, such as /etc/grafana. The dashboards are replaced, so run the command again after an
/// upgrade. It keeps provisioning files that exist.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter dashboards /etc/grafana --address metrics.example:5432")]
pub(crate) struct DashboardsArgs {
    /// Grafana's folder of settings; it must exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The server's `pg.listen`, or a PostgreSQL server, as Grafana reaches it
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5432", value_parser = address)]
    address: String,
    /// Database; the server accepts any name
    #[arg(long, value_name = "NAME", default_value = "jobmeter")]
    database: String,
    /// Database user; with a token as the password, the server accepts any name
    #[arg(long, value_name = "NAME", default_value = "token")]
    user: String,
    /// File with the token or the password, which Grafana reads [default: DIR/jobmeter-token]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// TLS to that address [default: disable on this machine, else verify-full]
    #[arg(long, value_name = "MODE", value_parser = TLS_MODES)]
    tls: Option<String>,
    /// Period of most samples: a line ends where three are missing
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    period: String,
}

/// Writes the files, and reports the next step.
pub(crate) fn dashboards(args: &DashboardsArgs) -> anyhow::Result<ExitCode> {
    let period = duration("period", &args.period)?;
    ensure!(!period.is_zero(), "--period {}: it is zero; write 5s or 1m", args.period);
    let dir = fs::canonicalize(&args.dir).with_context(|| args.dir.display().to_string())?;
    let file = args.password_file.clone().unwrap_or_else(|| dir.join("jobmeter-token"));
    let is_here = ["127.", "localhost:", "[::1]:"].iter().any(|own| args.address.starts_with(own));
    let tls = if is_here { "disable" } else { "verify-full" };
    let all = Provisioning {
        connection: Connection {
            address: args.address.clone(),
            database: args.database.clone(),
            user: args.user.clone(),
            password_file: utf8(&file)?,
            tls: args.tls.clone().unwrap_or_else(|| tls.to_owned()),
        },
        folder: utf8(&dir)?,
        period,
    };
    let mut out = io::stdout().lock();
    for (name, text) in all.dashboards() {
        let path = dir.join(name);
        replace(&path, &text).with_context(|| path.display().to_string())?;
        writeln!(out, "wrote {}", path.display())?;
    }
    for (name, text) in all.settings() {
        let path = dir.join(name);
        let is_new = create(&path, &text).with_context(|| path.display().to_string())?;
        writeln!(out, "{} {}", if is_new { "wrote" } else { "kept" }, path.display())?;
    }
    writeln!(out, "next: write a token to {} and restart Grafana", file.display())?;
    Ok(ExitCode::SUCCESS)
}

fn utf8(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.with_context(|| format!("{}: the path is not UTF-8", path.display()))
}

/// Replaces a file. It does not follow a link.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create(path, text).map(drop)
}

/// Creates a file that Grafana's user can read, with its folders. Returns false if the file exists.
fn create(path: &Path, text: &str) -> io::Result<bool> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = match File::create_new(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        made => made?,
    };
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    Ok(true)
}

/// A name or address with a port.
fn address(text: &str) -> Result<String, String> {
    let expected = || "expected HOST:PORT, such as metrics.example:5432".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:%".contains(&byte);
    let is_valid = !host.is_empty() && host.bytes().all(is_host) && port.parse::<u16>().is_ok();
    if is_valid { Ok(text.to_owned()) } else { Err(expected()) }
}
