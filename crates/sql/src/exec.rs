//! Rows of a table, on their way from the store to the engine.

use crate::columns::{batch_of_rows, finish, number_array, text_array, time_array, value_array};
use crate::meant::question;
use crate::narrow::Narrow;
use crate::provider::Scope;
use crate::schema::{Column, Table};
use crate::small;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use model::Timestamp;
use query::{QueryError, RowBatch};
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Batches between the thread that reads and the engine.
const BATCHES_AHEAD: usize = 2;

/// Rows of a batch for the engine: its default.
const ROWS_AT_ONCE: usize = 8192;

/// A table's rows as a leaf of a plan.
#[derive(Debug)]
pub(crate) struct TableExec {
    job: Arc<Job>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// What is read.
#[derive(Debug)]
struct Job {
    table: Table,
    /// The table's columns that are wanted, in this order.
    kept: Vec<usize>,
    schema: SchemaRef,
    narrow: Narrow,
    limit: Option<usize>,
    scope: Arc<Scope>,
}

impl TableExec {
    pub(crate) fn new(
        table: Table,
        kept: Vec<usize>,
        schema: SchemaRef,
        narrow: Narrow,
        limit: Option<usize>,
        scope: Arc<Scope>,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let job = Arc::new(Job { table, kept, schema, narrow, limit, scope });
        Self { job, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for TableExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableExec: {}", self.job.table.name())?;
        if let Some(limit) = self.job.limit {
            write!(f, ", {limit} rows at most")?;
        }
        write!(f, "{}", self.job.narrow)
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
        let schema = Arc::clone(&self.job.schema);
        let mut builder = RecordBatchReceiverStreamBuilder::new(schema, BATCHES_AHEAD);
        let (job, to) = (Arc::clone(&self.job), builder.tx());
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        builder.spawn_blocking(move || job.scope.reads.during(|| job.run(&to, &rows)));
        Ok(builder.build())
    }
}

impl Job {
    /// Reads and sends until the end, the limit, or until nobody listens any more.
    fn run(&self, to: &Sender<Result<RecordBatch>>, told: &Count) -> Result<()> {
        let Some((view, summary)) = self.table.view() else {
            let rows = small::rows(self.table, &self.narrow, &self.scope).map_err(external)?;
            let columns = self.table.columns();
            let column = |place: &usize| Some((*place, columns.get(*place)?.1));
            let kept: Vec<(usize, Column)> = self.kept.iter().filter_map(column).collect();
            let batch = batch_of_rows(&rows, &kept, &self.schema)?;
            told.add(batch.num_rows());
            to.blocking_send(Ok(batch)).ok();
            return Ok(());
        };
        let question = question(view, summary, &self.narrow, &self.scope).map_err(external)?;
        let Some(question) = question else {
            return Ok(());
        };
        let mut left = self.limit.unwrap_or(usize::MAX);
        let rows = self.scope.questions.rows(&question, &self.scope.asker).map_err(external)?;
        for rows in rows {
            let batch = self.batch(rows.map_err(external)?)?;
            // In pieces of the engine's own size, so that it looks up as often as it means to.
            let mut first = 0;
            while first < batch.num_rows() {
                let count = (batch.num_rows() - first).min(ROWS_AT_ONCE).min(left);
                told.add(count);
                let listened = to.blocking_send(Ok(batch.slice(first, count))).is_ok();
                (first, left) = (first + count, left - count);
                if !listened || left == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn batch(&self, rows: RowBatch) -> Result<RecordBatch> {
        let (count, mut times, mut values) = (rows.len(), Some(rows.times), Some(rows.values));
        let (lines, places) = (&rows.lines, &rows.places);
        let columns = self.table.columns();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.kept.len());
        for (nth, place) in self.kept.iter().enumerate() {
            let name = columns.get(*place).map_or("", |column| column.0);
            let text = |of: &dyn Fn(&query::Line) -> Option<String>| {
                let texts: Vec<Option<String>> = lines.iter().map(|line| of(line)).collect();
                text_array(texts.iter().map(Option::as_deref), places)
            };
            let number = |of: &dyn Fn(&query::Line) -> Option<i64>| {
                let numbers: Vec<Option<i64>> = lines.iter().map(|line| of(line)).collect();
                number_array(&numbers, places)
            };
            let instant = |of: &dyn Fn(&query::Line) -> Option<Timestamp>| {
                let times = number(&|line| of(line).map(|at| at.0));
                time_array(times.reinterpret_cast(), &self.schema, nth)
            };
            arrays.push(match name {
                "timestamp" => {
                    time_array(times.take().unwrap_or_default().into(), &self.schema, nth)
                }
                "value" => value_array(values.take().unwrap_or_default()),
                "device_id" => text(&|line| Some(line.device.to_string()))?,
                "metric_id" => text(&|line| Some(line.metric.to_string()))?,
                "labels" => text(&|line| Some(line.labels.to_string()))?,
                "cluster" => text(&|line| line.job.as_ref().map(|job| job.cluster.to_string()))?,
                "start_time" => instant(&|line| line.stay.map(|stay| stay.0)),
                "stop_time" => instant(&|line| line.stay.and_then(|stay| stay.1)),
                _ => Arc::new(number(&|line| line.job.as_ref().map(|job| job.id.get()))),
            });
        }
        Ok(finish(arrays, count, &self.schema)?)
    }
}

fn external(error: QueryError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
