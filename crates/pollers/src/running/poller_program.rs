//! A poller from start to end.

use super::demand::{Names, follow_demand};
use super::entries::Entries;
use super::poller_error::PollerError;
use super::target_loop::{Shared, seal};
use super::targets::Targets;
use crate::descriptions::pins_file;
use crate::sending::Groups;
use config::PollerConfig;
use model::{DeviceId, NodeList, printable};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// Threads of exchanges.
const THREADS_MAX: usize = 4;
/// Interval at which the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Interval between returns of unused memory. Requests of all targets begin within a tenth of the period, and need memory
/// for that time only.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Polls the devices of the description files in `dir` until SIGTERM or SIGINT, and sends the samples to the server.
/// SIGHUP and changed files change the polls.
///
/// # Errors
/// The poller cannot start.
pub fn run(config: &PollerConfig, dir: &Path, only: Option<&NodeList>) -> Result<(), PollerError> {
    let machine = |error: io::Error| PollerError::Machine(error.to_string());
    kernel::heap::share();
    // Each exchange may have a connection.
    if let Err(error) = kernel::limits::raise_open_files() {
        log::warn!("the limit of open files stays: {error}");
    }
    let entries = Entries::read(dir, only, pins_file(config))?;
    let name = match &config.polling.name {
        Some(name) => name.clone(),
        None => machine_name()?,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(machine)?;
    let groups = Groups::start(config, name.clone(), &entries.devices())?;
    let names: Names = Arc::new(Mutex::new(Arc::new(entries.demand_names())));
    let demand = follow_demand(config, &name, &names);
    let demand = demand.map_err(|error| PollerError::Machine(format!("a thread: {error}")))?;
    let shared = Arc::new(Shared::new(groups, demand, &config.polling));
    let ended = runtime.block_on(poll_all(entries, Arc::clone(&shared), &names));
    // A name that is being looked up must not delay the end.
    runtime.shutdown_background();
    if let Some(shared) = Arc::into_inner(shared) {
        shared.groups.end();
    }
    ended.map_err(machine)
}

/// Polls until a signal ends the program.
async fn poll_all(mut entries: Entries, shared: Arc<Shared>, names: &Names) -> io::Result<()> {
    let (mut term, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trim = interval(TRIM_EVERY);
    trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut targets = Targets::new(Arc::clone(&shared));
    follow_entries(&mut targets, &entries, &shared);
    let mut sealing = JoinSet::new();
    sealing.spawn(seal(Arc::clone(&shared)));
    loop {
        let is_due = tokio::select! {
            _ = term.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => true,
            _ = look.tick() => tokio::task::block_in_place(|| entries.have_changed()),
            _ = trim.tick() => {
                tokio::task::block_in_place(kernel::heap::give_back);
                false
            }
            () = targets.restart_after_panics() => false,
        };
        if is_due {
            tokio::task::block_in_place(|| reload(&mut entries, &shared, names));
            follow_entries(&mut targets, &entries, &shared);
        }
    }
    log::info!("poller ends");
    targets.end().await;
    sealing.shutdown().await;
    Ok(())
}

/// Reads the files again. Files that cannot be read change nothing.
fn reload(entries: &mut Entries, shared: &Shared, names: &Names) {
    if let Err(error) = entries.read_again() {
        return log::error!("the files are not read again: {error}");
    }
    if let Err(error) = shared.groups.set_devices(&entries.devices()) {
        log::error!("groups of new devices do not start: {}", printable(&error.to_string()));
    }
    *names.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(entries.demand_names());
}

/// Polls the targets of the entries, and no others.
fn follow_entries(targets: &mut Targets, entries: &Entries, shared: &Shared) {
    let found = entries.targets();
    tokio::task::block_in_place(|| {
        shared.common.sdr_cache.retain(found.keys().map(|target| &**target))
    });
    log::info!("polls {} targets of {} files", found.len(), entries.files());
    targets.set(found);
}

/// The host's name up to its first dot.
fn machine_name() -> Result<DeviceId, PollerError> {
    let failed = |what: String| PollerError::Machine(format!("{what}; set `name`"));
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.map_err(|error| failed(format!("the machine has no name: {error}")))?;
    let name = name.trim().split('.').next().unwrap_or_default();
    DeviceId::new(name).map_err(|error| failed(error.to_string()))
}
