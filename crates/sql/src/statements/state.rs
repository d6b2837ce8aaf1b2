//! Engine state for a statement: our tables and the allowed functions.

use crate::SqlError;
use crate::common::schema::Table;
use crate::functions::guard::{Guard, GuardPlans};
use crate::functions::information::register;
use crate::functions::instants::Instants;
use crate::functions::label_functions::{Contain, Label, Operators, UNCOUNTED};
use crate::functions::pg_catalog::catalog_functions::{Facts, functions as catalog_functions};
use crate::functions::pg_catalog::catalog_tables;
use crate::functions::string_limits::{Joined, Texts, bounded};
use crate::functions::to_char::ToChar;
use crate::statements::provider::Provider;
use crate::statements::table_function::TableFunction;
use crate::statements::worker::link::Link;
use crate::statements::worker::messages::Begin;
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::config::Dialect;
use datafusion::execution::context::SessionContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder, SessionStateDefaults};
use datafusion::prelude::SessionConfig;
use std::sync::Arc;

/// Creates the state for planning a statement: our tables, and the engine's functions without [`UNCOUNTED`].
pub(crate) fn state(
    begin: &Begin,
    threads: usize,
    link: &Arc<Link>,
    guard: Arc<Guard>,
    texts: &Arc<Texts>,
) -> Result<SessionState, SqlError> {
    let failed = |error| SqlError::of(error, begin.memory_mib());
    // Data that exceeds the memory is an error. The engine must not write it to files.
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let memory = usize::try_from(begin.memory_bytes).unwrap_or(usize::MAX);
    let environment = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(disk)
        .with_memory_pool(Arc::new(GreedyMemoryPool::new(memory)))
        .build_arc()
        .map_err(failed)?;
    let mut config =
        SessionConfig::new().with_information_schema(false).with_target_partitions(threads.max(1));
    // A filter on several threads returns its rows in another order.
    config = config.with_round_robin_repartition(!begin.like_postgrest);
    let options = config.options_mut();
    options.sql_parser.dialect = Dialect::PostgreSQL;
    options.execution.time_zone = Some(begin.zone.clone());
    let label = Arc::new(Label::function());
    let contain = Arc::new(Contain::function());
    let mut planners = SessionStateDefaults::default_expr_planners();
    let joined = Arc::new(Joined::function(texts));
    planners.insert(
        0,
        Arc::new(Operators { label: Arc::clone(&label), contain: Arc::clone(&contain), joined }),
    );
    let mut functions = SessionStateDefaults::default_scalar_functions();
    functions.retain(|function| {
        let named = |name: &str| UNCOUNTED.contains(&name);
        !named(function.name()) && !function.aliases().iter().any(|name| named(name))
    });
    let mut functions: Vec<_> =
        functions.into_iter().map(|function| bounded(function, texts)).collect();
    functions.extend([label, contain, Arc::new(ToChar::function())]);
    if let Some(wire) = &begin.wire {
        functions.extend(catalog_functions(&Facts::of(wire)));
    }
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_expr_planners(planners)
        .with_analyzer_rule(Arc::new(Instants))
        .with_physical_optimizer_rule(Arc::new(GuardPlans(guard)))
        .with_scalar_functions(functions)
        .with_aggregate_functions(SessionStateDefaults::default_aggregate_functions())
        .with_window_functions(SessionStateDefaults::default_window_functions())
        .build();
    let context = SessionContext::new_with_state(state);
    let zone = Arc::from(&*begin.zone);
    for table in Table::ALL {
        let provider = Arc::new(Provider::new(table, &zone, link));
        context.register_table(table.name(), provider).map_err(failed)?;
    }
    for table in Table::FUNCTIONS {
        let function = TableFunction { table, zone: Arc::clone(&zone), link: Arc::clone(link) };
        context.register_udtf(table.name(), Arc::new(function));
    }
    register(&context).map_err(failed)?;
    if begin.wire.is_some() {
        catalog_tables::register(&context).map_err(failed)?;
    }
    let mut state = context.state();
    let now = timestamp_us_to_datetime(begin.now).map(|now| now.and_utc());
    state.execution_props_mut().query_execution_start_time = now;
    Ok(state)
}
