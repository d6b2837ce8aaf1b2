//! Server and spool that the settings select. `jobmeter doctor` reads them without an agent.

use crate::connection::connect::AGENT;
use crate::connection::http::{Failure, Http};
use config::{ServerSettings, ServerUrl, Spool, SpoolSettings, paths};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::PathBuf;

/// Reads an environment variable for the configuration. A value that is not UTF-8 counts as unset.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether this process runs as root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Server that receives the batches: the configured one, otherwise a server running on this machine.
pub fn requested_server(settings: &ServerSettings) -> Option<ServerUrl> {
    settings.server.clone().or_else(|| paths::server_here(is_root(), &environment))
}

/// Runtime file of a local server that has ended, if only this file selects the server. A running server holds a
/// lock on the file.
pub fn stale_record(settings: &ServerSettings) -> Option<PathBuf> {
    if settings.server.is_some() {
        return None;
    }
    let (file, _) = paths::server_record(is_root(), &environment)?;
    // The lock is released at once with the file: a starting server needs it.
    let lock = |file: &File| flock(file, FlockOperation::NonBlockingLockShared);
    File::open(&file).is_ok_and(|file| lock(&file).is_ok()).then_some(file)
}

/// Folder for batches that the server has not acknowledged. `None` if the spool is disabled, or if a user has no
/// home directory.
pub fn spool_dir(settings: &SpoolSettings) -> Option<PathBuf> {
    match &settings.spool {
        Some(Spool::None) => None,
        Some(Spool::Folder(dir)) => Some(dir.clone()),
        None => Some(paths::state_dir(is_root(), &environment)?.join("spool")),
    }
}

/// Checks whether a server would accept batches of an agent with these settings. Sends none.
///
/// # Errors
/// The server is unreachable, rejects the agent, or a token or certificate cannot be read.
pub fn knock(url: &ServerUrl, settings: &ServerSettings) -> Result<(), Failure> {
    Http::new(url, settings, AGENT).map_err(Failure::Unreached)?.knock()
}
