//! The whole agent: its threads, its signals, its end.

use crate::batches::notes::Notes;
use crate::common::backoff::{Backoff, FIRST};
use crate::common::clock::{Clock, MachineClock};
use crate::common::schedule::Schedule;
use crate::common::start_error::StartError;
use crate::common::threads::thread;
use crate::connection::connect::Connect;
use crate::delivery::durable_watermark::Kept;
use crate::delivery::keeper::Keeper;
use crate::delivery::outbox::{Folders, Outbox};
use crate::delivery::queue::{End, queue};
use crate::delivery::refused::Refused;
use crate::delivery::sender::{Order, Sender, Wanted};
use crate::delivery::spool::{Spool, SpoolLimits};
use crate::jobs::accounting::Accounting;
use crate::jobs::cgroup_birth_cache::BirthCache;
use crate::program::change::Changes;
use crate::program::signals::{Signal, Signals};
use crate::reading::own::Counters;
use crate::reading::plan::plan;
use crate::reading::unread::unread;
use crate::sampling::context::Site;
use crate::sampling::reader_thread::Sampling;
use crate::sampling::sampler::Sampler;
use config::{AgentConfig, ConfigErrors, SpoolSettings};
use model::{Boot, Cause, Timestamp};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::Encoder;

/// How long the main thread sleeps at most: what repeats is told of by it.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often memory that is not used any more is given back.
const TIDY_US: i64 = 60 * Timestamp::SECOND;
/// How long a source that is being read is given at the end.
const LAST_READING: Duration = Duration::from_secs(1);

/// Reads the configuration anew: its file may have changed.
pub type Reload = Box<dyn Fn() -> Result<AgentConfig, ConfigErrors>>;

/// A running agent.
struct Program {
    config: AgentConfig,
    reload: Reload,
    sampling: Sampling,
    outbox: Arc<Outbox>,
    keeper: JoinHandle<()>,
    queue: End,
    orders: SyncSender<Order>,
    wanted: Receiver<Wanted>,
    connect: Arc<Connect>,
    clock: Arc<dyn Clock>,
    changes: Changes,
    known: Option<BirthCache>,
    accounting: Option<Accounting>,
    /// Which sources should give samples and give none, as the server was told.
    troubles: String,
    /// When unused memory is given back next, by the clock that is never set.
    tidy_us: i64,
}

/// Runs an agent until it is told to end by SIGTERM or SIGINT.
///
/// # Errors
/// It cannot begin.
pub(crate) fn run(config: AgentConfig, reload: Reload) -> Result<(), StartError> {
    let signals = Signals::new().map_err(|e| StartError::machine("signals", &e))?;
    let waker = signals.waker().map_err(|e| StartError::machine("signals", &e))?;
    // Panics of sources are caught, and those of our own threads at least told of where the rest is.
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    let mut program = Program::start(config, reload, waker)?;
    program.tell_unread();
    loop {
        let wait = program.sampling.watch(program.patience());
        match signals.wait(wait) {
            Some(Signal::End) => break,
            Some(Signal::Reload) => program.reload(),
            None => {}
        }
        program.look_around();
    }
    program.end();
    Ok(())
}

impl Program {
    fn start(config: AgentConfig, reload: Reload, waker: UnixStream) -> Result<Self, StartError> {
        let clock: Arc<dyn Clock> = Arc::new(MachineClock);
        let site = Site::open(&config)?;
        let Site { boot, notes, counters, .. } = &site;
        let folders = folders(&config.spool, notes, counters)?;
        let first = Schedule::new(config.sampling.period, clock.wall()).due();
        let kept_until = folders.kept_until;
        tell_down(kept_until, first, &config, notes);
        let dir = folders.spool.as_ref().map(Spool::dir);
        let (known, directories) = dir.and_then(|dir| BirthCache::open(dir, &site.root)).unzip();
        let left = dir.and_then(|dir| Accounting::open(dir, &site.root, counters));
        let (accounting, states) = left.unzip();
        let outbox = Arc::new(Outbox::new(folders, Arc::clone(notes), Arc::clone(counters)));
        let plan = plan(&config, None).map_err(StartError::Machine)?;
        let (inlet, batches) = queue();
        let queue = inlet.end();
        let mut sampler = site.sampler(
            &config,
            Arc::clone(&clock),
            &plan,
            Box::new(inlet),
            (directories.unwrap_or_default(), kept_until),
        )?;
        sampler.resume(states.unwrap_or_default(), kept_until);

        let connect = Arc::new(Connect::new(&config));
        let (orders, take_orders) = sync_channel(16);
        let (want, wanted) = sync_channel(4);
        let sender = Sender::new(
            Arc::clone(&outbox),
            Arc::clone(counters),
            Arc::clone(&clock),
            (take_orders, want, waker),
            Arc::clone(&connect),
            Backoff::new(FIRST, chance(boot)),
            phase(config.sampling.period, chance(boot)),
        );
        let keeper = Keeper {
            batches,
            outbox: Arc::clone(&outbox),
            notes: Arc::clone(notes),
            counters: Arc::clone(counters),
            clock: Arc::clone(&clock),
            encoder: Encoder::default(),
            bytes: Vec::new(),
        };
        let keeper = thread("keep", move || keeper.run())?;
        // Not joined: it may wait for an answer for as long as the settings allow.
        drop(thread("send", move || sender.run())?);
        let sampling = Sampling::start(sampler).map_err(|e| StartError::machine("reading", &e))?;
        log::info!(
            "agent {} samples {} every {:?}",
            env!("CARGO_PKG_VERSION"),
            root_words(&config),
            plan.period
        );
        Ok(Self {
            config,
            reload,
            sampling,
            outbox,
            keeper,
            queue,
            orders,
            wanted,
            connect,
            clock,
            changes: Changes::default(),
            known,
            accounting,
            troubles: String::new(),
            tidy_us: 0,
        })
    }

    /// What is to be done now and then.
    fn look_around(&mut self) {
        config::log::tell_repeated();
        let steady_us = self.clock.steady_us();
        if steady_us >= self.tidy_us {
            // Starting, and each change of the jobs, takes memory for a moment that is not needed after, and
            // runs code that nothing else does.
            kernel::heap::give_back();
            kernel::code::give_back();
            self.tidy_us = steady_us.saturating_add(TIDY_US);
        }
        if let Some(known) = &mut self.known
            && let Some((generation, directories)) =
                self.sampling.look(|sampler| sampler.known(known.generation()))
        {
            known.write(generation, &directories);
        }
        let troubles = self.sampling.look(Sampler::troubles);
        if troubles != self.troubles {
            self.troubles.clone_from(&troubles);
            self.order(Order::Troubles(troubles));
        }
        match self.wanted.try_recv() {
            Ok(Wanted::Config { generation, text }) => self.take_change(generation, &text),
            Ok(Wanted::Jobs(jobs)) => {
                self.sampling.with(|sampler| sampler.set_jobs(jobs));
            }
            Err(_) => {}
        }
        if self.changes.expire(self.clock.wall()) {
            log::info!("something that the server changed has ended");
            self.apply();
        }
    }

    /// How long the main thread may sleep: what ends by itself ends at its time.
    fn patience(&self) -> Duration {
        let left_us = self.changes.next_end().map(|end| end.since(self.clock.wall()).max(0));
        let left = left_us.and_then(|left_us| u64::try_from(left_us).ok());
        left.map_or(LOOK_EVERY, |left_us| Duration::from_micros(left_us).min(LOOK_EVERY))
    }

    /// The server wants another configuration: what the node's own file allows of it is done.
    fn take_change(&mut self, generation: u64, text: &[u8]) {
        let taken = self.changes.take(generation, text, &self.config, self.clock.wall());
        let refused = taken.refused.join("; ");
        self.order(Order::Generation { generation, refused });
        self.apply();
        for source in &taken.flushes {
            self.sampling.with(|sampler| sampler.flush(source));
        }
    }

    /// SIGHUP: the configuration anew. A bad one is told of, and the old one kept.
    fn reload(&mut self) {
        let config = match (self.reload)() {
            Ok(config) => config,
            Err(errors) => {
                for error in &errors.0 {
                    log::error!("the new configuration is not taken: {error}");
                }
                return;
            }
        };
        if let Err(e) = config::log::set(&config.log, crate::common::clock::wall) {
            log::error!("the log goes on as before: {e}");
        }
        if config.spool.spool != self.config.spool.spool || config.run != self.config.run {
            log::warn!("another spool, root or way to run needs a new start of the agent");
        }
        self.config = config;
        self.connect.set(&self.config);
        self.order(Order::Renew);
        let limits = spool_limits(&self.config.spool);
        self.outbox.with_spool(|spool| spool.set_limits(limits));
        self.sampling.with(Sampler::forgive);
        self.apply();
        log::warn!("the configuration was read anew");
    }

    fn apply(&self) {
        match plan(&self.config, self.changes.change()) {
            Ok(plan) => {
                self.sampling.with(|sampler| sampler.apply(&plan));
                self.tell_unread();
            }
            Err(e) => log::error!("the new configuration is not taken: {e}"),
        }
    }

    /// Which sources are not read by the settings that hold is said with each batch from now on.
    fn tell_unread(&self) {
        self.order(Order::Unread(unread(&self.config, self.changes.change())));
    }

    fn order(&self, order: Order) {
        if self.orders.try_send(order).is_err() {
            log::error!("the sending thread does not listen");
        }
        self.outbox.ring();
    }

    /// Seals what was read, gives the server a moment to take it, and spools the rest.
    fn end(self) {
        // First, so that the last batch goes with the word that the agent ends.
        self.order(Order::End);
        self.sampling.end(LAST_READING);
        if let Some(accounting) = &self.accounting
            && let Err(e) = accounting.write(&self.sampling.with(Sampler::states))
        {
            log::warn!(
                "the accounting state cannot be written: {e}; counters of jobs will begin anew"
            );
        }
        // A thread that still reads holds what it started.
        kernel::command::kill_all();
        self.queue.end();
        if self.keeper.join().is_err() {
            log::error!("the keeping thread fell; what was in memory is lost");
        }
        log::info!("agent ends");
    }
}

/// A number that is another at each start.
pub(crate) fn chance(boot: &Boot) -> u64 {
    boot.0.iter().fold(0, |seed, byte| seed << 8 ^ u64::from(*byte))
}

/// How long after its batch this agent sends: somewhere in a tenth of its period, and of 500 ms at most, so
/// that a cluster's agents, which tick together, do not come to the server together.
fn phase(period: Duration, chance: u64) -> Duration {
    let longest = u64::try_from(period.as_micros() / 10).unwrap_or(u64::MAX).min(500_000);
    Duration::from_micros(chance % (longest + 1))
}

fn root_words(config: &AgentConfig) -> &'static str {
    if config.run.root.is_empty() { "this machine" } else { "a recorded machine" }
}

/// Between what an earlier start kept and the first tick the agent did not run. An agent that does not
/// know until when (no spool, or a new one) says no more than its period, and the store, which has the last
/// batch, lets the gap begin there if it is longer than that.
pub(crate) fn tell_down(
    kept_until: Option<Timestamp>,
    first: Timestamp,
    config: &AgentConfig,
    notes: &Notes,
) {
    let period = i64::try_from(config.sampling.period.as_micros()).unwrap_or(i64::MAX);
    let from = kept_until.unwrap_or(Timestamp(period));
    if first.since(from) > period {
        notes.add("", (from, first), Cause::AgentDown, "");
    }
}

const fn spool_limits(settings: &SpoolSettings) -> SpoolLimits {
    let age = settings.spool_age_max.as_micros();
    #[expect(clippy::cast_possible_truncation, reason = "a year at most, by the setting's bounds")]
    let age_max_us = age as i64;
    SpoolLimits { bytes_max: settings.spool_bytes_max.0, age_max_us, sync: settings.spool_sync }
}

/// Opens the folders. The default one may be missing, one that is named may not.
pub(crate) fn folders(
    settings: &SpoolSettings,
    notes: &Arc<Notes>,
    counters: &Arc<Counters>,
) -> Result<Folders, StartError> {
    if matches!(settings.spool, Some(config::Spool::None)) {
        return Ok(Folders::default());
    }
    let named = settings.spool.is_some();
    let Some(dir) = crate::connection::endpoints::spool_dir(settings) else {
        log::warn!("no place for a spool: what the server does not take is lost; give `spool`");
        return Ok(Folders::default());
    };
    let open = || {
        let limits = spool_limits(settings);
        let spool = Spool::open(&dir, limits, Arc::clone(notes), Arc::clone(counters))?;
        let (kept, kept_until) = Kept::open(&dir)?;
        let refused = Refused::open(&dir, settings.refused_bytes_max.0)?;
        let (spool, kept, refused) = (Some(spool), Some(kept), Some(refused));
        Ok(Folders { spool, kept, kept_until, refused })
    };
    match open() {
        Ok(folders) => Ok(folders),
        Err(e) if named || kernel::trust::is_untrusted(&e) => {
            let e: std::io::Error = e;
            Err(StartError::machine(&format!("spool {}", dir.display()), &e))
        }
        Err(e) => {
            log::warn!(
                "no spool in {}: {e}; what the server does not take is lost; give `spool`",
                dir.display()
            );
            Ok(Folders::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_send_at_instants_of_their_own() {
        let of = |seconds, chance| phase(Duration::from_secs(seconds), chance);
        assert!((0..1000).all(|n| of(1, n * 7919) <= Duration::from_millis(100)));
        assert!((0..1000).all(|n| of(60, n * 104_729) <= Duration::from_millis(500)));
        assert!((0..1000).any(|n| of(5, n * 7919) > Duration::from_millis(450)));
        assert_eq!(phase(Duration::from_micros(5), 3), Duration::ZERO);
        assert_ne!(chance(&Boot([1; 16])), chance(&Boot([2; 16])));
    }
}
