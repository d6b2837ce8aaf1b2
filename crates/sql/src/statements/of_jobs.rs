//! Conditions on tables of jobs that the registry evaluates with an index.
//!
//! A registry may hold more jobs than a statement may read. A statement that names a job, a user, a node or a time
//! reads only matching jobs. The registry may return more jobs than requested, and the engine filters them.

use crate::statements::scan_filter::{ScanFilter, nanos};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use jobs::Filter;
use model::{ClusterId, DeviceId, JobState, Timestamp};

/// Whether a condition on a table of jobs reduces the jobs to read.
pub(crate) fn understands(condition: &Expr) -> bool {
    by_number(condition) || add(condition, &mut Filter::default()).is_some()
}

/// Combines the conditions that the registry supports.
pub(crate) fn narrow(conditions: &[Expr]) -> ScanFilter {
    let numbers: Vec<Expr> = conditions.iter().filter(|one| by_number(one)).cloned().collect();
    let mut narrow = ScanFilter::of(&numbers);
    for condition in conditions {
        add(condition, &mut narrow.jobs);
    }
    narrow
}

/// Whether the condition selects one job ID or a list.
fn by_number(condition: &Expr) -> bool {
    ScanFilter::understands(condition)
        && ScanFilter::of(std::slice::from_ref(condition)).ids.is_some()
}

fn add(condition: &Expr, filter: &mut Filter) -> Option<()> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (column, op, value) = match (&**left, &**right) {
        (Expr::Column(column), Expr::Literal(value, _)) => (&column.name, *op, value),
        (Expr::Literal(value, _), Expr::Column(column)) => (&column.name, op.swap()?, value),
        _ => return None,
    };
    match column.as_str() {
        "start_time" | "stop_time" => add_time(op, nanos(value)?.micros, filter),
        _ if op == Operator::Eq => add_key(column, value, filter),
        _ => None,
    }
}

/// Adds a condition on a start or end time. A job that started or stopped after a time had not ended before it. A
/// job that did so before a time had started by then.
fn add_time(op: Operator, micros: i64, filter: &mut Filter) -> Option<()> {
    let (from, to) = match op {
        Operator::Gt | Operator::GtEq => (Some(micros), None),
        Operator::Lt | Operator::LtEq => (None, Some(micros)),
        Operator::Eq => (Some(micros), Some(micros)),
        _ => return None,
    };
    if let Some(from) = from {
        filter.from = filter.from.max(Some(Timestamp(from)));
    }
    if let Some(to) = to {
        // Nanoseconds were truncated.
        let to = Timestamp(to.saturating_add(1));
        filter.to = Some(filter.to.map_or(to, |before| before.min(to)));
    }
    Some(())
}

fn add_key(column: &str, value: &ScalarValue, filter: &mut Filter) -> Option<()> {
    if column == "user_id" {
        let ScalarValue::Int64(Some(uid)) = value else { return None };
        filter.uid = Some(u32::try_from(*uid).ok()?);
        return Some(());
    }
    let text = value.try_as_str().flatten()?;
    match column {
        "cluster" => filter.cluster = Some(ClusterId::new(text).ok()?),
        "device_id" | "node" => filter.device = Some(DeviceId::new(text).ok()?),
        "state" => filter.state = Some(JobState::from_word(text)?),
        "user_name" => filter.user = Some(text.to_owned()),
        "account" => filter.account = Some(text.to_owned()),
        "project" => filter.project = Some(text.to_owned()),
        "queue" => filter.queue = Some(text.to_owned()),
        "name" => filter.name = Some(text.to_owned()),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{col, lit};
    use model::JobId;
    use std::collections::BTreeSet;

    #[test]
    fn conditions_that_leave_fewer_jobs() {
        let at = |micros| lit(ScalarValue::TimestampMicrosecond(Some(micros), None));
        let conditions = [
            col("job_id").in_list(vec![lit(7_i64), lit(8_i64)], false),
            col("account").eq(lit("physics")),
            lit("alice").eq(col("user_name")),
            col("user_id").eq(lit(1000_i64)),
            col("state").eq(lit("failed")),
            col("start_time").gt_eq(at(10)),
            col("stop_time").lt(at(90)),
            at(80).gt(col("start_time")),
        ];
        assert!(conditions.iter().all(understands));
        let narrow = narrow(&conditions);
        assert_eq!(narrow.ids, Some(BTreeSet::from([7, 8].map(|id| JobId::new(id).unwrap()))));
        let filter = Filter {
            account: Some("physics".to_owned()),
            user: Some("alice".to_owned()),
            uid: Some(1000),
            state: Some(JobState::Failed),
            from: Some(Timestamp(10)),
            to: Some(Timestamp(81)),
            ..Filter::default()
        };
        assert_eq!(narrow.jobs, filter);
    }

    #[test]
    fn what_is_left_to_the_engine() {
        for condition in [
            col("name").like(lit("a%")),
            col("name").not_eq(lit("a")),
            col("exit_code").eq(lit(1_i64)),
            col("user_id").eq(lit(-1_i64)),
            col("state").eq(lit("asleep")),
            col("submit_time").is_null(),
            col("account").eq(lit("a")).or(col("account").eq(lit("b"))),
        ] {
            assert!(!understands(&condition), "{condition}");
        }
    }
}
