//! Where an agent stands by its settings: to whom it sends, what it keeps where. Asked by `jobmeter doctor`
//! without an agent.

use crate::connection::http::{Failure, Http};
use config::{ServerSettings, ServerUrl, Spool, SpoolSettings, place};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::PathBuf;

/// The environment, as the configuration wants it; what is not UTF-8 is not there.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether this process is root's.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// To whom batches go: to the server that is named, else to the one that runs here, if one does.
pub fn server_asked(settings: &ServerSettings) -> Option<ServerUrl> {
    settings.server.clone().or_else(|| place::server_here(is_root(), &environment))
}

/// The runtime file that alone says to whom batches go, if the server that wrote it has ended: while one runs, it
/// holds the file locked.
pub fn stale_record(settings: &ServerSettings) -> Option<PathBuf> {
    if settings.server.is_some() {
        return None;
    }
    let (file, _) = place::server_record(is_root(), &environment)?;
    // Let go at once, with the file: a server that starts wants the lock for itself.
    let lock = |file: &File| flock(file, FlockOperation::NonBlockingLockShared);
    File::open(&file).is_ok_and(|file| lock(&file).is_ok()).then_some(file)
}

/// Where batches are kept that the server has not taken: `None` where none are, or a user without a home
/// has no place for them.
pub fn spool_dir(settings: &SpoolSettings) -> Option<PathBuf> {
    match &settings.spool {
        Some(Spool::None) => None,
        Some(Spool::Folder(dir)) => Some(dir.clone()),
        None => Some(place::state_dir(is_root(), &environment)?.join("spool")),
    }
}

/// Asks a server, as an agent with these settings would, whether it takes batches; sends none.
///
/// # Errors
/// It is not reached, does not take them from here, or a token or certificate cannot be read.
pub fn knock(url: &ServerUrl, settings: &ServerSettings) -> Result<(), Failure> {
    Http::new(url, settings).map_err(Failure::Unreached)?.knock()
}
