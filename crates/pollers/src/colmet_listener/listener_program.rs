//! The listener from start to end.

use super::hosts::HostsError;
use super::listener::Listener;
use super::message::MessageInput;
use super::zeromq::ZeromqInput;
use crate::sending::SEAL_EVERY;
use config::{ColmetSettings, PollerConfig};
use delivery::{Clock, MachineClock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Samples of a group that are sealed before the interval between batches has passed.
const UNSEALED_MAX: usize = 16_384;
/// Longest wait for a message between looks at signals.
const STEP: Duration = Duration::from_millis(50);
/// Time for the messages that have arrived before the end.
const REST_US: i64 = 1_000_000;

/// Why a listener does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The hosts and their groups.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// An address cannot be used, or the system has no signals.
    #[error("{0}")]
    Machine(#[from] io::Error),
}

/// The signals that arrived.
#[derive(Debug, Default)]
pub(super) struct Signals {
    pub(super) end: Arc<AtomicBool>,
    pub(super) hangup: Arc<AtomicBool>,
}

/// Receives messages of Colmet's nodes until SIGTERM or SIGINT, and sends their content to the server. SIGHUP reads the files that
/// name counters again.
///
/// # Errors
/// The settings are wrong, or an address or the spool cannot be used.
pub fn run(config: &PollerConfig) -> Result<(), ListenerError> {
    if let Err(error) = kernel::limits::raise_open_files() {
        log::warn!("cannot raise the limit of open files: {error}");
    }
    let signals = Signals::default();
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&signals.end))?;
    }
    signal_hook::flag::register(SIGHUP, Arc::clone(&signals.hangup))?;
    let mut input = ZeromqInput::bind(&config.colmet)?;
    log_addresses(&config.colmet);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    follow(config, &clock, &mut input, &signals)
}

fn log_addresses(settings: &ColmetSettings) {
    let addresses: Vec<String> = settings.listen.iter().map(|one| one.0.to_string()).collect();
    let hosts = settings.hosts.as_ref().map_or("any", |hosts| hosts.as_str());
    log::warn!(
        "listens on {} for Colmet's nodes: nothing is authenticated there, so whoever can connect can send values for hosts: {hosts}",
        addresses.join(", ")
    );
}

/// Takes messages until a signal.
pub(super) fn follow(
    config: &PollerConfig,
    clock: &Arc<dyn Clock>,
    input: &mut impl MessageInput,
    signals: &Signals,
) -> Result<(), ListenerError> {
    let mut listener = Listener::new(config, clock)?;
    let interval_us = i64::try_from(SEAL_EVERY.as_micros()).unwrap_or(i64::MAX);
    let mut sealed_us = clock.steady_us();
    while !signals.end.load(Ordering::Relaxed) {
        if signals.hangup.swap(false, Ordering::Relaxed) {
            listener.read_counters();
        }
        listener.follow_agents()?;
        match listener.is_open() {
            true => input.next(STEP).map_or(Ok(()), |arrival| listener.take(arrival))?,
            false => std::thread::sleep(STEP),
        }
        let is_due = clock.steady_us().saturating_sub(sealed_us) >= interval_us;
        if is_due || listener.hosts.unsealed() >= UNSEALED_MAX {
            listener.seal(clock.wall())?;
            sealed_us = clock.steady_us();
        }
    }
    log::info!("the listener ends");
    let ended_us = clock.steady_us();
    while listener.is_open()
        && clock.steady_us().saturating_sub(ended_us) < REST_US
        && let Some(arrival) = input.next(Duration::ZERO)
    {
        listener.take(arrival)?;
    }
    let lost = listener.end(clock.wall())?;
    if lost > 0 {
        log::error!("{lost} samples are lost: the server did not accept them, and no spool did");
    }
    Ok(())
}
