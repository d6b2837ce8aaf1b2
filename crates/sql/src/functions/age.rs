//! `age(later, earlier)`, and EXTRACT(EPOCH …) of intervals, as PostgreSQL computes them.

use crate::functions::instants::of_local;
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{
    DataType, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

const SECONDS_PER_DAY: i64 = 86_400;
/// PostgreSQL's year of 365.25 days, for EXTRACT(EPOCH …).
const SECONDS_PER_YEAR: i64 = 31_557_600;
/// PostgreSQL's month of 30 days.
const SECONDS_PER_MONTH: i64 = 30 * SECONDS_PER_DAY;

/// `age(later, earlier)` and `age(earlier)`, which counts to the last midnight: an interval of years, months, days and
/// time. Its fields are differences of the local times.
#[derive(Debug)]
pub(crate) struct Age {
    signature: Signature,
    zone: Arc<str>,
    /// The time of the statement in microseconds.
    now: i64,
}

impl Age {
    pub(crate) fn function(zone: &str, now: i64) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Self { signature, zone: Arc::from(zone), now })
    }

    fn midnight(&self, zone: &Tz) -> Option<i64> {
        let local = local(self.now, zone)?.date().and_time(NaiveTime::MIN);
        Some(of_local(&local, zone)?.and_utc().timestamp_micros())
    }
}

impl PartialEq for Age {
    fn eq(&self, other: &Self) -> bool {
        self.zone == other.zone && self.now == other.now
    }
}

impl Eq for Age {}

impl Hash for Age {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.zone.hash(state);
    }
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &'static str {
        "age"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_time = |kind: &DataType| {
            matches!(kind, DataType::Timestamp(..) | DataType::Date32 | DataType::Null)
                || kind.is_string()
        };
        if !matches!(types.len(), 1 | 2) || !types.iter().all(is_time) {
            return plan_err!("the arguments of age are one or two times");
        }
        let zone = Some(Arc::clone(&self.zone));
        Ok(vec![DataType::Timestamp(TimeUnit::Microsecond, zone); types.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (rows, zone) = (args.number_rows, self.zone.parse::<Tz>()?);
        let times = |value: &ColumnarValue| value.to_array(rows);
        let ages: IntervalMonthDayNanoArray = match args.args.as_slice() {
            [later, earlier] => {
                let (later, earlier) = (times(later)?, times(earlier)?);
                let pairs = micros(&later).zip(micros(&earlier));
                pairs.map(|(later, earlier)| age(later?, earlier?, &zone)).collect()
            }
            [earlier] => {
                let (earlier, later) = (times(earlier)?, self.midnight(&zone));
                micros(&earlier).map(|earlier| age(later?, earlier?, &zone)).collect()
            }
            _ => return exec_err!("the arguments of age are one or two times"),
        };
        Ok(ColumnarValue::Array(Arc::new(ages)))
    }
}

fn micros(times: &ArrayRef) -> impl Iterator<Item = Option<i64>> + '_ {
    times.as_primitive::<TimestampMicrosecondType>().iter()
}

fn local(micros: i64, zone: &Tz) -> Option<NaiveDateTime> {
    let at = DateTime::from_timestamp_micros(micros)?;
    Some(zone.from_utc_datetime(&at.naive_utc()).naive_local())
}

/// The difference of two times, field by field. A negative field borrows from the next larger one; a month has the
/// days of the month of the time that is earlier.
fn age(later: i64, earlier: i64, zone: &Tz) -> Option<IntervalMonthDayNano> {
    let is_negative = later < earlier;
    let (end, start) = if is_negative { (earlier, later) } else { (later, earlier) };
    let (end, start) = (local(end, zone)?, local(start, zone)?);
    let months = |at: &NaiveDateTime| i64::from(at.year()) * 12 + i64::from(at.month0());
    let time = |at: &NaiveDateTime| {
        let seconds = i64::from(at.num_seconds_from_midnight());
        seconds * 1_000_000_000 + i64::from(at.nanosecond())
    };
    let (mut months, mut nanos) = (months(&end) - months(&start), time(&end) - time(&start));
    let mut days = i64::from(end.day()) - i64::from(start.day());
    if nanos < 0 {
        (nanos, days) = (nanos + SECONDS_PER_DAY * 1_000_000_000, days - 1);
    }
    if days < 0 {
        (days, months) = (days + days_of_month(start.date())?, months - 1);
    }
    let sign = if is_negative { -1 } else { 1 };
    let field = |value: i64| i32::try_from(value * sign).ok();
    Some(IntervalMonthDayNano::new(field(months)?, field(days)?, nanos * sign))
}

fn days_of_month(date: NaiveDate) -> Option<i64> {
    let first = date.with_day(1)?;
    let next = first.checked_add_months(chrono::Months::new(1))?;
    Some(next.signed_duration_since(first).num_days())
}

/// `date_part`, with the seconds of intervals as in PostgreSQL: a year has 365.25 days, a month 30 days.
#[derive(Debug)]
pub(crate) struct DatePart {
    inner: Arc<ScalarUDF>,
}

impl DatePart {
    pub(crate) fn function() -> ScalarUDF {
        let inner = datafusion::functions::datetime::date_part();
        ScalarUDF::from(Self { inner })
    }
}

impl PartialEq for DatePart {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for DatePart {}

impl Hash for DatePart {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        self.inner.preimage(args, literal, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [ColumnarValue::Scalar(part), value] = args.args.as_slice()
            && part.try_as_str().flatten().is_some_and(|part| part.eq_ignore_ascii_case("epoch"))
            && let Some(seconds) = epoch(&value.to_array(args.number_rows)?)
        {
            return Ok(ColumnarValue::Array(Arc::new(seconds)));
        }
        self.inner.invoke_with_args(args)
    }
}

/// The seconds of intervals that may have months; `None` for other types.
#[expect(clippy::cast_precision_loss, reason = "seconds as a number with a fraction")]
fn epoch(values: &ArrayRef) -> Option<Float64Array> {
    let of_months = |months: i32| {
        let (years, months) = (i64::from(months) / 12, i64::from(months) % 12);
        years * SECONDS_PER_YEAR + months * SECONDS_PER_MONTH
    };
    Some(match values.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => {
            values.as_primitive::<IntervalYearMonthType>().unary(|months| of_months(months) as f64)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            values.as_primitive::<IntervalMonthDayNanoType>().unary(|interval| {
                let days = i64::from(interval.days) * SECONDS_PER_DAY;
                let whole = of_months(interval.months) + days;
                whole as f64 + interval.nanoseconds as f64 / 1e9
            })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(later: &str, earlier: &str) -> String {
        let zone: Tz = "Europe/Paris".parse().unwrap();
        let at = |text: &str| {
            let local = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap();
            of_local(&local, &zone).unwrap().and_utc().timestamp_micros()
        };
        let IntervalMonthDayNano { months, days, nanoseconds } =
            age(at(later), at(earlier), &zone).unwrap();
        format!("{months} {days} {nanoseconds}")
    }

    /// The expected values are PostgreSQL's; `tests/postgres.rs` compares more of them with the program itself.
    #[test]
    fn fields_borrow_from_the_next_larger_one() {
        for (later, earlier, want) in [
            ("2026-03-01 00:00:00", "2026-01-31 00:00:00", "1 1 0"),
            ("2024-03-01 00:00:00", "2024-02-29 12:00:00", "0 0 43200000000000"),
            ("2026-01-31 00:00:00", "2026-03-01 00:00:00", "-1 -1 0"),
            ("2026-01-06 00:00:01.5", "2026-01-06 00:00:00", "0 0 1500000000"),
            // Across the change of daylight saving time the local times count.
            ("2026-03-29 12:00:00", "2026-03-28 12:00:00", "0 1 0"),
        ] {
            assert_eq!(shown(later, earlier), want, "{later} {earlier}");
        }
    }

    #[test]
    fn an_epoch_has_years_of_365_25_days() {
        let of = |months, days, nanos| {
            let one = IntervalMonthDayNano::new(months, days, nanos);
            let array: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![one]));
            epoch(&array).unwrap().value(0)
        };
        assert_eq!(of(13, 1, 500_000_000), 31_557_600.0 + 2_592_000.0 + 86_400.5);
        assert_eq!(of(-13, 0, 0), -31_557_600.0 - 2_592_000.0);
    }
}
