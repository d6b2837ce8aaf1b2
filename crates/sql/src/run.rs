//! A statement at work, on the engine's own threads.

use crate::explain::{self, Wanted};
use crate::provider::Scope;
use crate::texts::Texts;
use crate::turns::Turn;
use crate::{Limits, SqlError};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::Statement;
use futures::StreamExt;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Most tables in a statement, one named twice counted twice: each is read by a thread.
pub(crate) const TABLES_MAX: usize = 16;

/// What a statement's thread tells.
#[derive(Debug)]
pub(crate) enum Message {
    /// Some rows.
    Rows(RecordBatch),
    /// These were all.
    End,
    /// There will be no more.
    Failed(SqlError),
}

/// A statement to be worked on.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) text: String,
    pub(crate) state: SessionState,
    pub(crate) scope: Arc<Scope>,
    pub(crate) texts: Arc<Texts>,
    pub(crate) deadline: Instant,
    pub(crate) limits: Arc<Limits>,
    pub(crate) to_rows: mpsc::Sender<Message>,
    /// Held until the end: so many statements run at once.
    pub(crate) permit: Turn,
}

impl Work {
    /// Plans, tells the columns or why there are none, and then the rows.
    pub(crate) async fn run(self, to_schema: oneshot::Sender<Result<SchemaRef, SqlError>>) {
        let stream = match timeout_at(self.deadline, self.start()).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                to_schema.send(Err(error)).ok();
                return;
            }
            Err(_) => {
                to_schema.send(Err(self.too_slow())).ok();
                return;
            }
        };
        if to_schema.send(Ok(stream.schema())).is_err() {
            return;
        }
        let last = match timeout_at(self.deadline, self.send_rows(stream)).await {
            Ok(Ok(())) => Message::End,
            Ok(Err(error)) => Message::Failed(error),
            Err(_) => Message::Failed(self.too_slow()),
        };
        drop(self.permit);
        self.to_rows.send(last).await.ok();
    }

    fn too_slow(&self) -> SqlError {
        SqlError::TooSlow(self.limits.seconds())
    }

    fn failed(&self, error: DataFusionError) -> SqlError {
        SqlError::of(error, self.limits.memory_mib())
    }

    async fn start(&self) -> Result<SendableRecordBatchStream, SqlError> {
        let statement = self
            .state
            .sql_to_statement(&self.text, &self.state.config_options().sql_parser.dialect)
            .map_err(|error| self.failed(error))?;
        let (wanted, statement) = explain::wanted(statement)?;
        only_select(wanted, &statement)?;
        let plan = self.state.statement_to_plan(statement).await.map_err(|e| self.failed(e))?;
        // Said again of the plan: `SELECT … INTO` makes a table, and plans may hold what no text shows.
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
        self.texts.look(&plan).map_err(|error| self.failed(error))?;
        let plan = self.state.create_physical_plan(&plan).await.map_err(|e| self.failed(e))?;
        let context = self.state.task_ctx();
        let rows = match wanted {
            Wanted::Rows => execute_stream(plan, context),
            Wanted::Plan => explain::plan(&plan),
            Wanted::Analysis => {
                let (scope, limits) = (Arc::clone(&self.scope), Arc::clone(&self.limits));
                explain::analysis(plan, context, scope, limits)
            }
        };
        rows.map_err(|error| self.failed(error))
    }

    async fn send_rows(&self, mut stream: SendableRecordBatchStream) -> Result<(), SqlError> {
        let mut rows = 0_u64;
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|error| self.failed(error))?;
            rows = rows.saturating_add(u64::try_from(batch.num_rows()).unwrap_or(u64::MAX));
            if rows > self.limits.rows_max {
                return Err(SqlError::TooManyRows(self.limits.rows_max));
            }
            if batch.num_rows() > 0 && self.to_rows.send(Message::Rows(batch)).await.is_err() {
                break;
            }
        }
        Ok(())
    }
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

/// How many tables a plan reads, those of subqueries included.
fn tables(plan: &LogicalPlan) -> Result<usize, DataFusionError> {
    let mut tables = 0;
    plan.apply_with_subqueries(|node| {
        tables += usize::from(matches!(node, LogicalPlan::TableScan(_)));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}
