//! Times that a statement writes as text. They may omit seconds, or fall where daylight saving time skips or
//! repeats local times.
//!
//! The rule is PostgreSQL's. A skipped local time uses the offset before the change. A repeated one is the second
//! of the two.

use chrono::{Duration, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// A time zone from the tables in this program.
#[derive(Clone, Copy, Debug)]
pub struct Zone(Tz);

impl Zone {
    /// Parses the zone of a column: a name or an offset.
    ///
    /// # Errors
    /// The zone is unknown.
    pub fn parse(name: &str) -> Result<Self, ArrowError> {
        name.parse().map(Self)
    }

    /// Offset from UTC at an instant in seconds.
    pub fn offset_seconds(&self, micros: i64) -> i32 {
        let at = chrono::DateTime::from_timestamp_micros(micros).unwrap_or_default();
        self.0.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()
    }
}

/// Converts text literals to times. Runs after the engine's rule that determines the types.
#[derive(Debug)]
pub(crate) struct Instants;

impl AnalyzerRule for Instants {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let read = expr.transform_up(|part| Ok(read(part)))?;
                Ok(read.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "instants"
    }
}

fn read(expr: Expr) -> Transformed<Expr> {
    match instant(&expr) {
        Some(value) => Transformed::yes(Expr::Literal(value, None)),
        None => Transformed::no(expr),
    }
}

fn instant(expr: &Expr) -> Option<ScalarValue> {
    let Expr::Cast(Cast { expr, field }) = expr else { return None };
    let (Expr::Literal(value, _), DataType::Timestamp(unit, zone)) = (&**expr, field.data_type())
    else {
        return None;
    };
    let written = match value.try_as_str() {
        Some(text) => Written::read(text?.trim())?,
        None => Written::of(value)?,
    };
    let zone_of = |name: &Arc<str>| name.parse::<Tz>().ok();
    let micros = match (written.offset, zone) {
        (Some(offset), Some(_)) => written.local - Duration::seconds(offset),
        (None, Some(name)) => of_local(&written.local, &zone_of(name)?)?,
        (None, None) => written.local,
        // PostgreSQL ignores the offset, the engine does not. The conversion is left to the engine.
        (Some(_), None) => return None,
    };
    let micros = micros.and_utc().timestamp_micros();
    let zone = zone.clone();
    Some(match unit {
        TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(micros), zone),
        TimeUnit::Nanosecond => {
            ScalarValue::TimestampNanosecond(Some(micros.checked_mul(1000)?), zone)
        }
        TimeUnit::Millisecond if micros % 1000 == 0 => {
            ScalarValue::TimestampMillisecond(Some(micros / 1000), zone)
        }
        TimeUnit::Second if micros % 1_000_000 == 0 => {
            ScalarValue::TimestampSecond(Some(micros / 1_000_000), zone)
        }
        _ => return None,
    })
}

/// Converts a local time to UTC.
pub(crate) fn of_local(local: &NaiveDateTime, zone: &Tz) -> Option<NaiveDateTime> {
    let seconds = |offset: i32| Duration::seconds(i64::from(offset));
    match zone.offset_from_local_datetime(local) {
        LocalResult::Single(offset) => Some(*local - seconds(offset.fix().local_minus_utc())),
        LocalResult::Ambiguous(first, second) => {
            // The second of the two has the smaller offset.
            let of = [first, second].map(|offset| offset.fix().local_minus_utc());
            Some(*local - seconds(of.into_iter().min()?))
        }
        LocalResult::None => {
            let before = (1..=24_i64).find_map(|hours| {
                let earlier = *local - Duration::hours(hours);
                zone.offset_from_local_datetime(&earlier).latest()
            })?;
            Some(*local - seconds(before.fix().local_minus_utc()))
        }
    }
}

/// A time as written in the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    local: NaiveDateTime,
    /// Offset from UTC in seconds, if written.
    offset: Option<i64>,
}

impl Written {
    /// A time without a zone that another rule has already parsed.
    fn of(value: &ScalarValue) -> Option<Self> {
        let micros = match value {
            ScalarValue::TimestampSecond(Some(at), None) => at.checked_mul(1_000_000)?,
            ScalarValue::TimestampMillisecond(Some(at), None) => at.checked_mul(1000)?,
            ScalarValue::TimestampMicrosecond(Some(at), None) => *at,
            ScalarValue::TimestampNanosecond(Some(at), None) if at % 1000 == 0 => at / 1000,
            _ => return None,
        };
        let local = chrono::DateTime::from_timestamp_micros(micros)?.naive_utc();
        Some(Self { local, offset: None })
    }

    /// Parses `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]][Z|±HH[[:]MM]]`. A `T` may replace the blank.
    fn read(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let [year, month, day] = numbers(date, '-')?;
        let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
        if rest.is_empty() {
            return Some(Self { local: date.and_time(NaiveTime::MIN), offset: None });
        }
        let rest = rest.strip_prefix([' ', 'T'])?;
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'));
        let (time, zone) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
        let [hour, minute, second] = match clock.matches(':').count() {
            1 => numbers::<2>(clock, ':').map(|[hour, minute]| [hour, minute, 0])?,
            _ => numbers(clock, ':')?,
        };
        if fraction.len() > 6 || (time.ends_with('.')) {
            return None;
        }
        let micros = format!("{fraction:0<6}").parse().ok()?;
        let local = date.and_time(NaiveTime::from_hms_micro_opt(hour, minute, second, micros)?);
        Some(Self { local, offset: offset(zone.trim_start())? })
    }
}

/// Parses separated numbers of at least two digits each.
fn numbers<const N: usize>(text: &str, between: char) -> Option<[u32; N]> {
    let number = |part: &str| {
        let good = part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        good.then(|| part.parse().ok()).flatten()
    };
    let parts: Option<Vec<u32>> = text.split(between).map(number).collect();
    parts?.try_into().ok()
}

/// Parses an offset. Returns `Some(None)` if there is none, and `None` if it is invalid.
fn offset(text: &str) -> Option<Option<i64>> {
    if text.is_empty() {
        return Some(None);
    }
    if matches!(text, "Z" | "z") {
        return Some(Some(0));
    }
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let digits = digits.replace(':', "");
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes: i64 = if minutes.is_empty() { 0 } else { minutes.parse().ok()? };
    let hours: i64 = hours.parse().ok()?;
    (hours < 16 && minutes < 60).then_some(Some(sign * (hours * 3600 + minutes * 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str, zone: &str) -> Option<String> {
        let written = Written::read(text)?;
        let at = match written.offset {
            Some(offset) => written.local - Duration::seconds(offset),
            None => of_local(&written.local, &zone.parse().unwrap())?,
        };
        Some(at.format("%m-%d %H:%M:%S%.f").to_string())
    }

    #[test]
    fn postgresqls_rule_of_local_times() {
        for (text, want) in [
            ("2026-11-22 14:49", Some("11-22 13:49:00")),
            ("2026-11-22T14:49:01.5", Some("11-22 13:49:01.500")),
            ("2026-11-22", Some("11-21 23:00:00")),
            ("2026-11-22 14:49+02", Some("11-22 12:49:00")),
            ("2026-11-22 14:49:00 -0130", Some("11-22 16:19:00")),
            ("2026-11-22 14:49Z", Some("11-22 14:49:00")),
            // Skipped: PostgreSQL 17 returns 01:30 UTC, which is 03:30 local time.
            ("2026-03-29 02:30", Some("03-29 01:30:00")),
            // Repeated: the second one, in winter time.
            ("2026-10-25 02:30", Some("10-25 01:30:00")),
            ("2026-10-25 01:59", Some("10-24 23:59:00")),
            ("2026-13-01 00:00", None),
            ("2026-11-22 14", None),
            ("n1", None),
            ("2026-11-22 14:49 Paris", None),
        ] {
            assert_eq!(utc(text, "Europe/Paris").as_deref(), want, "{text}");
        }
    }
}
