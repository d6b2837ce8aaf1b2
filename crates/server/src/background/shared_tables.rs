//! Tables that the server shares in the database of the store: the copy of the registry's jobs, and Kwollect's
//! `promoted_metrics` (docs/decisions/0057-shared-tables.md).
//!
//! A failed exchange is logged once, counted and repeated. It delays no batch and no query.

use crate::app::App;
use crate::common::counts::SharedTable;
use crate::common::tasks::stopped;
use control::{Active, DemandError, FollowedRows, PromotedKey, PromotedRows};
use jobs::{CopiedRun, CopyScope, CopyStep, Registry, RegistryError};
use model::NodeList;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::{
    JobSelector, JobsPart, JobsScope, OtherPromotions, RunRow, Selector, SharedTables, Storage,
    StorageError,
};
use tokio::time::Instant;

/// Interval between two exchanges.
const EVERY: Duration = Duration::from_secs(1);
/// Most steps of the copy in one exchange.
const STEPS_MAX: u32 = 20;
/// Interval of steps without a job. They find out that the database was restored.
const MARK_EVERY: Duration = Duration::from_secs(60);
/// Interval between two lists of the known devices, which patterns of promotions select.
const DEVICES_EVERY: Duration = Duration::from_secs(60);
/// Most devices of one promotion.
const DEVICES_MAX: usize = 20_000;
/// The label with the node that a device feeds.
const ALIAS: &str = "_device_alias";

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error(transparent)]
    Store(#[from] StorageError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Demand(#[from] DemandError),
}

/// Lets the registry record its changes if the store has a copy of its jobs.
pub(crate) fn prepare(store: &dyn Storage, registry: &Registry) -> Result<(), RegistryError> {
    match store.shared_tables() {
        Some(_) => registry.record_changes(),
        None => registry.forget_copy(),
    }
}

/// Exchanges the tables until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    if app.store.shared_tables().is_none() {
        return;
    }
    let (mut stopping, mut exchange) = (app.stopping.clone(), Exchange::default());
    loop {
        let round = tokio::task::spawn_blocking({
            let app = Arc::clone(&app);
            move || {
                exchange.round(&app);
                exchange
            }
        });
        // A panic is logged already.
        exchange = round.await.unwrap_or_default();
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stopped(&mut stopping) => return,
        }
    }
}

/// The state of the exchanges.
#[derive(Default)]
struct Exchange {
    /// Tables whose last exchange failed.
    failing: BTreeSet<&'static str>,
    /// Time of the last step of the copy.
    marked: Option<Instant>,
    /// The promotions in force, and the server's rows for them.
    own: Option<(Arc<Active>, PromotedRows)>,
    /// The rows of others, and the promotions in force when they were compared.
    others: Option<(Arc<Active>, OtherPromotions)>,
    /// Rows of others whose promotions are in force.
    followed: FollowedRows,
    /// The names of all known devices, and the time of the list.
    devices: Option<(Instant, BTreeSet<Box<str>>)>,
}

impl Exchange {
    fn round(&mut self, app: &App) {
        let Some(tables) = app.store.shared_tables() else { return };
        let copied = self.copy_jobs(app, tables);
        self.report(app, SharedTable::Jobs, copied);
        let exchanged = self.exchange_promotions(app, tables);
        self.report(app, SharedTable::PromotedMetrics, exchanged);
    }

    fn report(&mut self, app: &App, table: SharedTable, result: Result<(), ExchangeError>) {
        let name = table.word();
        match result {
            Ok(()) if self.failing.remove(name) => {
                log::info!("the table {name} of the database is up to date again");
            }
            Ok(()) => {}
            Err(error) => {
                app.counts.shared_tables.failed.add(table, 1);
                if self.failing.insert(name) {
                    log::warn!(
                        "the table {name} of the database is not up to date; the server tries again \
                         every second: {error}"
                    );
                }
            }
        }
    }

    /// Copies the jobs that changed.
    fn copy_jobs(&mut self, app: &App, tables: &dyn SharedTables) -> Result<(), ExchangeError> {
        for _ in 0..STEPS_MAX {
            let step = app.registry.copy_step()?;
            let is_marked = self.marked.is_some_and(|at| at.elapsed() < MARK_EVERY);
            if step.is_empty() && is_marked {
                return Ok(());
            }
            if !tables.copy_jobs(&part(&app.registry, &step))? {
                log::info!("the database has no copy of these jobs; the server copies all");
                app.registry.restart_copy()?;
                continue;
            }
            app.registry.copied(&step)?;
            app.counts.shared_tables.runs_copied.add(step.runs.len());
            self.marked = Some(Instant::now());
        }
        Ok(())
    }

    /// Writes the promotions in force, and follows rows of others.
    fn exchange_promotions(
        &mut self,
        app: &App,
        tables: &dyn SharedTables,
    ) -> Result<(), ExchangeError> {
        let (active, now) = (app.on_demand.active(), app.now());
        let is_present = self.own.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, &active));
        if self.list_devices(&active, &*app.store) || !is_present {
            let own = active.promoted_rows(|nodes| self.expand(nodes), now);
            self.own = Some((Arc::clone(&active), own));
        }
        let Some((_, own)) = &self.own else { return Ok(()) };
        // A person ended the promotions of these rows.
        let in_force: BTreeSet<PromotedKey> = active.rows_in_force();
        let ended = self.followed.held.difference(&in_force).cloned().collect();
        let others = tables.exchange_promotions(&own.rows, &ended)?;
        let left_out = u64::try_from(own.left_out).unwrap_or(u64::MAX);
        let is_known = |(of, rows): &(Arc<Active>, OtherPromotions)| {
            Arc::ptr_eq(of, &active) && *rows == others
        };
        if !self.others.as_ref().is_some_and(is_known) {
            let followed = app.on_demand.follow_rows(others.rows.clone(), now)?;
            if let Some(error) = followed.error.as_ref()
                && self.followed.error.as_ref() != Some(error)
            {
                log::warn!("a row of promoted_metrics is skipped: {error}");
            }
            self.followed = followed;
            self.others = Some((active, others.clone()));
        }
        let counts = &app.counts.shared_tables;
        let FollowedRows { invalid, left_out: over, .. } = self.followed;
        let invalid = u64::try_from(invalid).unwrap_or(u64::MAX);
        counts.promotions_left_out.store(left_out, Ordering::Relaxed);
        counts.rows_skipped.store(others.skipped + invalid + over, Ordering::Relaxed);
        Ok(())
    }

    /// Lists the known devices if a promotion has a pattern and the list is old. Returns whether it did.
    fn list_devices(&mut self, active: &Active, store: &dyn Storage) -> bool {
        let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < DEVICES_EVERY;
        let has_star = |nodes: &NodeList| nodes.as_str().contains('*');
        let mut promotions = active.held.promotions.iter();
        if self.devices.as_ref().is_some_and(is_fresh)
            || !promotions.any(|promotion| has_star(&promotion.nodes))
        {
            return false;
        }
        let of_devices = Selector { job: JobSelector::None, ..Selector::default() };
        let mut devices = BTreeSet::new();
        for last in store.snapshot().last(&of_devices) {
            let series = &last.series.series;
            devices.insert(series.device.as_str().into());
            devices.extend(series.labels.get(ALIAS).map(Box::from));
        }
        self.devices = Some((Instant::now(), devices));
        true
    }

    /// The devices of a list. Of a pattern, the known ones.
    fn expand(&self, nodes: &NodeList) -> Vec<String> {
        if let Ok(devices) = model::expand_hosts(nodes.as_str(), DEVICES_MAX) {
            return devices;
        }
        let known = self.devices.iter().flat_map(|(_, devices)| devices);
        known
            .filter(|device| nodes.has(device))
            .take(DEVICES_MAX)
            .map(ToString::to_string)
            .collect()
    }
}

/// A step as the store takes it.
fn part(registry: &Registry, step: &CopyStep) -> JobsPart {
    let run = |run: &CopiedRun| {
        let CopiedRun { job, oom_kills, .. } = run;
        let end = query::how_it_ended(job, oom_kills.iter().copied().max());
        RunRow {
            job: job.clone(),
            end: end.map(|end| (end.cause, end.detail)),
            oom_kills: i64::try_from(oom_kills.len()).unwrap_or(i64::MAX),
        }
    };
    JobsPart {
        registry: registry.identity().into(),
        step: step.number,
        is_first: step.is_first,
        scope: match &step.scope {
            CopyScope::Keys(keys) => JobsScope::Keys(keys.clone()),
            CopyScope::Range(after, last) => JobsScope::Range(after.clone(), last.clone()),
        },
        runs: step.runs.iter().map(run).collect(),
        allocations: step.runs.iter().flat_map(|run| run.allocations.clone()).collect(),
    }
}
