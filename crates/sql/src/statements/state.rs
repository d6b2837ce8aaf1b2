//! Engine state for a statement: our tables and the allowed functions.

use crate::SqlError;
use crate::common::schema::Table;
use crate::functions::age::{Age, DatePart};
use crate::functions::float_extremes::with_extremes;
use crate::functions::guard::{Guard, GuardPlans};
use crate::functions::information::register;
use crate::functions::instants::Instants;
use crate::functions::label_functions::{Contain, Label, OfKey, Operators, UNCOUNTED};
use crate::functions::pg_catalog::catalog_functions::{Facts, functions as catalog_functions};
use crate::functions::pg_catalog::catalog_tables;
use crate::functions::string_limits::{Joined, Texts, bounded};
use crate::functions::to_char::ToChar;
use crate::functions::to_timestamp::{TO_TIMESTAMP, ToTimestamp};
use crate::functions::values::chr::Chr;
use crate::functions::values::quotient::Quotient;
use crate::functions::values::text_casts::TextCasts;
use crate::statements::provider::Provider;
use crate::statements::run::Work;
use crate::statements::table_functions::TableFunction;
use crate::statements::worker::messages::Begin;
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::config::Dialect;
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder, SessionStateDefaults};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionConfig;
use std::sync::Arc;

/// The tables of a statement.
#[derive(Debug)]
pub(crate) enum Tables {
    /// All tables and functions.
    All,
    /// Only `jobmetrics`, of the job in these arguments.
    OfJob(Vec<(String, String)>),
}

/// Creates the state for planning a statement: its tables, and the engine's functions without [`UNCOUNTED`].
pub(crate) fn state(
    work: &Work,
    tables: &Tables,
    guard: Arc<Guard>,
    texts: &Arc<Texts>,
) -> Result<SessionState, SqlError> {
    let Work { begin, threads, .. } = work;
    // Data that exceeds the memory is an error. The engine must not write it to files.
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let environment = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(disk)
        .with_memory_pool(Arc::new(GreedyMemoryPool::new(work.memory())))
        .build_arc()
        .map_err(|error| work.failed(error))?;
    let threads = (*threads).max(1);
    let mut config =
        SessionConfig::new().with_information_schema(false).with_target_partitions(threads);
    // A filter on several threads returns its rows in another order.
    config = config.with_round_robin_repartition(!begin.like_postgrest);
    let options = config.options_mut();
    options.sql_parser.dialect = Dialect::PostgreSQL;
    options.execution.time_zone = Some(begin.zone.clone());
    let (functions, operators) = functions(begin, texts);
    let mut planners = SessionStateDefaults::default_expr_planners();
    planners.insert(0, Arc::new(operators));
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_expr_planners(planners)
        .with_analyzer_rule(Arc::new(Instants))
        .with_analyzer_rule(Arc::new(TextCasts::new()))
        .with_physical_optimizer_rule(Arc::new(GuardPlans(Arc::clone(&guard))))
        .with_scalar_functions(functions)
        .with_aggregate_functions(
            with_extremes(SessionStateDefaults::default_aggregate_functions()),
        )
        .with_window_functions(SessionStateDefaults::default_window_functions())
        .build();
    let context = SessionContext::new_with_state(state);
    register_tables(&context, work, tables, &guard).map_err(|error| work.failed(error))?;
    let mut state = context.state();
    let now = timestamp_us_to_datetime(begin.now).map(|now| now.and_utc());
    state.execution_props_mut().query_execution_start_time = now;
    Ok(state)
}

fn register_tables(
    context: &SessionContext,
    work: &Work,
    tables: &Tables,
    guard: &Arc<Guard>,
) -> Result<()> {
    let zone = Arc::from(&*work.begin.zone);
    let provider = |table: Table| Provider::new(table, &zone, &work.link);
    if let Tables::OfJob(arguments) = tables {
        let provider = provider(Table::JobMetrics).with_arguments(arguments.clone());
        context.register_table(Table::JobMetrics.name(), Arc::new(provider))?;
        return Ok(());
    }
    for table in Table::ALL {
        context.register_table(table.name(), Arc::new(provider(table)))?;
    }
    for table in Table::FUNCTIONS {
        let (work, guard) = (work.clone(), Arc::clone(guard));
        let function = TableFunction { table, zone: Arc::clone(&zone), work, guard };
        context.register_udtf(table.name(), Arc::new(function));
    }
    register(context)?;
    if work.begin.wire.is_some() {
        catalog_tables::register(context)?;
    }
    Ok(())
}

/// The functions of a statement, and its operators.
fn functions(begin: &Begin, texts: &Arc<Texts>) -> (Vec<Arc<ScalarUDF>>, Operators) {
    let label = Arc::new(Label::function());
    let contain = Arc::new(Contain::function());
    let joined = Arc::new(Joined::function(texts));
    let (has, without) = (Arc::new(OfKey::has()), Arc::new(OfKey::without()));
    let date_part = Arc::new(DatePart::function());
    let ours = [&label, &contain, &has, &without, &date_part].map(Arc::clone);
    let regexp_match = bounded(datafusion::functions::regex::regexp_match(), texts);
    let quotient = Arc::new(Quotient::function());
    let operators =
        Operators { label, contain, has, without, joined, quotient, date_part, regexp_match };
    let mut functions = SessionStateDefaults::default_scalar_functions();
    functions.retain(|function| {
        let named = |name: &str| UNCOUNTED.contains(&name);
        !named(function.name()) && !function.aliases().iter().any(|name| named(name))
    });
    let mut functions: Vec<_> =
        functions.into_iter().map(|function| bounded(function, texts)).collect();
    for function in functions.iter_mut().filter(|function| function.name() == TO_TIMESTAMP) {
        *function = Arc::new(ToTimestamp::function(Arc::clone(function), &begin.zone));
    }
    functions.extend(ours);
    functions.retain(|function| function.name() != Chr::NAME);
    functions.push(Arc::new(Chr::function()));
    functions.push(Arc::new(ToChar::function()));
    functions.push(Arc::new(Age::function(&begin.zone, begin.now)));
    if let Some(wire) = &begin.wire {
        functions.extend(catalog_functions(&Facts::of(wire)));
    }
    (functions, operators)
}
