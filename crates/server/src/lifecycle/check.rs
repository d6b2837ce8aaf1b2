//! Finds every error that would prevent startup, for `jobmeter check`. Changes nothing and serves no requests.

use crate::auth::tokens::json_web_tokens::WEAK_SECRET;
use crate::http::listen::listen;
use crate::lifecycle::poller_process;
use crate::lifecycle::server::StartError;
use crate::lifecycle::store_halves;
use crate::lifecycle::stores::{Database, StoreError};
use crate::reloadable_config::{ReloadableConfig, job_requests_of, rules_of};
use crate::schedulers::configured_schedulers;
use crate::schedulers::database_addresses::store_address;
use config::paths::{DEMAND_FILE, JOBS_FILE, SAMPLES_DIR, store_dir};
use config::{ConfigFile, ConfigInputs, Loaded, PgAddress, ServerConfig, StoreKind};
use kernel::Root;
use model::nearest;
use rustix::fs::{Access, access};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use store::{OpenError, RealDisk};

/// The first argument of a process that checks a file. The file and the names of all sources follow.
pub const ARGUMENT: &str = "check-settings";
/// The socket unit with which the service manager holds the port.
const SOCKET_UNIT: &str = "jobmeter-server.socket";
/// Folders of systemd units.
const UNIT_DIRS: [&str; 3] =
    ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// A finding about a setting.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// The setting.
    key: String,
    /// The error or remark.
    what: String,
    /// Whether a server starts despite the finding.
    note: bool,
}

impl Finding {
    fn error(key: &str, what: impl ToString) -> Self {
        Self { key: key.to_owned(), what: what.to_string(), note: false }
    }

    fn note(key: &str, what: impl ToString) -> Self {
        Self { note: true, ..Self::error(key, what) }
    }
}

/// Prints the settings of this file that a server would reject, as JSON. `sources` are names separated by commas.
///
/// # Errors
/// The files of this machine cannot be read, or standard output is closed.
pub fn print(
    file: &Path,
    sources: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> io::Result<()> {
    let given = ConfigInputs {
        file: ConfigFile::Given(file.to_owned()),
        environment: &|_| None,
        flags: Vec::new(),
    };
    let root = Root::live().map_err(io::Error::other)?;
    let sources: Vec<&str> = sources.split(',').collect();
    let loaded = config::read_server(&given, &outputs::kinds()).loaded;
    let found = loaded.map(|loaded| findings(&loaded, &sources, environment, &root));
    let text = serde_json::to_string(&found.unwrap_or_default()).map_err(io::Error::other)?;
    writeln!(io::stdout(), "{text}")
}

fn findings(
    loaded: &Loaded<ServerConfig>,
    sources: &[&str],
    environment: &dyn Fn(&str) -> Option<String>,
    root: &Root,
) -> Vec<Finding> {
    let config = &loaded.config;
    let agents = config.keep.agent_config.as_deref();
    let listen: Vec<SocketAddr> = config.listen.listen.iter().map(|one| one.0).collect();
    let (live, errors) = ReloadableConfig::read(config, agents, &listen, root);
    let mut found: Vec<Finding> =
        errors.iter().map(|(key, error)| Finding::error(key, error)).collect();
    if live.is_some_and(|live| live.jwt.is_some_and(|jwt| jwt.is_weak())) {
        found.push(Finding::note("access.jwt_secret_file", WEAK_SECRET));
    }
    found.extend(
        configured_schedulers::errors(&config.schedulers, &config.store)
            .iter()
            .map(|error| Finding::error(&error.key, error)),
    );
    // Also beside wrong rules, and beside errors of other files.
    let rules = rules_of(config).unwrap_or_else(|(valid, _)| valid);
    found.extend(
        rules
            .when
            .iter()
            .filter_map(|rule| unknown_source(&rule.name, rule.flush.as_deref()?, sources)),
    );
    let wrong_lines = job_requests_of(config).map(|requests| requests.errors).unwrap_or_default();
    found.extend(wrong_lines.iter().map(|what| Finding::error("jobmetrics_requests", what)));
    found.extend(check_pg_folders(config));
    let is_root = rustix::process::geteuid().is_root();
    let data = store_dir(config.keep.data.as_deref(), is_root, environment);
    let folder = data.as_ref().ok().cloned();
    let in_use = match data {
        Ok(data) => {
            found.extend(check_archive(config, &data));
            found.extend(check_database(config));
            check_data(&data, config.store.kind, &mut found)
        }
        Err(error) => {
            found.push(Finding::error("data", error));
            false
        }
    };
    if let Err(error) = config::log::check(&config.log) {
        found.push(Finding::error("log.file", error));
    }
    found.extend(config.poll.metrics_dir.as_deref().and_then(check_poller));
    let of_outputs = config.outputs.iter().flat_map(outputs::check);
    let of_paths = outputs::check_paths(&config.outputs, folder.as_deref());
    found.extend(of_outputs.chain(of_paths).map(|(key, what)| Finding::error(&key, what)));
    let is_given = !loaded.values().is_default("listen");
    found.extend(listen.into_iter().filter_map(|one| check_port(one, is_given, in_use)));
    found
}

fn unknown_source(rule: &str, source: &str, sources: &[&str]) -> Option<Finding> {
    let known = sources.iter().copied().chain([config::FED_SOURCE]);
    if known.clone().any(|known| known == source) {
        return None;
    }
    let near = nearest(source, known);
    let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let what = format!("rule `{rule}`: `flush` names the unknown source `{source}`{near}");
    Some(Finding::error("promotions.rules", what))
}

/// Checks the folder of descriptions. The server starts without it, but not its poller.
fn check_poller(dir: &Path) -> Option<Finding> {
    let error = poller_process::check_dir(dir).err()?;
    Some(Finding::error("poll.metrics_dir", error))
}

/// Connects to the database of the store. Changes nothing.
fn check_database(config: &ServerConfig) -> Vec<Finding> {
    if config.store.kind != StoreKind::Postgres {
        return Vec::new();
    }
    let address = match store_address(&config.store) {
        Ok(address) => address,
        Err(error) => return vec![Finding::error(&error.key, &error)],
    };
    let shown = address.to_string();
    let found = postgres::check(&Database(address)).into_iter().map(|error| {
        let address = shown.clone();
        Finding::error("postgres.database", StoreError::Database { address, error })
    });
    found.collect()
}

/// Checks the folder of the socket of PostgreSQL's protocol.
fn check_pg_folders(config: &ServerConfig) -> Vec<Finding> {
    let folders = config.pg.listen.iter().filter_map(|place| match place {
        PgAddress::Folder(folder) => Some(folder),
        PgAddress::Tcp(_) => None,
    });
    let unusable = folders.filter_map(|folder| {
        let error = match std::fs::metadata(folder) {
            Ok(found) if !found.is_dir() => io::Error::from(ErrorKind::NotADirectory),
            Ok(_) => io::Error::from(access(folder, Access::WRITE_OK | Access::EXEC_OK).err()?),
            Err(error) => error,
        };
        let place = folder.display().to_string();
        Some(Finding::error("pg.listen", StartError::PgListen { place, error }))
    });
    unusable.collect()
}

/// Checks the folder of the archive, as the store does when it opens.
fn check_archive(config: &ServerConfig, data: &Path) -> Option<Finding> {
    let dir = config.retention.archive.as_deref()?;
    let samples = data.join(SAMPLES_DIR);
    let what = match store::check_archive(&RealDisk, &samples, dir) {
        Ok(false) => return None,
        // The first file in it.
        Ok(true) => {
            let error = io::Error::from(access(dir, Access::WRITE_OK | Access::EXEC_OK).err()?);
            format!("{}: it cannot become the archive: {error}", dir.display())
        }
        Err(error) => error.to_string(),
    };
    Some(Finding::error("retention.archive", what))
}

/// Reads the data folder. Returns whether a running server uses it.
fn check_data(data: &Path, store: StoreKind, found: &mut Vec<Finding>) -> bool {
    let samples = data.join(SAMPLES_DIR);
    if let Err(error) = store_halves::check_only(data, store) {
        // A server of the folder's owner starts.
        let note = kernel::trust::is_anothers(data, &error);
        let path = data.to_owned();
        found.push(Finding { note, ..Finding::error("data", StartError::Data { path, error }) });
    }
    if !samples.is_dir() {
        return false;
    }
    let in_use = match store::check(&RealDisk, &samples) {
        Ok(in_use) => in_use,
        Err(OpenError::Disk(error)) if error.error.kind() == ErrorKind::PermissionDenied => {
            let what =
                format!("the store was not read: {error}; check as root, or as the server's user");
            found.push(Finding::note("data", what));
            return false;
        }
        Err(error) => {
            found.push(Finding::error("data", StoreError::from(error)));
            false
        }
    };
    if in_use {
        found
            .push(Finding::note("data", format!("{}: a server that runs uses it", data.display())));
    }
    let files = [(JOBS_FILE, jobs::check as fn(&Path) -> _), (DEMAND_FILE, control::check_demand)];
    for (name, check) in files {
        let file = data.join(name);
        if file.is_file()
            && let Err(error) = check(&file)
        {
            found.push(Finding::error("data", error));
        }
    }
    in_use
}

/// Checks whether the port is free.
fn check_port(address: SocketAddr, is_given: bool, in_use: bool) -> Option<Finding> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let listened =
        runtime.and_then(|runtime| runtime.block_on(async { listen(address, is_given).map(drop) }));
    let error = listened.err()?;
    let is_taken = error.kind() == ErrorKind::AddrInUse;
    let what = StartError::Listen { address, error };
    let of_manager = UNIT_DIRS.iter().any(|dir| Path::new(dir).join(SOCKET_UNIT).is_file());
    Some(match is_taken {
        true if in_use => Finding::note("listen", format!("{address}: a running server uses it")),
        true if of_manager => Finding::note(
            "listen",
            format!("{what}; {SOCKET_UNIT} may own it on behalf of the server"),
        ),
        _ => Finding::error("listen", what),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_listed_also_where_one_file_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        std::fs::write(path("token"), "two words in a line\nadmin short\n").unwrap();
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path("token"), own).unwrap();
        let rules = "[[when]]\nname = \"hot\"\nmetric = \"load_1m\"\nabove = 1\nflush = \"cpuu\"\n[[rule]]\n";
        std::fs::write(path("rules"), rules).unwrap();
        std::fs::write(path("agents"), "[[[").unwrap();
        std::fs::write(path("requests"), "SELECT 1 AS a\nSELECT 1 AS b FROM jobs\n").unwrap();
        std::fs::create_dir_all(path("data").join(SAMPLES_DIR)).unwrap();
        std::fs::write(path("data").join(SAMPLES_DIR).join("FORMAT"), "another program\n").unwrap();
        let text = format!(
            "listen = '{}'\ntokn_file = '{t}/token'\ncluster = 'a b'\ndata = '{t}/data'\nagent_config = '{t}/agents'\nnames = [[1]]\njobmetrics_requests = '{t}/requests'\n\
             [promotions]\nrules = '{t}/rules'\n[access]\nstaff = ['nosuchuser', '@nosuchgroup']\n\
             [log]\nfile = '{t}/nowhere/log'\n[retention]\narchive = '{t}'\n",
            taken.local_addr().unwrap(),
            t = dir.path().display()
        );
        std::fs::write(path("server.toml"), text).unwrap();
        let file = ConfigFile::Given(path("server.toml"));
        let given = ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
        let read = config::read_server(&given, &outputs::kinds());
        // The mistyped key, the cluster and the list of lists.
        assert_eq!(read.errors.len(), 3, "{:?}", read.errors);
        let root = Root::live().unwrap();
        let found = findings(&read.loaded.unwrap(), &["cpu"], &|_| None, &root);
        let keys: Vec<&str> = found.iter().map(|one| &*one.key).collect();
        let want = [
            "token_file",
            "token_file",
            "token_file",
            "access.staff",
            "access.staff",
            "agent_config",
            "promotions.rules",
            "promotions.rules",
            "promotions.rules",
            "jobmetrics_requests",
            "retention.archive",
            "data",
            "log.file",
            "listen",
        ];
        assert_eq!(keys, want, "{found:?}");
        assert!(found.iter().all(|one| !one.note), "{found:?}");
        assert!(found[9].what.contains("requests, line 2: only the table"), "{found:?}");
        assert!(
            found[13].what.ends_with("choose another port with --listen ADDRESS:PORT"),
            "{found:?}"
        );
    }

    #[test]
    fn a_rule_names_a_source_that_there_is() {
        assert_eq!(unknown_source("hot", "cpu", &["cpu", "memory"]), None);
        let found = unknown_source("hot", "memry", &["cpu", "memory"]).unwrap();
        assert!(
            found.what.ends_with("unknown source `memry`; did you mean `memory`?"),
            "{found:?}"
        );
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let mut found = Vec::new();
        assert!(!check_data(&dir.path().join("a/b"), StoreKind::Embedded, &mut found));
        assert_eq!(found, []);
        check_data(&dir.path().join("file/b"), StoreKind::Embedded, &mut found);
        assert!(found[0].what.contains("choose a writable folder"), "{found:?}");
    }

    #[test]
    fn the_files_of_a_server_that_ran_are_well_and_a_missing_folder_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        std::fs::create_dir(data.join(SAMPLES_DIR)).unwrap();
        let limits = jobs::Limits::default();
        drop(jobs::Registry::open(&data.join(JOBS_FILE), limits, jobs::Users::default).unwrap());
        let demand = data.join(DEMAND_FILE);
        drop(control::DemandStore::open(&demand, control::DemandLimits::default()).unwrap());
        let of_files = |found: &[Finding]| {
            let of_files = found.iter().filter(|one| one.what.contains(".sqlite"));
            of_files.map(|one| one.what.clone()).collect::<Vec<_>>()
        };
        let mut found = Vec::new();
        check_data(data, StoreKind::Embedded, &mut found);
        assert_eq!(of_files(&found), [""; 0]);
        std::fs::write(&demand, "no database, but longer than the head of one").unwrap();
        check_data(data, StoreKind::Embedded, &mut found);
        assert_eq!(of_files(&found).len(), 1, "{found:?}");
        assert_eq!(check_poller(data), None);
        let missing = check_poller(&data.join("nodir")).unwrap();
        assert!(missing.what.contains("nodir") && !missing.note, "{missing:?}");
    }
}
