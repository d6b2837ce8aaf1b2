//! Ends statements that would otherwise ignore their deadline.
//!
//! The engine's operators yield while they wait for their inputs. A join may produce many rows from few: it can
//! compute for hours on data in memory without checking a time limit. The last planning step therefore adds two
//! checks:
//!
//! - [`Guarded`] above every operator that multiplies rows. It checks the clock for each batch and yields at times.
//! - [`GuardedFilter`] around join conditions, which may search long without finding a row.

use crate::SqlError;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};
use futures::StreamExt;
use query::{Cancel, QueryError};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tokio::time::Instant;

/// Operators that can produce many rows from few.
const MULTIPLIERS: [&str; 8] = [
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "RecursiveQueryExec",
    "SortMergeJoinExec",
    "SymmetricHashJoinExec",
    "UnnestExec",
];

/// Deadline of a statement.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) cancel: Cancel,
    pub(crate) deadline: Instant,
    /// Time limit behind the deadline in seconds, for error messages.
    pub(crate) seconds: u64,
}

impl Guard {
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancel.check().is_err() {
            return Err(DataFusionError::External(Box::new(QueryError::Cancelled)));
        }
        if Instant::now() >= self.deadline {
            return Err(DataFusionError::External(Box::new(SqlError::TooSlow(self.seconds))));
        }
        Ok(())
    }
}

/// The last planning step.
#[derive(Debug)]
pub(crate) struct GuardPlans(pub(crate) Arc<Guard>);

impl PhysicalOptimizerRule for GuardPlans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if !MULTIPLIERS.contains(&node.name()) {
                return Ok(Transformed::no(node));
            }
            let input = self.guard_filter(node)?;
            let guarded = Arc::new(Guarded { input, guard: Arc::clone(&self.0) });
            Ok(Transformed::yes(Arc::new(CooperativeExec::new(guarded)) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "guard_plans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl GuardPlans {
    fn guard_filter(&self, node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let guarded = |filter: &JoinFilter| {
            let (inner, guard) = (Arc::clone(filter.expression()), Arc::clone(&self.0));
            let expression = Arc::new(GuardedFilter { inner, guard });
            let (columns, schema) = (filter.column_indices().to_vec(), Arc::clone(filter.schema()));
            Some(JoinFilter::new(expression, columns, schema))
        };
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            use datafusion::physical_plan::joins::NestedLoopJoinExecBuilder;
            let builder = NestedLoopJoinExecBuilder::from(join);
            return Ok(Arc::new(builder.with_filter(guarded(filter)).build()?));
        }
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(filter) = join.filter()
        {
            return Ok(Arc::new(join.builder().with_filter(guarded(filter)).build()?));
        }
        Ok(node)
    }
}

/// Passes rows on until the statement must end.
#[derive(Debug)]
struct Guarded {
    input: Arc<dyn ExecutionPlan>,
    guard: Arc<Guard>,
}

impl DisplayAs for Guarded {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarded")
    }
}

impl ExecutionPlan for Guarded {
    fn name(&self) -> &'static str {
        "Guarded"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self { input, guard: Arc::clone(&self.guard) }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let guard = Arc::clone(&self.guard);
        let rows = self.input.execute(partition, context)?;
        let checked = rows.map(move |batch| guard.check().and(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), checked)))
    }
}

/// A join condition that fails once the statement must end.
#[derive(Debug)]
struct GuardedFilter {
    inner: Arc<dyn PhysicalExpr>,
    guard: Arc<Guard>,
}

impl fmt::Display for GuardedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PartialEq for GuardedFilter {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for GuardedFilter {}

impl Hash for GuardedFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl PhysicalExpr for GuardedFilter {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.guard.check()?;
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Self { inner, guard: Arc::clone(&self.guard) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
