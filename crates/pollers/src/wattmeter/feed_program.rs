//! A feed from the first line to the end of the input.

use super::feed::{Feed, FeedError};
use super::input::{Input, Lines, start};
use super::line::LineVersion;
use crate::sending::SEAL_EVERY;
use config::PollerConfig;
use delivery::{Clock, MachineClock};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Samples of a group that are sealed before the interval between batches has passed.
const UNSEALED_MAX: usize = 16_384;
/// After the end of the input: longest time without progress until the rest remains in the spool.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between looks at the progress.
const STEP: Duration = Duration::from_millis(20);

/// How a wattmeter is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedOptions {
    /// The ID of the meter: its ports are the devices `ID-portN`.
    pub id: String,
    /// The version of its lines.
    pub version: LineVersion,
    /// The file with the nodes that its ports feed.
    pub mapping: Option<PathBuf>,
    /// Whether each sample is stored, instead of the means of seconds.
    pub is_every_sample: bool,
}

/// Reads lines of `wattmetre-read` from standard input until it ends or until SIGTERM or SIGINT, and sends the samples
/// to the server. Returns whether everything is stored or in the spool.
///
/// # Errors
/// The options are wrong, the spool cannot be used, or standard input cannot be read.
pub fn run(config: &PollerConfig, options: &FeedOptions) -> Result<bool, FeedError> {
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut feed = Feed::new(config, options, &clock)?;
    let inputs = start()?;
    let ended = follow(&mut feed, &inputs, &clock)?;
    feed.flush(clock.wall())?;
    if ended.is_some() {
        drain(&feed, &inputs, config.spool.spool != Some(config::Spool::None));
    }
    let lost = feed.end();
    if lost > 0 {
        log::error!("{lost} samples are lost: the server did not accept them, and no spool did");
    }
    ended.unwrap_or(Ok(()))?;
    Ok(lost == 0)
}

/// Takes lines until the input ends, and returns how; `None` after a signal.
fn follow(
    feed: &mut Feed<'_>,
    inputs: &Receiver<Input>,
    clock: &Arc<dyn Clock>,
) -> Result<Option<std::io::Result<()>>, FeedError> {
    let mut lines = Lines::default();
    let interval_us = i64::try_from(SEAL_EVERY.as_micros()).unwrap_or(i64::MAX);
    let mut sealed_us = clock.steady_us();
    let ended = loop {
        let left_us = sealed_us.saturating_add(interval_us).saturating_sub(clock.steady_us());
        let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
        match inputs.recv_timeout(left) {
            Ok(Input::Bytes(bytes)) => {
                let now = clock.wall();
                lines.split(&bytes, |line| feed.take(line, now))?;
            }
            Ok(Input::End(ended)) => break Some(ended),
            Ok(Input::Signal) => break None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Some(Ok(())),
        }
        if feed.unsealed() >= UNSEALED_MAX || clock.steady_us() - sealed_us >= interval_us {
            feed.seal(clock.wall())?;
            sealed_us = clock.steady_us();
        }
    };
    if let Some(line) = lines.end() {
        feed.take(line.as_deref(), clock.wall())?;
    }
    Ok(ended)
}

/// Waits until the server has everything, as long as it accepts more and no signal arrives.
fn drain(feed: &Feed<'_>, inputs: &Receiver<Input>, has_spool: bool) {
    let (mut sent, mut waited) = (feed.sent_batches(), Duration::ZERO);
    while !feed.is_sent() {
        if waited >= PATIENCE {
            let then = if has_spool { "; the next start sends what is in the spool" } else { "" };
            log::warn!("the server accepts no more{then}");
            return;
        }
        match inputs.recv_timeout(STEP) {
            Ok(Input::Signal) => return,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(STEP),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        waited += STEP;
        if feed.sent_batches() > sent {
            (sent, waited) = (feed.sent_batches(), Duration::ZERO);
        }
    }
}
