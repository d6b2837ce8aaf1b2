//! A table as the engine's table provider.

use crate::common::schema::Table;
use crate::statements::of_jobs;
use crate::statements::scan_filter::ScanFilter;
use crate::statements::table_scan::TableExec;
use crate::statements::worker::link::Link;
use crate::statements::worker::messages::ScanRequest;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// A table for one statement.
#[derive(Debug)]
pub(crate) struct Provider {
    table: Table,
    /// Of a function, by name.
    arguments: Vec<(String, String)>,
    schema: SchemaRef,
    link: Arc<Link>,
}

impl Provider {
    pub(crate) fn new(table: Table, zone: &Arc<str>, link: &Arc<Link>) -> Self {
        let (schema, link) = (table.schema(zone), Arc::clone(link));
        Self { table, arguments: Vec::new(), schema, link }
    }

    pub(crate) fn with_arguments(self, arguments: Vec<(String, String)>) -> Self {
        Self { arguments, ..self }
    }

    /// Whether this is a table of jobs, whose conditions reach the registry.
    const fn is_of_jobs(&self) -> bool {
        matches!(
            self.table,
            Table::Jobs | Table::Allocations | Table::NodetimePerJob | Table::NodetimeByJob
        )
    }

    /// Whether conditions on this table reach the store.
    const fn narrows(&self) -> bool {
        self.table.view().is_some() || matches!(self.table, Table::CounterStarts)
    }
}

#[async_trait::async_trait]
impl TableProvider for Provider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            if self.narrows() && ScanFilter::understands(filter) {
                TableProviderFilterPushDown::Exact
            } else if self.is_of_jobs() && of_jobs::understands(filter) {
                TableProviderFilterPushDown::Inexact
            } else if matches!(self.table, Table::GetMetrics | Table::JobMetrics)
                && ScanFilter::of(&[(*filter).clone()]).metrics.is_some()
            {
                // For rows of a function, the store evaluates only the metrics.
                TableProviderFilterPushDown::Inexact
            } else if self.table == Table::Marks && ScanFilter::understands(filter) {
                // For marks, the store evaluates only the time.
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let every = || (0..self.schema.fields().len()).collect();
        let kept = projection.cloned().unwrap_or_else(every);
        let schema = Arc::new(self.schema.project(&kept)?);
        let narrow =
            if self.is_of_jobs() { of_jobs::narrow(filters) } else { ScanFilter::of(filters) };
        let arguments = self.arguments.clone();
        let request = ScanRequest { table: self.table, arguments, kept, narrow, limit };
        Ok(Arc::new(TableExec::new(request, schema, Arc::clone(&self.link))))
    }
}
