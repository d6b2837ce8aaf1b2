//! Table scan in the engine's plan: receives rows from the server.

use crate::common::schema::Table;
use crate::statements::worker::link::Link;
use crate::statements::worker::messages::ScanRequest;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;

/// Number of rows in a batch: the engine's default.
const ROWS_AT_ONCE: usize = 8192;

/// A table scan as a leaf of a plan.
#[derive(Debug)]
pub(crate) struct TableExec {
    request: ScanRequest,
    schema: SchemaRef,
    link: Arc<Link>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl TableExec {
    pub(crate) fn new(request: ScanRequest, schema: SchemaRef, link: Arc<Link>) -> Self {
        // `get_metrics` returns its rows in the order of time.
        let time = matches!(request.table, Table::GetMetrics | Table::JobMetrics)
            .then(|| Column::new_with_schema("timestamp", &schema));
        let order =
            time.and_then(Result::ok).map(|time| [PhysicalSortExpr::new_default(Arc::new(time))]);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), order),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { request, schema, link, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    fn table(&self) -> Table {
        self.request.table
    }
}

impl DisplayAs for TableExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableExec: {}", self.table().name())?;
        if let Some(limit) = self.request.limit {
            write!(f, ", {limit} rows at most")?;
        }
        write!(f, "{}", self.request.narrow)
    }
}

impl ExecutionPlan for TableExec {
    fn name(&self) -> &'static str {
        "TableExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let mut left = self.request.limit.unwrap_or(usize::MAX);
        let batches = self.link.scan(self.request.clone(), Arc::clone(&self.schema))?;
        // Split batches to the engine's size, so that its operators yield as often as designed.
        let pieces = batches.flat_map(move |batch| {
            let mut pieces = Vec::new();
            match batch {
                Err(error) => pieces.push(Err(error)),
                Ok(batch) => {
                    let mut first = 0;
                    while first < batch.num_rows() && left > 0 {
                        let count = (batch.num_rows() - first).min(ROWS_AT_ONCE).min(left);
                        rows.add(count);
                        pieces.push(Ok(batch.slice(first, count)));
                        (first, left) = (first + count, left - count);
                    }
                }
            }
            futures::stream::iter(pieces)
        });
        let schema = Arc::clone(&self.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, pieces)))
    }
}
