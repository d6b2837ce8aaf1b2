//! `EXPLAIN SELECT …` and `EXPLAIN ANALYZE SELECT …`: the plan of a SELECT and its cost.
//!
//! The explained statement is planned with the same limits and permissions as a SELECT. Each line of the plan is a
//! row.

use crate::SqlError;
use crate::statements::worker::link::Link;
use crate::statements::worker::messages::Begin;
use datafusion::arrow::array::StringViewArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::format::ExplainStatementOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{ExplainStatement, Statement as Parsed};
use futures::StreamExt;
use std::sync::Arc;
use tokio::time::Instant;

/// Requested result of a SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Its rows.
    Rows,
    /// Its plan.
    Plan,
    /// Its plan and cost after running it.
    Analysis,
}

/// Returns the requested result, and the statement that EXPLAIN contains.
pub(crate) fn wanted(statement: Parsed) -> Result<(Wanted, Parsed), SqlError> {
    let Parsed::Explain(ExplainStatement { options, statement }) = statement else {
        return Ok((Wanted::Rows, statement));
    };
    let analyze = options.analyze;
    if options != (ExplainStatementOptions { analyze, ..ExplainStatementOptions::default() }) {
        let text = "the only supported option of EXPLAIN is ANALYZE";
        return Err(SqlError::Statement(text.to_owned()));
    }
    Ok((if analyze { Wanted::Analysis } else { Wanted::Plan }, *statement))
}

/// Returns the lines of a plan.
pub(crate) fn plan(plan: &Arc<dyn ExecutionPlan>) -> Result<SendableRecordBatchStream> {
    let lines = Lines::of(&DisplayableExecutionPlan::new(plan.as_ref()));
    let batch = lines.batch();
    Ok(stream(async move { batch }))
}

/// Returns the lines of a plan and its cost, after it has run.
pub(crate) fn analysis(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    begin: &Begin,
    link: &Arc<Link>,
) -> Result<SendableRecordBatchStream> {
    let began = Instant::now();
    let mut rows = execute_stream(Arc::clone(&plan), context)?;
    let (rows_max, reports_reads, link) = (begin.rows_max, begin.reports_reads, Arc::clone(link));
    Ok(stream(async move {
        let mut count = 0_u64;
        while let Some(batch) = rows.next().await {
            count = count.saturating_add(u64::try_from(batch?.num_rows()).unwrap_or(u64::MAX));
            if count > rows_max {
                let error = SqlError::TooManyRows(rows_max);
                return Err(DataFusionError::External(Box::new(error)));
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let mut lines = Lines::of(&DisplayableExecutionPlan::with_metrics(plan.as_ref()));
        lines.add("rows", &count.to_string());
        // The amount of data read includes rows that the user may not see. They are read and then filtered out.
        if reports_reads {
            let read = link.read_so_far();
            let (bytes, rows, groups) = (read.bytes, read.rows, read.row_groups);
            let text = format!("{bytes} bytes, {rows} rows, {groups} row groups of blocks");
            lines.add("read", &text);
        }
        lines.add("time", &format!("{seconds:.6} s"));
        lines.batch()
    }))
}

pub(crate) fn schema() -> SchemaRef {
    let field = |name| Field::new(name, DataType::Utf8View, false);
    Arc::new(Schema::new(vec![field("plan_type"), field("plan")]))
}

fn stream(
    batch: impl Future<Output = Result<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema(), futures::stream::once(batch)))
}

/// Output rows under construction.
#[derive(Debug, Default)]
struct Lines {
    kinds: Vec<&'static str>,
    texts: Vec<String>,
}

impl Lines {
    fn of(plan: &DisplayableExecutionPlan<'_>) -> Self {
        let mut lines = Self::default();
        plan.indent(false).to_string().lines().for_each(|line| lines.add("plan", line));
        lines
    }

    fn add(&mut self, kind: &'static str, text: &str) {
        self.kinds.push(kind);
        self.texts.push(text.to_owned());
    }

    fn batch(self) -> Result<RecordBatch> {
        let kinds = StringViewArray::from_iter_values(self.kinds);
        let texts = StringViewArray::from_iter_values(self.texts);
        Ok(RecordBatch::try_new(schema(), vec![Arc::new(kinds), Arc::new(texts)])?)
    }
}
