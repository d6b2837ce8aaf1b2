//! All targets and groups of a poller, from start to end.

use super::assignment::Assignment;
use super::group::{Group, GroupStart};
use super::spool_folders::{earlier_groups, spool_folder};
use super::target_loop::{Shared, follow, seal};
use crate::descriptions::{Description, Directory, Target, read_directory};
use crate::polling::Common;
use config::PollerConfig;
use delivery::{Clock, DeliveryError, MachineClock};
use model::{DeviceId, Origin, printable};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Threads of exchanges.
const THREADS_MAX: usize = 4;

/// Why a poller does not start.
#[derive(Debug, thiserror::Error)]
pub enum PollerError {
    /// The folder of the description files cannot be read.
    #[error("cannot read {}: {why}", dir.display())]
    Directory {
        /// The folder.
        dir: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
    /// A group cannot start.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The machine has no name, or the operating system gives no thread or signal.
    #[error("{0}")]
    Machine(String),
}

/// Polls the devices of the description files in `dir` until SIGTERM or SIGINT, and sends the samples to the server.
///
/// # Errors
/// The poller cannot start.
pub fn run(config: &PollerConfig, dir: &Path, only: Option<&[String]>) -> Result<(), PollerError> {
    let machine = |error: io::Error| PollerError::Machine(error.to_string());
    let directory = read(dir, only)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(machine)?;
    let shared = Arc::new(start(config, &directory)?);
    let ended = runtime.block_on(poll_all(directory, Arc::clone(&shared)));
    // A name that is being looked up must not delay the end.
    runtime.shutdown_background();
    if let Some(shared) = Arc::into_inner(shared) {
        // Together: each waits a moment for the server.
        std::thread::scope(|scope| {
            for group in shared.groups {
                let group = group.into_inner().unwrap_or_else(PoisonError::into_inner);
                scope.spawn(move || group.end());
            }
        });
    }
    ended.map_err(machine)
}

/// Reads the folder, and logs its findings.
fn read(dir: &Path, only: Option<&[String]>) -> Result<Directory, PollerError> {
    let failed = |why| PollerError::Directory { dir: dir.to_owned(), why };
    let mut directory = read_directory(dir).map_err(failed)?;
    for finding in &directory.findings {
        log::warn!("{}", printable(&finding.to_string()));
    }
    if let Some(only) = only {
        directory.descriptions.retain(|one| only.iter().any(|name| name == one.device.as_str()));
    }
    Ok(directory)
}

/// Starts the groups of all devices.
fn start(config: &PollerConfig, directory: &Directory) -> Result<Shared, PollerError> {
    let name = match &config.polling.name {
        Some(name) => name.clone(),
        None => machine_name()?,
    };
    let folder = spool_folder(config, &format!("poller-{name}"), None)?;
    let mut periods: BTreeMap<DeviceId, Duration> = BTreeMap::new();
    for one in &directory.descriptions {
        let shortest = periods.entry(one.device.clone()).or_insert(one.period);
        *shortest = one.period.min(*shortest);
    }
    let devices: BTreeSet<DeviceId> = periods.keys().cloned().collect();
    let assignment = Assignment::new(&devices, folder.as_deref().map_or(0, earlier_groups));
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let count = assignment.groups.len();
    let groups = assignment.groups.iter().enumerate().map(|(number, devices)| {
        let folder = folder.as_ref().map(|dir| dir.join(format!("group-{number}")));
        let periods = devices.iter().filter_map(|one| Some((one, *periods.get(one)?)));
        let origin = Origin::of_poller_group(&name, number);
        let origin = origin.map_err(|error| PollerError::Machine(error.to_string()))?;
        let group = Group::start(GroupStart {
            config,
            origin,
            poller: &name,
            devices: devices.clone(),
            folder: folder.as_deref(),
            clock: &clock,
            groups: count,
            is_patient: false,
        })?;
        for (device, period) in periods {
            group.note_down(device, clock.wall(), period);
        }
        Ok(Mutex::new(group))
    });
    let groups = groups.collect::<Result<Vec<_>, PollerError>>()?;
    let limit = |number: u64| usize::try_from(number).unwrap_or(Semaphore::MAX_PERMITS);
    Ok(Shared {
        common: Common::default(),
        groups,
        assignment,
        exchanges: Arc::new(Semaphore::new(limit(config.polling.exchanges_max))),
        hosts: Mutex::new(HashMap::new()),
        host_exchanges_max: limit(config.polling.host_exchanges_max),
    })
}

/// Polls until a signal ends the program.
async fn poll_all(directory: Directory, shared: Arc<Shared>) -> io::Result<()> {
    let (mut term, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut targets: BTreeMap<Target, Vec<Description>> = BTreeMap::new();
    // Optional ones wait for a promotion.
    for description in directory.descriptions.into_iter().filter(|one| !one.is_optional) {
        targets.entry(description.target.clone()).or_default().push(description);
    }
    log::info!("polls {} targets in {} files", targets.len(), directory.files);
    let (end, ends) = watch::channel(false);
    let mut loops = JoinSet::new();
    for (target, descriptions) in targets {
        loops.spawn(follow(target, descriptions, Arc::clone(&shared), ends.clone()));
    }
    let mut sealing = JoinSet::new();
    sealing.spawn(seal(shared));
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
        () = report_panics(&mut loops) => {}
    }
    log::info!("poller ends");
    end.send_replace(true);
    while loops.join_next().await.is_some() {}
    sealing.shutdown().await;
    Ok(())
}

/// Waits without end. A loop that panics is logged: its target is not polled any more.
async fn report_panics(loops: &mut JoinSet<()>) {
    loop {
        match loops.join_next().await {
            Some(Err(error)) => log::error!("a target is not polled any more: {error}"),
            Some(Ok(())) => {}
            None => std::future::pending().await,
        }
    }
}

/// The host's name up to its first dot.
fn machine_name() -> Result<DeviceId, PollerError> {
    let failed = |what: String| PollerError::Machine(format!("{what}; set `name`"));
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.map_err(|error| failed(format!("the machine has no name: {error}")))?;
    let name = name.trim().split('.').next().unwrap_or_default();
    DeviceId::new(name).map_err(|error| failed(error.to_string()))
}
