//! Conditions of a WHERE clause that the store evaluates: devices, metrics, jobs, clusters and times.
//!
//! The store evaluates each supported condition exactly, so that the engine does not check it again.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use jobs::Filter;
use model::{ClusterId, DeviceId, JobId, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Conditions that rows must meet. The default has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanFilter {
    /// Allowed devices.
    pub(crate) devices: Option<BTreeSet<DeviceId>>,
    /// Allowed metrics.
    pub(crate) metrics: Option<BTreeSet<Arc<str>>>,
    /// Allowed job IDs.
    pub(crate) ids: Option<BTreeSet<JobId>>,
    /// Allowed clusters.
    pub(crate) clusters: Option<BTreeSet<ClusterId>>,
    /// Whether the sample must be attributed to a job, or to none.
    pub(crate) of_a_job: Option<bool>,
    /// Earliest time.
    pub(crate) from: Timestamp,
    /// Latest time.
    pub(crate) to: Timestamp,
    /// The conditions exclude each other, and no row meets them.
    pub(crate) nothing: bool,
    /// Registry filter for a table of jobs. Jobs outside it do not meet the conditions.
    pub(crate) jobs: Filter,
}

impl Default for ScanFilter {
    fn default() -> Self {
        Self {
            devices: None,
            metrics: None,
            ids: None,
            clusters: None,
            of_a_job: None,
            from: Timestamp(i64::MIN),
            to: Timestamp(i64::MAX),
            nothing: false,
            jobs: Filter::default(),
        }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Devices(BTreeSet<DeviceId>),
    Metrics(BTreeSet<Arc<str>>),
    Ids(BTreeSet<JobId>),
    Clusters(BTreeSet<ClusterId>),
    OfAJob(bool),
    From(i64),
    To(i64),
    At(i64),
}

impl ScanFilter {
    /// Whether the store supports the condition.
    pub(crate) fn understands(condition: &Expr) -> bool {
        read(condition).is_some()
    }

    /// Combines the supported conditions.
    pub(crate) fn of(conditions: &[Expr]) -> Self {
        let mut narrow = Self::default();
        for condition in conditions.iter().filter_map(read) {
            narrow.add(condition);
        }
        narrow
    }

    fn add(&mut self, condition: Condition) {
        match condition {
            Condition::Devices(set) => meet(&mut self.devices, set),
            Condition::Metrics(set) => meet(&mut self.metrics, set),
            Condition::Ids(set) => meet(&mut self.ids, set),
            Condition::Clusters(set) => meet(&mut self.clusters, set),
            Condition::OfAJob(some) => {
                self.nothing |= self.of_a_job.is_some_and(|before| before != some);
                self.of_a_job = Some(some);
            }
            Condition::From(at) => self.from = self.from.max(Timestamp(at)),
            Condition::To(at) => self.to = self.to.min(Timestamp(at)),
            Condition::At(at) => {
                self.add(Condition::From(at));
                self.add(Condition::To(at));
            }
        }
        let empty = self.devices.as_ref().is_some_and(BTreeSet::is_empty)
            || self.metrics.as_ref().is_some_and(BTreeSet::is_empty)
            || self.ids.as_ref().is_some_and(BTreeSet::is_empty)
            || self.clusters.as_ref().is_some_and(BTreeSet::is_empty);
        let no_job =
            self.of_a_job == Some(false) && (self.ids.is_some() || self.clusters.is_some());
        self.nothing |= empty || no_job || self.from > self.to;
    }
}

/// Prints the conditions for EXPLAIN: `, device_id in [n1], from 2026-01-06T13:35:00+00:00`.
impl fmt::Display for ScanFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nothing {
            return f.write_str(", nothing: no row can match the conditions");
        }
        named(f, "device_id", self.devices.as_ref())?;
        named(f, "metric_id", self.metrics.as_ref())?;
        named(f, "job_id", self.ids.as_ref())?;
        named(f, "cluster", self.clusters.as_ref())?;
        match self.of_a_job {
            Some(true) => f.write_str(", of a job")?,
            Some(false) => f.write_str(", of no job")?,
            None => {}
        }
        if self.from.0 > i64::MIN {
            write!(f, ", from {}", self.from)?;
        }
        if self.to.0 < i64::MAX {
            write!(f, ", to {}", self.to)?;
        }
        if self.jobs != Filter::default() {
            f.write_str(", by the registry's indexes")?;
        }
        Ok(())
    }
}

fn named<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    column: &str,
    set: Option<&BTreeSet<T>>,
) -> fmt::Result {
    let Some(set) = set else { return Ok(()) };
    // A name may contain any character, but each step of a plan is one line.
    let names: Vec<String> =
        set.iter().map(|name| name.to_string().escape_debug().to_string()).collect();
    write!(f, ", {column} in [{}]", names.join(", "))
}

fn meet<T: Ord>(have: &mut Option<BTreeSet<T>>, mut set: BTreeSet<T>) {
    if let Some(before) = have.take() {
        set.retain(|one| before.contains(one));
    }
    *have = Some(set);
}

fn read(condition: &Expr) -> Option<Condition> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(value, _)) => compare(&column.name, *op, value),
            (Expr::Literal(value, _), Expr::Column(column)) => {
                compare(&column.name, op.swap()?, value)
            }
            _ if *op == Operator::Or => either(left, right),
            _ => None,
        },
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = &*list.expr else { return None };
            let literal = |expr: &Expr| match expr {
                Expr::Literal(value, _) => Some(value.clone()),
                _ => None,
            };
            one_of(&column.name, &list.list.iter().map(literal).collect::<Option<Vec<_>>>()?)
        }
        Expr::IsNull(inner) => of_a_job(inner, false),
        Expr::IsNotNull(inner) => of_a_job(inner, true),
        _ => None,
    }
}

/// `a = 1 OR a = 2`, which the optimizer writes for a short list.
fn either(left: &Expr, right: &Expr) -> Option<Condition> {
    match (read(left)?, read(right)?) {
        (Condition::Devices(a), Condition::Devices(b)) => Some(Condition::Devices(&a | &b)),
        (Condition::Metrics(a), Condition::Metrics(b)) => Some(Condition::Metrics(&a | &b)),
        (Condition::Ids(a), Condition::Ids(b)) => Some(Condition::Ids(&a | &b)),
        (Condition::Clusters(a), Condition::Clusters(b)) => Some(Condition::Clusters(&a | &b)),
        _ => None,
    }
}

fn of_a_job(inner: &Expr, some: bool) -> Option<Condition> {
    let Expr::Column(column) = inner else { return None };
    matches!(column.name.as_str(), "job_id" | "cluster").then_some(Condition::OfAJob(some))
}

fn compare(column: &str, op: Operator, value: &ScalarValue) -> Option<Condition> {
    if op == Operator::Eq && column != "timestamp" {
        return one_of(column, std::slice::from_ref(value));
    }
    if column != "timestamp" {
        return None;
    }
    let Nanos { micros, beyond } = nanos(value)?;
    match op {
        Operator::GtEq => {
            Some(Condition::From(if beyond { micros.checked_add(1)? } else { micros }))
        }
        Operator::Gt => Some(Condition::From(micros.checked_add(1)?)),
        Operator::LtEq => Some(Condition::To(micros)),
        Operator::Lt => Some(Condition::To(if beyond { micros } else { micros.checked_sub(1)? })),
        Operator::Eq if !beyond => Some(Condition::At(micros)),
        _ => None,
    }
}

/// Reads a list of values for a column. Names of devices beyond the limit, and invalid names of clusters, match no row and are omitted.
fn one_of(column: &str, values: &[ScalarValue]) -> Option<Condition> {
    let texts =
        || values.iter().map(|value| value.try_as_str().flatten()).collect::<Option<Vec<_>>>();
    match column {
        "device_id" => {
            let names = texts()?;
            Some(Condition::Devices(names.iter().filter_map(|n| DeviceId::foreign(n)).collect()))
        }
        "metric_id" => Some(Condition::Metrics(texts()?.into_iter().map(Arc::from).collect())),
        "cluster" => {
            let names = texts()?;
            Some(Condition::Clusters(names.iter().filter_map(|n| ClusterId::new(n).ok()).collect()))
        }
        "job_id" => {
            let number = |value: &ScalarValue| match value {
                ScalarValue::Int64(Some(number)) => Some(*number),
                _ => None,
            };
            let numbers: Option<Vec<i64>> = values.iter().map(number).collect();
            Some(Condition::Ids(numbers?.into_iter().filter_map(JobId::new).collect()))
        }
        _ => None,
    }
}

/// A time in whole microseconds, rounded down.
pub(crate) struct Nanos {
    pub(crate) micros: i64,
    /// Whether the time is later than that microsecond.
    beyond: bool,
}

pub(crate) fn nanos(value: &ScalarValue) -> Option<Nanos> {
    let exact = |micros| Some(Nanos { micros, beyond: false });
    match value {
        ScalarValue::TimestampSecond(Some(at), _) => exact(at.checked_mul(1_000_000)?),
        ScalarValue::TimestampMillisecond(Some(at), _) => exact(at.checked_mul(1000)?),
        ScalarValue::TimestampMicrosecond(Some(at), _) => exact(*at),
        ScalarValue::TimestampNanosecond(Some(at), _) => {
            Some(Nanos { micros: at.div_euclid(1000), beyond: at.rem_euclid(1000) != 0 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{col, lit};

    fn at(micros: i64) -> Expr {
        lit(ScalarValue::TimestampMicrosecond(Some(micros), Some(Arc::from("+00:00"))))
    }

    fn at_nanos(nanos: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(Some(nanos), None))
    }

    #[test]
    fn conditions_meet() {
        let narrow = ScanFilter::of(&[
            col("device_id").in_list(vec![lit("a"), lit("b"), lit("x,y")], false),
            lit("b").eq(col("device_id")),
            col("metric_id").eq(lit("m")).or(col("metric_id").eq(lit("n"))),
            col("job_id").eq(lit(7_i64)),
            col("timestamp").gt(at(10)),
            at(20).gt(col("timestamp")),
            at(15).gt_eq(col("timestamp")),
        ]);
        let device = |name| DeviceId::new(name).unwrap();
        assert_eq!(narrow.devices, Some(BTreeSet::from([device("b")])));
        assert_eq!(narrow.metrics, Some(BTreeSet::from([Arc::from("m"), Arc::from("n")])));
        assert_eq!(narrow.ids, Some(BTreeSet::from([JobId::new(7).unwrap()])));
        assert_eq!((narrow.from, narrow.to, narrow.nothing), (Timestamp(11), Timestamp(15), false));
    }

    #[test]
    fn instants_between_microseconds() {
        let bounds = |condition: Expr| {
            let narrow = ScanFilter::of(&[condition]);
            (narrow.from.0, narrow.to.0)
        };
        let time = || col("timestamp");
        assert_eq!(bounds(time().gt_eq(at_nanos(10_001))), (11, i64::MAX));
        assert_eq!(bounds(time().gt(at_nanos(10_001))), (11, i64::MAX));
        assert_eq!(bounds(time().lt(at_nanos(10_001))), (i64::MIN, 10));
        assert_eq!(bounds(time().lt(at_nanos(10_000))), (i64::MIN, 9));
        assert_eq!(bounds(time().eq(at_nanos(10_000))), (10, 10));
        assert!(!ScanFilter::understands(&time().eq(at_nanos(10_001))));
    }

    #[test]
    fn what_excludes_itself_is_nothing() {
        let device = |name: &str| col("device_id").eq(lit(name));
        assert!(ScanFilter::of(&[device("a"), device("b")]).nothing);
        assert!(ScanFilter::of(&[device(&"x".repeat(20_000))]).nothing, "no name is so long");
        assert!(ScanFilter::of(&[col("job_id").eq(lit(-1_i64))]).nothing);
        assert!(ScanFilter::of(&[col("timestamp").gt(at(2)), col("timestamp").lt(at(3))]).nothing);
        assert!(ScanFilter::of(&[col("job_id").is_null(), col("cluster").is_not_null()]).nothing);
        assert!(
            !ScanFilter::of(&[col("job_id").is_not_null(), col("cluster").is_not_null()]).nothing
        );
    }

    #[test]
    fn what_is_not_understood_is_left_to_the_engine() {
        for condition in [
            col("device_id").not_eq(lit("a")),
            col("device_id").like(lit("a%")),
            col("device_id").in_list(vec![lit("a")], true),
            col("device_id").in_list(vec![col("metric_id")], false),
            col("value").gt(lit(1.0)),
            col("job_id").gt(lit(1_i64)),
            col("job_id").eq(lit(ScalarValue::Int64(None))),
            col("device_id").eq(lit("a")).or(col("metric_id").eq(lit("m"))),
            col("labels").is_null(),
        ] {
            assert!(!ScanFilter::understands(&condition), "{condition}");
        }
    }
}
