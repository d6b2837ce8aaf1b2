//! Runs a statement in a worker.

use crate::SqlError;
use crate::common::dialect;
use crate::common::schema::Table;
use crate::common::wire::{Parameter, type_of_data};
use crate::functions::guard::Guard;
use crate::functions::job_requests::JOB_TABLES_MAX;
use crate::functions::parameters::{self, Unknown};
use crate::functions::pg_catalog::rewrite::rewrite;
use crate::functions::string_limits::Texts;
use crate::functions::values::literals;
use crate::functions::{headers, information};
use crate::statements::explain::{self, Wanted};
use crate::statements::state::{Tables, state};
use crate::statements::table_functions;
use crate::statements::worker::child::{Encode, NewEncoder};
use crate::statements::worker::link::Link;
use crate::statements::worker::messages::{self, Begin, Head};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{EmptyRecordBatchStream, execute_stream};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::Statement;
use futures::StreamExt;
use pg_wire::oid;
use query::{Cancel, QueryError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum number of tables in a statement; repeated tables count again. A thread of the server reads each.
pub(crate) const TABLES_MAX: usize = 16;
/// Number of rows that are encoded as text at once.
pub(crate) const ENCODED_ROWS: usize = 1024;
/// Maximum text in one message in bytes.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// What precedes the rows of a result.
struct Heading {
    /// Names of the columns, if they are not those of the plan.
    names: Option<Vec<String>>,
    /// Types of the parameters, if they are requested.
    types: Vec<u32>,
}

/// A statement to run.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) begin: Begin,
    pub(crate) link: Arc<Link>,
    pub(crate) encoder: NewEncoder,
    pub(crate) threads: usize,
    pub(crate) cancel: Cancel,
}

impl Work {
    /// Plans the statement and sends the rows as text. Returns the text after the last row.
    pub(crate) async fn run(self) -> Result<&'static [u8], SqlError> {
        let deadline = Instant::now() + Duration::from_millis(self.begin.left_ms);
        let seconds = self.begin.seconds;
        let guard = Arc::new(Guard { cancel: self.cancel.clone(), deadline, seconds });
        let texts = Arc::new(Texts::new(Arc::clone(&guard), self.memory(), self.threads));
        let state = state(&self, &Tables::All, guard, &texts)?;
        let answer = async {
            let (stream, heading) = self.start(&state, &texts).await?;
            self.send_rows(stream, heading).await
        };
        timeout_at(deadline, answer).await.unwrap_or(Err(SqlError::TooSlow(seconds)))
    }

    pub(crate) fn failed(&self, error: DataFusionError) -> SqlError {
        SqlError::of(error, self.begin.memory_mib())
    }

    /// Memory of the statement in bytes.
    pub(crate) fn memory(&self) -> usize {
        usize::try_from(self.begin.memory_bytes).unwrap_or(usize::MAX)
    }

    async fn start(
        &self,
        state: &SessionState,
        texts: &Texts,
    ) -> Result<(SendableRecordBatchStream, Heading), SqlError> {
        let parse = |text: &str| dialect::parse(text).map_err(|error| self.failed(error));
        let mut statement = parse(&information::without_table(&self.begin.text))?;
        if let Some(select) = information::as_select(&statement)? {
            statement = parse(&select)?;
        }
        let (wanted, mut statement) = explain::wanted(statement)?;
        literals::prepare(&mut statement)?;
        if wanted == Wanted::Rows {
            headers::distinct(&mut statement);
        }
        // EXPLAIN without ANALYZE reads no data.
        if wanted != Wanted::Plan {
            table_functions::subqueries::evaluate(self, state, texts, &mut statement).await?;
        }
        table_functions::order_arguments(&mut statement)?;
        only_select(wanted, &statement)?;
        let (plan, types) = self.plan(state, statement, texts).await?;
        let names = headers::of(&plan).filter(|_| wanted == Wanted::Rows);
        let plan = state.create_physical_plan(&plan).await.map_err(|e| self.failed(e))?;
        let context = state.task_ctx();
        if self.begin.wire.as_ref().is_some_and(|wire| wire.describes) {
            let schema = if wanted == Wanted::Rows { plan.schema() } else { explain::schema() };
            return Ok((Box::pin(EmptyRecordBatchStream::new(schema)), Heading { names, types }));
        }
        let rows = match wanted {
            Wanted::Rows => execute_stream(plan, context),
            Wanted::Plan => explain::plan(&plan),
            Wanted::Analysis => explain::analysis(plan, context, &self.begin, &self.link),
        };
        Ok((rows.map_err(|error| self.failed(error))?, Heading { names, types }))
    }

    /// Plans a SELECT, and rejects a plan that changes something or exceeds a limit. Returns also the types of its
    /// parameters, if only these and the columns are requested.
    pub(crate) async fn plan(
        &self,
        state: &SessionState,
        statement: Parsed,
        texts: &Texts,
    ) -> Result<(LogicalPlan, Vec<u32>), SqlError> {
        let (plan, types) = self.planned(state, statement).await?;
        // Repeats the check for the plan: `SELECT … INTO` creates a table, and a plan may contain more than the
        // text shows.
        SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false)
            .verify_plan(&plan)
            .map_err(|_| SqlError::NotSelect("a statement that changes something".to_owned()))?;
        let tables = tables(&plan).map_err(|error| self.failed(error))?;
        if tables > TABLES_MAX {
            let text = format!("the statement names {tables} tables; {TABLES_MAX} at most");
            return Err(SqlError::Statement(text));
        }
        texts.look(&plan).map_err(|error| self.failed(error))?;
        Ok((plan, types))
    }

    /// Plans a statement. Returns also the types of its parameters, if only these and the columns are requested.
    async fn planned(
        &self,
        state: &SessionState,
        mut statement: Parsed,
    ) -> Result<(LogicalPlan, Vec<u32>), SqlError> {
        let Some(wire) = &self.begin.wire else {
            let plan = state.statement_to_plan(statement).await;
            return Ok((plan.map_err(|error| self.failed(error))?, Vec::new()));
        };
        let mut known = wire.parameters.clone();
        if wire.describes {
            known.resize(parameters::count(&mut statement).max(known.len()), Parameter::default());
            let mut inferred = statement.clone();
            parameters::substitute(&mut inferred, &known, Unknown::Remain)?;
            rewrite(&mut inferred);
            // A function's arguments must be constants: then the parameters without a type are texts.
            if let Ok(plan) = state.statement_to_plan(inferred).await
                && let Ok(found) = plan.get_parameter_types()
            {
                for (parameter, number) in known.iter_mut().zip(1_usize..) {
                    let kind = found.get(&format!("${number}")).and_then(Option::as_ref);
                    if let Some(kind) = kind.filter(|_| parameter.oid == 0) {
                        parameter.oid = type_of_data(kind);
                    }
                }
            }
            let lists = parameters::lists(&mut statement);
            for (parameter, number) in known.iter_mut().zip(1_usize..) {
                if parameter.oid == 0 {
                    let is_list = lists.contains(&number);
                    parameter.oid = if is_list { oid::TEXT_ARRAY } else { oid::TEXT };
                }
            }
        }
        parameters::substitute(&mut statement, &known, Unknown::Text)?;
        rewrite(&mut statement);
        // Parameters with equal values are equal columns.
        headers::distinct(&mut statement);
        let plan = state.statement_to_plan(statement).await.map_err(|error| self.failed(error))?;
        let types =
            if wire.describes { known.iter().map(|it| it.oid).collect() } else { Vec::new() };
        Ok((plan, types))
    }

    async fn send_rows(
        &self,
        mut stream: SendableRecordBatchStream,
        Heading { names, types: parameters }: Heading,
    ) -> Result<&'static [u8], SqlError> {
        let schema = headers::named(&stream.schema(), names.as_deref());
        let (mut encoder, text) = (self.encoder)(self.begin.form(), &schema);
        let times = time_columns(&schema, &self.begin.zone);
        self.send(&messages::begins(&Head { text, times, parameters }))?;
        let mut rows = 0_u64;
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|error| self.failed(error))?;
            let mut first = 0;
            while first < batch.num_rows() {
                let count = (batch.num_rows() - first).min(ENCODED_ROWS);
                rows = rows.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                if rows > self.begin.rows_max {
                    return Err(SqlError::TooManyRows(self.begin.rows_max));
                }
                self.send_text(&mut *encoder, &batch.slice(first, count))?;
                first += count;
                // The encoder never waits, but other tasks on this thread must run.
                tokio::task::yield_now().await;
            }
        }
        Ok(encoder.end())
    }

    fn send_text(&self, encoder: &mut dyn Encode, batch: &RecordBatch) -> Result<(), SqlError> {
        let text = encoder.rows(batch).map_err(|error| SqlError::Value(error.to_string()))?;
        let mut rows = u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
        for piece in text.chunks(PIECE_BYTES) {
            self.send(&messages::text(std::mem::take(&mut rows), piece))?;
        }
        Ok(())
    }

    /// Sends a message. Fails if the server has closed the socket.
    fn send(&self, message: &[u8]) -> Result<(), SqlError> {
        let gone = |_: io::Error| SqlError::Query(QueryError::Cancelled);
        self.link.send(message).map_err(gone)
    }
}

/// Positions of the columns with times in a zone. `AT TIME ZONE` gives a column another zone.
pub(crate) fn time_columns(schema: &Schema, zone: &str) -> Vec<usize> {
    let is_time =
        |kind: &DataType| matches!(kind, DataType::Timestamp(_, Some(of)) if **of == *zone);
    let columns = schema.fields().iter().enumerate();
    columns.filter(|(_, field)| is_time(field.data_type())).map(|(place, _)| place).collect()
}

fn only_select(wanted: Wanted, statement: &Parsed) -> Result<(), SqlError> {
    if let Parsed::Statement(inner) = statement
        && matches!(**inner, Statement::Query(_))
    {
        return Ok(());
    }
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    let explain = if wanted == Wanted::Rows { "" } else { "EXPLAIN of " };
    Err(SqlError::NotSelect(format!("{explain}{}", words.join(" "))))
}

/// Counts the tables that a plan reads at a time, including subqueries.
fn tables(plan: &LogicalPlan) -> Result<usize, DataFusionError> {
    let mut tables = 0;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            // Each of its statements reads several tables. The plan names its table by the call.
            let column = Table::GetJobMetrics.name();
            let is_of_job = scan.source.schema().field_with_name(column).is_ok();
            tables += if is_of_job { JOB_TABLES_MAX } else { 1 };
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}
