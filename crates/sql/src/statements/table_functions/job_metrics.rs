//! `get_job_metrics(job_id => 7)`: the results of the site's statements about a job, as one JSON object.
//!
//! Each statement has a plan of its own, which can read nothing but `jobmetrics`, and an equal share of the remaining
//! time. A statement that fails gives null and a warning. If the rows of the job cannot be read, the call fails.

use crate::SqlError;
use crate::common::dialect;
use crate::common::schema::Table;
use crate::functions::guard::Guard;
use crate::functions::headers;
use crate::functions::job_requests::JobRequest;
use crate::functions::string_limits::Texts;
use crate::functions::values::literals;
use crate::statements::encoding::{Encoding, Form};
use crate::statements::run::Work;
use crate::statements::scan_filter::ScanFilter;
use crate::statements::state::{Tables, state};
use crate::statements::worker::messages::ScanRequest;
use datafusion::arrow::array::StringViewArray;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{StreamExt, TryStreamExt};
use query::Format;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// Maximum number of characters of a warning.
const WARNING_CHARS_MAX: usize = 300;

/// The only row of the function.
#[derive(Debug)]
pub(crate) struct JobMetrics {
    pub(crate) work: Work,
    pub(crate) guard: Arc<Guard>,
    pub(crate) arguments: Vec<(String, String)>,
    pub(crate) schema: SchemaRef,
}

impl PartitionStream for JobMetrics {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (work, guard) = (self.work.clone(), Arc::clone(&self.guard));
        let (arguments, schema) = (self.arguments.clone(), Arc::clone(&self.schema));
        let row = async move {
            let row = row(&work, &guard, &arguments, &schema).await;
            row.map_err(|error| DataFusionError::External(Box::new(error)))
        };
        let rows = futures::stream::once(row);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

async fn row(
    work: &Work,
    outer: &Guard,
    arguments: &[(String, String)],
    schema: &SchemaRef,
) -> Result<RecordBatch, SqlError> {
    check_job(work, arguments).await?;
    let (mut members, mut warnings) = (Vec::new(), Vec::new());
    let mut left = u32::try_from(work.begin.job_requests.len()).unwrap_or(u32::MAX);
    for request in &work.begin.job_requests {
        let now = Instant::now();
        let share = outer.deadline.saturating_duration_since(now) / left.max(1);
        left = left.saturating_sub(1);
        let seconds = share.as_secs().max(1);
        let guard = Guard { cancel: outer.cancel.clone(), deadline: now + share, seconds };
        // A panic of the engine ends only this statement.
        let task = (work.clone(), request.clone(), Arc::new(guard), arguments.to_vec());
        let run = tokio::spawn(async move {
            let (work, request, guard, arguments) = task;
            values(&work, &request, guard, arguments).await
        });
        let ran = run.await.unwrap_or_else(|error| Err(SqlError::Died(error.to_string())));
        let found = match ran {
            Ok(found) => found,
            Err(error @ SqlError::Query(_)) => return Err(error),
            Err(error) => {
                let warning =
                    format!("line {} (`{}`): {error}", request.line, request.keys.join("`, `"));
                warnings.push(warning.chars().take(WARNING_CHARS_MAX).collect::<String>());
                None
            }
        };
        members.push(found.unwrap_or_else(|| nulls(&request.keys)));
    }
    let object = format!("{{{}}}", members.join(","));
    let warnings = serde_json::to_string(&warnings).ok().filter(|_| !warnings.is_empty());
    let columns =
        [StringViewArray::from(vec![Some(object)]), StringViewArray::from(vec![warnings])];
    let columns = columns.into_iter().map(|column| Arc::new(column) as _).collect();
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|error| SqlError::Internal(error.to_string()))
}

/// Fails if the caller may not query this job. Not every statement reads its rows.
async fn check_job(work: &Work, arguments: &[(String, String)]) -> Result<(), SqlError> {
    let table = Table::JobMetrics;
    let schema = table.schema(&Arc::from(&*work.begin.zone)).project(&[]);
    let schema = schema.map_err(|error| SqlError::Internal(error.to_string()))?;
    // No metric has this name, so that no sample is read.
    let none = BTreeSet::from([Arc::from("")]);
    let narrow = ScanFilter { metrics: Some(none), ..ScanFilter::default() };
    let (arguments, kept) = (arguments.to_vec(), Vec::new());
    let request = ScanRequest { table, arguments, kept, narrow, limit: Some(1) };
    let rows = work.link.scan(request, Arc::new(schema)).map_err(|error| work.failed(error))?;
    rows.try_for_each(async |_| Ok(())).await.map_err(|error| work.failed(error))
}

/// The members of the object without values.
fn nulls(keys: &[String]) -> String {
    let member = |key: &String| format!("{}:null", serde_json::Value::from(key.as_str()));
    keys.iter().map(member).collect::<Vec<_>>().join(",")
}

/// Runs a statement. Returns the members of the object for its row, without braces; `None` without a row.
async fn values(
    work: &Work,
    request: &JobRequest,
    guard: Arc<Guard>,
    arguments: Vec<(String, String)>,
) -> Result<Option<String>, SqlError> {
    let (deadline, seconds) = (guard.deadline, guard.seconds);
    let texts = Arc::new(Texts::new(Arc::clone(&guard), work.memory(), work.threads));
    let state = state(work, &Tables::OfJob(arguments), guard, &texts)?;
    let row = async {
        let failed = |error| work.failed(error);
        let mut statement = dialect::parse(&request.text).map_err(failed)?;
        literals::prepare(&mut statement)?;
        headers::distinct(&mut statement);
        let (plan, _) = work.plan(&state, statement, &texts).await?;
        let plan = state.create_physical_plan(&plan).await.map_err(failed)?;
        let mut rows = execute_stream(plan, state.task_ctx()).map_err(failed)?;
        let mut first: Option<RecordBatch> = None;
        while let Some(batch) = rows.next().await {
            let batch = batch.map_err(failed)?;
            let count = batch.num_rows() + usize::from(first.is_some());
            if count > 1 {
                let what = "the statement has more than one row; aggregate them, or add LIMIT 1";
                return Err(SqlError::Value(what.to_owned()));
            }
            first = first.or((count > 0).then_some(batch));
        }
        first.map(|row| members(work, request, &row)).transpose()
    };
    timeout_at(deadline, row).await.unwrap_or(Err(SqlError::TooSlow(seconds)))
}

fn members(work: &Work, request: &JobRequest, row: &RecordBatch) -> Result<String, SqlError> {
    let schema = headers::named(&row.schema(), Some(&request.keys));
    let encoding = Encoding { format: Format::Json, like_postgrest: true };
    let (mut encoder, _) = (work.encoder)(Form::Text(encoding), &schema);
    let text = encoder.rows(row).map_err(|error| SqlError::Value(error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| SqlError::Value(error.to_string()))?;
    let object = text.trim();
    Ok(object
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .unwrap_or(object)
        .to_owned())
}
