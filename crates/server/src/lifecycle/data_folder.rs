//! The data folder of a server: store, registry of jobs, requests to agents, audit log, positions of outputs.

use crate::auth::access_settings::UserFiles;
use crate::auth::audit::Audit;
use crate::auth::user_tokens::UserTokens;
use crate::background::shared_tables;
use crate::ingest::agent_reports::Agents;
use crate::lifecycle::server::StartError;
use crate::lifecycle::stores;
use config::ServerConfig;
use config::paths::{AUDIT_FILE, DEMAND_FILE, JOBS_FILE, OUTPUTS_DIR};
use control::{DemandLimits, DemandStore, NodeSettingsCache, RuleEvaluator};
use jobs::{Registry, Users};
use kernel::Root;
use model::ClusterId;
use outputs::Outputs;
use query::QueryEngine;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use storage::Storage;

/// A database may have local jobs whose numbers follow a registry's last one by this much. Greater numbers are not passed: a node
/// may report any number.
const NUMBERS_AHEAD_MAX: i64 = 1_000_000;

/// The contents of the data folder.
pub(crate) struct DataFolder {
    pub(crate) store: Arc<dyn Storage>,
    pub(crate) outputs: Arc<Outputs>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) on_demand: NodeSettingsCache,
    pub(crate) engine: QueryEngine,
    pub(crate) user_tokens: UserTokens,
    pub(crate) agents: Agents,
    pub(crate) rule_evaluator: RuleEvaluator,
    pub(crate) audit: Audit,
}

/// Opens everything in a data folder. Blocks.
///
/// # Errors
/// A part of it cannot be used.
pub(crate) fn open(
    data: &Path,
    config: &ServerConfig,
    root: &Root,
) -> Result<DataFolder, StartError> {
    let failed = |error| StartError::Data { path: data.to_owned(), error };
    crate::lifecycle::store_halves::prepare(data, config.store.kind).map_err(failed)?;
    let mode = std::fs::metadata(data).map_err(failed)?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        log::warn!(
            "{} is accessible to every user of this machine (mode {mode:o}); run `chmod o= {}`",
            data.display(),
            data.display()
        );
    }
    let (store, recovery) = stores::open(data, config)?;
    let root = root.clone();
    let users = move || Users::parse(&UserFiles::read(&root).passwd);
    let registry = Registry::open(&data.join(JOBS_FILE), jobs::Limits::default(), users)?;
    shared_tables::prepare(&*store, &registry)?;
    pass_known_jobs(&*store, &registry)?;
    // A crash may come between a batch and its job events. Applying the events twice changes nothing.
    for (received, events) in recovery.iter().flat_map(|recovery| &recovery.jobs) {
        registry.apply(events, *received)?;
    }
    let past_age_us = crate::lifecycle::retention::longest_us(config);
    let demand_limits = DemandLimits { past_age_us, ..DemandLimits::default() };
    let demand = Arc::new(DemandStore::open(&data.join(DEMAND_FILE), demand_limits)?);
    let on_demand = NodeSettingsCache::new(Arc::clone(&demand));
    on_demand.expire(crate::common::clock::now())?;
    let mut settings = query::Settings {
        zone: jiff::tz::TimeZone::system(),
        rows_max: config.query.rows_max,
        ..query::Settings::default()
    };
    if !config.keep.cluster.is_empty() {
        settings.default_cluster =
            ClusterId::new(&config.keep.cluster).map_err(StartError::Cluster)?;
    }
    let registry = Arc::new(registry);
    let engine = QueryEngine::new(Arc::clone(&store), Arc::clone(&registry), settings);
    let engine = engine.with_demand(demand);
    let user_tokens = UserTokens::default();
    user_tokens.load(&registry)?;
    let agents = Agents::stopped_before(registry.stopped()?);
    let rule_evaluator = RuleEvaluator::latched_before(registry.latches()?);
    let audit = data.join(AUDIT_FILE);
    let audit = Audit::open(&audit).map_err(|error| StartError::Data { path: audit, error })?;
    let clock = Arc::new(crate::common::clock::now);
    let outputs = Outputs::new(Arc::clone(&store), data.join(OUTPUTS_DIR), clock);
    Ok(DataFolder {
        store,
        outputs: Arc::new(outputs),
        registry,
        on_demand,
        engine,
        user_tokens,
        agents,
        rule_evaluator,
        audit,
    })
}

/// A data folder that is older than the database gives no number again: the samples are those of another user's job.
fn pass_known_jobs(store: &dyn Storage, registry: &Registry) -> Result<(), StartError> {
    let Some(tables) = store.shared_tables() else { return Ok(()) };
    let most = registry.last_local()?.saturating_add(NUMBERS_AHEAD_MAX);
    if let Some(last) = tables.last_local_job(most)?
        && registry.pass_local(last)?
    {
        log::warn!(
            "the database has local jobs that the data folder lacks; the next one follows {last}"
        );
    }
    Ok(())
}
