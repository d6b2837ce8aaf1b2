//! The copy of the jobs: `jobmeter.jobs` and `jobmeter.allocations`.

use crate::connection::DatabaseError;
use model::{Allocation, ClusterId, FactValue, JobFacts, JobId, JobKey, Timestamp};
use serde_json::{Map, Value, json};
use storage::{JobsPart, JobsScope, RunRow};
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

const BEGIN: &str = "INSERT INTO jobmeter.jobs_copy (registry, step) VALUES ($1, $2) \
    ON CONFLICT (is_one) DO UPDATE SET registry = excluded.registry, step = excluded.step";
/// A step whose end the server did not receive is repeated.
const CONTINUE: &str =
    "UPDATE jobmeter.jobs_copy SET step = $2 WHERE registry = $1 AND step IN ($2::bigint - 1, $2)";
const INSERT_JOBS: &str = "INSERT INTO jobmeter.jobs \
    SELECT * FROM json_populate_recordset(NULL::jobmeter.jobs, $1::text::json)";
/// Allocations that are unchanged are not written again: a job may have thousands.
const INSERT_ALLOCATIONS: &str = "INSERT INTO jobmeter.allocations \
    SELECT * FROM json_populate_recordset(NULL::jobmeter.allocations, $1::text::json) AS new \
    WHERE NOT EXISTS (SELECT FROM jobmeter.allocations AS old WHERE old.cluster COLLATE \"C\" = new.cluster \
        AND old.job_id = new.job_id AND old.node = new.node AND old.start_time = new.start_time \
        AND old.stop_time IS NOT DISTINCT FROM new.stop_time)";
/// A condition of a deletion: the allocation is not one of `$1`.
const IS_OLD: &str = "NOT EXISTS (SELECT FROM new WHERE old.cluster = new.cluster AND old.job_id = new.job_id \
    AND old.node = new.node AND old.start_time = new.start_time \
    AND old.stop_time IS NOT DISTINCT FROM new.stop_time)";

const LAST_LOCAL: &str = "SELECT max(job_id) FROM (SELECT cluster, job_id FROM jobmeter.series UNION ALL \
    SELECT cluster, job_id FROM jobmeter.jobs) AS known WHERE cluster = $1 AND job_id <= $2";

/// Copies a part. Returns whether it follows the last one.
pub(crate) async fn copy(
    transaction: &Transaction<'_>,
    part: &JobsPart,
) -> Result<bool, DatabaseError> {
    let mark = if part.is_first { BEGIN } else { CONTINUE };
    if transaction.execute(mark, &[&part.registry.as_ref(), &part.step]).await? == 0 {
        return Ok(false);
    }
    let scope = Scope::of(&part.scope);
    let allocations = Value::Array(part.allocations.iter().map(allocation_row).collect());
    let (allocations, of_scope) = (allocations.to_string(), scope.values());
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&allocations];
    values.extend(&of_scope);
    let delete = format!(
        "WITH new AS MATERIALIZED (SELECT * FROM json_populate_recordset(NULL::jobmeter.allocations, \
         $1::text::json)) DELETE FROM jobmeter.allocations AS old WHERE {} AND {IS_OLD}",
        scope.condition(2)
    );
    transaction.execute(&delete, &values).await?;
    transaction.execute(INSERT_ALLOCATIONS, &[&allocations]).await?;
    let delete = format!("DELETE FROM jobmeter.jobs AS old WHERE {}", scope.condition(1));
    transaction.execute(&delete, &of_scope).await?;
    let runs = Value::Array(part.runs.iter().map(run_row).collect()).to_string();
    transaction.execute(INSERT_JOBS, &[&runs]).await?;
    Ok(true)
}

/// The greatest number of a local job with samples or in the copy, at most `most`.
pub(crate) async fn last_local(
    transaction: &Transaction<'_>,
    most: i64,
) -> Result<Option<JobId>, DatabaseError> {
    let row = transaction.query_one(LAST_LOCAL, &[&ClusterId::LOCAL, &most]).await?;
    Ok(row.try_get::<_, Option<i64>>(0)?.and_then(JobId::new))
}

/// The replaced jobs, column by column.
struct Scope {
    is_range: bool,
    /// The jobs, or the two bounds.
    clusters: Vec<Option<String>>,
    ids: Vec<Option<i64>>,
}

impl Scope {
    fn of(scope: &JobsScope) -> Self {
        let keys: Vec<Option<&JobKey>> = match scope {
            JobsScope::Keys(keys) => keys.iter().map(Some).collect(),
            JobsScope::Range(after, last) => vec![after.as_ref(), last.as_ref()],
        };
        Self {
            is_range: matches!(scope, JobsScope::Range(..)),
            clusters: keys.iter().map(|key| key.map(|key| key.cluster.to_string())).collect(),
            ids: keys.iter().map(|key| key.map(|key| key.id.get())).collect(),
        }
    }

    fn values(&self) -> [&(dyn ToSql + Sync); 2] {
        [&self.clusters, &self.ids]
    }

    /// A condition on the columns of `old`, with two parameters from a number on. Clusters are compared by their bytes, as
    /// in the registry.
    fn condition(&self, first: usize) -> String {
        let key = "(old.cluster COLLATE \"C\", old.job_id)";
        let (clusters, ids) = (format!("${first}::text[]"), format!("${}::bigint[]", first + 1));
        if !self.is_range {
            return format!("{key} IN (SELECT * FROM unnest({clusters}, {ids}))");
        }
        let bound = |at: usize| format!("(({clusters})[{at}], ({ids})[{at}])");
        let after = self.clusters.first().is_some_and(Option::is_some);
        let last = self.clusters.last().is_some_and(Option::is_some);
        let after = if after { format!("{key} > {}", bound(1)) } else { "true".to_owned() };
        let last = if last { format!("{key} <= {}", bound(2)) } else { "true".to_owned() };
        // Both parameters have a type, whether they are compared or not.
        format!("{clusters} IS NOT NULL AND {ids} IS NOT NULL AND {after} AND {last}")
    }
}

fn run_row(run: &RunRow) -> Value {
    let RunRow { job, end, oom_kills } = run;
    let mut row = Map::new();
    for (fact, value) in JobFacts::columns().iter().zip(job.facts.values()) {
        let column = match &*fact.name {
            "user" => "user_name",
            "uid" => "user_id",
            name => name,
        };
        row.insert(column.to_owned(), fact_value(value));
    }
    let (cause, detail) = end.as_ref().map(|(cause, detail)| (cause, detail)).unzip();
    let own = [
        ("job_id", json!(job.key.id.get())),
        ("cluster", json!(job.key.cluster.as_str())),
        ("display_id", text(&job.display_id)),
        ("state", json!(job.state.word())),
        ("submit_time", time(job.submit)),
        ("start_time", time(job.start)),
        ("stop_time", time(job.stop)),
        ("end_cause", cause.map_or(Value::Null, |cause| text(cause))),
        ("end_detail", detail.filter(|it| !it.is_empty()).map_or(Value::Null, |it| text(it))),
        ("oom_kills", json!(oom_kills)),
    ];
    row.extend(own.map(|(column, value)| (column.to_owned(), value)));
    Value::Object(row)
}

fn allocation_row(allocation: &Allocation) -> Value {
    let Allocation { job, device, start, stop } = allocation;
    json!({
        "cluster": job.cluster.as_str(),
        "job_id": job.id.get(),
        "node": device.as_str(),
        "start_time": start.to_string(),
        "stop_time": time(*stop),
    })
}

fn time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| at.to_string().into())
}

/// A text without the character that PostgreSQL cannot store.
fn text(text: &str) -> Value {
    text.replace('\0', "").into()
}

fn fact_value(value: FactValue<'_>) -> Value {
    match value {
        FactValue::None => Value::Null,
        FactValue::Text(it) => text(&it),
        FactValue::Integer(number) => number.into(),
        FactValue::Real(number) => number.into(),
    }
}
