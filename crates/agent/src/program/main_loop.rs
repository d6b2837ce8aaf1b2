//! The running agent: threads, signals and shutdown.

use crate::common::schedule::Schedule;
use crate::common::start_error::StartError;
use crate::jobs::accounting::Accounting;
use crate::jobs::cgroup_birth_cache::BirthCache;
use crate::jobs::job_sightings::Sightings;
use crate::program::apply_settings::Changes;
use crate::program::signals::{Signal, Signals};
use crate::reading::disabled_sources::unread;
use crate::reading::plan::plan;
use crate::sampling::context::AgentContext;
use crate::sampling::reader_thread::Sampling;
use crate::sampling::sampler::Sampler;
use config::{AgentConfig, ConfigErrors};
use delivery::{Clock, Delivery, Folders, MachineClock, Order, Settings, Wanted};
use kernel::code::Loaded;
use model::Timestamp;
use model::setting::SourceStatus;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep of the main thread. It also reports repeated log lines.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Interval at which unused memory is returned to the kernel.
const TIDY_US: i64 = 60 * Timestamp::SECOND;
/// The first interval: by then, every source was opened and read.
const TIDY_FIRST_US: i64 = 10 * Timestamp::SECOND;
/// Grace period for a reading under way at shutdown.
const LAST_READING: Duration = Duration::from_secs(1);

/// Reads the configuration again after SIGHUP.
pub type Reload = Box<dyn Fn() -> Result<AgentConfig, ConfigErrors>>;

/// A running agent.
struct Program {
    config: AgentConfig,
    reload: Reload,
    sampling: Sampling,
    delivery: Delivery,
    clock: Arc<dyn Clock>,
    changes: Changes,
    known: Option<BirthCache>,
    accounting: Option<Accounting>,
    /// Sources that give too few samples, as last reported to the server.
    source_errors: Vec<SourceStatus>,
    /// Pages of the program that may be returned, too.
    loaded: Loaded,
    /// Monotonic time at which unused memory is returned next; 0 before the first time.
    tidy_us: i64,
}

/// Runs an agent until SIGTERM or SIGINT.
///
/// # Errors
/// The agent cannot start.
pub(crate) fn run(config: AgentConfig, reload: Reload) -> Result<(), StartError> {
    let loaded = Loaded::at_start();
    let signals = Signals::new().map_err(|e| StartError::machine("signals", &e))?;
    let waker = signals.waker().map_err(|e| StartError::machine("signals", &e))?;
    // Panics of sources are caught. This hook logs panics of the agent's own threads, too.
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    let mut program = Program::start(config, reload, (waker, loaded))?;
    program.log_unread();
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
    fn start(
        config: AgentConfig,
        reload: Reload,
        (waker, loaded): (UnixStream, Loaded),
    ) -> Result<Self, StartError> {
        let clock: Arc<dyn Clock> = Arc::new(MachineClock);
        let context = AgentContext::open(&config)?;
        let AgentContext { boot, notes, counters, .. } = &context;
        let folders = Folders::open(&config.spool, notes, counters)?;
        let first = Schedule::new(config.sampling.period, clock.wall()).due();
        let kept_until = folders.kept_until;
        notes.add_down(kept_until, first, config.sampling.period);
        let dir = folders.dir();
        let (known, directories) = dir.and_then(|dir| BirthCache::open(dir, &context.root)).unzip();
        let sightings = Sightings::open(dir, kept_until);
        let left = dir.and_then(|dir| Accounting::open(dir, &context.root));
        let (accounting, left) = left.unzip();
        let plan = plan(&config, None).map_err(StartError::Machine)?;
        let (delivery, inlet) = Delivery::start(
            Settings::from(&config),
            folders,
            (notes, counters, &clock),
            (boot, config.sampling.period),
            waker,
        )?;
        let mut sampler = context.sampler(
            &config,
            Arc::clone(&clock),
            &plan,
            Box::new(inlet),
            (directories.unwrap_or_default(), sightings),
        )?;
        sampler.resume(left.unwrap_or_default(), kept_until);
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
            delivery,
            clock,
            changes: Changes::default(),
            known,
            accounting,
            source_errors: Vec::new(),
            loaded,
            tidy_us: 0,
        })
    }

    /// Does periodic housekeeping of the main thread.
    fn look_around(&mut self) {
        config::log::report_repeated();
        let steady_us = self.clock.steady_us();
        if steady_us >= self.tidy_us {
            // Startup and each change of the jobs need memory and code pages for a moment only.
            kernel::heap::give_back();
            self.loaded.give_back();
            let wait_us = if self.tidy_us == 0 { TIDY_FIRST_US } else { TIDY_US };
            self.tidy_us = steady_us.saturating_add(wait_us);
        }
        self.write_known();
        let source_errors = self.sampling.look(Sampler::source_errors);
        if source_errors != self.source_errors {
            self.source_errors.clone_from(&source_errors);
            self.delivery.order(Order::Sources(source_errors));
        }
        match self.delivery.wanted() {
            Some(Wanted::Settings { generation, settings }) => {
                self.take_settings(generation, &settings);
            }
            Some(Wanted::Jobs(jobs)) => self.sampling.with(|sampler| sampler.set_jobs(jobs)),
            None => {}
        }
        if self.changes.expire(self.clock.wall()) {
            log::info!("something that the server changed has ended");
            self.apply();
        }
    }

    /// Writes the creation times of the jobs' cgroups, if the jobs have changed.
    fn write_known(&mut self) {
        if let Some(known) = &mut self.known
            && let Some((generation, directories)) =
                self.sampling.look(|sampler| sampler.known(known.generation()))
        {
            known.write(generation, &directories);
        }
    }

    /// How long the main thread may sleep. A change that expires ends the sleep.
    fn patience(&self) -> Duration {
        let left_us = self.changes.next_end().map(|end| end.since(self.clock.wall()).max(0));
        let left = left_us.and_then(|left_us| u64::try_from(left_us).ok());
        left.map_or(LOOK_EVERY, |left_us| Duration::from_micros(left_us).min(LOOK_EVERY))
    }

    /// Applies settings of the server, as far as the node's own file allows it.
    fn take_settings(&mut self, generation: u64, settings: &[u8]) {
        let taken = self.changes.take(generation, settings, &self.config, self.clock.wall());
        let rejected = taken.rejected;
        self.delivery.order(Order::Generation { generation, rejected });
        self.apply();
        for source in &taken.flushes {
            self.sampling.with(|sampler| sampler.flush(source));
        }
    }

    /// Reloads the configuration after SIGHUP. An invalid one is logged, and the old one stays in effect.
    fn reload(&mut self) {
        let config = match (self.reload)() {
            Ok(config) => config,
            Err(errors) => {
                for error in &errors.0 {
                    log::error!(
                        "cannot reload the configuration; the previous one stays in \
                                 effect: {error}"
                    );
                }
                return;
            }
        };
        if let Err(e) = config::log::set(&config.log, delivery::wall) {
            log::error!("cannot change the log settings: {e}");
        }
        if config.spool.spool != self.config.spool.spool || config.run != self.config.run {
            log::warn!("changes of the spool, the root or the mode need a restart of the agent");
        }
        self.config = config;
        self.delivery.set(Settings::from(&self.config));
        self.sampling.with(Sampler::forgive);
        self.apply();
        log::warn!("reloaded the configuration");
    }

    fn apply(&self) {
        match plan(&self.config, self.changes.change()) {
            Ok(plan) => {
                self.sampling.with(|sampler| sampler.apply(&plan));
                self.log_unread();
            }
            Err(e) => log::error!(
                "cannot apply the new configuration; the previous one stays in \
                                   effect: {e}"
            ),
        }
    }

    /// Reports the sources that the settings disable. The server receives them with each following batch.
    fn log_unread(&self) {
        self.delivery.order(Order::Unread(unread(&self.config, self.changes.change())));
    }

    /// Seals the last samples, gives the server a moment to accept them, and spools the rest.
    fn end(mut self) {
        // This comes first, so that the last batch announces the end of the agent.
        self.delivery.order(Order::End);
        self.sampling.end(LAST_READING);
        // A job continues its counters only if the next start knows when its cgroup was created.
        self.write_known();
        if let Some(accounting) = &self.accounting
            && let Err(e) = accounting.write(&self.sampling.with(Sampler::states))
        {
            log::warn!("cannot write the accounting state; counters of jobs will restart: {e}");
        }
        // A hung reading thread still owns the processes that it started.
        kernel::child_program::kill_all();
        self.delivery.end();
        log::info!("agent ends");
    }
}

fn root_words(config: &AgentConfig) -> &'static str {
    if config.run.root.is_empty() { "this machine" } else { "a recorded machine" }
}
